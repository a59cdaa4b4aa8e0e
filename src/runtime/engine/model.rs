//! [`Model`]: a model that computes unit by unit, over parameters that are handed in.

use crate::base::debug_as_message;
use crate::runtime::dtype::element::{Dtype, GradientElement};
use crate::runtime::engine::parameters::ParameterTable;
use crate::runtime::parallel::zero::step_plan::{PlanPass, RecomputeSegment};

/// Trainable model with its work space.
///
/// A forward pass is a series of *passes*, the backward pass the same series in reverse. Each pass names the
/// units whose parameters it reads; the engine gathers them from all ranks before the pass and frees them
/// after it. The model keeps its activations between the passes. A unit may be read by several passes, such
/// as an embedding that the head uses again: it is then gathered for each of them, and their gradients are
/// added in the order of the backward pass.
pub trait Model<F: GradientElement = f32> {
    /// Type of a micro-batch.
    type Batch;

    /// Returns the table of parameters.
    fn parameters(&self) -> &ParameterTable;

    /// Returns the passes in the order of the forward pass; by default one for every unit.
    fn passes(&self) -> Vec<ModelPass> {
        (0..self.parameters().units().len()).map(|unit| ModelPass::new([unit])).collect()
    }

    /// Computes the outputs of a pass. The last pass computes the loss.
    ///
    /// # Errors
    /// If the pass reads a unit that it does not name.
    fn forward(&mut self, pass: &ForwardPass<'_, F>, batch: &Self::Batch) -> Result<(), PassError>;

    /// Returns the mean loss of the last forward pass over its batch.
    fn loss(&self) -> F;

    /// Computes the gradients of a pass from those of the pass after it, and adds them to the gradients of
    /// its units. They are the gradients of [`ForwardPass::loss_scale`] times the loss.
    ///
    /// # Errors
    /// If the pass uses a unit that it does not name.
    fn backward(
        &mut self,
        pass: &mut BackwardPass<'_, F>,
        batch: &Self::Batch,
    ) -> Result<(), PassError>;

    /// Tells the model which passes belong together when activations are computed again: of a segment that
    /// recomputes, the model keeps only the input of its first pass, until the forward passes of the segment
    /// are run again before its backward passes. Called before the first pass; models without
    /// [`ModelPass::can_recompute`] need not implement it.
    fn set_segments(&mut self, segments: &[RecomputeSegment]) {
        let _ = segments;
    }
}

/// Units that a pass of a model reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelPass {
    /// Indices of the units in the table of parameters.
    pub units: Vec<usize>,
    /// Whether the forward pass can be run again to get its activations.
    pub can_recompute: bool,
}

impl ModelPass {
    /// Creates a pass that reads these units, with activations that are kept.
    pub fn new(units: impl Into<Vec<usize>>) -> Self {
        Self { units: units.into(), can_recompute: false }
    }

    /// Marks the pass as one that can be run again.
    #[must_use]
    pub fn recomputable(self) -> Self {
        Self { can_recompute: true, ..self }
    }
}

impl From<ModelPass> for PlanPass {
    fn from(pass: ModelPass) -> Self {
        Self { units: pass.units, can_recompute: pass.can_recompute }
    }
}

/// Passes of a model, as a plan needs them.
pub(crate) fn plan_passes<F: GradientElement, M: Model<F>>(model: &M) -> Vec<PlanPass> {
    model.passes().into_iter().map(PlanPass::from).collect()
}

/// A forward pass: parameters and settings.
#[derive(Clone, Copy, Debug)]
pub struct ForwardPass<'a, F> {
    /// Index of the pass.
    pub index: usize,
    /// Factor of the loss in the backward pass; a power of two unless a static scale is set.
    pub loss_scale: F,
    /// Type to which a model rounds the operands of its products; `f32` (or `f64`): it does not round.
    pub compute: Dtype,
    /// Whether activations are computed again, after a forward pass that did not keep them.
    pub is_recomputation: bool,
    params: &'a [(usize, &'a [F])],
}

