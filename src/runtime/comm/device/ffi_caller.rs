//! Device memory of another library, such as torch, for one operation: an address, and the stream in which the caller
//! uses the memory.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUstream};
use cudarc::driver::{CudaEvent, CudaStream, SyncOnDrop, result};

use crate::base::lock;
use crate::cuda::driver::driver_message;
use crate::cuda::nccl::BufferLease;
use crate::runtime::comm::core::error::CollectiveError;
use crate::runtime::comm::device::ffi_work::DeviceWork;
use crate::runtime::comm::device::group::DeviceGroup;
use crate::runtime::comm::device::operand::DeviceOperand;
use crate::runtime::dtype::element::Dtype;
use crate::runtime::error::{Error, Result};

/// Point in a stream of the caller, after which an operation may use the memory of the caller.
pub struct CallerStream {
    ready: CudaEvent,
}

impl DeviceGroup {
    /// Starts the one operation that `call` makes, instead of waiting for it. Operations run in the order of their start,
    /// which is the same on all ranks; a blocking one waits for all of them. Through host memory, an operation has ended
    /// when it is started.
    ///
    /// # Safety
    /// The memory of the operation stays allocated, and no other code uses it, until the operation has ended: until the
    /// [`DeviceWork`] has an outcome, or for work of a stream after [`DeviceWork::order`].
    ///
    /// # Errors
    /// Those of `call`.
    pub unsafe fn start<E: From<CollectiveError>>(
        &self,
        call: impl FnOnce(&Self) -> Result<(), E>,
    ) -> Result<DeviceWork, E> {
        let starting = Self { connection: self.connection.clone(), started: Some(Arc::default()) };
        call(&starting)?;
        let work = starting.started.and_then(|started| lock(&started).take());
        Ok(work.unwrap_or_else(|| DeviceWork::ended(self.group())))
    }
}

impl CallerStream {
    /// Records the work that `stream` has now; null is the default stream of the device.
    ///
    /// # Safety
    /// `stream` is null or a stream of the context of `devices` that lives through the call.
    ///
    /// # Errors
    /// If the driver cannot record an event.
    pub unsafe fn record(devices: &DeviceGroup, stream: *mut c_void) -> Result<Self> {
        let context = devices.stream().context();
        let failed = |error| {
            Error::Device(format!("cannot order the streams of a GPU: {}", driver_message(error)))
        };
        let ready = context.new_event(None).map_err(failed)?;
        // SAFETY: the event lives, and the caller promises that the stream does.
        unsafe { result::event::record(ready.cu_event(), stream.cast::<_>() as CUstream) }
            .map_err(failed)?;
        Ok(Self { ready })
    }

    /// Memory of the caller.
    ///
    /// # Safety
    /// Until the operation with this memory has ended, `len` elements from `address` are on the device of the
    /// group, and no other code uses them, except for work that the stream had when it was recorded.
    pub unsafe fn memory(&self, address: u64, len: usize, dtype: Dtype) -> CallerMemory<'_> {
        CallerMemory { stream: self, address, len, dtype }
    }

    /// Makes the stream of an operation wait for the caller's work. The caller itself waits for the operation, so its
    /// streams need no event.
    pub(super) fn order(&self, stream: &CudaStream) {
        stream.context().record_err(stream.wait(&self.ready));
    }
}

/// Elements of the caller on a device.
pub struct CallerMemory<'a> {
    stream: &'a CallerStream,
    address: CUdeviceptr,
    len: usize,
    dtype: Dtype,
}

impl DeviceOperand for CallerMemory<'_> {
    fn count(&self) -> usize {
        self.len
    }

    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn lease<'a>(&'a mut self, stream: &'a CudaStream) -> BufferLease<'a> {
        self.stream.order(stream);
        let memory = (self.address, SyncOnDrop::Record(None));
        BufferLease::new(memory, self.len, self.dtype.into())
    }
}
