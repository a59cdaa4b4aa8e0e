//! Element types of collectives and their reductions.

pub(crate) mod element;
pub(crate) mod half;
pub(crate) mod rounding;
