//! Derives findings from the facts about all nodes. Pure: a table of tests for each kind of
//! finding.

mod compute;
mod diagnose;
mod gpus;
mod names;
mod outliers;
mod place;
mod reach;
#[cfg(test)]
pub(super) mod testing;
mod ways;

pub use compute::SHM_BYTES_MIN;
pub use diagnose::diagnose;
pub(super) use place::torch_of;
pub(super) use reach::CLOCK_OFF_US;
