//! Calls of the driver.
//!
//! Device memory is named by addresses. A wrong one is an error of the device, which the driver reports; it cannot
//! harm the memory of the host, because the addresses of the two are different.

use std::ffi::{c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::result::{self, event, function, launch_kernel, module, stream};
use cudarc::driver::sys::{
    self, CUevent, CUevent_flags, CUevent_wait_flags, CUfunction, CUfunction_attribute, CUmodule,
    CUresult, CUstream,
};
use cudarc::driver::{CudaContext, DriverError};

use crate::cuda::cublaslt::{LtAddresses, LtPlan, LtWorkspace};
use crate::cuda::device::{DeviceAddress, DeviceError, KernelArgument};
use crate::cuda::driver::message::driver_message;
use crate::cuda::kernels::KernelLaunch;
use crate::cuda::nvrtc::Architecture;

/// Largest shared memory of a block that needs no attribute, in bytes.
const SHARED_BYTES_USUAL: u32 = 48 << 10;

/// Driver and device of a process.
#[derive(Clone, Debug)]
pub(super) struct Driver(Arc<CudaContext>);

/// Stream, which is destroyed with the driver's context.
#[derive(Clone, Copy, Debug)]
pub(in crate::cuda) struct RawStream(CUstream);

/// Event, which is destroyed with the driver's context.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawEvent(CUevent);

/// Loaded program, which is unloaded with the driver's context.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawModule(CUmodule);

/// Kernel of a loaded program.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawKernel(CUfunction);

/// Pinned memory of the host.
#[derive(Debug)]
pub(super) struct PinnedMemory {
    driver: Driver,
    at: *mut u8,
    bytes: usize,
}

impl Drop for PinnedMemory {
    fn drop(&mut self) {
        if self.driver.enter().is_ok() {
            // SAFETY: the memory is that of an allocation, and is not used any more: memory of the device, to which it
            // was copied, was released before, once the device was idle.
            let _ = unsafe { result::free_host(self.at.cast()) };
        }
    }
}

// SAFETY: the memory is used through the lock of its device.
unsafe impl Send for PinnedMemory {}
// SAFETY: the driver's handles may be used by every thread.
unsafe impl Send for RawStream {}
// SAFETY: as above.
unsafe impl Send for RawEvent {}
// SAFETY: as above.
unsafe impl Send for RawModule {}
// SAFETY: as above.
unsafe impl Send for RawKernel {}

impl RawStream {
    /// The stream as other libraries of NVIDIA name it.
    pub(in crate::cuda) fn handle(self) -> *mut c_void {
        self.0.cast()
    }
}

/// Converts an error of the driver.
fn failed(operation: &str) -> impl FnOnce(DriverError) -> DeviceError {
    let operation = operation.to_owned();
    move |error| DeviceError::Failed { operation, problem: driver_message(error) }
}

impl Driver {
    /// Takes over a device that was opened.
    pub(super) fn new(context: Arc<CudaContext>) -> Self {
        Self(context)
    }

    /// The context must be current in the thread that calls the driver.
    pub(super) fn enter(&self) -> Result<(), DeviceError> {
        self.0.bind_to_thread().map_err(failed("the choice of the device"))
    }

    pub(super) fn name(&self) -> String {
        self.0.name().unwrap_or_else(|_| format!("GPU {}", self.0.ordinal()))
    }

    /// UUID of the device.
    pub(super) fn uuid(&self) -> Result<u128, DeviceError> {
        let uuid = self.0.uuid().map_err(failed("the question for its UUID"))?;
        Ok(u128::from_be_bytes(uuid.bytes.map(|byte| byte as u8)))
    }

    pub(super) fn architecture(&self) -> Result<Architecture, DeviceError> {
        let (major, minor) =
            self.0.compute_capability().map_err(failed("the question for its architecture"))?;
        Ok(Architecture { major: major as u32, minor: minor as u32 })
    }

    /// Bytes that are free.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        self.enter().ok()?;
        let (free, _total) = result::mem_get_info().ok()?;
        Some(free as u64)
    }

    /// Allocates memory; an address is a multiple of 256.
    pub(super) fn alloc(&self, bytes: usize) -> Result<DeviceAddress, DeviceError> {
        self.enter()?;
        // SAFETY: the memory is not read before it is written.
        match unsafe { result::malloc_sync(bytes.max(1)) } {
            Ok(address) => Ok(DeviceAddress(address)),
            Err(error) if error.0 == CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                Err(DeviceError::OutOfMemory { bytes, problem: driver_message(error) })
            }
            Err(error) => Err(failed("an allocation")(error)),
        }
    }

    /// Releases memory once all operations of the device have been executed.
    pub(super) fn free(&self, address: DeviceAddress) {
        if self.enter().is_ok() {
            // SAFETY: the caller has allocated it and does not use it any more. After an error of the device, the
            // driver releases everything with the context.
            let _ = unsafe { result::free_sync(address.0) };
        }
    }

    /// Drops the owner of memory once all operations of the device have been executed.
    pub(super) fn free_after_operations<T>(&self, memory: T) {
        // After an error of the device there is nothing to wait for.
        let _ = self.enter().map(|()| self.0.synchronize());
        drop(memory);
    }

    /// Creates a stream that does not wait for the default stream.
    pub(super) fn create_stream(&self) -> Result<RawStream, DeviceError> {
        self.enter()?;
        let created = stream::create(stream::StreamKind::NonBlocking);
        created.map(RawStream).map_err(failed("the creation of a stream"))
    }

    /// Creates an event without a time.
    pub(super) fn create_event(&self) -> Result<RawEvent, DeviceError> {
        self.enter()?;
        let created = event::create(CUevent_flags::CU_EVENT_DISABLE_TIMING);
        created.map(RawEvent).map_err(failed("the creation of an event"))
    }

    pub(super) fn record(&self, on: RawStream, event: RawEvent) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: both handles are live.
        unsafe { event::record(event.0, on.0) }.map_err(failed("the record of an event"))
    }

    pub(super) fn wait(&self, on: RawStream, event: RawEvent) -> Result<(), DeviceError> {
        self.enter()?;
        let flags = CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both handles are live.
        unsafe { stream::wait_event(on.0, event.0, flags) }.map_err(failed("the wait for an event"))
    }

    pub(super) fn is_complete(&self, event: RawEvent) -> Result<bool, DeviceError> {
        self.enter()?;
        // SAFETY: the handle is live.
        match unsafe { event::query(event.0) } {
            Ok(()) => Ok(true),
            Err(error) if error.0 == CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            Err(error) => Err(failed("the question for an event")(error)),
        }
    }

    /// Copies from the host. The driver has copied pageable memory when the call returns.
    pub(super) fn upload(
        &self,
        on: RawStream,
        from: &[u8],
        to: DeviceAddress,
    ) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: the bytes are pageable memory of the host, which the call reads before it returns.
        unsafe { result::memcpy_htod_async(to.0, from, on.0) }
            .map_err(failed("a copy to the device"))
    }

    /// Allocates pinned memory of the host; `None` if there is too little.
    pub(super) fn alloc_pinned(&self, bytes: usize) -> Result<Option<PinnedMemory>, DeviceError> {
        self.enter()?;
        // SAFETY: the memory is written before it is read.
        match unsafe { result::malloc_host(bytes, 0) } {
            Ok(at) => Ok(Some(PinnedMemory { driver: self.clone(), at: at.cast(), bytes })),
            Err(error) if error.0 == CUresult::CUDA_ERROR_OUT_OF_MEMORY => Ok(None),
            Err(error) => Err(failed("an allocation of pinned memory")(error)),
        }
    }

    /// Copies from the host through pinned memory. The device has executed the copy before.
    pub(super) fn upload_pinned(
        &self,
        on: RawStream,
        through: &PinnedMemory,
        from: &[u8],
        to: DeviceAddress,
    ) -> Result<(), DeviceError> {
        assert!(from.len() <= through.bytes, "pinned memory has room for a copy");
        self.enter()?;
        // SAFETY: the memory has room for the bytes and is not part of them. The device reads it at a later time, while it
        // stays allocated; a copy that is not over yet copies other bytes.
        let copied = unsafe {
            ptr::copy_nonoverlapping(from.as_ptr(), through.at, from.len());
            sys::cuMemcpyHtoDAsync_v2(to.0, through.at.cast(), from.len(), on.0)
        };
        copied.result().map_err(failed("a copy to the device"))
    }

    /// Copies to the host, and waits for the stream.
    pub(super) fn download(
        &self,
        on: RawStream,
        from: DeviceAddress,
        to: &mut [u8],
    ) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: the bytes stay borrowed until the stream has executed the copy, which is awaited also after an
        // error.
        let copied = unsafe { result::memcpy_dtoh_async(to, from.0, on.0) };
        // SAFETY: the handle is live.
        let waited = unsafe { stream::synchronize(on.0) };
        copied.and(waited).map_err(failed("a copy to the host"))
    }

    pub(super) fn copy(
        &self,
        on: RawStream,
        [from, to]: [DeviceAddress; 2],
        bytes: usize,
    ) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: addresses of the device, which reports wrong ones.
        unsafe { result::memcpy_dtod_async(to.0, from.0, bytes, on.0) }.map_err(failed("a copy"))
    }

    /// Lets this device use the memory of another one, if the machine can; returns whether it can.
    pub(super) fn enable_peer(&self, other: &Self) -> Result<bool, DeviceError> {
        self.enter()?;
        let mut answer = 0;
        // SAFETY: both devices exist, and the driver writes one number.
        let asked = unsafe {
            sys::cuDeviceCanAccessPeer(&raw mut answer, self.0.cu_device(), other.0.cu_device())
        };
        asked.result().map_err(failed("the question for access to another GPU"))?;
        if answer == 0 {
            return Ok(false);
        }
        // SAFETY: the context of the other device is live.
        match unsafe { sys::cuCtxEnablePeerAccess(other.0.cu_ctx(), 0) } {
            CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => Ok(true),
            enabled => {
                enabled.result().map_err(failed("access to another GPU"))?;
                Ok(true)
            }
        }
    }

    /// Copies memory of another device.
    pub(super) fn copy_from_peer(
        &self,
        on: RawStream,
        other: &Self,
        [from, to]: [DeviceAddress; 2],
        bytes: usize,
    ) -> Result<(), DeviceError> {
        self.enter()?;
        let [own, peer] = [self.0.cu_ctx(), other.0.cu_ctx()];
        // SAFETY: both contexts are live, and the devices report wrong addresses.
        unsafe { result::memcpy_peer_async(own, to.0, peer, from.0, bytes, on.0) }
            .map_err(failed("a copy from another GPU"))
    }

    pub(super) fn clear(
        &self,
        on: RawStream,
        at: DeviceAddress,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: an address of the device, which reports a wrong one.
        unsafe { result::memset_d8_async(at.0, 0, bytes, on.0) }
            .map_err(failed("a fill with zeros"))
    }

    pub(super) fn load(&self, name: &str, code: &[u8]) -> Result<RawModule, DeviceError> {
        self.enter()?;
        // SAFETY: the code is a complete CUDA binary, made by NVRTC.
        let loaded = unsafe { module::load_data(code.as_ptr().cast()) };
        loaded.map(RawModule).map_err(failed(&format!("the loading of `{name}`")))
    }

    /// Finds a kernel, and allows it as much shared memory as the device has.
    pub(super) fn kernel(&self, of: RawModule, name: &str) -> Result<RawKernel, DeviceError> {
        self.enter()?;
        let text = std::ffi::CString::new(name).expect("names of kernels have no zero byte");
        // SAFETY: the module is loaded.
        let found = unsafe { module::get_function(of.0, text) };
        found.map(RawKernel).map_err(failed(&format!("the search for `{name}`")))
    }

    /// Launches a kernel; `name` is for the error.
    pub(super) fn launch(
        &self,
        on: RawStream,
        (kernel, name): (RawKernel, &str),
        size: KernelLaunch,
        arguments: &[KernelArgument],
    ) -> Result<(), DeviceError> {
        self.enter()?;
        let KernelLaunch { grid, threads, shared_bytes } = size;
        if SHARED_BYTES_USUAL < shared_bytes {
            let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the kernel is loaded.
            unsafe { function::set_function_attribute(kernel.0, attribute, shared_bytes as i32) }
                .map_err(failed(name))?;
        }
        let mut words: Vec<[u8; 8]> = arguments.iter().map(|argument| argument.word()).collect();
        let mut pointers: Vec<*mut c_void> =
            words.iter_mut().map(|word| word.as_mut_ptr().cast()).collect();
        let [x, y, z] = grid.map(|blocks| blocks as c_uint);
        // SAFETY: the kernel is loaded, and the pointers are those of as many words as it has parameters, which the
        // call copies. What it reads and writes is memory of the device, which reports wrong addresses.
        unsafe {
            let block = (threads as c_uint, 1, 1);
            launch_kernel(kernel.0, (x, y, z), block, shared_bytes, on.0, &mut pointers)
        }
        .map_err(failed(name))
    }

    /// Submits a product.
    pub(super) fn multiply(
        &self,
        on: RawStream,
        plan: &LtPlan,
        addresses: LtAddresses,
        workspace: LtWorkspace,
    ) -> Result<(), DeviceError> {
        self.enter()?;
        // SAFETY: the stream is one of this device. Layouts and workspace are those of the plan, and wrong addresses
        // are errors of the device.
        unsafe { plan.multiply(addresses, workspace, on.0.cast()) }.map_err(|error| {
            DeviceError::Failed { operation: "a product".to_owned(), problem: error.to_string() }
        })
    }
}
