//! [`DeviceWeights`]: the weights that passes read on a device. Ranks exchange theirs between their devices, or in the
//! memory of the host.

use std::ops::Range;

use crate::cuda::device::{
    DeviceAddress, DeviceError, DeviceMemory, EventId, StreamId, UploadRing,
};
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
    layout: ShardLayout,
    rank: usize,
    units: Vec<UnitWeights>,
    exchanged: Exchanged,
    /// Pinned memory for weights that are exchanged in the memory of the host.
    uploads: UploadRing,
    /// Memory for gathered units.
    buffers: UnitBuffers<GatheredUnit>,
    /// Memory of the unit that was freed last. Passes may still read it, so the next unit is copied to other memory,
    /// beside them.
    freed: Option<GatheredUnit>,
    /// Recorded behind an update; what sends the weights waits for it.
    updated: EventId,
    /// Recorded behind what brings updated units; the computations wait for it.
    published: EventId,
}

/// Where ranks exchange what each has updated.
enum Exchanged {
    /// Every rank updates all of it.
    Nowhere,
    /// In the memory of the host, where the weights lie too, or their parts in files.
    Host(Box<dyn Weights>),
    /// Between the devices.
    Devices,
}

/// Weights of a unit.
enum UnitWeights {
    /// All of them are on the device, always.
    Resident(Box<dyn DeviceMemory>),
    /// They are on the device while passes read them. The part of this rank is there always, if ranks exchange it
    /// between devices.
    Gathered { part: Option<Box<dyn DeviceMemory>>, gathered: Option<GatheredUnit> },
}

