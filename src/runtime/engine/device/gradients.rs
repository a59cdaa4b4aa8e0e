//! [`DeviceGradients`]: gradients in the memory of a device. Ranks reduce them there, in a stream beside the
//! computations. If the devices are not connected, and for sums of subtrees, ranks reduce them in the memory of the host:
//! a unit is copied there beside the computations that follow it, and this rank's part is copied back.

use std::ops::Range;

use crate::cuda::device::{DeviceAddress, DeviceError, EventId, UploadRing};
use crate::cuda::kernels::HalfType;
use crate::runtime::comm::collectives::Collectives as _;
use crate::runtime::comm::group::Group;
use crate::runtime::comm::shm::buffer::SharedBuffer;
use crate::runtime::dtype::element::Dtype;
use crate::runtime::engine::buffers::{Capacity, UnitBuffers};
use crate::runtime::engine::device::queue::{DeviceFloats, DeviceQueue};
use crate::runtime::engine::error::EngineError;
use crate::runtime::engine::shards::gradients::{GradientExecutor, OpenGradient, OwnGradient};
use crate::runtime::engine::shards::reduction::{ReductionInFlight, UnitReduction};

/// Arithmetic on gradients of a device.
pub(super) struct DeviceGradients {
    on: DeviceQueue,
    group: Group,
    /// Memory of the host for units that are reduced.
    staging: UnitBuffers<SharedBuffer<f32>>,
    /// Pinned memory for what is copied back.
    uploads: UploadRing,
    /// Recorded behind a copy from the host; the computations wait for it.
    returned: EventId,
    /// Memory for roundings.
    rounded: Option<DeviceFloats>,
}

/// Gradient of a unit on a device, which can be reduced.
pub(super) struct ReducedUnit {
    floats: DeviceFloats,
    /// Recorded behind the computations of the gradient; its reduction, or the copy to the host, waits for it.
    closed: EventId,
    /// Recorded behind the reduction between devices; the computations wait for it.
    reduced: EventId,
    /// The unit in the memory of the host, while it is reduced.
    staged: Option<SharedBuffer<f32>>,
}

impl Capacity for ReducedUnit {
    fn capacity(&self) -> usize {
        self.floats.len()
    }
}

impl DeviceGradients {
    pub(super) fn new(on: DeviceQueue, group: Group) -> Result<Self, DeviceError> {
        let returned = on.device.create_event()?;
        let uploads = UploadRing::new(on.device.clone());
        Ok(Self { on, group, staging: UnitBuffers::new(), uploads, returned, rounded: None })
    }

    fn stage(&mut self, len: usize) -> Result<SharedBuffer<f32>, EngineError> {
        Ok(self.staging.take(len, |len| self.group.alloc_shared(len))?)
    }
}

impl GradientExecutor for DeviceGradients {
    type Unit = ReducedUnit;
    type Sum = DeviceFloats;

    fn alloc(&mut self, len: usize) -> Result<ReducedUnit, EngineError> {
        let [closed, reduced] = [self.on.device.create_event()?, self.on.device.create_event()?];
        Ok(ReducedUnit { floats: self.on.exchanged_floats(len)?, closed, reduced, staged: None })
    }

    fn clear(&mut self, unit: &mut ReducedUnit, len: usize) -> Result<(), EngineError> {
        Ok(self.on.clear(unit.floats.address(), len)?)
    }

    fn numbers(
        &mut self,
        spare: Option<DeviceFloats>,
        len: usize,
    ) -> Result<DeviceFloats, EngineError> {
        Ok(spare.map_or_else(|| self.on.floats(len), Ok)?)
    }

    fn clear_sum(&mut self, sum: &mut DeviceFloats) -> Result<(), EngineError> {
        Ok(self.on.clear(sum.address(), sum.len())?)
    }

    fn add(&self, older: &DeviceFloats, newer: &mut DeviceFloats) -> Result<(), EngineError> {
        Ok(self.on.add_older(older.address(), newer.address(), older.len())?)
    }

    fn add_to_unit(
        &self,
        older: &DeviceFloats,
        newer: &mut ReducedUnit,
    ) -> Result<(), EngineError> {
        Ok(self.on.add_older(older.address(), newer.floats.address(), older.len())?)
    }

    fn copy_part(
        &self,
        unit: &mut ReducedUnit,
        range: &Range<usize>,
        to: &mut DeviceFloats,
    ) -> Result<(), EngineError> {
        Ok(self.on.copy(unit.floats.at(range.start), to.address(), range.len())?)
    }

    fn copy_sum(&self, sum: &DeviceFloats, unit: &mut ReducedUnit) -> Result<(), EngineError> {
        Ok(self.on.copy(sum.address(), unit.floats.address(), sum.len())?)
    }

