//! Calls of the CUDA driver.

use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, result, sys};

use crate::cuda::driver::driver_message;
use crate::cuda::nccl::BufferLease;
use crate::runtime::comm::device::chunk::ChunkBuffer;
use crate::runtime::comm::device::operand::DeviceOperand;
use crate::runtime::comm::device::pipeline::Copier;
use crate::runtime::comm::shm::buffer::Buffer;
use crate::runtime::error::{Error, Result};

/// Opens device `ordinal` of the devices that this process can use.
///
/// # Errors
/// If there is no driver or no such device.
pub fn open_device(ordinal: usize) -> Result<Arc<CudaContext>> {
    let visible = device_count()?;
    CudaContext::new(ordinal).map_err(|error| {
        let message = driver_message(error);
        Error::Device(format!("cannot open GPU {ordinal} ({visible} are visible): {message}"))
    })
}

/// Returns the number of devices that this process can use.
pub fn device_count() -> Result<usize> {
    // SAFETY: the call opens a library of the system and closes it again.
    if !unsafe { sys::is_culib_present() } {
        let problem = "cannot use a GPU: there is no CUDA driver (`libcuda.so.1`) on this machine";
        return Err(Error::Device(problem.to_owned()));
    }
    let count = CudaContext::device_count().map_err(|error| {
        Error::Device(format!("cannot count the GPUs of this machine: {}", driver_message(error)))
    })?;
    Ok(count.max(0) as usize)
}

/// Size in bytes of a slot of pinned host memory.
const SLOT_BYTES: usize = 4 << 20;
/// Number of slots in each direction: while one is filled, another is processed, another emptied.
const SLOTS: usize = 3;

/// Pinned host memory in the segment of the node, which the device reads and writes directly.
pub(crate) struct PinnedSlots {
    context: Arc<CudaContext>,
    /// Slots for input and output; `None` while an operation uses them.
    slots: Option<Vec<(Buffer<u8>, Buffer<u8>)>>,
    /// Addresses of the memory that is registered with the driver.
    registered: Vec<usize>,
    /// Why the driver has not pinned some of the memory.
    refusal: Option<String>,
}

impl PinnedSlots {
    /// Allocates and pins the slots. Memory that the driver refuses to pin is used too, but slower.
    pub(crate) fn new(
        context: &Arc<CudaContext>,
        mut alloc: impl FnMut(usize) -> Result<Buffer<u8>>,
    ) -> Result<Self> {
        let mut slots = Vec::new();
        for _ in 0..SLOTS {
            slots.push((alloc(SLOT_BYTES)?, alloc(SLOT_BYTES)?));
        }
        let bound = context.bind_to_thread();
        let (mut registered, mut refusal) = (Vec::new(), bound.err().map(driver_message));
        for buffer in slots.iter().flat_map(|(input, output)| [input, output]) {
            let at = buffer.as_ptr() as usize;
            // SAFETY: the memory is mapped by this process and registered until this value is
            // dropped, and the buffers live as long.
            let code = unsafe { sys::cuMemHostRegister_v2(at as *mut _, SLOT_BYTES, 0) };
            match code.result() {
                Ok(()) => registered.push(at),
                Err(error) => refusal = Some(driver_message(error)),
            }
        }
        Ok(Self { context: context.clone(), slots: Some(slots), registered, refusal })
    }

    /// Why the driver has not pinned some of the memory, so that copies are slow.
    pub(crate) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Number of elements that a slot holds.
    pub(crate) const fn slot_len(element_bytes: usize) -> usize {
        SLOT_BYTES / element_bytes
    }
}

impl Drop for PinnedSlots {
    fn drop(&mut self) {
        let _ = self.context.bind_to_thread();
        for at in &self.registered {
            // SAFETY: the memory is registered, and no copy is in progress: operations wait for
            // their copies.
            let _ = unsafe { sys::cuMemHostUnregister(*at as *mut _) };
        }
    }
}

/// Device memory of one operation: input and output.
pub(crate) struct OperandMemory<'a> {
    input: DeviceElements,
    output: DeviceElements,
    element_bytes: usize,
    /// Streams that use the memory later wait for this operation.
    #[expect(dead_code, reason = "dropping them ends the operation's use of the memory")]
    leases: Vec<BufferLease<'a>>,
}

/// Elements at an address of the device.
#[derive(Clone, Copy)]
struct DeviceElements {
    address: sys::CUdeviceptr,
    len: usize,
}

impl<'a> OperandMemory<'a> {
    /// Memory of which a range is the input and a range is the output.
    pub(crate) fn within(
        data: &'a mut dyn DeviceOperand,
        (input, output): (&Range<usize>, &Range<usize>),
        stream: &'a CudaStream,
    ) -> Self {
        let element_bytes = data.dtype().bytes();
        let lease = data.lease(stream);
        let part = |range: &Range<usize>| DeviceElements::of(&lease.part(range));
        Self { input: part(input), output: part(output), element_bytes, leases: vec![lease] }
    }

