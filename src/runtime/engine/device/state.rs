//! State of a rank in the memory of a device.

use std::borrow::Cow;
use std::ops::Range;

use crate::cuda::device::DeviceAddress;
use crate::runtime::engine::device::model::DeviceModel;
use crate::runtime::engine::device::replica::DeviceReplica;
use crate::runtime::engine::error::EngineError;
use crate::runtime::engine::parameters::ParameterTable;
use crate::runtime::engine::shards::sections::{self, OwnSections, OwnedParts};
use crate::runtime::engine::state::{
    NeededRange, ReadState, ReplicaState, Section, StatePiece, moment_index, sections_of,
};

impl<M: DeviceModel> DeviceReplica<M> {
    fn own_address(&self, unit: usize, section: Section) -> DeviceAddress {
        let unit = &self.units[unit];
        match section {
            Section::Weights => unit.master,
            Section::Moment(name) => unit.moments[moment_index(self.optimizer, name)].address(),
        }
    }
}

impl<M: DeviceModel> OwnSections for DeviceReplica<M> {
    fn parts(&self) -> &OwnedParts {
        &self.parts
    }

    fn table(&self) -> &ParameterTable {
        self.model.parameters()
    }

    fn sections(&self) -> Vec<Section> {
        sections_of(self.optimizer)
    }

    /// Copies the elements; the host waits for the device.
    fn read(
        &self,
        unit: usize,
        section: Section,
        range: Range<usize>,
    ) -> Result<Cow<'_, [f32]>, EngineError> {
        let mut values = vec![0.0f32; range.len()];
        let from = self.own_address(unit, section).offset(range.start * size_of::<f32>());
        self.on.download(from, &mut values)?;
        Ok(Cow::Owned(values))
    }

    fn write(&mut self, unit: usize, section: Section, values: &[f32]) -> Result<(), EngineError> {
        self.on.upload(values, self.own_address(unit, section))?;
        let narrow = self.units[unit].narrow;
        if section == Section::Weights && narrow != DeviceAddress::NULL && !values.is_empty() {
            let rounded = self.on.element.encode(values);
            self.on.device.upload(self.on.stream, &rounded, narrow)?;
        }
        Ok(())
    }

    fn release(&self, _unit: usize) {}

    fn publish(&mut self) -> Result<(), EngineError> {
        self.publish_parts()
    }
}

impl<M: DeviceModel> ReplicaState for DeviceReplica<M> {
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
