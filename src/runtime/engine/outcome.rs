//! [`StepOutcome`]: what a step has done. Pure.

/// Result of a step; equal on all ranks, except where it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepOutcome {
    /// Number of the step, from 1.
    pub step: u64,
    /// Mean loss over all lanes.
    pub loss: f32,
    /// Norm of the mean gradient before clipping.
    pub norm: f64,
    /// Learning rate of the update.
    pub rate: f64,
    /// Scale of the loss during the step.
    pub loss_scale: f64,
    /// Whether the parameters were updated; otherwise a gradient was not finite, and the step was skipped.
    pub is_applied: bool,
    /// Whether a rank has asked for the end of the run.
    pub wants_stop: bool,
}
