//! What a training tells: metrics, progress, the curve, and scalars for TensorBoard and as CSV.

pub(crate) mod csv;
pub(crate) mod metrics;
pub(crate) mod plot;
pub(crate) mod progress;
pub(crate) mod rank0;
pub(crate) mod scalar;
pub(crate) mod scalar_sinks;
pub(crate) mod skipped_steps;
pub(crate) mod step_change;
pub(crate) mod tensorboard;
