//! Bandwidth that kernels reach: the bytes of their shapes over the time of their launches. Not yet run on a GPU.

use crate::cuda::device::{Device, DeviceError, KernelArgument};
use crate::cuda::kernels::Kernel;
use crate::runtime::kernel_checks::case::CaseArgument;
use crate::runtime::kernel_checks::recording::DeviceOperation;
use crate::runtime::kernel_checks::traffic::{TrafficCase, TrafficShape};

/// A kernel and the bandwidth of its launches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelBandwidth {
    /// What was launched.
    pub kernel: Kernel,
    /// Bytes of a launch.
    pub bytes: u64,
    /// Bytes that a second moved.
    pub bytes_per_second: f64,
}

/// Times the launches of a shape whose time should be that of their memory, one kernel after the other.
///
/// # Errors
/// If the device fails, or has too little memory.
pub fn measure_bandwidths(
    device: &dyn Device,
    shape: TrafficShape,
) -> Result<Vec<KernelBandwidth>, DeviceError> {
    // Attention multiplies matrices, and a fold of parts is too short to be timed.
    let is_streaming = |case: &TrafficCase| {
        let others = [
            Kernel::AttentionForward,
            Kernel::AttentionBackwardKv,
            Kernel::AttentionBackwardQ,
            Kernel::Fold,
            Kernel::FoldSquares,
        ];
        !others.contains(&case.case.kernel.1)
    };
    shape.cases().into_iter().filter(is_streaming).map(|case| measure(device, &case)).collect()
}

fn measure(
    device: &dyn Device,
    TrafficCase { case, traffic }: &TrafficCase,
) -> Result<KernelBandwidth, DeviceError> {
    let stream = device.create_stream()?;
    let memory: Result<Vec<_>, _> =
        case.buffers.iter().map(|bytes| device.alloc(bytes.len())).collect();
    let memory = memory?;
    for (memory, bytes) in memory.iter().zip(&case.buffers) {
        device.upload(stream, bytes, memory.address())?;
    }
    let argument = |argument: &CaseArgument| match *argument {
        CaseArgument::Buffer(index) => KernelArgument::Address(memory[index].address()),
        CaseArgument::Scalar(scalar) => scalar,
    };
    let arguments = case.arguments.iter().map(argument).collect();
    let launch = DeviceOperation::Launch { kernel: case.kernel, size: case.launch, arguments };
    let seconds = launch.seconds(device, stream)?;
    let bytes = traffic.bytes();
    let bytes_per_second = bytes as f64 / seconds;
    Ok(KernelBandwidth { kernel: case.kernel.1, bytes, bytes_per_second })
}
