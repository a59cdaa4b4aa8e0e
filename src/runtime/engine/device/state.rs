//! State of a rank in the memory of a device. Every rank has the whole state; each saves a part of it.

use std::borrow::Cow;

use crate::cuda::device::{DeviceAddress, DeviceError};
use crate::runtime::engine::device::model::DeviceModel;
use crate::runtime::engine::device::replica::DeviceReplica;
use crate::runtime::engine::error::EngineError;
use crate::runtime::engine::parameters::ParameterTable;
use crate::runtime::engine::state::{
    NeededRange, ReadState, ReplicaState, Section, StatePiece, moment_index, sections_of,
};
use crate::runtime::parallel::zero::shard_ranges::UnitShards;

impl<M: DeviceModel> DeviceReplica<M> {
    fn address(&self, unit: usize, section: Section) -> DeviceAddress {
        let unit = &self.units[unit];
        match section {
            Section::Weights => unit.master(),
            Section::Moment(name) => unit.moments[moment_index(self.optimizer, name)].address(),
        }
    }

    /// Copies `len` elements of a section of a unit to the host, from `begin` on. The host waits for the device.
    fn read(
        &self,
        (unit, section): (usize, Section),
        begin: usize,
        len: usize,
    ) -> Result<Vec<f32>, DeviceError> {
        let mut values = vec![0.0f32; len];
        let from = self.address(unit, section).offset(begin * size_of::<f32>());
        self.device.download(self.stream, from, bytemuck::cast_slice_mut(&mut values))?;
        Ok(values)
    }

    fn write(&self, unit: usize, section: Section, values: &[f32]) -> Result<(), DeviceError> {
        let to = self.address(unit, section);
        self.device.upload(self.stream, bytemuck::cast_slice(values), to)?;
        let copy = self.units[unit].copy();
        if section == Section::Weights && copy != DeviceAddress::NULL {
            self.device.upload(self.stream, &self.element.encode(values), copy)?;
        }
        Ok(())
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
        let (rank, world) = (self.group.rank(), self.group.world_size());
        let mut pieces = Vec::new();
        for section in self.sections() {
            for (unit, memory) in self.units.iter().enumerate() {
                let owned = UnitShards::new(memory.len, world, world).owned(rank);
                let base = self.table().units()[unit].range.start;
                for (parameter, range) in self.table().in_range(unit, &owned) {
                    let begin = parameter.range.start - base + range.start;
                    let values = Cow::Owned(self.read((unit, section), begin, range.len())?);
                    pieces.push(StatePiece { parameter, section, range, values });
                }
            }
        }
        Ok(pieces)
    }

    fn needed_ranges(&self) -> Vec<NeededRange<'_>> {
        let whole = |section| {
            let parameters = self.table().iter();
            parameters.map(move |parameter| (parameter, section, 0..parameter.range.len()))
        };
        self.sections().into_iter().flat_map(whole).collect()
    }

    fn restore<E>(&mut self, read: &mut ReadState<'_, E>) -> Result<Result<(), E>, EngineError> {
        for section in self.sections() {
            for (unit, memory) in self.units.iter().enumerate() {
                let mut values = vec![0.0; memory.len];
                let base = self.table().units()[unit].range.start;
                for parameter in self.table().of_unit(unit) {
                    let range = parameter.range.start - base..parameter.range.end - base;
                    let whole = 0..range.len();
                    if let Err(error) = read(parameter, section, whole, &mut values[range]) {
                        return Ok(Err(error));
                    }
                }
                self.write(unit, section, &values)?;
            }
        }
        Ok(Ok(()))
    }

    fn gather_section(&self, unit: usize, section: Section) -> Result<Vec<f32>, EngineError> {
        Ok(self.read((unit, section), 0, self.units[unit].len)?)
    }
}
