//! The event loop of the launcher: it waits for an event, steps the job, performs its effects.
//!
//! What decides lies in [`JobState`](crate::job::JobState) and in the parts of [`Dispatcher`]: nodes, startup,
//! history, run record, user requests, orphan reaper. This room connects them.
//!
//! | file | contents |
//! |---|---|
//! | `event_loop` | the parts, and the loop: select → step → perform |
//! | `start` | the parts, made from a plan and options |
//! | `node_events` | messages of nodes, which become events of the job |
//! | `periodic` | what is due after a time: heartbeats, silence and loss of nodes, limits, metrics |
//! | `user_requests` | signals, the state of the job, Ctrl-Z |
//! | `epochs` | from links to running workers, and from a failed epoch to the next one |
//! | `reports` | lines that are printed while the job runs |
//! | `finish` | the end of a launch |

mod epochs;
mod event_loop;
mod finish;
mod node_events;
mod periodic;
mod reports;
mod start;
mod user_requests;

pub(in crate::launch) use event_loop::Dispatcher;
