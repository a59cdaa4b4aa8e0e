//! State of a rank between two steps: the pieces that it saves, and their restoration.

use std::borrow::Cow;
use std::ops::Range;

use crate::runtime::engine::error::EngineError;
use crate::runtime::engine::parameters::{Parameter, ParameterTable};
use crate::runtime::engine::replica::Replica;
use crate::runtime::optim::Optimizer;

/// Part of the state of every parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Weights in full precision.
    Weights,
    /// Moment of the optimizer, by its name.
    Moment(&'static str),
}

/// Values of a range of a parameter, which one rank saves.
#[derive(Clone, Debug)]
pub struct StatePiece<'a> {
    /// Name, shape and place of the tensor.
    pub parameter: &'a Parameter,
    /// Part of its state.
    pub section: Section,
    /// Range of its elements, in row-major order.
    pub range: Range<usize>,
    /// Its elements in this range; those of a device are a copy.
    pub values: Cow<'a, [f32]>,
}

/// Range of a parameter's section that one rank reads.
pub type NeededRange<'a> = (&'a Parameter, Section, Range<usize>);

/// Reader of the values of a range of a parameter, into a slice of its length.
pub type ReadState<'a, E> =
    dyn FnMut(&Parameter, Section, Range<usize>, &mut [f32]) -> Result<(), E> + 'a;

/// Rank whose state can be saved and replaced.
pub trait ReplicaState: Replica {
    /// Returns the table of parameters.
    fn table(&self) -> &ParameterTable;

    /// Returns the sections of the state, in the order in which they are saved.
    fn sections(&self) -> Vec<Section>;

    /// Returns the pieces that this rank saves. The pieces of all ranks together are the state; no two overlap.
    ///
    /// # Errors
    /// If they cannot be copied from a device.
    fn state_pieces(&self) -> Result<Vec<StatePiece<'_>>, EngineError>;

    /// Returns the ranges that [`Self::restore`] reads on this rank, in its order.
    fn needed_ranges(&self) -> Vec<NeededRange<'_>>;

    /// Replaces the state by what `read` returns. Communicates, also if reading fails on this rank.
    ///
    /// # Errors
    /// The outer error is that of the operations, the inner one that of `read` on this rank.
    fn restore<E>(&mut self, read: &mut ReadState<'_, E>) -> Result<Result<(), E>, EngineError>;

    /// Returns a section of a unit, of all ranks. Communicates.
    ///
    /// # Errors
    /// If an operation fails.
    fn gather_section(&self, unit: usize, section: Section) -> Result<Vec<f32>, EngineError>;
}

/// Sections of the state with an optimizer, in the order in which they are saved.
pub(super) fn sections_of(optimizer: Optimizer) -> Vec<Section> {
    let moments = optimizer.state_names().iter().map(|name| Section::Moment(name));
    std::iter::once(Section::Weights).chain(moments).collect()
}

/// Index of a moment among those of an optimizer.
pub(super) fn moment_index(optimizer: Optimizer, name: &str) -> usize {
    let index = optimizer.state_names().iter().position(|known| *known == name);
    index.expect("a moment of this optimizer")
}
