//! TCP between nodes.
//!
//! | file | contents |
//! |---|---|
//! | `mesh` | connections between the ranks |
//! | `connecting`, `rank_handshake`, `socket` | opening; authentication; options and waits |
//! | `striping` | messages over several streams |

mod connecting;
pub(crate) mod mesh;
mod rank_handshake;
mod socket;
pub(crate) mod striping;
