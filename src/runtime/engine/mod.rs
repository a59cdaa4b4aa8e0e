//! [`Engine`]: training steps over a model of units, with any stage of sharding.
//!
//! | file or folder | contents |
//! |---|---|
//! | `training`, `agreement` | the engine: forward, backward, step; what its ranks have in common |
//! | `checkpoint` | saving and loading of the state (feature `train`) |
//! | `config`, `error` | settings; errors |
//! | `model`, `parameters` | interface of a model, its table of parameters |
//! | `replica`, `outcome` | interface of a rank's memory and arithmetic; what a step decides |
//! | `state` | interface of a state that can be saved and replaced |
//! | `buffers` | unused buffers, for units that are in use for a short time |
//! | `memory` | forecast of the memory of an engine |
//! | `shards` | a model in shards: what a rank keeps, gathers, reduces and saves, wherever its memory lies |
//! | `host` | a rank in host memory |
//! | `device` | training on a device (feature `nccl`) |
//! | `whole` | passes of a model without an engine |

mod agreement;
mod buffers;
#[cfg(feature = "train")]
mod checkpoint;
mod config;
#[cfg(feature = "nccl")]
mod device;
mod error;
mod host;
mod memory;
mod model;
mod outcome;
mod parameters;
mod replica;
mod shards;
mod state;
mod training;
mod whole;

#[cfg(feature = "train")]
pub use checkpoint::saved_schedule;
#[cfg(all(feature = "cli", feature = "train"))]
pub(crate) use config::is_shard_group;
pub use config::{EngineConfig, Exchange, Offload, Precision, StatePlace};
#[cfg(feature = "nccl")]
pub use device::{
    DeviceBackward, DeviceForward, DeviceLosses, DeviceModel, DeviceReplica, GradientPath,
    GroupChoices,
};
pub use error::EngineError;
#[cfg(feature = "train")]
pub(crate) use error::cure_of_divergence;
pub use host::replica::HostReplica;
pub use memory::EngineMemory;
pub use model::{BackwardPass, ForwardPass, Model, ModelPass, PassError};
pub use outcome::{StepDecision, StepOutcome, StepSettings};
pub use parameters::{Init, Parameter, ParameterTable, Unit};
pub use replica::{MicroBatch, Replica};
pub use state::{NeededRange, ReadState, ReplicaState, Section, StatePiece};
pub use training::{Engine, EngineCounters};
pub use whole::{gradient_of, loss_of};

pub use crate::runtime::parallel::zero::step_plan::RecomputeSegment;
pub use crate::runtime::parallel::zero::{
    LaneAssignment, LaneOrder, PlanOptions, Prefetch, Sharding,
};
