//! TCP between nodes.
//!
//! | file | contents |
//! |---|---|
//! | `mesh` | connections between the ranks |
//! | `connecting`, `handshake`, `socket` | opening; authentication; options and waits |
//! | `striping` | messages over several streams |
//! | `buffer_pool` | buffers of messages |

pub(crate) mod buffer_pool;
mod connecting;
mod handshake;
pub(crate) mod mesh;
mod socket;
pub(crate) mod striping;
