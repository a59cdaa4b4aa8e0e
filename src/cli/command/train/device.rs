//! `--device`: whether workers compute on processors or on GPUs.

use std::fmt::Display;
#[cfg(feature = "nccl")]
use std::sync::Arc;

use crate::base::Diagnostic;
use crate::cli::args::ClusterArgs;
use crate::cli::args::values::AcceleratorArg;
use crate::cli::command::train::args::TrainArgs;
use crate::cli::command::train::codes::NOT_ON_GPU;
#[cfg(feature = "nccl")]
use crate::cli::command::train::codes::OTHER_GPU;
use crate::cli::command::train::values::{AttentionArg, DeviceArg, ReduceOrderArg, name_of};
use crate::cli::error::CliError;
use crate::cli::line::codes::NEEDS_OTHER;
use crate::cli::line::{CommandLine, RefusedLine, cannot_combine};
use crate::cli::resolve;
#[cfg(feature = "nccl")]
use crate::cuda::cublaslt::{AlgorithmChoice, CublasLt, ShareChoices};
#[cfg(feature = "nccl")]
use crate::cuda::device::{Device, DeviceError};
#[cfg(feature = "nccl")]
use crate::cuda::driver::{CubinCache, CudaDevice};
#[cfg(feature = "nccl")]
use crate::cuda::nvrtc::Compiler;
use crate::plan::Accelerator;
use crate::report::text::show_count;
use crate::report::{Terminal, print_error, print_message};
#[cfg(feature = "nccl")]
use crate::runtime::device::{device_count, open_device};
#[cfg(feature = "nccl")]
use crate::runtime::engine::GroupChoices;
use crate::runtime::{CollectiveError, Group, ReduceOp};
#[cfg(feature = "nccl")]
use crate::train::check_device_options;

/// Note for a machine whose GPUs are used without being asked for.
const NOTE: &str = "training on GPUs was not tried on one yet; `--device cpu` trains on processors";

/// Decides where the workers compute, and with it the kind of their slots.
pub(super) fn apply(
    args: &mut TrainArgs,
    cluster: &mut ClusterArgs,
    typed: &CommandLine,
    terminal: Terminal,
) -> Result<(), CliError> {
    if args.device == DeviceArg::Auto {
        args.device = chosen(cluster, terminal);
    }
    check_gpu_options(args, typed)?;
    let (kind, why) = match args.device {
        DeviceArg::Cuda => (Accelerator::Cuda, "a GPU for every worker needs slots that are GPUs"),
        DeviceArg::Cpu | DeviceArg::Auto => {
            (Accelerator::Cpu, "slots that are GPUs are for workers that compute on GPUs")
        }
    };
    let slots = AcceleratorArg::Kind(kind);
    let given = cluster.devices.accelerator.replace(slots);
    if given.is_some_and(|given| ![slots, AcceleratorArg::Auto].contains(&given)) {
        return Err(cannot_combine(typed, "device", "accelerator", why).into());
    }
    if kind == Accelerator::Cuda {
        cluster.devices.cpu_option = "--device cpu";
    }
    Ok(())
}

/// Refuses options that only training on GPUs has, and the order of NCCL where the same bits are asked for.
fn check_gpu_options(args: &TrainArgs, typed: &CommandLine) -> Result<(), RefusedLine> {
    let has_order = args.reduce_order != ReduceOrderArg::Canonical;
    if args.deterministic && has_order {
        let why = "NCCL's order depends on its version, and on where the GPUs are";
        return Err(cannot_combine(typed, "reduce_order", "deterministic", why));
    }
    if args.device != DeviceArg::Cpu {
        return Ok(());
    }
    let refuse = |option: &str, value: &str, label: &str| {
        typed.refuse(&[typed.value_or_end(option)], |spans| {
            let message = format!("`--{option} {value}` needs `--device cuda`");
            Diagnostic::error(NEEDS_OTHER, spans[0], message)
                .label(label)
                .help(format!("add `--device cuda`, or leave `--{option}` out"))
        })
    };
    match args.attention {
        AttentionArg::Auto => {}
        AttentionArg::Flash | AttentionArg::Products => {
            let value = name_of(&args.attention).unwrap_or_default();
            let label = "processors compute attention in one way";
            return Err(refuse("attention", &value.to_string_lossy(), label));
        }
    }
    if has_order {
        let label = "processors add in the canonical order only";
        return Err(refuse("reduce_order", "any", label));
    }
    Ok(())
}

/// GPUs, if this machine has enough of them and their libraries, and no other slots were asked for.
fn chosen(cluster: &ClusterArgs, terminal: Terminal) -> DeviceArg {
    match cluster.devices.accelerator {
        Some(AcceleratorArg::Kind(Accelerator::Cuda)) => return DeviceArg::Cuda,
        Some(AcceleratorArg::Kind(_)) => return DeviceArg::Cpu,
        Some(AcceleratorArg::Auto) | None => {}
    }
    let gpus = resolve::gpu_count();
    if gpus == 0 {
        return DeviceArg::Cpu;
    }
    let (device, note) = match refusal(cluster, gpus) {
        None => (DeviceArg::Cuda, NOTE.to_owned()),
        Some(why) => (DeviceArg::Cpu, format!("{why}; workers compute on processors")),
    };
    print_message(&format!("note: {note}\n"), terminal.paint);
    device
}

/// Where the workers of a job compute that another command has started: on GPUs if every worker has one.
///
/// # Errors
/// If the workers cannot agree.
pub(super) fn agreed(group: &Group) -> Result<DeviceArg, CollectiveError> {
    let has_gpu = group.local_rank() < resolve::gpu_count() as usize && find_libraries().is_ok();
    let mut workers = [i32::from(has_gpu)];
    group.all_reduce(&mut workers, ReduceOp::Sum)?;
    let (with_gpu, all) = (workers[0] as usize, group.world_size());
    if 0 < with_gpu && with_gpu < all && group.rank() == 0 {
        print_error(&format!(
            "note: {with_gpu} of {all} workers have a GPU and its libraries; all compute on processors\n"
        ));
    }
    Ok(if with_gpu == all { DeviceArg::Cuda } else { DeviceArg::Cpu })
}

/// Why the GPUs of this machine are not used.
fn refusal(cluster: &ClusterArgs, gpus: u32) -> Option<String> {
    let is_here = cluster.hostfile.is_none() && !cluster.devices.oversubscribe;
    let wanted = cluster.num_gpus.as_ref().filter(|_| is_here);
    let wanted = wanted.and_then(|count| count.parse::<u32>().ok());
    if let Some(wanted) = wanted.filter(|wanted| gpus < *wanted) {
        return Some(format!(
            "this machine has {}, not {wanted}",
            show_count(gpus as usize, "GPU")
        ));
    }
    find_libraries().err()
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
        let (option, label, help) = match args.attention {
            AttentionArg::Flash => (
                "attention",
                "one kernel",
                "leave `--attention` out: matrix products then do what the kernel does not",
            ),
            AttentionArg::Auto | AttentionArg::Products => {
                ("device", "trains on GPUs", "`--device cpu` trains on processors")
            }
        };
        let refused = typed.refuse(&[typed.value_or_end(option)], |spans| {
            Diagnostic::error(NOT_ON_GPU, spans[0], problem.to_string()).label(label).help(help)
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
