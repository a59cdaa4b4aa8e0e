//! [`Device`]: what the runtime asks of a GPU.

use crate::cuda::device::communicator::{CommunicatorOffer, DeviceCommunicator};
use crate::cuda::device::error::DeviceError;
use crate::cuda::device::matmul::Matmul;
use crate::cuda::device::types::{
    DeviceAddress, EventId, KernelArgument, PinnedId, SourceKernel, StreamId,
};
use crate::cuda::kernels::{Kernel, KernelLaunch, KernelProgram};
use crate::cuda::nccl::UniqueId;

/// Memory of a device; it is released when this is dropped, after the operations that were submitted before.
pub trait DeviceMemory: Send + Sync {
    /// Returns the address of the first byte, a multiple of 256.
    fn address(&self) -> DeviceAddress;

    /// Returns the number of bytes.
    fn bytes(&self) -> usize;
}

/// A GPU, or what takes its place.
///
/// Operations are submitted to a stream and executed later, in the order of the stream. Nothing orders the
/// operations of two streams but events. Memory that an operation uses must stay allocated until the operation has
/// been executed, and a range must not be used by two streams at once if one of them writes it.
pub trait Device: Send + Sync {
    /// Returns the name of the device, for messages.
    fn name(&self) -> String;

    /// Returns the number of bytes that are free, if the device knows it.
    fn free_bytes(&self) -> Option<u64>;

    /// Allocates memory, whose content is not defined.
    ///
    /// # Errors
    /// If there is too little.
    fn alloc(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>, DeviceError>;

    /// Allocates memory for exchanges between ranks, whose content is not defined: that of the library of
    /// [`Self::connect`], if it has an allocator. Then [`DeviceCommunicator::register`] saves copies.
    ///
    /// # Errors
    /// If there is too little.
    fn alloc_exchanged(&self, bytes: usize) -> Result<Box<dyn DeviceMemory>, DeviceError>;

    /// Creates a stream.
    ///
    /// # Errors
    /// If the device fails.
    fn create_stream(&self) -> Result<StreamId, DeviceError>;

    /// Creates an event, which is complete.
    ///
    /// # Errors
    /// If the device fails.
    fn create_event(&self) -> Result<EventId, DeviceError>;

    /// Moves an event behind the operations that a stream has now.
    ///
    /// # Errors
    /// If the device fails.
    fn record(&self, stream: StreamId, event: EventId) -> Result<(), DeviceError>;

    /// Lets the later operations of a stream wait for an event, as it was recorded last.
    ///
    /// # Errors
    /// If the device fails.
    fn wait(&self, stream: StreamId, event: EventId) -> Result<(), DeviceError>;

    /// Returns whether all operations before an event have been executed.
    ///
    /// # Errors
    /// If one of them failed.
    fn is_complete(&self, event: EventId) -> Result<bool, DeviceError>;

    /// Copies bytes from the host; `from` may be reused when this returns.
    ///
    /// # Errors
    /// If the device fails.
    fn upload(&self, stream: StreamId, from: &[u8], to: DeviceAddress) -> Result<(), DeviceError>;

    /// Allocates pinned memory of the host, which is released with the device; `None` if the host has none.
    ///
    /// # Errors
    /// If the device fails.
    fn create_pinned(&self, bytes: usize) -> Result<Option<PinnedId>, DeviceError>;

    /// Copies bytes from the host through pinned memory, which has room for them; `from` may be reused when this returns,
    /// and the host waits for nothing. The copy before through the same memory must have been executed, or it copies
    /// other bytes.
    ///
    /// # Errors
    /// If the device fails.
    fn upload_pinned(
        &self,
        stream: StreamId,
        through: PinnedId,
        from: &[u8],
        to: DeviceAddress,
    ) -> Result<(), DeviceError>;

    /// Copies bytes to the host. The host waits until the stream has executed all of its operations.
    ///
    /// # Errors
    /// If an operation of the stream failed.
    fn download(
        &self,
        stream: StreamId,
        from: DeviceAddress,
        to: &mut [u8],
    ) -> Result<(), DeviceError>;

    /// Copies bytes within the device. The ranges do not overlap.
    ///
    /// # Errors
    /// If the device fails.
    fn copy(
        &self,
        stream: StreamId,
        from: DeviceAddress,
        to: DeviceAddress,
        bytes: usize,
    ) -> Result<(), DeviceError>;

    /// Fills a range with zeros.
    ///
    /// # Errors
    /// If the device fails.
    fn clear(&self, stream: StreamId, at: DeviceAddress, bytes: usize) -> Result<(), DeviceError>;

    /// Launches a kernel of a program.
    ///
    /// # Errors
    /// If the program cannot be compiled or the launch is refused.
    fn launch(
        &self,
        stream: StreamId,
        kernel: (KernelProgram, Kernel),
        size: KernelLaunch,
        arguments: &[KernelArgument],
    ) -> Result<(), DeviceError>;

    /// Multiplies matrices. An epilogue may be computed from the product as it is rounded: a device does what is faster.
    ///
    /// # Errors
    /// If the device fails.
    fn matmul(&self, stream: StreamId, product: &Matmul) -> Result<(), DeviceError>;

    /// Launches a kernel whose source was made at run time.
    ///
    /// # Errors
    /// As [`Self::launch`].
    fn launch_source(
        &self,
        stream: StreamId,
        kernel: &SourceKernel,
        size: KernelLaunch,
        arguments: &[KernelArgument],
    ) -> Result<(), DeviceError>;

    /// Loads such a kernel, so that its first launch waits for nothing: a device loads code when it is idle.
    ///
    /// # Errors
    /// If it cannot be compiled.
    fn load_source(&self, kernel: &SourceKernel) -> Result<(), DeviceError>;

    /// Returns what other ranks must know before they connect their devices with this one; `None` if it cannot be
    /// connected.
    fn communicator_offer(&self) -> Option<CommunicatorOffer>;

    /// Creates the identifier of a new communicator, on one of its ranks.
    ///
    /// # Errors
    /// If the device cannot be connected.
    fn create_communicator_id(&self) -> Result<UniqueId, DeviceError>;

    /// Connects the devices of `world` ranks, of which this is `rank`, for operations in a stream of this device. All of
    /// them call it with the same identifier. It may return before they are connected: see
    /// [`DeviceCommunicator::is_submitted`].
    ///
    /// # Errors
    /// If the device cannot be connected.
    fn connect(
        &self,
        stream: StreamId,
        id: UniqueId,
        ranks: (usize, usize),
    ) -> Result<Box<dyn DeviceCommunicator>, DeviceError>;
}
