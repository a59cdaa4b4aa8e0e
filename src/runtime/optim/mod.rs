//! Optimizers, schedules and the loss scale, element by element and as data.
mod interim;
pub use interim::*;
