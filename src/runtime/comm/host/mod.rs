//! Collectives in host memory.
//!
//! | file | contents |
//! |---|---|
//! | `backend` | state of a group's operations, and the checks around each |
//! | `all_reduce`, `all_reduce_pipelined`, `all_reduce_ring` | reductions and broadcasts: in a node, overlapping rounds between nodes, around a ring of nodes |
//! | `gather`, `p2p`, `messages` | gather, scatter and all-to-all; send and receive; messages in flight |
//! | `inter_node`, `round`, `select` | messages between nodes, one round of them, choice of the algorithm |
//! | `region` | memory of the caller |

pub(crate) mod all_reduce;
pub(crate) mod all_reduce_pipelined;
pub(crate) mod all_reduce_ring;
pub(crate) mod backend;
pub(crate) mod gather;
pub(crate) mod inter_node;
pub(crate) mod messages;
pub(crate) mod p2p;
pub(crate) mod region;
pub(crate) mod round;
pub(crate) mod select;
