//! Arithmetic of an optimizer step over flat buffers: update rules, learning rates, loss scale.
//!
//! Everything here is a pure function or a pure state machine, and knows neither ranks nor shards: a part
//! of a buffer is updated to the same bits as the whole.
//!
//! | file | contents |
//! |---|---|
//! | `optimizer`, `update` | settings of the optimizers; one step of an optimizer on a slice |
//! | `power` | powers of a number, with equal bits on every processor |
//! | `lr_schedule` | learning rate as a function of the number of steps |
//! | `warmup`, `one_cycle` | the schedules of DeepSpeed |
//! | `torch_factor` | the schedules of torch that are a factor of the rate |
//! | `loss_scaler` | the factor of a 16-bit loss, as a state machine |

pub(crate) mod loss_scaler;
pub(crate) mod lr_schedule;
pub(crate) mod one_cycle;
pub(crate) mod optimizer;
mod power;
pub(crate) mod torch_factor;
pub(crate) mod update;
pub(crate) mod warmup;

pub use loss_scaler::{
    DynamicScaling, GradientCheck, LossScale, LossScaler, LossScaling, ScaleAtMinimum,
    ScalingError, StepScale,
};
pub use lr_schedule::{LrSchedule, Schedule, ScheduleError, ScheduleWarning};
pub use one_cycle::{CycleMomentum, LrRangeTest, OneCycle};
pub use optimizer::{AdamOptions, LionOptions, Optimizer, OptimizerError, SgdOptions, WeightDecay};
pub use torch_factor::TorchFactor;
pub use update::{DecayRange, OptimizerStep};
pub use warmup::{Warmup, WarmupCosineLr, WarmupDecayLr, WarmupKind, WarmupLr};
