//! [`Replica`]: the memory and the arithmetic of one rank, as the engine sees them.

use crate::runtime::engine::error::EngineError;
use crate::runtime::optim::OptimizerStep;
use crate::runtime::parallel::zero::step_plan::{PlanPass, PlanStep};

/// Memory and arithmetic of one rank: its weights, gradients and optimizer state, wherever they lie.
///
/// All ranks call the same methods in the same order; those that communicate say so.
pub trait Replica {
    /// Type of a micro-batch.
    type Batch;

    /// Returns the passes of the model.
    fn passes(&self) -> Vec<PlanPass>;

    /// Performs a step of a plan. Steps that gather or reduce communicate.
    ///
    /// # Errors
    /// If a pass or an operation fails.
    fn run(
        &mut self,
        step: PlanStep,
        batch: &Self::Batch,
        at: MicroBatch,
    ) -> Result<(), EngineError>;

    /// Returns the mean loss of the last forward pass.
    fn loss(&self) -> f32;

    /// Returns the Euclidean norm of the mean gradient, times the loss scale. Communicates.
    ///
    /// # Errors
    /// If the operation fails.
    fn gradient_norm(&mut self) -> Result<f64, EngineError>;

    /// Updates the parameters by a step of the optimizer and the mean gradient. Communicates.
    ///
    /// # Errors
    /// If the operation fails.
    fn update(&mut self, step: &OptimizerStep) -> Result<(), EngineError>;
}

/// Place of a micro-batch in its step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MicroBatch {
    /// Whether the step ends with it.
    pub is_last: bool,
    /// Factor of the loss in the backward pass.
    pub loss_scale: f32,
}
