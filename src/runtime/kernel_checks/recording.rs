//! [`RecordingDevice`]: what is submitted to a device, so that it can be timed operation by operation.
//!
//! Not yet run on a GPU.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::base::{clock, lock};
use crate::cuda::device::{
    CommunicatorOffer, Device, DeviceAddress, DeviceCommunicator, DeviceError, DeviceMemory,
    EventId, KernelArgument, Matmul, MatmulShape, PinnedId, SourceKernel, StreamId,
};
use crate::cuda::kernels::{Kernel, KernelLaunch, KernelProgram};
use crate::cuda::nccl::UniqueId;

/// Times that an operation is repeated, so that it takes more time than its submission.
const REPETITIONS: u32 = 16;

/// Operation of a device that takes time there.
#[derive(Clone, Debug, PartialEq)]
pub enum DeviceOperation {
    /// A launch of a kernel.
    Launch {
        /// Program and kernel.
        kernel: (KernelProgram, Kernel),
        /// Grid, block and shared memory.
        size: KernelLaunch,
        /// Addresses and sizes, in the order of the kernel.
        arguments: Vec<KernelArgument>,
    },
    /// A product of matrices, or several of equal shape.
    Product(Matmul),
    /// Bytes that are set to zero.
    Clear(DeviceAddress, usize),
    /// Bytes that are copied within the device.
    Copy {
        /// First byte of the source.
        from: DeviceAddress,
        /// First byte of the copy.
        to: DeviceAddress,
        /// Size of both.
        bytes: usize,
    },
}

/// Equal operations of a recording, and their time.
#[derive(Clone, Debug, PartialEq)]
pub struct TimedOperation {
    /// Name of the kernel, `product`, `clear` or `copy`.
    pub name: &'static str,
    /// Shape of the product.
    pub shape: Option<MatmulShape>,
    /// How often it was submitted.
    pub count: u32,
    /// Seconds of one.
    pub seconds: f64,
    /// Multiplications and additions of one, if it is a product.
    pub flops: f64,
}

impl DeviceOperation {
    /// Name of the kernel, or of what is no kernel.
    fn name(&self) -> &'static str {
        match self {
            Self::Launch { kernel: (_, kernel), .. } => kernel.name(),
            Self::Product(_) => "product",
            Self::Clear(..) => "clear",
            Self::Copy { .. } => "copy",
        }
    }

    /// What operations have in common that take equally long: all but their addresses.
    fn kind(&self) -> String {
        match self {
            Self::Launch { kernel, size, arguments } => {
                let is_number =
                    |argument: &&KernelArgument| !matches!(argument, KernelArgument::Address(_));
                let numbers: Vec<_> = arguments.iter().filter(is_number).collect();
                format!("{kernel:?} {size:?} {numbers:?}")
            }
            Self::Product(product) => {
                let Matmul { transposes_a, transposes_b, adds, epilogue, batch, c, .. } = product;
                let epilogue = std::mem::discriminant(epilogue);
                let form = (transposes_a, transposes_b, adds, epilogue, batch.count, c.element);
                format!("{:?} {form:?}", product.shape())
            }
            Self::Clear(_, bytes) => format!("clear {bytes}"),
            Self::Copy { bytes, .. } => format!("copy {bytes}"),
        }
    }

    fn product(&self) -> Option<&Matmul> {
        match self {
            Self::Product(product) => Some(product),
            Self::Launch { .. } | Self::Clear(..) | Self::Copy { .. } => None,
        }
    }

    fn submit(&self, device: &dyn Device, stream: StreamId) -> Result<(), DeviceError> {
        match self {
            Self::Launch { kernel, size, arguments } => {
                device.launch(stream, *kernel, *size, arguments)
            }
            Self::Product(product) => device.matmul(stream, product),
            Self::Clear(at, bytes) => device.clear(stream, *at, *bytes),
            Self::Copy { from, to, bytes } => device.copy(stream, *from, *to, *bytes),
        }
    }

    /// Returns the seconds that it takes, repeated on its memory.
    ///
    /// # Errors
    /// If the device fails.
    pub fn seconds(&self, device: &dyn Device, stream: StreamId) -> Result<f64, DeviceError> {
        let word = device.alloc(4)?;
        // A download waits for what was submitted before.
        let wait = || device.download(stream, word.address(), &mut [0; 4]);
        self.submit(device, stream)?;
        wait()?;
        let start = clock::now();
        (0..REPETITIONS).try_for_each(|_| self.submit(device, stream))?;
        wait()?;
        Ok((clock::now() - start).as_secs_f64() / f64::from(REPETITIONS))
    }
}

impl TimedOperation {
    /// Seconds of all of them.
    pub fn total(&self) -> f64 {
        f64::from(self.count) * self.seconds
    }
}

