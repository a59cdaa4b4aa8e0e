//! [`EngineConfig`]: how an engine trains.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

#[cfg(feature = "nccl")]
use crate::cuda::kernels::{ElementType, HalfType};
use crate::runtime::dtype::element::Dtype;
use crate::runtime::engine::error::EngineError;
use crate::runtime::optim::{LossScaling, LrSchedule, Optimizer};
use crate::runtime::parallel::zero::lanes::{LaneAssignment, LaneOrder};
use crate::runtime::parallel::zero::stage::Sharding;
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
    /// With [`Sharding::Parameters`]: number of successive ranks over which parameters are divided (hybrid
    /// sharding), so that they are gathered within these ranks, for example those of a node. A power of two
    /// that divides the number of ranks. Gradients and optimizer state are divided over all ranks in any
    /// case. `None`: parameters too.
    pub shard_group: Option<usize>,
    /// State that is kept elsewhere.
    pub offload: Offload,
    /// How ranks on devices exchange gradients and weights.
    #[serde(default)]
    pub exchange: Exchange,
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
            shard_group: None,
            offload: Offload::default(),
            exchange: Exchange::default(),
            plan: PlanOptions { prefetch: Prefetch::NextPass, reduce_max: 0, recompute: 0 },
            seed: 1,
        }
    }
}

impl EngineConfig {
    /// Checks the settings for a group of `world` ranks.
    ///
    /// # Errors
    /// [`EngineError::Config`] if settings contradict each other or the number of ranks.
    pub fn check(&self, world: usize) -> Result<(), EngineError> {
        if self.accumulate == 0 {
            return contradiction("a step has no micro-batch", "set `accumulate` to at least 1");
        }
        if let Err(error) = self.optimizer.check() {
            return contradiction(error, "the documentation of `Optimizer` has the ranges");
        }
        if let Err(error) = self.schedule.check() {
            return contradiction(error, "set it to at least 1");
        }
        if let Err(error) = self.loss_scaling.check() {
            return contradiction(error, "the documentation of `LossScaling` has the ranges");
        }
        self.shard_group.map_or(Ok(()), |size| self.check_shard_group(size, world))
    }

    /// Fails if parameters cannot be divided over groups of `size` ranks.
    fn check_shard_group(&self, size: usize, world: usize) -> Result<(), EngineError> {
        if !self.sharding.divides_parameters() {
            return contradiction(
                format_args!("parameters are not divided at stage {}", self.sharding.stage()),
                "shard groups need stage 3",
            );
        }
        if !is_shard_group(size, world) {
            return contradiction(
                format_args!("{world} workers cannot be divided into shard groups of {size}"),
                "the size is a power of two, at least 2, that divides the number of workers",
            );
        }
        if size < world && self.lanes(world).order() == LaneOrder::Subtrees {
            return contradiction(
                format_args!(
                    "{world} workers with {} micro-batches each cannot use shard groups",
                    self.accumulate
                ),
                // With `no_sync`, a power of two as the number of workers is not enough.
                match (self.no_sync, world.is_power_of_two()) {
                    (false, _) => "use a power of two as the number of micro-batches or of workers",
                    (true, true) => {
                        "use a power of two as the number of micro-batches, or leave `no_sync` out"
                    }
                    (true, false) => "use a power of two as the number of micro-batches",
                },
            );
        }
        Ok(())
    }

    /// The lanes of `world` ranks.
    pub(crate) fn lanes(&self, world: usize) -> LaneAssignment {
        if self.no_sync && 1 < self.accumulate {
            LaneAssignment::reducing_once(world, self.accumulate)
        } else {
            LaneAssignment::new(world, self.accumulate, self.sharding)
        }
    }
}

/// Whether `world` ranks can be divided into shard groups of `size` ranks.
pub(crate) fn is_shard_group(size: usize, world: usize) -> bool {
    2 <= size && size.is_power_of_two() && world.is_multiple_of(size)
}

fn contradiction(problem: impl Display, instead: &str) -> Result<(), EngineError> {
    Err(EngineError::Config { problem: problem.to_string(), instead: instead.to_owned() })
}

/// How ranks on devices exchange gradients and weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exchange {
    /// Between the devices, by NCCL, if all of them can be connected; else as [`Self::Host`]. Sums are added in the
    /// canonical order.
    #[default]
    Devices,
    /// The same, where NCCL adds in its own order: less memory and traffic within a device, but other bits for another
    /// placement or library.
    AnyOrder,
    /// Through the memory of the host.
    Host,
}

/// State that is not in the memory in which a rank computes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offload {
    /// Place of moments and master weights.
    pub optimizer: StatePlace,
    /// Directory for the parts of parameters, with [`Sharding::Parameters`], as that of [`StatePlace::Files`].
    /// `None`: in memory.
    pub parameters: Option<PathBuf>,
}

/// Where a rank keeps the state of its optimizer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StatePlace {
    /// In the memory in which the rank computes: of the host, or of its device.
    #[default]
    Computing,
    /// In the memory of the host. The processor updates the weights of a device then.
    Host,
    /// In files of a directory, which the host maps; the directory exists on every node, best on a fast disk of its
    /// own. The files have no names, and end with the process.
    Files(PathBuf),
}

impl StatePlace {
    /// Returns the directory of the files, if there is one.
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Self::Files(dir) => Some(dir),
            Self::Computing | Self::Host => None,
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

#[cfg(feature = "nccl")]
impl From<Precision> for ElementType {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::F32 => Self::F32,
            Precision::Bf16 => Self::Half(HalfType::Bf16),
            Precision::F16 => Self::Half(HalfType::F16),
        }
    }
}
