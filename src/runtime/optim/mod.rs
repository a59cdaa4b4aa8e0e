//! Optimizers, learning rates and the loss scale: arithmetic by element, and state machines without I/O.
//!
//! | file | contents |
//! |---|---|
//! | `optimizer` | AdamW, Adam, SGD and Lion on slices |
//! | `lr_schedule` | learning rate of every update |
//! | `loss_scale` | scale of the loss for 16-bit gradients |

mod loss_scale;
mod lr_schedule;
mod optimizer;

pub use loss_scale::{DynamicScale, LossScaler, LossScaling, ScaleAtMinimum};
pub use lr_schedule::{LrSchedule, WarmupShape};
pub use optimizer::{Adam, Lion, Optimizer, Sgd, UpdateStep};
