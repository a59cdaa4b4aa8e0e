//! [`DeviceWeights`]: the weights that passes read on a device. Ranks exchange theirs in the memory of the host.

use std::ops::Range;

use crate::cuda::device::{DeviceAddress, DeviceMemory, EventId};
use crate::runtime::engine::buffers::{Capacity, UnitBuffers};
use crate::runtime::engine::config::EngineConfig;
use crate::runtime::engine::device::queue::DeviceQueue;
use crate::runtime::engine::error::EngineError;
use crate::runtime::engine::shards::groups::UnitGroups;
use crate::runtime::engine::shards::weights::{Residence, Weights, allocate_weights};
use crate::runtime::parallel::zero::shard_ranges::ShardLayout;

/// Weights of all units, in the type in which the model computes.
pub(super) struct DeviceWeights {
    on: DeviceQueue,
    units: Vec<UnitWeights>,
    /// The weights in the memory of the host, where ranks gather them; `None` if every rank updates all of them.
    exchanged: Option<Box<dyn Weights>>,
    /// Memory for gathered units.
    buffers: UnitBuffers<GatheredUnit>,
    /// Memory of the unit that was freed last. Passes may still read it, so the next unit is copied to other memory,
    /// beside them.
    freed: Option<GatheredUnit>,
    /// Recorded behind the copy of a gathered unit from the host; the computations wait for it.
    filled: EventId,
    /// Recorded behind an update; the copies to the host wait for it.
    updated: EventId,
    /// Recorded behind the copies of updated units from the host; the computations wait for it.
    published: EventId,
}

/// Weights of a unit.
enum UnitWeights {
    /// All of them are on the device, always.
    Resident(Box<dyn DeviceMemory>),
    /// They are on the device while passes read them.
    Gathered(Option<GatheredUnit>),
}

/// Memory of a gathered unit.
struct GatheredUnit {
    memory: Box<dyn DeviceMemory>,
    /// Elements that fit.
    len: usize,
    /// Recorded behind the last pass that reads the memory; the next copy into it waits for it.
    used: EventId,
}

impl Capacity for GatheredUnit {
    fn capacity(&self) -> usize {
        self.len
    }
}

impl UnitWeights {
    fn resident(&self) -> Option<DeviceAddress> {
        match self {
            Self::Resident(memory) => Some(memory.address()),
            Self::Gathered(_) => None,
        }
    }
}

/// What this rank has updated: the address of its part of every unit, in the type of the weights.
pub(super) type UpdatedParts = Vec<DeviceAddress>;

impl DeviceWeights {
    /// Allocates the weights, whose values are not defined.
    pub(super) fn new(
        on: &DeviceQueue,
        groups: &UnitGroups,
        layout: &ShardLayout,
        config: &EngineConfig,
    ) -> Result<Self, EngineError> {
        let is_exchanged = config.sharding.divides_optimizer() && 1 < groups.all.world_size();
        let unit = |len: usize| match Residence::of(len, config) {
            Residence::Part if is_exchanged => Ok(UnitWeights::Gathered(None)),
            Residence::Whole | Residence::WholeUpdatedInParts | Residence::Part => {
                on.alloc(len * on.element.bytes()).map(UnitWeights::Resident)
            }
        };
        let units = layout.units().iter().map(|shards| unit(shards.len));
        Ok(Self {
            units: units.collect::<Result<_, _>>()?,
            exchanged: is_exchanged
                .then(|| allocate_weights(groups, layout, config))
                .transpose()?,
            buffers: UnitBuffers::new(),
            freed: None,
            filled: on.device.create_event()?,
            updated: on.device.create_event()?,
            published: on.device.create_event()?,
            on: on.clone(),
        })
    }

    /// Address of a unit that stays on the device.
    pub(super) fn resident(&self, unit: usize) -> Option<DeviceAddress> {
        self.units[unit].resident()
    }

    /// Address of a unit that was gathered.
    pub(super) fn address(&self, unit: usize) -> DeviceAddress {
        match &self.units[unit] {
            UnitWeights::Resident(memory) => memory.address(),
            UnitWeights::Gathered(gathered) => {
                gathered.as_ref().expect("the unit was gathered").memory.address()
            }
        }
    }

