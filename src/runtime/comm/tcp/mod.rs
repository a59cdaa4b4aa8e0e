//! TCP between nodes.
//!
//! | file | contents |
//! |---|---|
//! | `mesh` | connections between the ranks |
//! | `connecting`, `handshake`, `socket` | opening; authentication; options and waits |
//! | `striping` | messages over several streams |

mod connecting;
mod handshake;
pub(crate) mod mesh;
mod socket;
pub(crate) mod striping;
