//! Training on a device.
//!
//! | file | contents |
//! |---|---|
//! | `model` | interface of a model that computes on a device |

mod model;

pub use model::{DeviceBackward, DeviceForward, DeviceModel};
