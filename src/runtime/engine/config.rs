//! [`EngineConfig`]: how an engine trains.

use serde::{Deserialize, Serialize};

use crate::runtime::dtype::element::Dtype;
use crate::runtime::optim::{LossScaling, LrSchedule, Optimizer};
use crate::runtime::parallel::zero::lanes::LaneAssignment;
use crate::runtime::parallel::zero::sharding::Sharding;
use crate::runtime::parallel::zero::step_plan::{PlanOptions, Prefetch};

/// Settings of an engine; equal on all ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EngineConfig {
    /// Number of micro-batches of every rank in a step.
    pub accumulate: usize,
    /// State that every rank holds a part of.
    pub sharding: Sharding,
    /// Optimizer and its settings.
    pub optimizer: Optimizer,
    /// Learning rate of every update.
    pub schedule: LrSchedule,
    /// Largest norm of the gradient of a step; larger gradients are scaled down to it.
    pub clip: Option<f64>,
    /// Type in which the model computes.
    pub precision: Precision,
    /// Scale of the loss; for [`Precision::F16`].
    pub loss_scaling: LossScaling,
    /// Type to which the gradient of every lane is rounded before it is added to others; `None`: it is not
    /// rounded.
    pub gradient_rounding: Option<Precision>,
    /// Whether the gradients of a step are reduced once, after its last micro-batch, although they are divided:
    /// less traffic, and memory for a whole gradient on every rank. What `no_sync()` does in torch.
    pub no_sync: bool,
    /// Units of at most this number of elements are kept whole by every rank, although parameters are
    /// divided.
    pub persistent_len_max: usize,
    /// Limits of gathering, reducing and recomputing.
    pub plan: PlanOptions,
    /// Seed of the initial values.
    pub seed: u64,
}

impl Default for EngineConfig {
    /// One micro-batch a step in `f32`, without sharding, by AdamW at a constant rate of 0.001.
    fn default() -> Self {
        Self {
            accumulate: 1,
            sharding: Sharding::None,
            optimizer: Optimizer::default(),
            schedule: LrSchedule::Constant { rate: 1e-3 },
            clip: None,
            precision: Precision::F32,
            loss_scaling: LossScaling::None,
            gradient_rounding: None,
            no_sync: false,
            persistent_len_max: 0,
            plan: PlanOptions { prefetch: Prefetch::NextPass, reduce_max: 0, recompute: 0 },
            seed: 1,
        }
    }
}

impl EngineConfig {
    /// The lanes of `world` ranks.
    pub(crate) fn lanes(&self, world: usize) -> LaneAssignment {
        if self.no_sync && 1 < self.accumulate {
            LaneAssignment::reducing_once(world, self.accumulate)
        } else {
            LaneAssignment::new(world, self.accumulate, self.sharding)
        }
    }
}

/// Floating-point type of weights and activations. Master weights, moments and sums are `f32` always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Precision {
    /// 32-bit.
    #[default]
    F32,
    /// 16-bit with the exponent of `f32`.
    Bf16,
    /// 16-bit of IEEE 754; needs a loss scale.
    F16,
}

impl Precision {
    /// Returns the element type.
    pub fn dtype(self) -> Dtype {
        match self {
            Self::F32 => Dtype::F32,
            Self::Bf16 => Dtype::Bf16,
            Self::F16 => Dtype::F16,
        }
    }
}
