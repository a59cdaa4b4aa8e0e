//! Shared memory of the ranks of a node.
//!
//! | file | contents |
//! |---|---|
//! | `segment`, `arena`, `buffer`, `window` | the segment, allocation in it, owned buffers, access by other ranks |
//! | `board` | values that a rank shows to the others |
//! | `cells`, `flag`, `barrier` | synchronization of the ranks |
//! | `fold` | reductions over windows |

pub(crate) mod arena;
pub(crate) mod barrier;
pub(crate) mod board;
pub(crate) mod buffer;
pub(crate) mod cells;
pub(crate) mod error;
pub(crate) mod flag;
pub(crate) mod fold;
pub(crate) mod segment;
pub(crate) mod window;