    fn divide_unit(
        &self,
        unit: &mut ReducedUnit,
        len: usize,
        divisor: u64,
    ) -> Result<(), EngineError> {
        Ok(self.on.divide(unit.floats.address(), divisor, len)?)
    }

    fn divide(&self, sum: &mut DeviceFloats, divisor: u64) -> Result<(), EngineError> {
        Ok(self.on.divide(sum.address(), divisor, sum.len())?)
    }

    fn round(
        &mut self,
        open: OpenGradient<'_, Self>,
        len: usize,
        dtype: Dtype,
    ) -> Result<(), EngineError> {
        let half = match dtype {
            Dtype::Bf16 => HalfType::Bf16,
            Dtype::F16 => HalfType::F16,
            Dtype::F32 | Dtype::F64 | Dtype::I32 | Dtype::I64 | Dtype::U8 => return Ok(()),
        };
        // Two elements of 16 bits have the room of one of 32.
        let needed = len.div_ceil(2);
        if self.rounded.as_ref().is_none_or(|rounded| rounded.len() < needed) {
            self.rounded = Some(self.on.floats(needed)?);
        }
        let scratch = self.rounded.as_ref().expect("it was allocated").address();
        Ok(self.on.round(open.address(), half, scratch, len)?)
    }

    fn close(&mut self, unit: &mut ReducedUnit) -> Result<(), EngineError> {
        Ok(self.on.device.record(self.on.stream, unit.closed)?)
    }

    fn to_host(&mut self, unit: &mut ReducedUnit, len: usize) -> Result<(), EngineError> {
        let mut staged = self.stage(len)?;
        let DeviceQueue { device, copies, .. } = &self.on;
        device.wait(*copies, unit.closed)?;
        let bytes = bytemuck::cast_slice_mut(staged.slice_mut(&(0..len)));
        self.on.download_from(*copies, unit.floats.address(), bytes)?;
        unit.staged = Some(staged);
        Ok(())
    }

    /// Between connected devices, the host waits for nothing: events order the streams.
    fn start(
        &mut self,
        unit: &mut ReducedUnit,
        reduction: &UnitReduction<'_>,
    ) -> Result<Option<ReductionInFlight>, EngineError> {
        let Some(exchange) = &self.on.exchange else {
            return self.start_on_host(unit, reduction).map(Some);
        };
        let device = &self.on.device;
        device.wait(exchange.stream(), unit.closed)?;
        exchange.reduce((reduction.unit, reduction.shards), unit.floats.address())?;
        device.record(exchange.stream(), unit.reduced)?;
        Ok(None)
    }

    fn finish(
        &mut self,
        unit: &mut ReducedUnit,
        own: &Range<usize>,
        divisor: u64,
    ) -> Result<(), EngineError> {
        self.on.device.wait(self.on.stream, unit.reduced)?;
        Ok(self.on.divide(unit.floats.at(own.start), divisor, own.len())?)
    }

    fn for_host(&mut self, unit: &mut ReducedUnit, len: usize) -> Result<(), EngineError> {
        unit.staged = Some(self.stage(len)?);
        Ok(())
    }

    fn host<'u>(&self, unit: &'u mut ReducedUnit) -> &'u mut SharedBuffer<f32> {
        unit.staged.as_mut().expect("memory of the host was provided")
    }

    /// The copy waits for nothing: the host has waited until the unit was copied away, or nothing was computed in it.
    fn take_back(
        &mut self,
        unit: &mut ReducedUnit,
        range: &Range<usize>,
    ) -> Result<(), EngineError> {
        let staged = unit.staged.take().expect("memory of the host was provided");
        if !range.is_empty() {
            let DeviceQueue { device, stream, copies, .. } = &self.on;
            let bytes = bytemuck::cast_slice(staged.slice(range));
            self.uploads.upload(*copies, bytes, unit.floats.at(range.start))?;
            device.record(*copies, self.returned)?;
            device.wait(*stream, self.returned)?;
        }
        self.staging.keep(staged);
        Ok(())
    }
}

impl OpenGradient<'_, DeviceGradients> {
    /// Address of the first element.
    pub(super) fn address(self) -> DeviceAddress {
        match self {
            Self::Unit(unit) => unit.floats.address(),
            Self::Sum(sum) => sum.address(),
        }
    }
}

impl OwnGradient<'_, DeviceGradients> {
    /// Address of the first element.
    pub(super) fn address(self) -> DeviceAddress {
        match self {
            Self::Unit(unit, range) => unit.floats.at(range.start),
            Self::Sum(sum) => sum.address(),
        }
    }
}
