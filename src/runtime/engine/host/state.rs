//! State of a rank in host memory.

use std::borrow::Cow;
use std::ops::Range;

use crate::runtime::engine::error::EngineError;
use crate::runtime::engine::host::replica::HostReplica;
use crate::runtime::engine::model::Model;
use crate::runtime::engine::parameters::ParameterTable;
use crate::runtime::engine::shards::sections::{self, OwnSections, OwnedParts};
use crate::runtime::engine::state::{
    NeededRange, ReadState, ReplicaState, Section, StatePiece, moment_index, sections_of,
};

impl<M: Model> OwnSections for HostReplica<M> {
    fn parts(&self) -> &OwnedParts {
        &self.parts
    }

    fn read(
        &self,
        unit: usize,
        section: Section,
        range: Range<usize>,
    ) -> Result<Cow<'_, [f32]>, EngineError> {
        let state = &self.states[unit];
        let own: &[f32] = match section {
            Section::Weights => match &state.master {
                Some(master) => master,
                None => self.weights.master(unit).expect("weights in full precision are masters"),
            },
            Section::Moment(name) => &state.moments[moment_index(self.optimizer, name)],
        };
        Ok(Cow::Borrowed(&own[range]))
    }

    fn write(&mut self, unit: usize, section: Section, values: &[f32]) -> Result<(), EngineError> {
        let state = &mut self.states[unit];
        match section {
            Section::Weights => {
                if let Some(master) = &mut state.master {
                    master.copy_from_slice(values);
                }
                self.weights.store(unit, &self.parts.own_range(unit), values);
            }
            Section::Moment(name) => {
                state.moments[moment_index(self.optimizer, name)].copy_from_slice(values);
            }
        }
        Ok(())
    }

    fn release(&self, unit: usize) {
        self.states[unit].release();
    }

    fn publish(&mut self) -> Result<(), EngineError> {
        self.weights.start_publish()?;
        Ok(self.weights.finish_publish()?)
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
        sections::state_pieces(self)
    }

    fn needed_ranges(&self) -> Vec<NeededRange<'_>> {
        sections::needed_ranges(self)
    }

    fn restore<E>(&mut self, read: &mut ReadState<'_, E>) -> Result<Result<(), E>, EngineError> {
        sections::restore(self, read)
    }

    fn gather_section(&self, unit: usize, section: Section) -> Result<Vec<f32>, EngineError> {
        sections::gather_section(self, unit, section)
    }
}
