//! `--device`: whether workers compute on processors or on GPUs.

use std::fmt::Display;
#[cfg(feature = "nccl")]
use std::sync::Arc;

use crate::base::Diagnostic;
use crate::cli::args::ClusterArgs;
use crate::cli::args::values::AcceleratorArg;
use crate::cli::command::train::args::{DeviceArg, ReduceOrderArg, TrainArgs};
use crate::cli::command::train::codes::NOT_ON_GPU;
#[cfg(feature = "nccl")]
use crate::cli::command::train::codes::OTHER_GPU;
use crate::cli::error::CliError;
use crate::cli::line::codes::NEEDS_OTHER;
use crate::cli::line::{CommandLine, RefusedLine, cannot_combine};
use crate::cli::resolve;
use crate::cli::start;
#[cfg(feature = "nccl")]
use crate::cuda::cublaslt::{AlgorithmChoice, CublasLt, ShareChoices};
#[cfg(feature = "nccl")]
use crate::cuda::device::{Device, DeviceError};
#[cfg(feature = "nccl")]
use crate::cuda::driver::{CubinCache, CudaDevice};
#[cfg(feature = "nccl")]
use crate::cuda::nvrtc::Compiler;
use crate::plan::Accelerator;
#[cfg(feature = "nccl")]
use crate::report::print_error;
use crate::report::{Terminal, print_message};
#[cfg(feature = "nccl")]
use crate::runtime::Group;
#[cfg(feature = "nccl")]
use crate::runtime::device::{device_count, open_device};
#[cfg(feature = "nccl")]
use crate::runtime::engine::GroupChoices;
#[cfg(feature = "nccl")]
use crate::train::check_device_options;

/// Note for a machine with GPUs that are not used.
const NOTE: &str = "`--device cuda` trains on GPUs; it was not tried on one yet";

/// Decides where the workers compute, and with it the kind of their slots.
pub(super) fn apply(
    args: &mut TrainArgs,
    cluster: &mut ClusterArgs,
    typed: &CommandLine,
    terminal: Terminal,
) -> Result<(), CliError> {
    check_order(args, typed)?;
    if args.device == DeviceArg::Auto {
        args.device = of_this_machine(terminal);
    }
    if args.device == DeviceArg::Cpu {
        start::use_cpu_slots(cluster, NOTE, terminal);
        return Ok(());
    }
    let cuda = AcceleratorArg::Kind(Accelerator::Cuda);
    if cluster
        .devices
        .accelerator
        .is_some_and(|given| ![cuda, AcceleratorArg::Auto].contains(&given))
    {
        let why = "a GPU for every worker needs slots that are GPUs";
        return Err(cannot_combine(typed, "device", "accelerator", why).into());
    }
    cluster.devices.accelerator = Some(cuda);
    cluster.devices.cpu_option = "--device cpu";
    Ok(())
}

/// Refuses the order of NCCL where nothing is added in it, and where the same bits are asked for.
fn check_order(args: &TrainArgs, typed: &CommandLine) -> Result<(), RefusedLine> {
    if args.reduce_order == ReduceOrderArg::Canonical {
        return Ok(());
    }
    if args.deterministic {
        let why = "NCCL's order depends on its version, and on where the GPUs are";
        return Err(cannot_combine(typed, "reduce_order", "deterministic", why));
    }
    if args.device != DeviceArg::Cpu {
        return Ok(());
    }
    Err(typed.refuse(&[typed.value_or_end("reduce_order")], |spans| {
        Diagnostic::error(NEEDS_OTHER, spans[0], "`--reduce_order any` needs `--device cuda`")
            .label("processors add in the canonical order only")
            .help("add `--device cuda`, or leave `--reduce_order` out")
    }))
}

/// GPUs, if there are some and their libraries are found.
fn of_this_machine(terminal: Terminal) -> DeviceArg {
    if resolve::gpu_count() == 0 {
        return DeviceArg::Cpu;
    }
    match find_libraries() {
        Ok(()) => DeviceArg::Cuda,
        Err(error) => {
            print_message(&format!("note: {error}\n"), terminal.paint);
            DeviceArg::Cpu
        }
    }
}

