//! `--device`: whether workers compute on processors or on GPUs.

use std::fmt::Display;
#[cfg(feature = "nccl")]
use std::sync::Arc;

use crate::base::Diagnostic;
use crate::cli::args::ClusterArgs;
use crate::cli::args::values::AcceleratorArg;
use crate::cli::command::train::args::{DeviceArg, TrainArgs};
use crate::cli::command::train::codes::NOT_ON_GPU;
use crate::cli::error::CliError;
use crate::cli::line::{CommandLine, cannot_combine};
use crate::cli::resolve;
use crate::cli::start;
#[cfg(feature = "nccl")]
use crate::cuda::cublaslt::CublasLt;
#[cfg(feature = "nccl")]
use crate::cuda::device::Device;
#[cfg(feature = "nccl")]
use crate::cuda::driver::{CubinCache, CudaDevice};
#[cfg(feature = "nccl")]
use crate::cuda::nvrtc::Compiler;
use crate::plan::Accelerator;
use crate::report::{Terminal, print_message};
#[cfg(feature = "nccl")]
use crate::runtime::Group;
#[cfg(feature = "nccl")]
use crate::runtime::device::{device_count, open_device};
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

/// Opens the GPU of a worker: ranks of a node have one each, in the order of their local ranks.
#[cfg(feature = "nccl")]
pub(super) fn open(group: &Group) -> Result<Arc<dyn Device>, String> {
    let count = device_count().map_err(|error| error.to_string())?;
    let context = open_device(group.local_rank() % count.max(1));
    let context = context.map_err(|error| error.to_string())?;
    let device = CudaDevice::new(context, CubinCache::of_user());
    Ok(Arc::new(device.map_err(|error| error.to_string())?))
}
