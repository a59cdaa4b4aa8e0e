//! Memory of a device that NCCL allocates, and the registration of memory with a communicator.

use std::ffi::c_void;
use std::sync::Arc;

use crate::cuda::device::DeviceAddress;
use crate::cuda::nccl::error::NcclError;
use crate::cuda::nccl::ffi::{Functions, NcclLibrary, Registration};
use crate::cuda::nccl::ffi_communicator::{Communicator, check_started};

/// Memory of a device that NCCL has allocated: unlike other memory, it can be registered in all versions.
pub(in crate::cuda) struct NcclMemory {
    library: Arc<NcclLibrary>,
    at: *mut c_void,
}

// SAFETY: the address is that of a device, and any thread may release it.
unsafe impl Send for NcclMemory {}
// SAFETY: as above; a shared reference only gives the address.
unsafe impl Sync for NcclMemory {}

impl NcclMemory {
    /// Allocates memory of the device of this thread; `None` if NCCL has no allocator (before 2.19).
    pub(in crate::cuda) fn alloc(
        library: &Arc<NcclLibrary>,
        bytes: usize,
    ) -> Result<Option<Self>, NcclError> {
        let Functions { mem_alloc: Some(alloc), mem_free: Some(_), .. } = &library.functions else {
            return Ok(None);
        };
        let mut at = std::ptr::null_mut();
        // SAFETY: one address is written.
        let code = unsafe { alloc(&raw mut at, bytes) };
        library.check("ncclMemAlloc", code)?;
        Ok(Some(Self { library: library.clone(), at }))
    }

    pub(in crate::cuda) fn address(&self) -> DeviceAddress {
        DeviceAddress(self.at as u64)
    }
}

impl Drop for NcclMemory {
    /// The device has executed the operations on the memory, and no communicator has it registered.
    fn drop(&mut self) {
        if let Some(free) = self.library.functions.mem_free {
            // SAFETY: NCCL allocated it, and this is its last use. An error cannot be handled.
            let _ = unsafe { free(self.at) };
        }
    }
}

/// Memory that is registered with a communicator.
pub(crate) struct Registered(Registration);

// SAFETY: the handle is opaque, and any thread may use it with its communicator.
unsafe impl Send for Registered {}
// SAFETY: as above; a shared reference permits no operation.
unsafe impl Sync for Registered {}

impl Communicator {
    /// Registers memory of the device, which NCCL can then access without a copy of its own; `None` if NCCL is too old
    /// for that (before 2.19).
    pub(crate) fn register_at(
        &mut self,
        at: DeviceAddress,
        bytes: usize,
    ) -> Result<Option<Registered>, NcclError> {
        let Functions { comm_register: Some(register), comm_deregister: Some(_), .. } =
            &self.library.functions
        else {
            return Ok(None);
        };
        let mut handle = std::ptr::null_mut();
        // SAFETY: the communicator is live, and one handle is written; a wrong address is an error of the device.
        let code = unsafe { register(self.raw, at.0 as *mut c_void, bytes, &raw mut handle) };
        check_started(&self.library, "ncclCommRegister", code)?;
        Ok(Some(Registered(handle)))
    }

    /// Ends the registration of memory, before it is freed.
    pub(crate) fn deregister(&mut self, Registered(handle): Registered) {
        if let Some(deregister) = self.library.functions.comm_deregister {
            // SAFETY: the communicator is live, and the handle is its own. An error cannot be handled.
            let _ = unsafe { deregister(self.raw, handle) };
        }
    }
}
