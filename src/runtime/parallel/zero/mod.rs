//! Sharding of parameters, gradients and optimizer state over ranks, as data: no I/O.
//!
//! The stages are those of ZeRO: [`Sharding::None`] is plain data parallelism, [`Sharding::Parameters`] is
//! the full sharding of FSDP. A stage changes memory and traffic, never numbers: sums follow the canonical
//! tree over lanes, a shard is a range of the same sum, and norms are folded from blocks that no shard
//! boundary cuts.
//!
//! | file | contents |
//! |---|---|
//! | `stage` | the stages, and what each of them divides |
//! | `lanes` | which rank computes which lane in which micro-batch |
//! | `shard_ranges` | ranges of every unit that a rank owns |
//! | `step_plan` | the steps of a micro-batch: gather, compute, reduce, free |

pub(crate) mod lanes;
pub(crate) mod shard_ranges;
pub(crate) mod stage;
pub(crate) mod step_plan;

pub use lanes::{LaneAssignment, LaneOrder};
pub use stage::Sharding;
pub use step_plan::{PlanOptions, Prefetch};
