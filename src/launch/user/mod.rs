//! What the user does while a job runs: signals, standard input, Ctrl-Z.
//!
//! | file | contents |
//! |---|---|
//! | `allocation_timer` | the end of the allocation in which the launcher runs |
//! | `requests` | all of it together, as one part of the launcher |
//! | `signals` | signals as requests |
//! | `input` | standard input for workers |
//! | `pause` | suspension of the job with Ctrl-Z |

pub(in crate::launch) mod allocation_timer;
pub(in crate::launch) mod input;
pub(crate) mod pause;
pub(in crate::launch) mod requests;
pub(in crate::launch) mod signals;