    /// Separate memory for input and output.
    pub(crate) fn out_of_place(
        (input, to_host): (&'a mut dyn DeviceOperand, &'a CudaStream),
        (output, to_device): (&'a mut dyn DeviceOperand, &'a CudaStream),
    ) -> Self {
        let element_bytes = output.dtype().bytes();
        let (read, written) = (input.lease(to_host), output.lease(to_device));
        Self {
            input: DeviceElements::of(&read),
            output: DeviceElements::of(&written),
            element_bytes,
            leases: vec![read, written],
        }
    }

    /// Size of an element.
    pub(crate) fn element_bytes(&self) -> usize {
        self.element_bytes
    }

    /// Address of the first element of a range, and the number of its bytes.
    fn bytes(&self, all: DeviceElements, range: &Range<usize>) -> (sys::CUdeviceptr, usize) {
        assert!(range.start <= range.end && range.end <= all.len, "a range exceeds its memory");
        let address = all.address + (range.start * self.element_bytes) as u64;
        (address, range.len() * self.element_bytes)
    }
}

impl DeviceElements {
    fn of(lease: &BufferLease<'_>) -> Self {
        Self { address: lease.address(), len: lease.len() }
    }
}

/// Copies of one operation between its device memory and the slots.
pub(crate) struct DeviceCopier<'a> {
    pinned: &'a mut PinnedSlots,
    slots: Vec<ChunkBuffer>,
    to_host: &'a Arc<CudaStream>,
    to_device: &'a Arc<CudaStream>,
    filled: Vec<Option<CudaEvent>>,
    emptied: Vec<Option<CudaEvent>>,
    operands: OperandMemory<'a>,
}

impl<'a> DeviceCopier<'a> {
    /// Reserves the slots for one operation.
    pub(crate) fn new(
        pinned: &'a mut PinnedSlots,
        (to_host, to_device): (&'a Arc<CudaStream>, &'a Arc<CudaStream>),
        operands: OperandMemory<'a>,
    ) -> Self {
        let bytes = pinned.slots.take().expect("operations of a group run one after the other");
        let element_bytes = operands.element_bytes;
        let slot = |(input, output)| ChunkBuffer { input, output, element_bytes };
        Self {
            slots: bytes.into_iter().map(slot).collect(),
            pinned,
            to_host,
            to_device,
            filled: (0..SLOTS).map(|_| None).collect(),
            emptied: (0..SLOTS).map(|_| None).collect(),
            operands,
        }
    }
}

impl Drop for DeviceCopier<'_> {
    fn drop(&mut self) {
        // The device must not access memory that may be reused.
        let _ = self.to_host.synchronize();
        let _ = self.to_device.synchronize();
        self.pinned.slots =
            Some(self.slots.drain(..).map(|slot| (slot.input, slot.output)).collect());
    }
}

impl Copier for DeviceCopier<'_> {
    type Error = DriverError;
    type Slot = ChunkBuffer;

    fn slots(&self) -> usize {
        SLOTS
    }

    fn start_copy_to_host(
        &mut self,
        slot: usize,
        ranges: &[Range<usize>],
    ) -> Result<(), DriverError> {
        let mut at = 0;
        for range in ranges {
            let (from, bytes) = self.operands.bytes(self.operands.input, range);
            let to = &mut self.slots[slot].input[at..at + bytes];
            // SAFETY: both ranges were checked; the slot is not accessed before the event below has
            // occurred, and lives until the stream has finished with it.
            unsafe { result::memcpy_dtoh_async(to, from, self.to_host.cu_stream())? };
            at += bytes;
        }
        self.filled[slot] = Some(self.to_host.record_event(None)?);
        Ok(())
    }

    fn is_filled(&mut self, slot: usize) -> Result<bool, DriverError> {
        self.filled[slot].as_ref().map_or(Ok(true), CudaEvent::try_is_complete)
    }

    fn slot(&mut self, slot: usize) -> &mut ChunkBuffer {
        &mut self.slots[slot]
    }

    fn start_copy_to_device(
        &mut self,
        slot: usize,
        ranges: &[Range<usize>],
        is_in_place: bool,
    ) -> Result<(), DriverError> {
        let mut at = 0;
        for range in ranges {
            let (to, bytes) = self.operands.bytes(self.operands.output, range);
            let slot = &self.slots[slot];
            let from = if is_in_place { &slot.input } else { &slot.output };
            let from = &from[at..at + bytes];
            // SAFETY: as for `start_copy_to_host`.
            unsafe { result::memcpy_htod_async(to, from, self.to_device.cu_stream())? };
            at += bytes;
        }
        self.emptied[slot] = Some(self.to_device.record_event(None)?);
        Ok(())
    }

    fn is_emptied(&mut self, slot: usize) -> Result<bool, DriverError> {
        self.emptied[slot].as_ref().map_or(Ok(true), CudaEvent::try_is_complete)
    }
}
