//! Element types of collectives and their reductions.

pub(crate) mod element;
pub(crate) mod half;
#[cfg(any(test, feature = "nccl"))]
pub(crate) mod reference;
pub(crate) mod rounding;
pub(crate) mod with_type;
