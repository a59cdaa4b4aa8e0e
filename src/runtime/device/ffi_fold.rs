//! Folds on a device: compiled for it when they are first needed, and run on parts in scratch memory.

use std::collections::HashMap;
use std::sync::Arc;

use cudarc::driver::{
    CudaContext, CudaFunction, CudaSlice, CudaStream, CudaViewMut, DriverError, LaunchConfig,
    PushKernelArg,
};
use cudarc::nvrtc::Ptx;

use super::DeviceElement;
use super::Trouble;
use super::ffi::words_of;
use super::kernel::FoldKernel;
use crate::runtime::error::{Cause, Error};
use crate::runtime::nvrtc::{Architecture, Compiler, NvrtcError};

/// Threads of a block, and blocks of a launch at most: more than any device runs at once; they go on
/// where others end.
const THREADS: u32 = 256;
const BLOCKS_MAX: u64 = 4096;

/// Compiles and runs folds on one device.
pub(super) struct Folder {
    compiler: Arc<Compiler>,
    context: Arc<CudaContext>,
    architecture: Architecture,
    loaded: HashMap<FoldKernel, CudaFunction>,
    scratch: Option<CudaSlice<u8>>,
}

impl From<NvrtcError> for Trouble {
    fn from(error: NvrtcError) -> Self {
        Self::Cause(Cause::Backend(error.to_string()))
    }
}

impl Folder {
    /// For the device of a context.
    pub(super) fn new(compiler: Arc<Compiler>, context: &Arc<CudaContext>) -> Result<Self, Error> {
        let (major, minor) = context.compute_capability().map_err(|error| {
            let words = words_of(error);
            Error::Device(format!("cannot ask for the compute capability of the GPU: {words}"))
        })?;
        let architecture = Architecture { major: major as u32, minor: minor as u32 };
        let (context, loaded) = (context.clone(), HashMap::new());
        Ok(Self { compiler, context, architecture, loaded, scratch: None })
    }

    /// The same for another group of the device.
    pub(super) fn fresh(&self) -> Self {
        let Self { compiler, context, architecture, .. } = self;
        let (compiler, context) = (compiler.clone(), context.clone());
        Self {
            compiler,
            context,
            architecture: *architecture,
            loaded: HashMap::new(),
            scratch: None,
        }
    }

    fn function(&mut self, kernel: FoldKernel) -> Result<CudaFunction, Trouble> {
        if let Some(function) = self.loaded.get(&kernel) {
            return Ok(function.clone());
        }
        let name = kernel.name();
        let compiled = self.compiler.compile(&name, &kernel.source(), self.architecture, &[])?;
        let module = self.context.load_module(Ptx::from_binary(compiled.cubin))?;
        let function = module.load_function(&name)?;
        self.loaded.insert(kernel, function.clone());
        Ok(function)
    }

    /// Scratch memory of so many elements; what is in it is anything.
    pub(super) fn scratch<T: DeviceElement>(
        &mut self,
        len: usize,
        stream: &Arc<CudaStream>,
    ) -> Result<CudaViewMut<'_, T>, DriverError> {
        let bytes = (len * size_of::<T>()).max(1);
        if self.scratch.as_ref().is_none_or(|scratch| scratch.len() < bytes) {
            // The old one goes first: there may not be room for both.
            self.scratch = None;
            self.scratch = Some(stream.alloc_zeros(bytes)?);
        }
        let scratch = self.scratch.as_mut().expect("it is there now");
        // SAFETY: every number is valid as any other: they are plain old data; memory of the driver is
        // aligned for all of them.
        let view = unsafe { scratch.transmute_mut(len) };
        Ok(view.expect("it has as many bytes"))
    }

    /// Begins to fold the parts of the scratch memory, `stride` elements each, into the first `len`.
    pub(super) fn fold<T: DeviceElement>(
        &mut self,
        kernel: FoldKernel,
        (stride, len): (usize, usize),
        stream: &Arc<CudaStream>,
    ) -> Result<(), Trouble> {
        if len == 0 || kernel.parts == 1 {
            return Ok(());
        }
        assert!(len <= stride && stride.is_multiple_of(kernel.pack()), "packs lie in their parts");
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
        // SAFETY: the arguments are those of the kernel; all that it touches lies in `parts`.
        unsafe { launch.launch(grid)? };
        Ok(())
    }
}