/// Times operations, equal ones once, in the order in which they were submitted. Each is repeated on its memory, which must
/// still be allocated; it has other content afterwards.
///
/// # Errors
/// If the device fails.
pub fn time_operations(
    device: &dyn Device,
    operations: &[DeviceOperation],
) -> Result<Vec<TimedOperation>, DeviceError> {
    let (stream, mut places) = (device.create_stream()?, HashMap::new());
    let mut timed: Vec<TimedOperation> = Vec::new();
    for operation in operations {
        let place = *places.entry(operation.kind()).or_insert(timed.len());
        if let Some(known) = timed.get_mut(place) {
            known.count += 1;
            continue;
        }
        let product = operation.product();
        let flops = product.map_or(0.0, |product| {
            let MatmulShape { rows, columns, inner } = product.shape();
            2.0 * [rows, columns, inner, product.batch.count].map(f64::from).iter().product::<f64>()
        });
        timed.push(TimedOperation {
            name: operation.name(),
            shape: product.map(Matmul::shape),
            count: 1,
            seconds: operation.seconds(device, stream)?,
            flops,
        });
    }
    Ok(timed)
}

/// A device that records operations while it passes them on.
pub struct RecordingDevice {
    inner: Arc<dyn Device>,
    /// Operations since [`start`](Self::start).
    recorded: Mutex<Option<Vec<DeviceOperation>>>,
}

impl RecordingDevice {
    /// Passes operations on to a device; it records none yet.
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Self { inner, recorded: Mutex::new(None) }
    }

    /// Begins to record.
    pub fn start(&self) {
        *lock(&self.recorded) = Some(Vec::new());
    }

    /// Ends the recording; returns its operations.
    pub fn stop(&self) -> Vec<DeviceOperation> {
        lock(&self.recorded).take().unwrap_or_default()
    }

    fn push(&self, operation: impl FnOnce() -> DeviceOperation) {
        if let Some(recorded) = &mut *lock(&self.recorded) {
            recorded.push(operation());
        }
    }
}

impl Device for RecordingDevice {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.inner.free_bytes()
    }

    fn alloc(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>, DeviceError> {
        self.inner.alloc(bytes)
    }

    fn alloc_exchanged(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>, DeviceError> {
        self.inner.alloc_exchanged(bytes)
    }

    fn create_stream(&self) -> Result<StreamId, DeviceError> {
        self.inner.create_stream()
    }

    fn create_event(&self) -> Result<EventId, DeviceError> {
        self.inner.create_event()
    }

    fn record(&self, stream: StreamId, event: EventId) -> Result<(), DeviceError> {
        self.inner.record(stream, event)
    }

    fn wait(&self, stream: StreamId, event: EventId) -> Result<(), DeviceError> {
        self.inner.wait(stream, event)
    }

    fn is_complete(&self, event: EventId) -> Result<bool, DeviceError> {
        self.inner.is_complete(event)
    }

    fn upload(&self, stream: StreamId, from: &[u8], to: DeviceAddress) -> Result<(), DeviceError> {
        self.inner.upload(stream, from, to)
    }

    fn create_pinned(&self, bytes: usize) -> Result<Option<PinnedId>, DeviceError> {
        self.inner.create_pinned(bytes)
    }

    fn upload_pinned(
        &self,
        stream: StreamId,
        through: PinnedId,
        from: &[u8],
        to: DeviceAddress,
    ) -> Result<(), DeviceError> {
        self.inner.upload_pinned(stream, through, from, to)
    }

    fn download(
        &self,
        stream: StreamId,
        from: DeviceAddress,
        to: &mut [u8],
    ) -> Result<(), DeviceError> {
        self.inner.download(stream, from, to)
    }

    fn copy(
        &self,
        stream: StreamId,
        from: DeviceAddress,
        to: DeviceAddress,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        self.push(|| DeviceOperation::Copy { from, to, bytes });
        self.inner.copy(stream, from, to, bytes)
    }

    fn clear(&self, stream: StreamId, at: DeviceAddress, bytes: usize) -> Result<(), DeviceError> {
        self.push(|| DeviceOperation::Clear(at, bytes));
        self.inner.clear(stream, at, bytes)
    }

    fn launch(
        &self,
        stream: StreamId,
        kernel: (KernelProgram, Kernel),
        size: KernelLaunch,
        arguments: &[KernelArgument],
    ) -> Result<(), DeviceError> {
        self.push(|| DeviceOperation::Launch { kernel, size, arguments: arguments.to_vec() });
        self.inner.launch(stream, kernel, size, arguments)
    }

    fn matmul(&self, stream: StreamId, product: &Matmul) -> Result<(), DeviceError> {
        self.push(|| DeviceOperation::Product(*product));
        self.inner.matmul(stream, product)
    }

    fn launch_source(
        &self,
        stream: StreamId,
        kernel: &SourceKernel,
        size: KernelLaunch,
        arguments: &[KernelArgument],
    ) -> Result<(), DeviceError> {
        self.inner.launch_source(stream, kernel, size, arguments)
    }

    fn load_source(&self, kernel: &SourceKernel) -> Result<(), DeviceError> {
        self.inner.load_source(kernel)
    }

    fn communicator_offer(&self) -> Option<CommunicatorOffer> {
        self.inner.communicator_offer()
    }

    fn create_communicator_id(&self) -> Result<UniqueId, DeviceError> {
        self.inner.create_communicator_id()
    }

    fn connect(
        &self,
        stream: StreamId,
        id: UniqueId,
        ranks: (usize, usize),
    ) -> Result<Box<dyn DeviceCommunicator>, DeviceError> {
        self.inner.connect(stream, id, ranks)
    }
}
