//! Device memory of which ranges are lent to operations in flight while its owner uses the rest.
//!
//! Events order the streams: an operation begins after the work that the owner's stream had when the range
//! was lent, and the owner takes the range back after the operation has ended.

use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{
    CudaEvent, CudaSlice, CudaStream, DevicePtr, DevicePtrMut, DeviceSlice, SyncOnDrop,
};

use crate::cuda::driver::driver_message;
use crate::runtime::comm::collectives::Lend;
use crate::runtime::comm::core::lent_ranges::LentRanges;
use crate::runtime::comm::device::element::DeviceElement;
use crate::runtime::error::{Error, Result};

/// Allocates `len` zeros, whose owner uses them in `stream`.
pub(super) fn alloc_zeros<T: DeviceElement>(
    stream: &Arc<CudaStream>,
    len: usize,
) -> Result<CudaSlice<T>> {
    stream.alloc_zeros(len).map_err(|error| {
        let bytes = len * size_of::<T>();
        Error::Device(format!("cannot allocate {bytes} B on the GPU: {}", driver_message(error)))
    })
}

/// Device memory whose ranges can be lent to operations in flight.
pub struct DeviceBuffer<T> {
    memory: Arc<CudaSlice<T>>,
    /// Address of the first element.
    address: CUdeviceptr,
    lent: LentRanges,
}

impl<T: DeviceElement> DeviceBuffer<T> {
    /// Allocates `len` zeros, whose owner uses them in `stream`.
    pub(super) fn zeros(stream: &Arc<CudaStream>, len: usize) -> Result<Self> {
        let zeros = alloc_zeros::<T>(stream, len)?;
        let address = zeros.device_ptr(stream).0;
        Ok(Self { memory: Arc::new(zeros), address, lent: LentRanges::new(len) })
    }

    /// Returns the stream in which the owner uses the memory.
    pub fn stream(&self) -> &Arc<CudaStream> {
        self.memory.stream()
    }

    /// Returns the elements of a range, for work in the owner's stream.
    ///
    /// # Panics
    /// If a part of it is lent, or it is outside the memory.
    pub fn view_mut(&mut self, range: &Range<usize>) -> DeviceRange<'_, T> {
        self.lent.assert_free(range);
        DeviceRange { address: self.address_of(range), len: range.len(), memory: &self.memory }
    }

    /// Address of the first element of a range.
    fn address_of(&self, range: &Range<usize>) -> CUdeviceptr {
        self.address + (range.start * size_of::<T>()) as CUdeviceptr
    }
}

/// Range of a [`DeviceBuffer`] that its owner uses, in the owner's stream.
pub struct DeviceRange<'a, T> {
    memory: &'a CudaSlice<T>,
    len: usize,
    /// Address of its first element.
    address: CUdeviceptr,
}

impl<T> DeviceRange<'_, T> {
    fn assert_own_stream(&self, stream: &CudaStream) {
        let is_own = self.memory.stream().cu_stream() == stream.cu_stream();
        assert!(is_own, "the owner of lent memory uses it in its own stream");
    }
}

impl<T> DeviceSlice<T> for DeviceRange<'_, T> {
    fn len(&self) -> usize {
        self.len
    }

    fn stream(&self) -> &Arc<CudaStream> {
        self.memory.stream()
    }
}

impl<T> DevicePtr<T> for DeviceRange<'_, T> {
    fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        self.assert_own_stream(stream);
        (self.address, SyncOnDrop::Record(None))
    }
}

impl<T> DevicePtrMut<T> for DeviceRange<'_, T> {
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        self.assert_own_stream(stream);
        (self.address, SyncOnDrop::Record(None))
    }
}

/// Range of a [`DeviceBuffer`] that is lent.
pub struct LentDevice<T> {
    /// Keeps the memory.
    memory: Arc<CudaSlice<T>>,
    range: Range<usize>,
    /// Address of its first element.
    address: CUdeviceptr,
    /// The work of the owner's stream before the range was lent; `None` if that has ended.
    ready: Option<CudaEvent>,
}

impl<T> LentDevice<T> {
    /// Number of elements.
    pub(super) fn elements(&self) -> usize {
        self.range.len()
    }

    /// Makes a stream wait for the owner's work.
    fn order(&self, stream: &CudaStream) {
        if let Some(ready) = &self.ready {
            stream.context().record_err(stream.wait(ready));
        }
    }
}

impl<T: DeviceElement> Lend for DeviceBuffer<T> {
    type Lent = LentDevice<T>;

    fn lend(&mut self, range: &Range<usize>) -> LentDevice<T> {
        self.lent.lend(range);
        let ready = self.stream().record_event(None).ok();
        if ready.is_none() {
            self.stream().context().record_err(self.stream().synchronize());
        }
        LentDevice {
            memory: self.memory.clone(),
            range: range.clone(),
            address: self.address_of(range),
            ready,
        }
    }

    fn restore(&mut self, lent: LentDevice<T>) {
        let is_own = Arc::ptr_eq(&self.memory, &lent.memory);
        assert!(is_own, "elements {:?} were lent by another buffer", lent.range);
        self.lent.restore(&lent.range);
    }
}

impl<T> DeviceSlice<T> for LentDevice<T> {
    fn len(&self) -> usize {
        self.range.len()
    }

    fn stream(&self) -> &Arc<CudaStream> {
        self.memory.stream()
    }
}

/// Events of the memory order its uses, so that a use of one range does not wait for other ranges.
impl<T> DevicePtr<T> for LentDevice<T> {
    fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        self.order(stream);
        (self.address, SyncOnDrop::Record(None))
    }
}

impl<T> DevicePtrMut<T> for LentDevice<T> {
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        self.order(stream);
        (self.address, SyncOnDrop::Record(None))
    }
}
