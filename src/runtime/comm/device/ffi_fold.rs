//! Folds on a device: compiles kernels when they are first needed, and runs them on parts in scratch
//! memory.

use std::collections::HashMap;
use std::sync::Arc;

use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, CudaViewMut, DriverError, LaunchConfig,
    PushKernelArg as _,
};
use cudarc::nvrtc::Ptx;

use crate::cuda::nvrtc::Architecture;
use crate::cuda::nvrtc::Compiler;
use crate::cuda::nvrtc::NvrtcError;
use crate::runtime::comm::core::error::Cause;
use crate::runtime::comm::device::element::DeviceElement;
use crate::runtime::comm::device::ffi_pinned::driver_message;
use crate::runtime::comm::device::fold_kernel::FoldKernel;
use crate::runtime::comm::device::wait::OperationFailure;
use crate::runtime::error::Error;

/// Threads of a block, and the largest number of blocks of a launch, which is more than any device
/// runs at once; a block continues with further elements when it has finished its own.
const THREADS: u32 = 256;
const BLOCKS_MAX: u64 = 4096;

/// Compiles and runs folds on one device.
pub(crate) struct FoldExecutor {
    compiler: Arc<Compiler>,
    context: Arc<CudaContext>,
    architecture: Architecture,
    kernels: HashMap<FoldKernel, CudaFunction>,
    scratch: Option<CudaSlice<u8>>,
}

impl From<NvrtcError> for OperationFailure {
    fn from(error: NvrtcError) -> Self {
        Self::Cause(Cause::Backend(error.to_string()))
    }
}

impl FoldExecutor {
    /// Creates a folder for the device of a context.
    pub(crate) fn new(compiler: Arc<Compiler>, context: &Arc<CudaContext>) -> Result<Self, Error> {
        let (major, minor) = context.compute_capability().map_err(|error| {
            let message = driver_message(error);
            Error::Device(format!("cannot read the compute capability of the GPU: {message}"))
        })?;
        let architecture = Architecture { major: major as u32, minor: minor as u32 };
        let (context, loaded) = (context.clone(), HashMap::new());
        Ok(Self { compiler, context, architecture, kernels: loaded, scratch: None })
    }

    /// Creates a folder with the same compiler for another group on the device.
    pub(crate) fn for_new_group(&self) -> Self {
        let Self { compiler, context, architecture, .. } = self;
        let (compiler, context) = (compiler.clone(), context.clone());
        Self {
            compiler,
            context,
            architecture: *architecture,
            kernels: HashMap::new(),
            scratch: None,
        }
    }

    fn function(&mut self, kernel: FoldKernel) -> Result<CudaFunction, OperationFailure> {
        if let Some(function) = self.kernels.get(&kernel) {
            return Ok(function.clone());
        }
        let name = kernel.name();
        let compiled = self.compiler.compile(&name, &kernel.source(), self.architecture, &[])?;
        let module = self.context.load_module(Ptx::from_binary(compiled.cubin))?;
        let function = module.load_function(&name)?;
        self.kernels.insert(kernel, function.clone());
        Ok(function)
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
        let function = self.function(kernel)?;
        let (stride, packs) = (stride as u64, len.div_ceil(kernel.pack()) as u64);
        let mut parts = self.scratch::<T>(kernel.parts * stride as usize, stream)?;
        let blocks = packs.div_ceil(u64::from(THREADS)).min(BLOCKS_MAX) as u32;
        let grid = LaunchConfig {
            grid_dim: (blocks, 1, 1),
            block_dim: (THREADS, 1, 1),
            shared_mem_bytes: 0,
        };
        let mut launch = stream.launch_builder(&function);
        launch.arg(&mut parts).arg(&stride).arg(&packs);
        // SAFETY: the arguments are those of the kernel; it accesses only memory of `parts`.
        unsafe { launch.launch(grid)? };
        Ok(())
    }
}
