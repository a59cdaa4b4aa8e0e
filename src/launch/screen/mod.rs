//! What the launcher prints.
//!
//! | file | contents |
//! |---|---|
//! | `messages` | messages while a job runs, one line each |
//! | `job_report`, `headline` | the final screen: what failed, where, what to type |
//! | `worker_failure`, `failure_report`, `timeout_report`, `shown_text` | its parts about workers |
//! | `unreachable`, `loss_help`, `argument_hints`, `input_hint` | hosts that cannot be reached, and hints |
//! | `kept_state` | how a later job continues from a checkpoint |

pub(in crate::launch) mod argument_hints;
pub(in crate::launch) mod failure_report;
pub(in crate::launch) mod headline;
pub(in crate::launch) mod input_hint;
pub(in crate::launch) mod job_report;
pub(in crate::launch) mod kept_state;
pub(in crate::launch) mod loss_help;
pub(in crate::launch) mod messages;
pub(in crate::launch) mod shown_text;
pub(in crate::launch) mod timeout_report;
pub(in crate::launch) mod unreachable;
pub(in crate::launch) mod worker_failure;
