//! Order of sums and of messages, and placement of ranks, as data: no I/O.
//!
//! | file | contents |
//! |---|---|
//! | [`tree`] | order of the additions of a reduction, the same for every placement |
//! | `topology` | ranks on nodes |
//! | `slices` | division of elements into slices, rounds and blocks |
//! | `ring` | steps of a ring |
//! | `device_slices` | which slice goes to which rank in a reduction over peers |
//! | `node_sums` | the same over nodes, each of which sums its own data first |

#[cfg(feature = "nccl")]
pub(crate) mod device_slices;
#[cfg(feature = "nccl")]
pub(crate) mod node_sums;
mod ring;
mod slices;
mod topology;
pub mod tree;

pub use ring::{RingStep, ring};
pub use slices::{blocks, rounds, slice};
pub use topology::Placement;