    /// Begins to collect a unit from all ranks.
    pub(super) fn start_gather(&mut self, unit: usize) -> Result<(), EngineError> {
        if let Some(exchanged) = &mut self.exchanged {
            exchanged.start_gather(unit)?;
        }
        Ok(())
    }

    /// Waits until a unit is in the memory of the host, and copies it to the device beside its computations.
    pub(super) fn finish_gather(&mut self, unit: usize) -> Result<(), EngineError> {
        let (Some(exchanged), UnitWeights::Gathered(gathered)) =
            (&mut self.exchanged, &mut self.units[unit])
        else {
            return Ok(());
        };
        exchanged.finish_gather(unit)?;
        let DeviceQueue { device, stream, copies, element } = &self.on;
        let bytes = exchanged.bytes(unit);
        let len = bytes.len() / element.bytes();
        let allocate = |len: usize| -> Result<GatheredUnit, EngineError> {
            let memory = self.on.alloc(len * element.bytes())?;
            Ok(GatheredUnit { memory, len, used: device.create_event()? })
        };
        let buffer = self.buffers.take(len, allocate)?;
        device.wait(*copies, buffer.used)?;
        device.upload(*copies, bytes, buffer.memory.address())?;
        device.record(*copies, self.filled)?;
        device.wait(*stream, self.filled)?;
        *gathered = Some(buffer);
        exchanged.free(unit);
        Ok(())
    }

    /// Releases the memory of a unit that passes have read.
    pub(super) fn free(&mut self, unit: usize) -> Result<(), EngineError> {
        if let UnitWeights::Gathered(gathered) = &mut self.units[unit]
            && let Some(buffer) = gathered.take()
        {
            self.on.device.record(self.on.stream, buffer.used)?;
            if let Some(before) = self.freed.replace(buffer) {
                self.buffers.keep(before);
            }
        }
        Ok(())
    }

    /// Replaces this rank's part of a unit by values of the host. Other ranks have it after [`Self::exchange`].
    pub(super) fn store(
        &mut self,
        unit: usize,
        own: &Range<usize>,
        values: &[f32],
    ) -> Result<(), EngineError> {
        if let Some(exchanged) = &mut self.exchanged {
            exchanged.store(unit, own, values);
        } else if let Some(resident) = self.units[unit].resident() {
            let DeviceQueue { device, stream, element, .. } = &self.on;
            let to = resident.offset(own.start * element.bytes());
            device.upload(*stream, &element.encode(values), to)?;
        }
        Ok(())
    }

    /// Lets all ranks have what each has updated on its device. Communicates if they differ.
    pub(super) fn publish(&mut self, parts: UpdatedParts) -> Result<(), EngineError> {
        let DeviceQueue { device, stream, copies, .. } = &self.on;
        let Some(exchanged) = &mut self.exchanged else { return Ok(()) };
        device.record(*stream, self.updated)?;
        device.wait(*copies, self.updated)?;
        for (unit, part) in parts.into_iter().enumerate() {
            let bytes = exchanged.own_bytes_mut(unit);
            if !bytes.is_empty() {
                device.download(*copies, part, bytes)?;
            }
        }
        self.exchange()
    }

    /// Lets all ranks have the parts in the memory of the host. Communicates if they differ. No pass reads the weights
    /// that are replaced: the host has waited for the gradients of all of them, or for the loss.
    pub(super) fn exchange(&mut self) -> Result<(), EngineError> {
        let DeviceQueue { device, stream, copies, .. } = &self.on;
        let Some(exchanged) = &mut self.exchanged else { return Ok(()) };
        exchanged.start_publish()?;
        exchanged.finish_publish()?;
        let exchanged = &*exchanged;
        let resident = self
            .units
            .iter()
            .enumerate()
            .filter_map(|(unit, weights)| Some((unit, weights.resident()?)));
        let mut is_copied = false;
        for (unit, address) in resident {
            device.upload(*copies, exchanged.bytes(unit), address)?;
            is_copied = true;
        }
        if is_copied {
            device.record(*copies, self.published)?;
            device.wait(*stream, self.published)?;
        }
        Ok(())
    }
}
