//! A node as the launcher sees it.
//!
//! | file | contents |
//! |---|---|
//! | `handle` | the queue of messages to a node, and the task that serves its link |
//! | `messages` | messages of nodes, which become events of the job |
//! | `loss`, `orphan_reaper` | heartbeats and loss of nodes; processes that lost local nodes left behind |

pub(in crate::launch) mod handle;
pub(in crate::launch) mod loss;
pub(in crate::launch) mod messages;
pub(in crate::launch) mod orphan_reaper;
