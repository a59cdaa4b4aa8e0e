//! The state of a job, and each phase of it.

pub(crate) mod ending;
pub(crate) mod epoch_numbers;
pub(crate) mod job_state;
mod member_selection;
mod membership;
pub(crate) mod node_loss;
pub(crate) mod restarting;
pub(crate) mod running;
mod spares;
pub(crate) mod starting;
pub(crate) mod stopping;
