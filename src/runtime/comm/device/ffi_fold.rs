//! Folds on a device: runs kernels on parts in scratch memory.

use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, CudaViewMut, DriverError, PushKernelArg as _};

use crate::runtime::comm::device::element::DeviceElement;
use crate::runtime::comm::device::ffi_kernels::{DeviceKernel, KernelCache, grid_of};
use crate::runtime::comm::device::fold_kernel::FoldKernel;
use crate::runtime::comm::device::wait::OperationFailure;

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
    pub(crate) fn scratch<T: DeviceElement>(
        &mut self,
        len: usize,
        stream: &Arc<CudaStream>,
    ) -> Result<CudaViewMut<'_, T>, DriverError> {
        let bytes = (len * size_of::<T>()).max(1);
        if self.scratch.as_ref().is_none_or(|scratch| scratch.len() < bytes) {
            // The old memory is freed first: there may not be room for both.
            self.scratch = None;
            self.scratch = Some(stream.alloc_zeros(bytes)?);
        }
        let scratch = self.scratch.as_mut().expect("allocated above");
        // SAFETY: the element types are plain old data, for which all bits are valid; memory of the
        // driver is aligned for all of them.
        let view = unsafe { scratch.transmute_mut(len) };
        Ok(view.expect("the memory has at least `bytes` bytes"))
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
    pub(crate) fn fold<T: DeviceElement>(
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
        let mut parts = self.scratch::<T>(kernel.parts * stride as usize, stream)?;
        let mut launch = stream.launch_builder(&function);
        launch.arg(&mut parts).arg(&stride).arg(&packs);
        // SAFETY: the arguments are those of the kernel; it accesses only memory of `parts`.
        unsafe { launch.launch(grid_of(packs))? };
        Ok(())
    }
}
