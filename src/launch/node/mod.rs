//! Nodes as the launcher sees them.
//!
//! | file | contents |
//! |---|---|
//! | `table` | what is known of nodes and links: which nodes are connected, ready, or to be replaced |
//! | `heartbeats` | when a heartbeat is due, and which nodes are late or lost without one |
//! | `elastic` | nodes of a job whose number may vary: when they are connected to, asked and waited for |
//! | `epoch_steps` | what is done with each node when an epoch begins, and when a node cannot take part |
//! | `nodes` | the table together with the links |
//! | `handle` | the queue of messages to a node, and the task that serves its link |
//! | `machine_names` | names of hosts that the lines of a job do not have |
//! | `join_limit`, `join_deadline` | the time limit for nodes that connect by themselves; the wait for one |
//! | `protocol` | which messages of a node are valid now |
//! | `orphan_reaper` | processes that lost local nodes left behind |

pub(crate) mod elastic;
pub(crate) mod epoch_steps;
pub(in crate::launch) mod handle;
pub(crate) mod heartbeats;
mod join_deadline;
pub(crate) mod join_limit;
pub(in crate::launch) mod machine_names;
pub(in crate::launch) mod nodes;
pub(in crate::launch) mod orphan_reaper;
pub(crate) mod protocol;
pub(crate) mod table;
