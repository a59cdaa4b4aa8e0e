//! A rank in host memory.
//!
//! | file | contents |
//! |---|---|
//! | `replica` | the rank: model, weights, gradients, optimizer state |
//! | `state` | its state as pieces that are saved, restored and collected |
//! | `gradients` | arithmetic on gradients |
//! | `rounding` | gradients in 16 bits |

mod gradients;
pub(crate) mod replica;
mod rounding;
pub(crate) mod state;
