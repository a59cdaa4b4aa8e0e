//! A rank in host memory.
//!
//! | file | contents |
//! |---|---|
//! | `replica` | the rank: model, weights, gradients, optimizer state |
//! | `state` | its state as pieces that are saved, restored and collected |
//! | `stored_part`, `optimizer_state` | weights and optimizer state between two steps, in memory or in files (offload) |
//! | `groups` | the groups of ranks over which units are divided |
//! | `weights`, `gradients` | memory of both, whole or in parts, and the operations in flight on it |
//! | `reduction` | the reduction of a unit's gradient: over all ranks, or over a shard group and then over all of them |
//! | `rounding` | gradients in 16 bits |

mod gradients;
mod groups;
mod optimizer_state;
mod reduction;
pub(crate) mod replica;
mod rounding;
pub(crate) mod state;
mod stored_part;

pub(super) mod weights;
