//! [`GradientCollectives`]: sums of micro-batches in device memory, for data-parallel training.
//!
//! The arithmetic is enqueued in the owner's stream, the default stream of the device, in which the backward pass
//! runs too; nothing waits for the device.

use std::ops::Range;

use cudarc::driver::{CudaSlice, DriverError};

use crate::runtime::comm::collectives::GradientCollectives;
use crate::runtime::comm::core::operation::{DividedReduction, Operation};
use crate::runtime::comm::device::element::DeviceElement;
use crate::runtime::comm::device::gradient_kernel::GradientOp;
use crate::runtime::comm::device::group::DeviceGroup;
use crate::runtime::comm::device::memory::{DeviceBuffer, alloc_zeros};
use crate::runtime::comm::device::wait::OperationFailure;
use crate::runtime::dtype::element::GradientElement;
use crate::runtime::error::{Error, Result};

impl From<OperationFailure> for Error {
    fn from(failure: OperationFailure) -> Self {
        match failure {
            OperationFailure::Cause(cause) => Self::Device(cause.to_string()),
            OperationFailure::Collective(error) => error.into(),
        }
    }
}

fn device_error(error: DriverError) -> Error {
    OperationFailure::from(error).into()
}

impl<T: DeviceElement + GradientElement> GradientCollectives<T> for DeviceGroup {
    type Scratch = CudaSlice<T>;

    fn alloc_scratch(&self, len: usize) -> Result<CudaSlice<T>> {
        alloc_zeros(&self.stream().context().default_stream(), len)
    }

    fn zero_scratch(&self, gradient: &mut CudaSlice<T>) -> Result<()> {
        let stream = gradient.stream().clone();
        stream.memset_zeros(gradient).map_err(device_error)
    }

    fn zero(&self, gradient: &mut DeviceBuffer<T>, range: &Range<usize>) -> Result<()> {
        let stream = gradient.stream().clone();
        stream.memset_zeros(&mut gradient.view_mut(range)).map_err(device_error)
    }

    fn add_scratch(&self, older: &CudaSlice<T>, newer: &mut CudaSlice<T>) -> Result<()> {
        let stream = newer.stream().clone();
        let added = self.connection.with_kernels(|kernels| kernels.add((older, 0), newer, &stream));
        Ok(added?)
    }

    fn add(
        &self,
        older: &CudaSlice<T>,
        newer: &mut DeviceBuffer<T>,
        range: &Range<usize>,
    ) -> Result<()> {
        let stream = newer.stream().clone();
        let mut newer = newer.view_mut(range);
        let older = (older, range.start);
        Ok(self.connection.with_kernels(|kernels| kernels.add(older, &mut newer, &stream))?)
    }

    fn divide(
        &self,
        gradient: &mut DeviceBuffer<T>,
        range: &Range<usize>,
        divisor: u64,
    ) -> Result<()> {
        let stream = gradient.stream().clone();
        let (mut values, all) = (gradient.view_mut(range), 0..range.len());
        Ok(self
            .connection
            .with_kernels(|kernels| kernels.divide(&mut values, all, divisor, &stream))?)
    }

    fn prepare(&self, reduction: DividedReduction, adds: bool) -> Result<()> {
        let (call, reduction, checked) = self.reduction::<T>(Operation::AllReduce, 0, reduction);
        checked?;
        // The host divides what the staged backend reduces.
        let divides = reduction.divisor != 1 && (self.is_nccl() || self.group().world_size() == 1);
        let loaded = [adds.then_some(GradientOp::Add), divides.then_some(GradientOp::Divide)]
            .into_iter()
            .flatten()
            .try_for_each(|op| {
                self.connection.with_kernels(|kernels| kernels.load_gradient_kernel::<T>(op))
            })
            .and_then(|()| self.load_kernels(call, T::DTYPE, &mut self.connection.lock()));
        match loaded {
            // Ranks may share a device, which must be idle until all of them have loaded.
            Ok(()) => Ok(self.group().barrier()?),
            Err(trouble) => Err(self.connection.fail(Operation::AllReduce, trouble).into()),
        }
    }
}
