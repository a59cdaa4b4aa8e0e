//! A rank in host memory.
//!
//! | file | contents |
//! |---|---|
//! | `replica` | the rank: model, weights, gradients, optimizer state |
//! | `state` | its state as pieces that are saved, restored and collected |
//! | `weights`, `gradients` | memory of both, whole or in parts, and the operations in flight on it |
//! | `rounding` | gradients in 16 bits |

mod gradients;
pub(crate) mod replica;
mod rounding;
pub(crate) mod state;
pub(super) mod weights;
