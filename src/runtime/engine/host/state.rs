//! State of a rank between two steps: the pieces that it saves, and their restoration.

use std::ops::Range;

use crate::runtime::engine::error::EngineError;
use crate::runtime::engine::host::replica::HostReplica;
use crate::runtime::engine::model::Model;
use crate::runtime::engine::parameters::Parameter;

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
    /// Its elements in this range.
    pub values: &'a [f32],
}

/// Range of a parameter's section that one rank reads.
#[cfg(feature = "train")]
pub(crate) type NeededRange<'a> = (&'a Parameter, Section, Range<usize>);

/// Reader of the values of a range of a parameter, into a slice of its length.
pub type ReadState<'a, E> =
    dyn FnMut(&Parameter, Section, Range<usize>, &mut [f32]) -> Result<(), E> + 'a;

impl<M: Model> HostReplica<M> {
    /// Sections of the state, in the order in which they are saved.
    pub(crate) fn sections(&self) -> Vec<Section> {
        let moments = self.optimizer.state_names().iter().map(|name| Section::Moment(name));
        std::iter::once(Section::Weights).chain(moments).collect()
    }

    /// This rank's part of a section of a unit.
    fn own_section(&self, unit: usize, section: Section) -> &[f32] {
        let state = &self.states[unit];
        match section {
            Section::Weights => match &state.master {
                Some(master) => master,
                None => self.weights.master(unit).expect("weights in full precision are masters"),
            },
            Section::Moment(name) => {
                let names = self.optimizer.state_names();
                let index = names.iter().position(|known| *known == name);
                &state.moments[index.expect("a moment of this optimizer")]
            }
        }
    }

    /// The pieces that this rank saves. The pieces of all ranks together are the state; no two overlap.
    pub(crate) fn state_pieces(&self) -> Vec<StatePiece<'_>> {
        let mut pieces = Vec::new();
        for section in self.sections() {
            for (unit, shards) in self.layout.units().iter().enumerate() {
                let begin = self.gradients.own_range(unit).start;
                let own = self.own_section(unit, section);
                for (parameter, range) in self.parameters_in(unit, &shards.owned(self.group.rank()))
                {
                    let base =
                        parameter.range.start - self.model.parameters().units()[unit].range.start;
                    let values = &own[base + range.start - begin..base + range.end - begin];
                    pieces.push(StatePiece { parameter, section, range, values });
                }
            }
        }
        pieces
    }

    /// Parameters of a unit in a range of it, each with the range of its own elements.
    fn parameters_in(
        &self,
        unit: usize,
        of_unit: &Range<usize>,
    ) -> Vec<(&Parameter, Range<usize>)> {
        let table = self.model.parameters();
        let base = table.units()[unit].range.start;
        let part = |parameter: &Parameter| {
            let begin = parameter.range.start - base;
            let clamp = |at: usize| at.clamp(begin, begin + parameter.range.len()) - begin;
            clamp(of_unit.start)..clamp(of_unit.end)
        };
        let all = table.of_unit(unit).iter().map(|parameter| (parameter, part(parameter)));
        all.filter(|(_, range)| !range.is_empty()).collect()
    }

    /// Replaces the state by what `read` returns. Communicates, also if reading fails on this rank.
    ///
    /// # Errors
    /// Those of `read`, and those of the operations.
    pub(crate) fn restore<E>(
        &mut self,
        read: &mut ReadState<'_, E>,
    ) -> Result<Result<(), E>, EngineError> {
        let outcome = self.restore_own(read);
        self.weights.start_publish()?;
        self.weights.finish_publish()?;
        Ok(outcome)
    }

    /// Ranges that [`Self::restore`] reads, in its order.
    #[cfg(feature = "train")]
    pub(crate) fn needed_ranges(&self) -> Vec<NeededRange<'_>> {
        let units = 0..self.layout.units().len();
        let of_section = |section| {
            let of_unit = move |unit| {
                let own = self.gradients.own_range(unit);
                let parts = self.parameters_in(unit, &own).into_iter();
                parts.map(move |(parameter, range)| (parameter, section, range))
            };
            units.clone().flat_map(of_unit)
        };
        self.sections().into_iter().flat_map(of_section).collect()
    }

    fn restore_own<E>(&mut self, read: &mut ReadState<'_, E>) -> Result<(), E> {
        let mut values = Vec::new();
        for section in self.sections() {
            for unit in 0..self.layout.units().len() {
                let own = self.gradients.own_range(unit);
                values.resize(own.len(), 0.0);
                let base = self.model.parameters().units()[unit].range.start;
                for (parameter, range) in self.parameters_in(unit, &own) {
                    let at = parameter.range.start - base + range.start - own.start;
                    let target = &mut values[at..at + range.len()];
                    read(parameter, section, range, target)?;
                }
                match section {
                    Section::Weights => self.write_own_weights(unit, &values),
                    Section::Moment(name) => {
                        let names = self.optimizer.state_names();
                        let index = names.iter().position(|known| *known == name);
                        let index = index.expect("a moment of this optimizer");
                        self.states[unit].moments[index].copy_from_slice(&values);
                        self.states[unit].release();
                    }
                }
            }
        }
        Ok(())
    }

    /// A section of a unit of all ranks. Communicates.
    pub(crate) fn gather_section(
        &self,
        unit: usize,
        section: Section,
    ) -> Result<Vec<f32>, EngineError> {
        let mut padded = self.own_section(unit, section).to_vec();
        if !self.sharding.divides_optimizer() {
            return Ok(padded);
        }
        self.states[unit].release();
        let shards = &self.layout.units()[unit];
        padded.resize(shards.shard_len, 0.0);
        let mut all = vec![0.0; shards.padded_len()];
        self.group.all_gather(&padded, &mut all)?;
        Ok(shards.in_order(all))
    }
}
