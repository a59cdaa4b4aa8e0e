//! What a training tells: metrics, progress, the curve.

pub(crate) mod metrics;
pub(crate) mod plot;
pub(crate) mod progress;
pub(crate) mod rank0;
