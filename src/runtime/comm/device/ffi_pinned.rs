//! Calls of the CUDA driver.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::{
    CudaContext, CudaEvent, CudaStream, DevicePtr, DevicePtrMut, DriverError, SyncOnDrop, result,
    sys,
};

use crate::cuda::driver::driver_message;
use crate::runtime::comm::device::pipeline::{ChunkBuffer, Copier};
use crate::runtime::comm::shm::buffer::Buffer;
use crate::runtime::dtype::element::Element;
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
    pub(crate) const fn slot_len<T>() -> usize {
        SLOT_BYTES / size_of::<T>()
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
pub(crate) struct OperandMemory<'a, T> {
    input: (sys::CUdeviceptr, usize),
    output: (sys::CUdeviceptr, usize),
    /// Guards that make streams which use the memory later wait for this operation.
    #[expect(dead_code, reason = "dropping them ends the operation's use of the memory")]
    guards: Vec<SyncOnDrop<'a>>,
    element: PhantomData<T>,
}

impl<'a, T: Element> OperandMemory<'a, T> {
    /// Memory that is both input and output.
    pub(crate) fn in_place(data: &'a mut impl DevicePtrMut<T>, stream: &'a CudaStream) -> Self {
        let all = 0..data.len();
        Self::within(data, (&all, &all), stream)
    }

    /// Memory of which a range is the input and a range is the output.
    pub(crate) fn within(
        data: &'a mut impl DevicePtrMut<T>,
        (input, output): (&Range<usize>, &Range<usize>),
        stream: &'a CudaStream,
    ) -> Self {
        let len = data.len();
        let (at, guard) = data.device_ptr_mut(stream);
        let part = |range: &Range<usize>| (Self::address((at, len), range), range.len());
        Self { input: part(input), output: part(output), guards: vec![guard], element: PhantomData }
    }

    /// Separate memory for input and output.
    pub(crate) fn out_of_place(
        (input, to_host): (&'a impl DevicePtr<T>, &'a CudaStream),
        (output, to_device): (&'a mut impl DevicePtrMut<T>, &'a CudaStream),
    ) -> Self {
        let (input_len, output_len) = (input.len(), output.len());
        let (from, reads) = input.device_ptr(to_host);
        let (to, writes) = output.device_ptr_mut(to_device);
        Self {
            input: (from, input_len),
            output: (to, output_len),
            guards: vec![reads, writes],
            element: PhantomData,
        }
    }

    fn address((start, len): (sys::CUdeviceptr, usize), range: &Range<usize>) -> sys::CUdeviceptr {
        assert!(range.start <= range.end && range.end <= len, "a range exceeds its memory");
        start + (range.start * size_of::<T>()) as u64
    }
}

/// Copies of one operation between its device memory and the slots.
pub(crate) struct DeviceCopier<'a, T: Element> {
    pinned: &'a mut PinnedSlots,
    slots: Vec<ChunkBuffer<T>>,
    to_host: &'a Arc<CudaStream>,
    to_device: &'a Arc<CudaStream>,
    filled: Vec<Option<CudaEvent>>,
    emptied: Vec<Option<CudaEvent>>,
    operands: OperandMemory<'a, T>,
}

impl<'a, T: Element> DeviceCopier<'a, T> {
    /// Reserves the slots for one operation.
    pub(crate) fn new(
        pinned: &'a mut PinnedSlots,
        (to_host, to_device): (&'a Arc<CudaStream>, &'a Arc<CudaStream>),
        operands: OperandMemory<'a, T>,
    ) -> Self {
        let bytes = pinned.slots.take().expect("operations of a group run one after the other");
        let slot = |(input, output): (Buffer<u8>, Buffer<u8>)| ChunkBuffer {
            input: input.cast(),
            output: output.cast(),
        };
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

impl<T: Element> Drop for DeviceCopier<'_, T> {
    fn drop(&mut self) {
        // The device must not access memory that may be reused.
        let _ = self.to_host.synchronize();
        let _ = self.to_device.synchronize();
        let bytes = |slot: ChunkBuffer<T>| (slot.input.cast(), slot.output.cast());
        self.pinned.slots = Some(self.slots.drain(..).map(bytes).collect());
    }
}

impl<T: Element> Copier<T> for DeviceCopier<'_, T> {
    type Error = DriverError;

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
            let to = &mut self.slots[slot].input[at..at + range.len()];
            let from = OperandMemory::<T>::address(self.operands.input, range);
            // SAFETY: both ranges were checked; the slot is not accessed before the event below has
            // occurred, and lives until the stream has finished with it.
            unsafe { result::memcpy_dtoh_async(to, from, self.to_host.cu_stream())? };
            at += range.len();
        }
        self.filled[slot] = Some(self.to_host.record_event(None)?);
        Ok(())
    }

    fn is_filled(&mut self, slot: usize) -> Result<bool, DriverError> {
        self.filled[slot].as_ref().map_or(Ok(true), CudaEvent::try_is_complete)
    }

    fn slot(&mut self, slot: usize) -> &mut ChunkBuffer<T> {
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
            let slot = &self.slots[slot];
            let from = if is_in_place { &slot.input } else { &slot.output };
            let from = &from[at..at + range.len()];
            let to = OperandMemory::<T>::address(self.operands.output, range);
            // SAFETY: as for `begin_out`.
            unsafe { result::memcpy_htod_async(to, from, self.to_device.cu_stream())? };
            at += range.len();
        }
        self.emptied[slot] = Some(self.to_device.record_event(None)?);
        Ok(())
    }

    fn is_emptied(&mut self, slot: usize) -> Result<bool, DriverError> {
        self.emptied[slot].as_ref().map_or(Ok(true), CudaEvent::try_is_complete)
    }
}
