//! Measured operations on data in GPU memory, which is filled and checked on the host and moved by
//! a [`DeviceGroup`].

use std::sync::Arc;

use super::backend::Backend;
use super::collective::Collective;
use super::operands::{MeasuredOperation, Operands};
use super::test_data::TestElement;
use crate::runtime::device::DeviceElement;
use crate::runtime::device::cudarc::driver::{CudaContext, DriverError};
use crate::runtime::device::{
    DeviceBackend, DeviceGroup, RegisteredSlice, device_count, open_device,
};
use crate::runtime::{Error, Group, ReduceOp, ReduceOrder};

/// Device of this rank, connected with those of the other ranks.
pub struct Devices<'a> {
    group: &'a Group,
    devices: DeviceGroup,
}

impl<'a> Devices<'a> {
    /// Connects the devices. Local rank `r` of a node uses device `r` modulo the number of devices,
    /// so that ranks share devices where there are fewer devices than ranks.
    pub(super) fn open(
        group: &'a Group,
        backend: Backend,
        order: Option<ReduceOrder>,
    ) -> Result<Self, Error> {
        let wanted = match backend {
            Backend::Staged => DeviceBackend::Staged,
            Backend::Host | Backend::Nccl => DeviceBackend::Nccl,
        };
        let count = device_count()?;
        let context = open_device(group.local_rank() % count.max(1))?;
        let devices = DeviceGroup::new(group, &context, wanted)?;
        let devices = match order {
            Some(ReduceOrder::Canonical) => devices.in_canonical_order()?,
            Some(ReduceOrder::Any) | None => devices,
        };
        Ok(Self { group, devices })
    }

    pub(super) fn group(&self) -> &'a Group {
        self.group
    }

    /// Returns the external library that moves the data, such as `NCCL 2.28.9 (/usr/lib/libnccl.so.2)`.
    pub(super) fn library(&self) -> Option<String> {
        let library = self.devices.library()?;
        Some(format!("NCCL {} ({})", library.version(), library.path().display()))
    }

    /// Returns why transfers are slower than they could be.
    pub(super) fn slow_because(&self) -> Option<String> {
        let refusal = self.devices.pinning_refusal()?;
        Some(format!("the driver does not pin host memory ({refusal}), so copies are slow"))
    }

    fn context(&self) -> &Arc<CudaContext> {
        self.devices.stream().context()
    }
}

/// Memory of one measured operation on a device.
pub(super) struct DeviceOperands<'a, T: TestElement> {
    devices: &'a DeviceGroup,
    host: Operands<'a, T>,
    input: RegisteredSlice<'a, T>,
    output: RegisteredSlice<'a, T>,
}

fn driver_error(error: DriverError) -> Error {
    Error::Device(format!("the GPU reported an error: {error:?}"))
}

impl<'a, T: TestElement + DeviceElement> DeviceOperands<'a, T> {
    /// Allocates device memory for the operation of `host`, which must not use shared memory of the
    /// group.
    pub(super) fn new(
        devices: &'a Devices<'a>,
        host: Operands<'a, T>,
        is_registered: bool,
    ) -> Result<Self, Error> {
        let stream = devices.context().default_stream();
        let devices = &devices.devices;
        let zeros = |len: usize| {
            // The driver cannot allocate zero bytes.
            let slice = stream.alloc_zeros::<T>(len.max(1)).map_err(driver_error)?;
            if is_registered { devices.register(slice) } else { Ok(devices.unregistered(slice)) }
        };
        let (numbers, output) = (zeros(host.input().len())?, zeros(host.output().len())?);
        Ok(Self { devices, host, input: numbers, output })
    }

    fn copy_to_device(&mut self) -> Result<(), DriverError> {
        let stream = self.input.stream().clone();
        let (numbers, output) = (self.host.input(), self.host.output());
        if !numbers.is_empty() {
            stream.memcpy_htod(numbers, &mut *self.input)?;
        }
        if !output.is_empty() {
            stream.memcpy_htod(output, &mut *self.output)?;
        }
        stream.synchronize()
    }

    fn copy_to_host(&mut self) -> Result<(), DriverError> {
        let stream = self.input.stream().clone();
        let (numbers, output) = self.host.memory_mut();
        if !numbers.is_empty() {
            stream.memcpy_dtoh(&self.input.slice(..numbers.len()), numbers)?;
        }
        if !output.is_empty() {
            stream.memcpy_dtoh(&self.output.slice(..output.len()), output)?;
        }
        stream.synchronize()
    }
}

impl<T: TestElement + DeviceElement> MeasuredOperation for DeviceOperands<'_, T> {
    fn fill(&mut self) -> Result<(), Error> {
        self.host.fill()?;
        self.copy_to_device().map_err(driver_error)
    }

    fn run(&mut self) -> Result<(), Error> {
        let (lens, group) =
            ((self.host.input().len(), self.host.output().len()), self.devices.group());
        let (rank, world) = (group.rank(), group.world_size());
        let (collective, reduce, root) = self.host.call();
        let reduce = reduce.unwrap_or(ReduceOp::Sum);
        let devices = self.devices;
        let mut numbers = self.input.slice_mut(..lens.0);
        let mut output = self.output.slice_mut(..lens.1);
        match collective {
            Collective::AllReduce => devices.all_reduce(&mut numbers, reduce)?,
            Collective::Reduce => devices.reduce(&mut numbers, reduce, root)?,
            Collective::Broadcast => devices.broadcast(&mut numbers, root)?,
            Collective::AllGather => devices.all_gather(&numbers, &mut output)?,
            Collective::ReduceScatter => devices.reduce_scatter(&numbers, &mut output, reduce)?,
            Collective::Gather => devices.gather(&numbers, &mut output, root)?,
            Collective::Scatter => devices.scatter(&numbers, &mut output, root)?,
            Collective::AllToAll => devices.all_to_all(&numbers, &mut output)?,
            Collective::SendRecv => {
                let (next, previous) = ((rank + 1) % world, (rank + world - 1) % world);
                devices.send_recv(&numbers, next, &mut output, previous)?;
            }
        }
        Ok(())
    }

    fn count_wrong(&mut self) -> Result<u64, Error> {
        self.copy_to_host().map_err(driver_error)?;
        self.host.count_wrong()
    }
}
