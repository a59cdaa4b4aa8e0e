//! Folds on a device: runs kernels on parts in scratch memory.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, DevicePtrMut as _, DriverError, PushKernelArg as _};

use crate::cuda::nccl::BufferLease;
use crate::runtime::comm::device::ffi_kernels::{DeviceKernel, KernelCache, grid_of};
use crate::runtime::comm::device::fold_kernel::FoldKernel;
use crate::runtime::comm::device::wait::OperationFailure;
use crate::runtime::dtype::element::Dtype;

/// Runs folds on one device.
pub(crate) struct FoldExecutor {
    kernels: KernelCache,
    scratch: Option<CudaSlice<u8>>,
}

impl FoldExecutor {
    /// Creates a folder that compiles its kernels with these.
    pub(crate) fn new(kernels: KernelCache) -> Self {
        Self { kernels, scratch: None }
    }

    /// Creates a folder with the same compiler for another group on the device.
    pub(crate) fn for_new_group(&self) -> Self {
        Self::new(self.kernels.for_new_group())
    }

    /// Scratch memory of at least `len` elements, with arbitrary content.
    pub(crate) fn scratch<'a>(
        &'a mut self,
        len: usize,
        dtype: Dtype,
        stream: &'a Arc<CudaStream>,
    ) -> Result<BufferLease<'a>, DriverError> {
        let bytes = (len * dtype.bytes()).max(1);
        if self.scratch.as_ref().is_none_or(|scratch| scratch.len() < bytes) {
            // The old memory is freed first: there may not be room for both.
            self.scratch = None;
            self.scratch = Some(stream.alloc_zeros(bytes)?);
        }
        let scratch = self.scratch.as_mut().expect("allocated above");
        Ok(BufferLease::new(scratch.device_ptr_mut(stream), len, dtype.into()))
    }

    /// Loads a kernel: a device does so only when it is idle.
    pub(crate) fn load(&mut self, kernel: FoldKernel) -> Result<(), OperationFailure> {
        if kernel.parts == 1 {
            return Ok(());
        }
        self.kernels.function(DeviceKernel::Fold(kernel)).map(drop)
    }

    /// Starts the fold of the parts of the scratch memory, `stride` elements each, into its first
    /// `len` elements.
    pub(crate) fn fold(
        &mut self,
        kernel: FoldKernel,
        (stride, len): (usize, usize),
        stream: &Arc<CudaStream>,
    ) -> Result<(), OperationFailure> {
        if len == 0 || kernel.parts == 1 {
            return Ok(());
        }
        assert!(len <= stride && stride.is_multiple_of(kernel.pack()), "a pack exceeds its part");
        let function = self.kernels.function(DeviceKernel::Fold(kernel))?;
        let (stride, packs) = (stride as u64, len.div_ceil(kernel.pack()) as u64);
        let parts = self.scratch(kernel.parts * stride as usize, kernel.dtype, stream)?;
        let at = parts.address();
        let mut launch = stream.launch_builder(&function);
        launch.arg(&at).arg(&stride).arg(&packs);
        // SAFETY: the arguments are those of the kernel; it accesses only memory of `parts`.
        unsafe { launch.launch(grid_of(packs))? };
        Ok(())
    }
}