impl<'a, F> ForwardPass<'a, F> {
    /// Creates pass `index` over the parameters of units, as `(unit, elements)`.
    pub fn new(
        index: usize,
        params: &'a [(usize, &'a [F])],
        loss_scale: F,
        compute: Dtype,
    ) -> Self {
        Self { index, loss_scale, compute, is_recomputation: false, params }
    }

    /// Returns the same pass as one that computes activations again.
    #[must_use]
    pub(crate) fn recomputation(self) -> Self {
        Self { is_recomputation: true, ..self }
    }

    /// Returns the parameters of a unit, in the order of the table.
    ///
    /// # Errors
    /// If the pass does not name the unit.
    pub fn unit(&self, unit: usize) -> Result<&'a [F], PassError> {
        let found = self.params.iter().find(|(index, _)| *index == unit);
        found.map(|(_, elements)| *elements).ok_or_else(|| {
            PassError::unknown(self.index, unit, self.params.iter().map(|(unit, _)| *unit))
        })
    }
}

/// A backward pass: parameters, settings, and the gradients to add to.
#[derive(Debug)]
pub struct BackwardPass<'a, F> {
    /// The forward pass that it belongs to.
    pub forward: ForwardPass<'a, F>,
    gradients: &'a mut [(usize, &'a mut [F])],
}

impl<'a, F> BackwardPass<'a, F> {
    /// Creates the backward pass of `forward`, which adds to the gradients of units, as `(unit, elements)`.
    pub fn new(forward: ForwardPass<'a, F>, gradients: &'a mut [(usize, &'a mut [F])]) -> Self {
        Self { forward, gradients }
    }

    /// Returns the index of the pass.
    pub fn index(&self) -> usize {
        self.forward.index
    }

    /// Returns the parameters of a unit.
    ///
    /// # Errors
    /// If the pass does not name the unit.
    pub fn unit(&self, unit: usize) -> Result<&'a [F], PassError> {
        self.forward.unit(unit)
    }

    /// Returns the gradient of a unit: zeros, or what later passes of the model have added.
    ///
    /// # Errors
    /// If the pass does not name the unit.
    pub fn gradient(&mut self, unit: usize) -> Result<&mut [F], PassError> {
        let index = self.forward.index;
        if let Some(at) = self.gradients.iter().position(|(known, _)| *known == unit) {
            return Ok(self.gradients[at].1);
        }
        Err(PassError::unknown(index, unit, self.gradients.iter().map(|(unit, _)| *unit)))
    }
}

/// Error of a pass of a model. Its debug form is its message.
#[derive(thiserror::Error)]
pub enum PassError {
    /// The pass uses a unit that it does not name.
    #[error(
        "pass {pass} of the model uses unit {unit}, but names {}; add the unit to `Model::passes`",
        names(named)
    )]
    UnitNotNamed {
        /// Index of the pass.
        pass: usize,
        /// Unit that it uses.
        unit: usize,
        /// Units that it names.
        named: Vec<usize>,
    },
    /// The model reports another error.
    #[error("pass {pass} of the model failed: {problem}")]
    Failed {
        /// Index of the pass.
        pass: usize,
        /// Description by the model.
        problem: String,
    },
}

debug_as_message!(PassError);

impl PassError {
    fn unknown(pass: usize, unit: usize, named: impl Iterator<Item = usize>) -> Self {
        Self::UnitNotNamed { pass, unit, named: named.collect() }
    }
}

/// Names units in a sentence.
fn names(units: &[usize]) -> String {
    let list: Vec<String> = units.iter().map(ToString::to_string).collect();
    match &list[..] {
        [] => "no unit".to_owned(),
        [unit] => format!("unit {unit}"),
        _ => format!("units {}", list.join(", ")),
    }
}
