//! A rank in host memory.
//!
//! | file | contents |
//! |---|---|
//! | `replica` | the rank: model, weights, gradients, optimizer state |
//! | `state` | its state as pieces that are saved, restored and collected |
//! | `optimizer_state` | optimizer state between two steps, in memory or in files (offload) |
//! | `gradients` | arithmetic on gradients |
//! | `rounding` | gradients in 16 bits |

mod gradients;
mod optimizer_state;
pub(crate) mod replica;
mod rounding;
pub(crate) mod state;
