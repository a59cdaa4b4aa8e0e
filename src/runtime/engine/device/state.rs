//! State of a rank in the memory of a device.

use std::borrow::Cow;
use std::ops::Range;

use crate::cuda::device::DeviceAddress;
use crate::runtime::engine::device::model::DeviceModel;
use crate::runtime::engine::device::replica::DeviceReplica;
use crate::runtime::engine::device::unit::{PartState, UnitMemory};
use crate::runtime::engine::error::EngineError;
use crate::runtime::engine::parameters::ParameterTable;
use crate::runtime::engine::shards::optimizer_state::StateValues;
use crate::runtime::engine::shards::sections::{self, OwnSections, OwnedParts};
use crate::runtime::engine::state::{
    NeededRange, ReadState, ReplicaState, Section, StatePiece, moment_index, sections_of,
};

/// Values of a section of a part: on the device, or in the memory of the host.
enum SectionValues<'a> {
    Device(DeviceAddress),
    Host(&'a StateValues<f32>),
}

impl<M: DeviceModel> DeviceReplica<M> {
    fn values(&self, unit: usize, section: Section) -> SectionValues<'_> {
        let moment = |name| moment_index(self.optimizer, name);
        match (&self.units[unit], section) {
            (PartState::Device(memory), Section::Weights) => SectionValues::Device(memory.master),
            (PartState::Device(memory), Section::Moment(name)) => {
                SectionValues::Device(memory.moments[moment(name)].address())
            }
            (PartState::Host(state), Section::Weights) => {
                SectionValues::Host(state.master.as_ref().expect("the host has the weights"))
            }
            (PartState::Host(state), Section::Moment(name)) => {
                SectionValues::Host(&state.moments[moment(name)])
            }
        }
    }

    /// Replaces values in the memory of the host, and for weights those of the device.
    fn write_on_host(
        &mut self,
        unit: usize,
        section: Section,
        values: &[f32],
    ) -> Result<(), EngineError> {
        let PartState::Host(state) = &mut self.units[unit] else { return Ok(()) };
        match section {
            Section::Weights => {
                state.master.as_mut().expect("the host has the weights").copy_from_slice(values);
                self.weights.store(unit, &self.parts.own_range(unit), values)
            }
            Section::Moment(name) => {
                state.moments[moment_index(self.optimizer, name)].copy_from_slice(values);
                Ok(())
            }
        }
    }
}

impl<M: DeviceModel> OwnSections for DeviceReplica<M> {
    fn parts(&self) -> &OwnedParts {
        &self.parts
    }

    /// Copies the elements of a device; the host waits for it.
    fn read(
        &self,
        unit: usize,
        section: Section,
        range: Range<usize>,
    ) -> Result<Cow<'_, [f32]>, EngineError> {
        match self.values(unit, section) {
            SectionValues::Host(values) => Ok(Cow::Borrowed(&values[range])),
            SectionValues::Device(address) => {
                let mut values = vec![0.0f32; range.len()];
                let from = address.offset(range.start * size_of::<f32>());
                self.on.download(from, &mut values)?;
                Ok(Cow::Owned(values))
            }
        }
    }

    fn write(&mut self, unit: usize, section: Section, values: &[f32]) -> Result<(), EngineError> {
        let SectionValues::Device(address) = self.values(unit, section) else {
            return self.write_on_host(unit, section, values);
        };
        self.on.upload(values, address)?;
        let PartState::Device(UnitMemory { narrow, .. }) = &self.units[unit] else { return Ok(()) };
        if section == Section::Weights && *narrow != DeviceAddress::NULL && !values.is_empty() {
            let rounded = self.on.element.encode(values);
            self.on.device.upload(self.on.stream, &rounded, *narrow)?;
        }
        Ok(())
    }

    fn release(&self, unit: usize) {
        if let PartState::Host(state) = &self.units[unit] {
            state.release();
        }
    }

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
        let outcome = sections::restore(self, read);
        self.settle(outcome)
    }

    fn gather_section(&self, unit: usize, section: Section) -> Result<Vec<f32>, EngineError> {
        self.settle(sections::gather_section(self, unit, section))
    }
}
