//! [`DeviceQueue`]: the streams of a rank on its device, and arithmetic that is submitted to them.

use std::sync::Arc;

use crate::cuda::device::{
    Device, DeviceAddress, DeviceError, DeviceMemory, KernelArgument, StreamId,
};
use crate::cuda::kernels::{ElementType, HalfType, Kernel, KernelLaunch, KernelProgram};
use crate::runtime::engine::buffers::Capacity;
use crate::runtime::engine::device::exchange::{DeviceExchange, ExchangedMemory};

/// A device with two streams: copies from and to the host run beside the computations.
#[derive(Clone)]
pub(super) struct DeviceQueue {
    pub(super) device: Arc<dyn Device>,
    /// Stream of the computations.
    pub(super) stream: StreamId,
    /// Stream of the copies. Events order the two where one needs what the other does.
    pub(super) copies: StreamId,
    /// Type in which the model computes.
    pub(super) element: ElementType,
    /// What ranks exchange between their devices, if they do.
    pub(super) exchange: Option<Arc<DeviceExchange>>,
}

/// Numbers in the memory of a device, f32.
pub(super) struct DeviceFloats {
    memory: Box<dyn DeviceMemory>,
    len: usize,
}

impl DeviceFloats {
    /// Address of the first number.
    pub(super) fn address(&self) -> DeviceAddress {
        self.memory.address()
    }

    /// Address of number `index`.
    pub(super) fn at(&self, index: usize) -> DeviceAddress {
        self.address().offset(index * size_of::<f32>())
    }

    /// Number of elements.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Capacity for DeviceFloats {
    fn capacity(&self) -> usize {
        self.len
    }
}

impl DeviceQueue {
    /// Creates the streams.
    pub(super) fn new(device: Arc<dyn Device>, element: ElementType) -> Result<Self, DeviceError> {
        let (stream, copies) = (device.create_stream()?, device.create_stream()?);
        Ok(Self { device, stream, copies, element, exchange: None })
    }

    /// Allocates memory. There is none of 0 bytes, which a rank without a part of a unit would ask for.
    pub(super) fn alloc(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>, DeviceError> {
        let memory = self.device.alloc(bytes.max(1))?;
        Ok(match self.exchange.clone() {
            Some(exchange) => Box::new(ExchangedMemory { memory, exchange, is_registered: false }),
            None => memory,
        })
    }

    /// Allocates memory that ranks exchange between their devices, if they do.
    pub(super) fn alloc_exchanged(
        &self,
        bytes: usize,
    ) -> Result<Box<dyn DeviceMemory>, DeviceError> {
        match &self.exchange {
            Some(exchange) => Ok(Box::new(exchange.alloc(bytes.max(1))?)),
            None => self.alloc(bytes),
        }
    }

    /// Allocates numbers, whose values are not defined.
    pub(super) fn floats(&self, len: usize) -> Result<DeviceFloats, DeviceError> {
        Ok(DeviceFloats { memory: self.alloc(len * size_of::<f32>())?, len })
    }

    /// The same for numbers that ranks exchange.
    pub(super) fn exchanged_floats(&self, len: usize) -> Result<DeviceFloats, DeviceError> {
        Ok(DeviceFloats { memory: self.alloc_exchanged(len * size_of::<f32>())?, len })
    }

    /// Copies numbers of the host, before the computations that follow.
    pub(super) fn upload(&self, values: &[f32], to: DeviceAddress) -> Result<(), DeviceError> {
        if values.is_empty() {
            return Ok(());
        }
        self.device.upload(self.stream, bytemuck::cast_slice(values), to)
    }

    /// Copies numbers to the host, after the computations before; the host waits for them.
    pub(super) fn download<T: bytemuck::Pod>(
        &self,
        from: DeviceAddress,
        to: &mut [T],
    ) -> Result<(), DeviceError> {
        if to.is_empty() {
            return Ok(());
        }
        self.download_from(self.stream, from, bytemuck::cast_slice_mut(to))
    }

    /// Copies bytes to the host, after the operations of a stream; the host waits for them.
    pub(super) fn download_from(
        &self,
        stream: StreamId,
        from: DeviceAddress,
        to: &mut [u8],
    ) -> Result<(), DeviceError> {
        if let Some(exchange) = &self.exchange {
            exchange.wait_for(stream)?;
        }
        self.device.download(stream, from, to)
    }

    /// Copies numbers within the device.
    pub(super) fn copy(
        &self,
        from: DeviceAddress,
        to: DeviceAddress,
        len: usize,
    ) -> Result<(), DeviceError> {
        if len == 0 {
            return Ok(());
        }
        self.device.copy(self.stream, from, to, len * size_of::<f32>())
    }

    /// Replaces numbers by zeros.
    pub(super) fn clear(&self, at: DeviceAddress, len: usize) -> Result<(), DeviceError> {
        if len == 0 {
            return Ok(());
        }
        self.device.clear(self.stream, at, len * size_of::<f32>())
    }

    /// Replaces `newer` by `older + newer`.
    pub(super) fn add_older(
        &self,
        older: DeviceAddress,
        newer: DeviceAddress,
        len: usize,
    ) -> Result<(), DeviceError> {
        let addresses = [older, newer].map(KernelArgument::Address);
        let program = KernelProgram::Fold(self.element);
        self.elementwise((program, Kernel::AddOlder), self.element, &addresses, len)
    }

    /// Divides numbers.
    pub(super) fn divide(
        &self,
        values: DeviceAddress,
        divisor: u64,
        len: usize,
    ) -> Result<(), DeviceError> {
        if divisor == 1 {
            return Ok(());
        }
        let arguments = [KernelArgument::Address(values), KernelArgument::F32(divisor as f32)];
        let program = KernelProgram::Fold(self.element);
        self.elementwise((program, Kernel::DivideAll), self.element, &arguments, len)
    }

    /// Rounds numbers to a type of 16 bits; `scratch` has room for them in that type.
    pub(super) fn round(
        &self,
        values: DeviceAddress,
        half: HalfType,
        scratch: DeviceAddress,
        len: usize,
    ) -> Result<(), DeviceError> {
        let (program, element) = (KernelProgram::Convert(half), ElementType::Half(half));
        let [values, scratch] = [values, scratch].map(KernelArgument::Address);
        self.elementwise((program, Kernel::NarrowAll), element, &[values, scratch], len)?;
        self.elementwise((program, Kernel::WidenAll), element, &[scratch, values], len)
    }

    /// Writes the sums of squares of the blocks of the norm, f64.
    pub(super) fn block_squares(
        &self,
        values: DeviceAddress,
        sums: DeviceAddress,
        len: usize,
    ) -> Result<(), DeviceError> {
        if len == 0 {
            return Ok(());
        }
        let kernel = (KernelProgram::Optimizer(self.element), Kernel::BlockSquares);
        let arguments = [
            KernelArgument::Address(values),
            KernelArgument::Address(sums),
            KernelArgument::U64(len as u64),
        ];
        let size = KernelLaunch::block_squares(len as u64);
        self.device.launch(self.stream, kernel, size, &arguments)
    }

    /// Launches a kernel whose last argument is the number of elements.
    fn elementwise(
        &self,
        kernel: (KernelProgram, Kernel),
        element: ElementType,
        arguments: &[KernelArgument],
        len: usize,
    ) -> Result<(), DeviceError> {
        if len == 0 {
            return Ok(());
        }
        let arguments = [arguments, &[KernelArgument::U64(len as u64)]].concat();
        let size = KernelLaunch::elementwise(len as u64, element);
        self.device.launch(self.stream, kernel, size, &arguments)
    }
}
