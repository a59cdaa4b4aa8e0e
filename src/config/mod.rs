//! Configurations of a training engine (layer L1): DeepSpeed's `ds_config.json` and accelerate's YAML.
//!
//! A configuration is an input language, as a hostfile is: every problem is reported at once, with its place.
//! Pure: bytes in, a [`TrainingConfig`] and [`Diagnostic`](crate::base::Diagnostic)s out. The module opens no
//! file and knows no engine; `remuda config check` prints what a file means.
//!
//! | file | contents |
//! |---|---|
//! | `hjson`, `yaml`, `tree` | the syntax, into a tree in which every key and value has its place |
//! | `keys` | every key of DeepSpeed: type, default, and what remuda does with it |
//! | `check` | a tree against the keys |
//! | `auto` | the rules that fill `auto` |
//! | `resolve` | defaults, batch sizes, contradictions: the typed result |
//! | `training` | the result |
//! | `accelerate` | options and file of `accelerate launch` |

pub(crate) mod accelerate;
mod auto;
mod check;
pub mod codes;
mod hjson;
mod inputs;
pub mod keys;
mod reading;
mod resolve;
mod training;
mod tree;
mod yaml;

pub use auto::{AUTO_RULES, AutoRule, AutoValue, DEFAULT_RULE, auto_rule};
pub use check::Ineffective;
pub use hjson::{DEPTH_MAX, HjsonDocument, parse_hjson};
pub use inputs::{ComputeType, ConfigCommand, ConfigInputs};
pub use reading::{ConfigDialect, ConfigReading, is_deepspeed_config, read_config};
pub use resolve::{
    BatchError, BatchKeys, NO_OTHER_MEMORY, ResolvedValue, ValueOrigin, WorldSize,
    legal_world_sizes, resolve_batch,
};
pub use training::{
    BatchSizes, CommunicationType, DecayTarget, LossScaleConfig, MomentumCycle, MonitorConfig,
    OneCycleConfig, OptimizerConfig, PrecisionConfig, RecomputeConfig, ReportConfig,
    ScheduleConfig, ShardGroupConfig, ShardMemory, TrainingConfig, UpdateRule, WarmupCurve,
    ZeroConfig, ZeroStage,
};
pub use tree::{ConfigEntry, ConfigNode, ConfigValue, show_number};
