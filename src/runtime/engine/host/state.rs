//! State of a rank in host memory.

use std::borrow::Cow;

use crate::runtime::engine::error::EngineError;
use crate::runtime::engine::host::replica::HostReplica;
use crate::runtime::engine::model::Model;
use crate::runtime::engine::parameters::ParameterTable;
use crate::runtime::engine::state::{
    NeededRange, ReadState, ReplicaState, Section, StatePiece, moment_index, sections_of,
};

impl<M: Model> HostReplica<M> {
    /// This rank's part of a section of a unit.
    fn own_section(&self, unit: usize, section: Section) -> &[f32] {
        let state = &self.states[unit];
        match section {
            Section::Weights => match &state.master {
                Some(master) => master,
                None => self.weights.master(unit).expect("weights in full precision are masters"),
            },
            Section::Moment(name) => &state.moments[moment_index(self.optimizer, name)],
        }
    }

    fn restore_own<E>(&mut self, read: &mut ReadState<'_, E>) -> Result<(), E> {
        let mut values = Vec::new();
        for section in self.sections() {
            for unit in 0..self.layout.units().len() {
                let own = self.gradients.own_range(unit);
                values.resize(own.len(), 0.0);
                let base = self.model.parameters().units()[unit].range.start;
                for (parameter, range) in self.table().in_range(unit, &own) {
                    let at = parameter.range.start - base + range.start - own.start;
                    let target = &mut values[at..at + range.len()];
                    read(parameter, section, range, target)?;
                }
                match section {
                    Section::Weights => self.write_own_weights(unit, &values),
                    Section::Moment(name) => {
                        let index = moment_index(self.optimizer, name);
                        self.states[unit].moments[index].copy_from_slice(&values);
                        self.states[unit].release();
                    }
                }
            }
        }
        Ok(())
    }
}

impl<M: Model> ReplicaState for HostReplica<M> {
    fn table(&self) -> &ParameterTable {
        self.model.parameters()
    }

    fn sections(&self) -> Vec<Section> {
        sections_of(self.optimizer)
    }

    fn state_pieces(&self) -> Result<Vec<StatePiece<'_>>, EngineError> {
        let mut pieces = Vec::new();
        for section in self.sections() {
            for (unit, shards) in self.layout.units().iter().enumerate() {
                let begin = self.gradients.own_range(unit).start;
                let own = self.own_section(unit, section);
                for (parameter, range) in
                    self.table().in_range(unit, &shards.owned(self.group.rank()))
                {
                    let base =
                        parameter.range.start - self.model.parameters().units()[unit].range.start;
                    let values = &own[base + range.start - begin..base + range.end - begin];
                    let values = Cow::Borrowed(values);
                    pieces.push(StatePiece { parameter, section, range, values });
                }
            }
        }
        Ok(pieces)
    }

    fn needed_ranges(&self) -> Vec<NeededRange<'_>> {
        let units = 0..self.layout.units().len();
        let of_section = |section| {
            let of_unit = move |unit| {
                let own = self.gradients.own_range(unit);
                let parts = self.table().in_range(unit, &own).into_iter();
                parts.map(move |(parameter, range)| (parameter, section, range))
            };
            units.clone().flat_map(of_unit)
        };
        self.sections().into_iter().flat_map(of_section).collect()
    }

    fn restore<E>(&mut self, read: &mut ReadState<'_, E>) -> Result<Result<(), E>, EngineError> {
        let outcome = self.restore_own(read);
        self.weights.start_publish()?;
        self.weights.finish_publish()?;
        Ok(outcome)
    }

    fn gather_section(&self, unit: usize, section: Section) -> Result<Vec<f32>, EngineError> {
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
