//! Kernels of a device: compiled when they are first needed, and kept.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{
    CudaContext, CudaFunction, CudaStream, DevicePtr, DevicePtrMut, LaunchConfig,
    PushKernelArg as _,
};
use cudarc::nvrtc::Ptx;

use crate::cuda::driver::driver_message;
use crate::cuda::nvrtc::{Architecture, Compiler, NvrtcError};
use crate::runtime::comm::core::error::Cause;
use crate::runtime::comm::device::element::DeviceElement;
use crate::runtime::comm::device::fold_kernel::FoldKernel;
use crate::runtime::comm::device::gradient_kernel::{GradientKernel, GradientOp};
use crate::runtime::comm::device::wait::OperationFailure;
use crate::runtime::error::Error;

/// Threads of a block, and the largest number of blocks of a launch, which is more than any device
/// runs at once; a block continues with further elements when it has finished its own.
const THREADS: u32 = 256;
const BLOCKS_MAX: u64 = 4096;

/// Compiles kernels for one device.
pub(crate) struct KernelCache {
    compiler: Arc<Compiler>,
    context: Arc<CudaContext>,
    architecture: Architecture,
    functions: HashMap<DeviceKernel, CudaFunction>,
}

/// A kernel of remuda.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum DeviceKernel {
    Fold(FoldKernel),
    Gradient(GradientKernel),
}

impl DeviceKernel {
    /// Name and source.
    fn text(self) -> (String, String) {
        match self {
            Self::Fold(kernel) => (kernel.name(), kernel.source()),
            Self::Gradient(kernel) => (kernel.name(), kernel.source()),
        }
    }
}

impl From<NvrtcError> for OperationFailure {
    fn from(error: NvrtcError) -> Self {
        Self::Cause(Cause::Backend(error.to_string()))
    }
}

/// Grid with a thread for each of `items`, or fewer threads that each have several.
pub(super) fn grid_of(items: u64) -> LaunchConfig {
    let blocks = items.div_ceil(u64::from(THREADS)).min(BLOCKS_MAX) as u32;
    LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (THREADS, 1, 1), shared_mem_bytes: 0 }
}

impl KernelCache {
    /// Opens NVRTC for the device of a context.
    pub(crate) fn open(context: &Arc<CudaContext>) -> Result<Self, Error> {
        let compiler = Compiler::open().map_err(|error| Error::Device(error.to_string()))?;
        let (major, minor) = context.compute_capability().map_err(|error| {
            let message = driver_message(error);
            Error::Device(format!("cannot read the compute capability of the GPU: {message}"))
        })?;
        let architecture = Architecture { major: major as u32, minor: minor as u32 };
        Ok(Self { compiler, context: context.clone(), architecture, functions: HashMap::new() })
    }

    /// Creates an empty cache with the same compiler for another group on the device.
    pub(crate) fn for_new_group(&self) -> Self {
        let Self { compiler, context, architecture, .. } = self;
        let (compiler, context) = (compiler.clone(), context.clone());
        Self { compiler, context, architecture: *architecture, functions: HashMap::new() }
    }

    /// The function of a kernel, which is compiled at the first call.
    pub(super) fn function(
        &mut self,
        kernel: DeviceKernel,
    ) -> Result<CudaFunction, OperationFailure> {
        if let Some(function) = self.functions.get(&kernel) {
            return Ok(function.clone());
        }
        let (name, source) = kernel.text();
        let compiled = self.compiler.compile(&name, &source, self.architecture, &[])?;
        let module = self.context.load_module(Ptx::from_binary(compiled.cubin))?;
        let function = module.load_function(&name)?;
        self.functions.insert(kernel, function.clone());
        Ok(function)
    }

    fn gradient_function<T: DeviceElement>(
        &mut self,
        op: GradientOp,
    ) -> Result<CudaFunction, OperationFailure> {
        self.function(DeviceKernel::Gradient(GradientKernel { dtype: T::DTYPE, op }))
    }

    /// Loads the kernel of an operation on gradients of this type.
    pub(super) fn load_gradient_kernel<T: DeviceElement>(
        &mut self,
        op: GradientOp,
    ) -> Result<(), OperationFailure> {
        self.gradient_function::<T>(op).map(drop)
    }

    /// Starts to add the elements of `older` from `at` on to all elements of `newer`.
    pub(super) fn add<T: DeviceElement>(
        &mut self,
        older: (&impl DevicePtr<T>, usize),
        newer: &mut impl DevicePtrMut<T>,
        stream: &Arc<CudaStream>,
    ) -> Result<(), OperationFailure> {
        let ((older, at), len) = (older, newer.len());
        assert!(at + len <= older.len(), "a gradient is shorter than the range to add");
        if len == 0 {
            return Ok(());
        }
        let function = self.gradient_function::<T>(GradientOp::Add)?;
        let (older, _older_use) = older.device_ptr(stream);
        let (newer, _newer_use) = newer.device_ptr_mut(stream);
        let (older, len) = (element_address::<T>(older, at), len as u64);
        let mut launch = stream.launch_builder(&function);
        launch.arg(&newer).arg(&older).arg(&len);
        // SAFETY: the arguments are those of the kernel; it reads and writes `len` elements of each memory, and
        // the guards of both uses live until it has been enqueued.
        unsafe { launch.launch(grid_of(len))? };
        Ok(())
    }

    /// Starts to divide a range of `values`.
    pub(super) fn divide<T: DeviceElement>(
        &mut self,
        values: &mut impl DevicePtrMut<T>,
        range: Range<usize>,
        divisor: u64,
        stream: &Arc<CudaStream>,
    ) -> Result<(), OperationFailure> {
        assert!(range.end <= values.len(), "elements {range:?} are outside the memory");
        if range.is_empty() || divisor == 1 {
            return Ok(());
        }
        let function = self.gradient_function::<T>(GradientOp::Divide)?;
        let (values, _use) = values.device_ptr_mut(stream);
        let (values, len) = (element_address::<T>(values, range.start), range.len() as u64);
        let mut launch = stream.launch_builder(&function);
        launch.arg(&values).arg(&divisor).arg(&len);
        // SAFETY: the arguments are those of the kernel; it changes `len` elements inside the memory, and the
        // guard of its use lives until it has been enqueued.
        unsafe { launch.launch(grid_of(len))? };
        Ok(())
    }
}

fn element_address<T>(base: CUdeviceptr, at: usize) -> CUdeviceptr {
    base + (at * size_of::<T>()) as CUdeviceptr
}
