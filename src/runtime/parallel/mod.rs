//! Training on several ranks, above the collectives.

pub(crate) mod ddp;
pub(crate) mod zero;
