//! [`KernelRunner`]: what runs the kernels of a check, and how their results are compared.

use crate::cuda::device::{Device, DeviceError, KernelArgument, StreamId};
use crate::cuda::kernels::{ElementType, HalfType};
use crate::runtime::kernel_checks::case::{CaseArgument, CaseMemory, KernelCase};

/// Runs kernels.
pub trait KernelRunner {
    /// Runs a kernel; returns the memory.
    ///
    /// # Errors
    /// If the device fails, or a repetition has other bits.
    fn run(&mut self, case: &KernelCase) -> Result<CaseMemory, CheckError>;
}

impl KernelCase {
    /// Runs the kernel; returns the memory.
    ///
    /// # Errors
    /// Those of [`KernelRunner::run`].
    pub fn run(&self, runner: &mut dyn KernelRunner) -> Result<CaseMemory, CheckError> {
        runner.run(self)
    }
}

/// Why a check failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The device refused or failed.
    #[error("{kernel}: {problem}")]
    Device {
        /// What was asked of it.
        kernel: String,
        /// Its message.
        problem: String,
    },
    /// A repetition, or another schedule of the threads, gave other bits.
    #[error("{kernel}: a repetition has other bits")]
    OtherBits {
        /// What was repeated.
        kernel: String,
    },
    /// A result differs from the reference by more than rounding.
    #[error("{what}: relative error {error:.1e}, at most {limit:.0e} is rounding")]
    Inexact {
        /// The result.
        what: String,
        /// ‖found − expected‖ / ‖expected‖.
        error: f64,
        /// Largest error.
        limit: f64,
    },
    /// A result does not have the bits of the reference.
    #[error("{what}: other bits than on a processor")]
    Different {
        /// The result.
        what: String,
    },
}

/// Runs every kernel twice on a device: the bits must be equal.
pub struct DeviceRunner<'a> {
    device: &'a dyn Device,
    stream: StreamId,
}

impl<'a> DeviceRunner<'a> {
    /// Runs kernels on a stream of its own.
    ///
    /// # Errors
    /// If the device fails.
    pub fn new(device: &'a dyn Device) -> Result<Self, DeviceError> {
        Ok(Self { device, stream: device.create_stream()? })
    }

    fn run_once(&self, case: &KernelCase) -> Result<CaseMemory, DeviceError> {
        let buffers: Result<Vec<_>, _> =
            case.buffers.iter().map(|bytes| self.device.alloc(bytes.len().max(1))).collect();
        let buffers = buffers?;
        for (memory, bytes) in buffers.iter().zip(&case.buffers) {
            self.device.upload(self.stream, bytes, memory.address())?;
        }
        let argument = |argument: &CaseArgument| match *argument {
            CaseArgument::Buffer(index) => KernelArgument::Address(buffers[index].address()),
            CaseArgument::Scalar(scalar) => scalar,
        };
        let arguments: Vec<_> = case.arguments.iter().map(argument).collect();
        self.device.launch(self.stream, case.kernel, case.launch, &arguments)?;
        let mut memory = case.buffers.clone();
        for (buffer, bytes) in buffers.iter().zip(&mut memory) {
            self.device.download(self.stream, buffer.address(), bytes)?;
        }
        Ok(CaseMemory(memory))
    }
}

impl KernelRunner for DeviceRunner<'_> {
    fn run(&mut self, case: &KernelCase) -> Result<CaseMemory, CheckError> {
        let failed = |error: DeviceError| CheckError::Device {
            kernel: case.name(),
            problem: error.to_string(),
        };
        let first = self.run_once(case).map_err(failed)?;
        if self.run_once(case).map_err(failed)? != first {
            return Err(CheckError::OtherBits { kernel: case.name() });
        }
        Ok(first)
    }
}

/// ‖found − expect‖ / ‖expect‖; infinite if a number is not finite.
pub fn error_of(found: &[f64], expect: &[f64]) -> f64 {
    assert_eq!(found.len(), expect.len(), "they are of one shape");
    let sum = |terms: &mut dyn Iterator<Item = f64>| terms.map(|x| x * x).sum::<f64>();
    let distance = sum(&mut found.iter().zip(expect).map(|(found, expect)| found - expect));
    let error = (distance / sum(&mut expect.iter().copied()).max(1e-300)).sqrt();
    if error.is_finite() { error } else { f64::INFINITY }
}

/// Largest error of results of a type.
pub fn tolerance(element: ElementType) -> f64 {
    match element {
        ElementType::F32 => 1e-5,
        ElementType::Half(HalfType::Bf16) => 4e-3,
        ElementType::Half(HalfType::F16) => 5e-4,
    }
}

fn name_of(element: ElementType) -> &'static str {
    match element {
        ElementType::F32 => "f32",
        ElementType::Half(HalfType::Bf16) => "bf16",
        ElementType::Half(HalfType::F16) => "f16",
    }
}

/// Compares results with the reference; they may differ by rounding.
pub(super) fn close(
    what: &str,
    element: ElementType,
    found: &[f64],
    expect: &[f64],
) -> Result<(), CheckError> {
    within(&format!("{what} in {}", name_of(element)), tolerance(element), found, expect)
}

/// The same with another limit.
pub(super) fn within(
    what: &str,
    limit: f64,
    found: &[f64],
    expect: &[f64],
) -> Result<(), CheckError> {
    let error = error_of(found, expect);
    if error < limit {
        return Ok(());
    }
    Err(CheckError::Inexact { what: what.to_owned(), error, limit })
}

/// Requires bits that are equal to those of the reference.
pub(super) fn same(what: &str, is_same: bool) -> Result<(), CheckError> {
    if is_same { Ok(()) } else { Err(CheckError::Different { what: what.to_owned() }) }
}
