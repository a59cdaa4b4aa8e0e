//! Collectives in host memory.
//!
//! | file | contents |
//! |---|---|
//! | `backend` | state of a group's operations, and the checks around each |
//! | `all_reduce`, `all_reduce_pipelined`, `all_reduce_ring` | reductions: in a node, overlapping rounds between nodes, around a ring of nodes |
//! | `reduce_scatter`, `all_gather`, `broadcast`, `barrier` | the other collectives |
//! | `in_flight` | rounds in progress at once |
//! | `gather`, `p2p`, `messages` | gather, scatter and all-to-all; send and receive; messages in flight |
//! | `mailbox` | messages within a node |
//! | `all_reduce_between_nodes` | which rank sends which bytes to which rank of another node, and the order of the sums |
//! | `inter_node`, `chain` | connections to other nodes; data that passes from node to node |
//! | `buffer_pool` | buffers of messages between nodes |
//! | `pieces` | reduce-scatter of ranks that have several lanes |
//! | `round`, `parts`, `select` | one round of an operation, also with a part for every rank; choice of the algorithm |
//! | `region` | memory of the caller |

pub(crate) mod agent_link;
pub(crate) mod all_gather;
pub(crate) mod all_reduce;
mod all_reduce_between_nodes;
pub(crate) mod all_reduce_pipelined;
pub(crate) mod all_reduce_ring;
pub(crate) mod backend;
pub(crate) mod barrier;
pub(crate) mod broadcast;
pub(crate) mod buffer_pool;
pub(crate) mod chain;
pub(crate) mod gather;
pub(crate) mod in_flight;
pub(crate) mod inter_node;
pub(crate) mod mailbox;
pub(crate) mod messages;
pub(crate) mod p2p;
pub(crate) mod parts;
pub(crate) mod pieces;
pub(crate) mod reduce_scatter;
pub(crate) mod region;
pub(crate) mod round;
pub(crate) mod select;
