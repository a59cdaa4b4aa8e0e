//! Training on a device.
//!
//! | file | contents |
//! |---|---|
//! | `choices` | algorithms of products, which rank 0 chooses |
//! | `model` | interface of a model that computes on a device |
//! | `replica` | a rank whose memory is that of a device |
//! | `exchange`, `flight_recorder`, `path` | what ranks exchange between their devices; how far a device is with it; how, in words |
//! | `queue` | its two streams, for computations and for copies, and arithmetic on them |
//! | `weights`, `gradients` | what passes read and write; its copies from and to the host, where devices cannot exchange it |
//! | `unit`, `update` | memory of a unit's optimizer; launches of the optimizers |
//! | `losses`, `squares`, `decision` | what a step is decided by; the decision, which the device makes |
//! | `state` | the state as pieces that are saved, restored and collected |

mod choices;
mod decision;
pub(super) mod exchange;
mod flight_recorder;
mod gradients;
mod losses;
mod model;
mod path;
mod queue;
pub(super) mod replica;
mod squares;
mod state;
mod unit;
mod update;
mod weights;

pub use choices::GroupChoices;
pub use model::{DeviceBackward, DeviceForward, DeviceLosses, DeviceModel};
pub use path::GradientPath;
pub use replica::DeviceReplica;