#[cfg(feature = "nccl")]
fn find_libraries() -> Result<(), String> {
    Compiler::open().map_err(|error| error.to_string())?;
    CublasLt::open().map(drop).map_err(|error| error.to_string())
}

#[cfg(not(feature = "nccl"))]
fn find_libraries() -> Result<(), String> {
    Err("this build of remuda has no support for GPUs (feature `nccl`)".to_owned())
}

/// Refuses settings that training on a GPU does not have.
pub(super) fn check(args: &TrainArgs, typed: &CommandLine) -> Result<(), CliError> {
    if args.device != DeviceArg::Cuda {
        return Ok(());
    }
    check_options(args).map_err(|problem| {
        let refused = typed.refuse(&[typed.value_or_end("device")], |spans| {
            Diagnostic::error(NOT_ON_GPU, spans[0], problem.to_string())
                .label("trains on GPUs")
                .help("`--device cpu` trains on processors")
        });
        refused.into()
    })
}

#[cfg(feature = "nccl")]
fn check_options(args: &TrainArgs) -> Result<(), impl Display + use<>> {
    check_device_options(&args.resolve())
}

#[cfg(not(feature = "nccl"))]
fn check_options(_args: &TrainArgs) -> Result<(), impl Display + use<>> {
    find_libraries()
}

/// Why a worker has no GPU.
pub(super) struct NoDevice {
    /// Code of the error, if it has one.
    pub(super) code: Option<&'static str>,
    pub(super) problem: String,
    /// What to type instead, if that is known.
    pub(super) help: Option<&'static str>,
}

impl NoDevice {
    pub(super) fn new(problem: impl Display) -> Self {
        Self { code: None, problem: problem.to_string(), help: None }
    }
}

#[cfg(feature = "nccl")]
impl From<DeviceError> for NoDevice {
    fn from(error: DeviceError) -> Self {
        let differs = matches!(error, DeviceError::Differs { .. });
        let help = "leave `--deterministic` out, or use nodes with the same GPUs and libraries";
        let (code, help) = (differs.then_some(OTHER_GPU), differs.then_some(help));
        Self { code, help, ..Self::new(&error) }
    }
}

/// Opens the GPU of a worker: ranks of a node have one each, in the order of their local ranks. All ranks use the
/// algorithms of rank 0 for products.
#[cfg(feature = "nccl")]
pub(super) fn open(group: &Group, is_deterministic: bool) -> Result<Arc<dyn Device>, NoDevice> {
    let count = device_count().map_err(NoDevice::new)?;
    let context = open_device(group.local_rank() % count.max(1)).map_err(NoDevice::new)?;
    let share: Option<Arc<dyn ShareChoices>> = match group.world_size() {
        1 => None,
        _ => Some(Arc::new(GroupChoices::new(group).map_err(NoDevice::new)?)),
    };
    let choice = if is_deterministic { AlgorithmChoice::First } else { AlgorithmChoice::Fastest };
    let device = CudaDevice::with_algorithms(context, CubinCache::of_user(), choice, share)?;
    if let Some(refusal) = device.refused_algorithms() {
        let rank = group.rank();
        print_error(&format!("note: rank {rank} chooses its own algorithms: {refusal}\n"));
    }
    Ok(Arc::new(device))
}

#[cfg(all(test, feature = "nccl"))]
mod tests {
    use super::*;

    #[test]
    fn another_gpu_than_that_of_rank_0_has_a_code() {
        let differs = DeviceError::Differs { problem: "another GPU".to_owned() };
        let differs = NoDevice::from(differs);
        assert_eq!((differs.code, differs.help.is_some()), (Some(OTHER_GPU), true));
        let old = DeviceError::Unsupported { problem: "too old".to_owned() };
        assert_eq!(NoDevice::from(old).code, None);
    }
}
