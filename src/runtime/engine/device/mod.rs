//! Training on a device.
//!
//! | file | contents |
//! |---|---|
//! | `check` | settings that a device does not have yet |
//! | `model` | interface of a model that computes on a device |
//! | `replica` | a rank whose memory is that of a device |
//! | `state` | saving and restoration of the state |
//! | `unit` | memory of a unit: weights, optimizer state, gradients |
//! | `update` | launches of the optimizers |

mod check;
mod model;
pub(super) mod replica;
mod state;
mod unit;
mod update;

pub use check::check_device_config;
pub use model::{DeviceBackward, DeviceForward, DeviceModel};
pub use replica::DeviceReplica;
