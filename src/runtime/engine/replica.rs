//! [`Replica`]: the memory and the arithmetic of one rank, as the engine sees them.

use crate::runtime::engine::error::EngineError;
use crate::runtime::engine::outcome::{StepDecision, StepSettings};
use crate::runtime::optim::LossScale;
use crate::runtime::parallel::zero::step_plan::{PlanPass, PlanStep};

/// Memory and arithmetic of one rank: its weights, gradients and optimizer state, wherever they lie.
///
/// All ranks call the same methods in the same order; those that communicate say so.
pub trait Replica {
    /// Type of a micro-batch.
    type Batch;

    /// Returns the passes of the model.
    fn passes(&self) -> Vec<PlanPass>;

    /// A forward pass of a training step follows; it can be the second one of the step.
    fn begin_step(&mut self);

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

    /// Returns the mean loss of the last forward pass, for which a device is waited for.
    ///
    /// # Errors
    /// If an operation of the pass failed.
    fn loss(&mut self) -> Result<f32, EngineError>;

    /// Keeps the loss of the last forward pass as that of a micro-batch of the step, and returns it if nothing has to
    /// be waited for. If not, it is one of [`StepDecision::losses`].
    ///
    /// # Errors
    /// If a device fails.
    fn keep_loss(&mut self, micro_batch: usize) -> Result<Option<f32>, EngineError>;

    /// Returns whether the arithmetic is done later than it is asked for, on a device: the losses are not known, and
    /// the decision on a step is worth waiting for only when another one has been submitted.
    fn is_deferred(&self) -> bool;

    /// Decides on a step by the mean gradient, and updates the parameters unless it is not finite. Communicates.
    ///
    /// # Errors
    /// If the operation fails.
    fn end_step(&mut self, settings: &StepSettings) -> Result<(), EngineError>;

    /// Returns what the last [`Self::end_step`] has decided.
    ///
    /// # Errors
    /// If an operation of the step failed.
    fn decision(&mut self) -> Result<StepDecision, EngineError>;

    /// Continues after this number of updates, with this loss scale.
    ///
    /// # Errors
    /// If a device fails.
    fn resume(&mut self, updates: u64, loss_scale: LossScale) -> Result<(), EngineError>;
}

/// Place of a micro-batch in its step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MicroBatch {
    /// Whether the step ends with it.
    pub is_last: bool,
    /// Factor of the loss in the backward pass. A device has its own, which the step before has left there.
    pub loss_scale: f32,
}
