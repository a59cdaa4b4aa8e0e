//! [`GradientPath`]: how ranks exchange gradients between their devices, for messages.

use std::fmt;

use crate::cuda::nccl::Version;
use crate::runtime::dtype::element::ReduceOrder;

/// How ranks exchange gradients between their devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GradientPath {
    /// There is one rank.
    Alone,
    /// From device to device, by NCCL.
    Nccl {
        /// Version of the library.
        version: Version,
        /// Order in which gradients are added.
        order: ReduceOrder,
    },
    /// Through the memory of the host, in the canonical order.
    Host {
        /// Why the devices do not exchange them.
        why: String,
    },
}

impl fmt::Display for GradientPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alone => f.write_str("not exchanged"),
            Self::Nccl { version, order } => {
                let order = match order {
                    ReduceOrder::Canonical => "canonical order",
                    ReduceOrder::Any => "NCCL's order",
                };
                write!(f, "NCCL {version}, {order}")
            }
            Self::Host { why } => write!(f, "through the memory of the host, because {why}"),
        }
    }
}
