//! The event loop of the launcher: it waits for an event, steps the job, performs its effects.
//!
//! What decides lies in [`Job`](crate::job::Job) and in the parts of [`Dispatcher`]: nodes, startup,
//! history, run record, user requests, orphan reaper. This room connects them.
//!
//! | file | contents |
//! |---|---|
//! | `event_loop` | the parts, and the loop: select → step → perform |
//! | `node_events` | messages of nodes, which become events of the job |
//! | `heartbeat` | the periodic work: heartbeats, silence, loss of nodes |
//! | `user_requests` | signals, the state of the job, Ctrl-Z |
//! | `epochs` | from links to running workers, and from a failed epoch to the next one |
//! | `finish` | the end of a launch |

mod epochs;
mod event_loop;
mod finish;
mod heartbeat;
mod node_events;
mod user_requests;

pub(in crate::launch) use event_loop::Dispatcher;
