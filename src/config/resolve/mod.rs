//! The settings of a file become a [`TrainingConfig`](crate::config::TrainingConfig): defaults and `auto` are
//! filled, the batch sizes are completed, and settings that exclude each other are reported.

mod batch;
mod optimizer;
mod precision;
mod resolver;
mod schedule;
mod training;
mod values;
mod zero;

pub use batch::{BatchError, BatchKeys, legal_world_sizes, resolve_batch};
pub(in crate::config) use training::{Resolution, resolve};
pub use values::{ResolvedValue, ValueOrigin, WorldSize};
pub(super) use values::{note_recomputation, note_shards_of_node, set_origin};
pub use zero::NO_OTHER_MEMORY;
