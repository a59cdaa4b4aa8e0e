//! A rank in host memory.
//!
//! | file | contents |
//! |---|---|
//! | `replica` | the rank: model, weights, gradients, optimizer state |
//! | `state` | its state as pieces that are saved, restored and collected |
//! | `stored_part`, `optimizer_state` | weights and optimizer state between two steps, in memory or in files (offload) |
//! | `groups` | the groups of ranks over which units are divided |
//! | `weights`, `gradients` | memory of both, whole or in parts, and the operations in flight on it |
//! | `rounding` | gradients in 16 bits |

mod gradients;
mod groups;
mod optimizer_state;
pub(crate) mod replica;
mod rounding;
pub(crate) mod state;
mod stored_part;

pub(super) mod weights;