/// Memory of a gathered unit.
struct GatheredUnit {
    memory: Box<dyn DeviceMemory>,
    /// Elements that fit.
    len: usize,
    /// Recorded behind what fills the memory; the computations wait for it.
    filled: EventId,
    /// Recorded behind the last pass that reads the memory; what fills it next waits for it.
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
            Self::Gathered { .. } => None,
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
        let is_divided = config.sharding.divides_optimizer() && 1 < groups.all.world_size();
        let is_in_files = config.offload.parameters.is_some();
        let exchanged = match (is_divided, &on.exchange) {
            _ if is_in_files => Exchanged::Host(allocate_weights(groups, layout, config)?),
            (false, _) => Exchanged::Nowhere,
            (true, Some(_)) => Exchanged::Devices,
            (true, None) => Exchanged::Host(allocate_weights(groups, layout, config)?),
        };
        let is_padded = matches!(exchanged, Exchanged::Devices);
        let alloc = |len: usize| on.alloc_exchanged(len * on.element.bytes());
        let units = layout.units().iter().map(|shards| match Residence::of(shards.len, config) {
            Residence::Part if is_divided || is_in_files => {
                let part = is_padded.then(|| alloc(shards.part_len())).transpose()?;
                Ok(UnitWeights::Gathered { part, gathered: None })
            }
            Residence::Whole | Residence::WholeUpdatedInParts | Residence::Part => {
                let len = if is_padded { shards.padded_len() } else { shards.len };
                alloc(len).map(UnitWeights::Resident)
            }
        });
        Ok(Self {
            units: units.collect::<Result<_, DeviceError>>()?,
            exchanged,
            uploads: UploadRing::new(on.device.clone()),
            buffers: UnitBuffers::new(),
            freed: None,
            updated: on.device.create_event()?,
            published: on.device.create_event()?,
            layout: layout.clone(),
            rank: groups.all.rank(),
            on: on.clone(),
        })
    }

    /// Address of the part of a unit that this rank updates, if it is always on the device.
    pub(super) fn own_part(&self, unit: usize, own: &Range<usize>) -> Option<DeviceAddress> {
        let begin = match &self.units[unit] {
            UnitWeights::Gathered { part: Some(_), .. } => {
                self.layout.units()[unit].part(self.rank).start
            }
            UnitWeights::Resident(_) | UnitWeights::Gathered { part: None, .. } => 0,
        };
        // The part of a rank behind the end of a short unit is empty.
        let first = own.start.saturating_sub(begin);
        Some(self.stored(unit)?.offset(first * self.on.element.bytes()))
    }

    /// Address of what this rank always has of a unit on the device.
    fn stored(&self, unit: usize) -> Option<DeviceAddress> {
        match &self.units[unit] {
            UnitWeights::Resident(memory) => Some(memory.address()),
            UnitWeights::Gathered { part, .. } => part.as_ref().map(|part| part.address()),
        }
    }

    /// Address of a unit that was gathered.
    pub(super) fn address(&self, unit: usize) -> DeviceAddress {
        match &self.units[unit] {
            UnitWeights::Resident(memory) => memory.address(),
            UnitWeights::Gathered { gathered, .. } => {
                gathered.as_ref().expect("the unit was gathered").memory.address()
            }
        }
    }

    /// Memory for a unit, and a stream that can fill it.
    fn buffer(&mut self, unit: usize, stream: StreamId) -> Result<GatheredUnit, EngineError> {
        let Self { on, layout, buffers, exchanged, .. } = self;
        let shards = &layout.units()[unit];
        let len = match exchanged {
            Exchanged::Devices => shards.padded_len(),
            Exchanged::Host(_) | Exchanged::Nowhere => shards.len,
        };
        let allocate = |len: usize| -> Result<GatheredUnit, EngineError> {
            let [filled, used] = [on.device.create_event()?, on.device.create_event()?];
            let memory = on.alloc_exchanged(len * on.element.bytes())?;
            Ok(GatheredUnit { memory, len, filled, used })
        };
        let buffer = buffers.take(len, allocate)?;
        on.device.wait(stream, buffer.used)?;
        Ok(buffer)
    }

    /// Begins to collect a unit from all ranks.
    pub(super) fn start_gather(&mut self, unit: usize) -> Result<(), EngineError> {
        if let Exchanged::Host(exchanged) = &mut self.exchanged {
            exchanged.start_gather(unit)?;
            return Ok(());
        }
        let on = self.on.clone();
        let UnitWeights::Gathered { part: Some(part), gathered: None } = &self.units[unit] else {
            return Ok(());
        };
        let exchange = on.exchange.as_ref().expect("devices exchange the weights");
        let part = part.address();
        let buffer = self.buffer(unit, exchange.stream())?;
        let addresses = [part, buffer.memory.address()];
        exchange.gather((unit, &self.layout.units()[unit]), addresses, on.element.bytes())?;
        on.device.record(exchange.stream(), buffer.filled)?;
        self.keep_gathered(unit, buffer);
        Ok(())
    }

    fn keep_gathered(&mut self, unit: usize, buffer: GatheredUnit) {
        if let UnitWeights::Gathered { gathered, .. } = &mut self.units[unit] {
            *gathered = Some(buffer);
        }
    }

    /// Lets the computations wait until a unit is on the device. If ranks exchange it in the memory of the host, the host
    /// waits until it is there, and copies it to the device beside the computations.
    pub(super) fn finish_gather(&mut self, unit: usize) -> Result<(), EngineError> {
        let DeviceQueue { device, stream, copies, .. } = self.on.clone();
        if let Exchanged::Host(exchanged) = &mut self.exchanged
            && let UnitWeights::Gathered { .. } = &self.units[unit]
        {
            exchanged.finish_gather(unit)?;
            let buffer = self.buffer(unit, copies)?;
            if let Exchanged::Host(exchanged) = &mut self.exchanged {
                self.uploads.upload(copies, exchanged.bytes(unit), buffer.memory.address())?;
                exchanged.free(unit);
            }
            device.record(copies, buffer.filled)?;
            self.keep_gathered(unit, buffer);
        }
        if let UnitWeights::Gathered { gathered: Some(buffer), .. } = &self.units[unit] {
            device.wait(stream, buffer.filled)?;
        }
        Ok(())
    }

    /// Releases the memory of a unit that passes have read.
    pub(super) fn free(&mut self, unit: usize) -> Result<(), EngineError> {
        if let UnitWeights::Gathered { gathered, .. } = &mut self.units[unit]
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
        if let Exchanged::Host(exchanged) = &mut self.exchanged {
            exchanged.store(unit, own, values);
        } else if let Some(part) = self.own_part(unit, own)
            && !values.is_empty()
        {
            let DeviceQueue { device, stream, element, .. } = &self.on;
            device.upload(*stream, &element.encode(values), part)?;
        }
        Ok(())
    }

    /// Lets all ranks have what each has updated on its device. Communicates if they differ.
    pub(super) fn publish(&mut self, parts: UpdatedParts) -> Result<(), EngineError> {
        let on = self.on.clone();
        if let Exchanged::Host(exchanged) = &mut self.exchanged {
            on.device.record(on.stream, self.updated)?;
            on.device.wait(on.copies, self.updated)?;
            for (unit, part) in parts.into_iter().enumerate() {
                let bytes = exchanged.own_bytes_mut(unit);
                if !bytes.is_empty() {
                    on.download_from(on.copies, part, bytes)?;
                }
            }
        }
        self.exchange()
    }

    /// Lets all ranks have the parts that were stored. Communicates if they differ.
    pub(super) fn exchange(&mut self) -> Result<(), EngineError> {
        match &self.exchanged {
            Exchanged::Nowhere => Ok(()),
            Exchanged::Host(_) => self.exchange_on_host(),
            Exchanged::Devices => Ok(self.exchange_between_devices()?),
        }
    }

    /// No pass reads the weights that are replaced: the host has waited for the gradients of all of them, or for the loss.
    fn exchange_on_host(&mut self) -> Result<(), EngineError> {
        let DeviceQueue { device, stream, copies, .. } = &self.on;
        let Exchanged::Host(exchanged) = &mut self.exchanged else { return Ok(()) };
        exchanged.start_publish()?;
        exchanged.finish_publish()?;
        let mut is_copied = false;
        for (unit, weights) in self.units.iter().enumerate() {
            if let Some(address) = weights.resident() {
                self.uploads.upload(*copies, exchanged.bytes(unit), address)?;
                is_copied = true;
            }
        }
        if is_copied {
            device.record(*copies, self.published)?;
            device.wait(*stream, self.published)?;
        }
        Ok(())
    }

    /// Events order the streams: the host waits for nothing.
    fn exchange_between_devices(&self) -> Result<(), DeviceError> {
        let DeviceQueue { device, stream, element, exchange, .. } = &self.on;
        let exchange = exchange.as_ref().expect("devices exchange the weights");
        device.record(*stream, self.updated)?;
        device.wait(exchange.stream(), self.updated)?;
        let mut is_read = false;
        for (unit, shards) in self.layout.units().iter().enumerate() {
            let is_resident = self.units[unit].resident().is_some();
            if let Some(stored) = self.stored(unit)
                && (is_resident || shards.is_hybrid())
            {
                exchange.publish((unit, shards), stored, element.bytes())?;
                is_read |= is_resident;
            }
        }
        if is_read {
            device.record(exchange.stream(), self.published)?;
            device.wait(*stream, self.published)?;
        }
        Ok(())
    }
}
