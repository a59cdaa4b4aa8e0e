//! The optimizer and the schedule of its learning rate.

pub(crate) mod adamw;
pub(crate) mod lr_schedule;
