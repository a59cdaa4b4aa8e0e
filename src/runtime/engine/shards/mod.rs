//! A model in shards, wherever the memory of a rank lies: what a rank keeps, gathers, reduces and saves.
//!
//! | file | contents |
//! |---|---|
//! | `groups` | the groups of ranks over which units are divided |
//! | `optimizer_state` | master weights and moments, in host memory or in files (offload) |
//! | `weights` | weights in host memory, whole or in parts, and the gathering of units |
//! | `stored_part` | weights between two steps, in memory or in files (offload) |
//! | `gradients` | sums over micro-batches, and their reductions in flight |
//! | `reduction` | the reduction of a unit's gradient: over all ranks, or over a shard group and then over all of them |
//! | `sections` | the part of the state that a rank updates: saved, restored, collected; its norm, its weight decay |

pub(super) mod gradients;
pub(super) mod groups;
pub(super) mod optimizer_state;
pub(super) mod reduction;
pub(super) mod sections;
mod stored_part;
pub(super) mod weights;
