//! [`StepOutcome`]: what a step has done; [`StepSettings`] and [`StepDecision`]: how a rank ends it. Pure.

use crate::runtime::flat::norm::clip_factor;
use crate::runtime::optim::{Optimizer, OptimizerStep};

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

/// What a rank must know to end a step, beside its gradients; equal on all ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepSettings {
    /// The optimizer, with the betas of this step.
    pub optimizer: Optimizer,
    /// Learning rate.
    pub rate: f64,
    /// Largest norm of the gradient; longer ones are scaled down to it.
    pub clip: Option<f64>,
    /// Number of updates before this step.
    pub updates: u64,
    /// Inverse of the loss scale. A device has its own.
    pub gradient_factor: f64,
}

/// What a rank has decided at the end of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepDecision {
    /// Norm of the mean gradient, without the loss scale.
    pub norm: f64,
    /// Whether the parameters were updated: every gradient is finite.
    pub is_applied: bool,
    /// Losses of the micro-batches that a device has kept.
    pub losses: Vec<f32>,
}

impl StepSettings {
    /// Decides by the norm of the gradient, which has the factor of the losses.
    pub(super) fn decide(&self, norm: f64) -> StepDecision {
        let norm = norm * self.gradient_factor;
        StepDecision { norm, is_applied: norm.is_finite(), losses: Vec::new() }
    }

    /// Factor of the gradients of a step with this norm.
    pub(super) fn factor(&self, norm: f64) -> f32 {
        let clip = self.clip.map_or(1.0, |max| clip_factor(norm, max));
        (clip * self.gradient_factor) as f32
    }

    /// The step of the optimizer, whose gradients are multiplied by a factor.
    pub(super) fn optimizer_step(&self, factor: f32) -> OptimizerStep {
        self.optimizer.step(self.updates + 1, self.rate, factor)
    }
}
