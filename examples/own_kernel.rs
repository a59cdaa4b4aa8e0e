//! One rank of a program with a CUDA kernel of its own: gradients are reduced over all ranks in the stream of the group
//! while the kernel works on other memory in a stream of the program. Memory and streams are those of `cudarc`.
//!
//! ```text
//! remuda run --num_gpus 2 target/release/examples/own_kernel
//! ```
//!
//! The tests run it with a driver that takes the place of CUDA's; it has not yet run on a GPU.

use std::io::Write;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, DriverError, LaunchConfig, PushKernelArg as _};
use cudarc::nvrtc::Ptx;
use remuda::runtime::device::{DeviceBackend, DeviceGroup, cudarc, open_device};
use remuda::runtime::nvrtc::{Architecture, Compiler};
use remuda::runtime::{Error, Group, ReduceOp};

const COUNT: u32 = 1 << 16;
/// Replaces values by their squares.
const SQUARES: &str = r#"extern "C" __global__ void squares(float *values, unsigned count) {
    const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at < count)
        values[at] *= values[at];
}"#;

fn main() -> Result<(), Error> {
    let group = Group::from_env()?;
    let context = open_device(group.local_rank())?;
    let devices = DeviceGroup::new(&group, &context, DeviceBackend::Auto)?;
    let squares = compile(&context)?;
    let stream = context.new_stream().map_err(failed)?;
    let values = |value: f32| stream.clone_htod(&vec![value; COUNT as usize]).map_err(failed);
    let (mut gradients, mut activations) = (values(1.0 + group.rank() as f32)?, values(3.0)?);
    let all_reduce = |devices: &DeviceGroup| devices.all_reduce(&mut gradients, ReduceOp::Sum);
    // SAFETY: `gradients` is used again in work of the stream that waits for the operation.
    let mut reduced = unsafe { devices.start(all_reduce) }?;
    let mut launch = stream.launch_builder(&squares);
    launch.arg(&mut activations).arg(&COUNT);
    // SAFETY: these are the arguments of the kernel, which accesses `COUNT` values.
    unsafe { launch.launch(LaunchConfig::for_num_elems(COUNT)) }.map_err(failed)?;
    // SAFETY: the stream lives. Its later work waits for the operation; this thread does not.
    unsafe { reduced.order(stream.cu_stream().cast()) }?;
    let (mut sum, mut square) = ([0.0], [0.0]);
    stream.memcpy_dtoh(&gradients.slice(..1), &mut sum).map_err(failed)?;
    stream.memcpy_dtoh(&activations.slice(..1), &mut square).map_err(failed)?;
    stream.synchronize().map_err(failed)?;
    let [rank, sum, square] = [group.rank() as f32, sum[0], square[0]];
    writeln!(std::io::stdout(), "rank {rank}: sum of the gradients {sum}, square {square}")
        .map_err(|error| Error::Device(format!("cannot write the result: {error}")))
}

fn compile(context: &Arc<CudaContext>) -> Result<CudaFunction, Error> {
    let (major, minor) = context.compute_capability().map_err(failed)?;
    let architecture = Architecture { major: major as u32, minor: minor as u32 };
    let compiled = Compiler::open()
        .and_then(|compiler| compiler.compile("squares.cu", SQUARES, architecture, &[]))
        .map_err(|error| Error::Device(error.to_string()))?;
    let module = context.load_module(Ptx::from_binary(compiled.cubin)).map_err(failed)?;
    module.load_function("squares").map_err(failed)
}

fn failed(error: DriverError) -> Error {
    Error::Device(error.to_string())
}
