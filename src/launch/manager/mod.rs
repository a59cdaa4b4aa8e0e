//! Jobs whose agents a process manager starts.
//!
//! | file | contents |
//! |---|---|
//! | `leader` | the launcher, which starts the manager and accepts the nodes |
//! | `agents` | the commands of the manager, for all nodes and for one that is replaced |
//! | `node` | the process on a node |

pub(in crate::launch) mod agents;
pub(in crate::launch) mod leader;
pub(in crate::launch) mod node;
