//! Kernels on the first GPU.

use std::sync::Arc;

use remuda::runtime::device::{cudarc, open_device};
use remuda::runtime::nvrtc::{Architecture, Compiler};

use cudarc::driver::{
    CudaFunction, CudaStream, DevicePtrMut as _, LaunchConfig, PushKernelArg as _,
};
use cudarc::nvrtc::Ptx;

use super::Case;

/// Threads of a launch: fewer than most cases have packs, so that a thread has several.
const LAUNCH: LaunchConfig =
    LaunchConfig { grid_dim: (2, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 };

/// Kernels that were compiled for the first GPU.
pub(super) struct DeviceProgram {
    stream: Arc<CudaStream>,
    functions: Vec<CudaFunction>,
}

impl DeviceProgram {
    /// Compiles all kernels, given by name and source, in one module.
    pub(super) fn build(kernels: &[(String, String)]) -> Self {
        let context = open_device(0).expect("there is a GPU");
        let (major, minor) = context.compute_capability().expect("a GPU has a capability");
        let architecture = Architecture { major: major as u32, minor: minor as u32 };
        let source = kernels.iter().map(|(name, source)| super::in_namespace(name, source));
        let source = source.collect::<String>();
        let compiler = Compiler::open().expect("NVRTC is installed");
        let compiled = compiler.compile("kernels", &source, architecture, &[]);
        let cubin = compiled.expect("the kernels compile").cubin;
        let module = context.load_module(Ptx::from_binary(cubin)).expect("the module is loaded");
        let function = |(name, _): &(String, String)| module.load_function(name);
        let functions = kernels.iter().map(function).collect::<Result<_, _>>();
        let functions = functions.expect("the module has all kernels");
        Self { stream: context.default_stream(), functions }
    }

    /// The data of a case after its kernel.
    pub(super) fn run(&self, case: &Case) -> Vec<u8> {
        let (stream, len) = (&self.stream, case.bytes.len() as u64);
        let mut memory = stream.clone_htod(&case.bytes).expect("memory of the GPU");
        {
            let (parts, _guard) = memory.device_ptr_mut(stream);
            let second = case.second_word(parts + len / 2);
            let packs = case.packs as u64;
            let mut launch = stream.launch_builder(&self.functions[case.kernel]);
            launch.arg(&parts).arg(&second).arg(&packs);
            // SAFETY: the arguments are those of the kernel, which accesses the memory of the case only.
            unsafe { launch.launch(LAUNCH) }.expect("the kernel starts");
        }
        stream.clone_dtoh(&memory).expect("the kernel ends")
    }
}
