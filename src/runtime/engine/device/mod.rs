//! Training on a device.
//!
//! | file | contents |
//! |---|---|
//! | `model` | interface of a model that computes on a device |
//! | `replica` | a rank whose memory is that of a device |
//! | `state` | saving and restoration of the state |
//! | `unit` | memory of a unit: weights, optimizer state, gradients |
//! | `update` | launches of the optimizers |

mod model;
pub(super) mod replica;
mod state;
mod unit;
mod update;

pub use model::{DeviceBackward, DeviceForward, DeviceModel};
pub use replica::DeviceReplica;
