//! `--device`: whether workers compute on processors or on GPUs.

use std::ffi::OsString;
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
use crate::cli::command::train::device_choice::{DeviceChoice, choose_here};
use crate::cli::command::train::typed_line::TypedLine;
use crate::cli::command::train::values::{
    AttentionArg, DeviceArg, ModelArg, ReduceOrderArg, name_of,
};
use crate::cli::error::CliError;
use crate::cli::line::codes::NEEDS_OTHER;
use crate::cli::line::{CommandLine, RefusedLine, cannot_combine};
use crate::cli::resolve;
#[cfg(feature = "nccl")]
use crate::cuda::cublaslt::{AlgorithmChoice, ShareChoices};
#[cfg(feature = "nccl")]
use crate::cuda::device::{Device, DeviceError};
#[cfg(feature = "nccl")]
use crate::cuda::driver::{CubinCache, CudaDevice};
#[cfg(feature = "nccl")]
use crate::cuda::nccl::NcclLibrary;
use crate::plan::Accelerator;
use crate::report::Terminal;
#[cfg(feature = "nccl")]
use crate::report::print_error;
#[cfg(feature = "nccl")]
use crate::runtime::Group;
#[cfg(feature = "nccl")]
use crate::runtime::device::{device_count, open_device};
#[cfg(feature = "nccl")]
use crate::runtime::engine::GroupChoices;
#[cfg(feature = "nccl")]
use crate::train::check_device_options;

/// What chooses processors, for help texts.
const CPU_OPTION: &str = "--device cpu";
const FLASH_HELP: &str = "leave `--attention` out: matrix products compute what the kernel does not, or use \
                          `--precision bf16` and heads of 64 features";
const HEADS_HELP: &str = "use a `--width` that gives every head a multiple of 8 features, or train on processors: \
                          `--device cpu`";

/// Decides where the workers compute, and with it the kind of their slots. Returns a note about it. Workers whose hosts
/// are named decide by themselves ([`agree`](super::device_choice::agree)).
pub(super) fn apply(
    args: &mut TrainArgs,
    cluster: &mut ClusterArgs,
    typed: &CommandLine,
    terminal: Terminal,
) -> Result<Option<String>, CliError> {
    check_combinations(args, typed)?;
    let mut note = None;
    if args.device == DeviceArg::Auto {
        DeviceChoice { device: args.device, note } = chosen(cluster, terminal)?;
    }
    check_gpu_options(args, typed)?;
    let (kind, why) = match args.device {
        DeviceArg::Auto => {
            cluster.devices.cpu_option = CPU_OPTION;
            return Ok(None);
        }
        DeviceArg::Cuda => (Accelerator::Cuda, "a GPU for every worker needs slots that are GPUs"),
        DeviceArg::Cpu => {
            (Accelerator::Cpu, "slots that are GPUs are for workers that compute on GPUs")
        }
    };
    let slots = AcceleratorArg::Kind(kind);
    let given = cluster.devices.accelerator.replace(slots);
    if given.is_some_and(|given| ![slots, AcceleratorArg::Auto].contains(&given)) {
        return Err(cannot_combine(typed, "device", "accelerator", why).into());
    }
    if kind == Accelerator::Cuda {
        cluster.devices.cpu_option = CPU_OPTION;
    }
    Ok(note)
}

/// Where workers compute whose line does not say it: as their slots do, if those were named.
fn chosen(cluster: &ClusterArgs, terminal: Terminal) -> Result<DeviceChoice, CliError> {
    let known = |device| DeviceChoice { device, note: None };
    Ok(match resolve::named_accelerator(&cluster.devices)? {
        AcceleratorArg::Kind(Accelerator::Cuda) => known(DeviceArg::Cuda),
        AcceleratorArg::Kind(_) => known(DeviceArg::Cpu),
        AcceleratorArg::Auto => {
            let has_hosts = cluster.hostfile.is_some() || resolve::has_usual_hosts(terminal)?;
            if has_hosts {
                return Ok(known(DeviceArg::Auto));
            }
            let wanted = cluster.num_gpus.as_ref().filter(|_| !cluster.devices.oversubscribe);
            choose_here(wanted.and_then(|count| count.parse().ok()))
        }
    })
}

/// Workers that decide by themselves have no GPU if they are on this machine, and it has none.
pub(super) fn settle_here(args: &mut TrainArgs) {
    if args.device == DeviceArg::Auto && resolve::visible_gpus() == 0 {
        args.device = DeviceArg::Cpu;
    }
}

/// Refuses options that contradict each other wherever the workers compute.
fn check_combinations(args: &TrainArgs, typed: &CommandLine) -> Result<(), RefusedLine> {
    if args.model() == ModelArg::Mlp && args.attention != AttentionArg::Auto {
        return Err(cannot_combine(typed, "model", "attention", "an MLP has no attention"));
    }
    if args.deterministic && args.reduce_order != ReduceOrderArg::Canonical {
        let why = "NCCL's order depends on its version, and on where the GPUs are";
        return Err(cannot_combine(typed, "reduce_order", "deterministic", why));
    }
    Ok(())
}

/// An option that only workers on GPUs have.
pub(super) struct GpuOption {
    name: &'static str,
    value: OsString,
    /// What holds for other workers.
    pub(super) reason: &'static str,
}

impl GpuOption {
    /// Finds the first one of a line.
    pub(super) fn of(args: &TrainArgs) -> Option<Self> {
        if args.attention != AttentionArg::Auto {
            let reason = "processors compute attention in one way";
            return Some(Self { name: "attention", value: name_of(&args.attention)?, reason });
        }
        let reason = "processors add in the canonical order only";
        let has_order = args.reduce_order != ReduceOrderArg::Canonical;
        has_order.then(|| Self { name: "reduce_order", value: "any".into(), reason })
    }

    /// What is wrong with it for workers on processors.
    pub(super) fn message(&self) -> String {
        format!("`--{} {}` is for workers on GPUs", self.name, self.value.display())
    }
}

/// Refuses options that only workers on GPUs have.
fn check_gpu_options(args: &TrainArgs, typed: &CommandLine) -> Result<(), RefusedLine> {
    let found = GpuOption::of(args).filter(|_| args.device == DeviceArg::Cpu);
    let Some(option) = found else { return Ok(()) };
    Err(typed.refuse(&[typed.value_or_end(option.name)], |spans| {
        Diagnostic::error(NEEDS_OTHER, spans[0], option.message())
            .label(option.reason)
            .help(format!("leave `--{}` out, or train on GPUs: `--device cuda`", option.name))
    }))
}

/// Refuses settings that training on a GPU does not have.
pub(super) fn check(args: &TrainArgs, typed: &CommandLine) -> Result<(), CliError> {
    if args.device != DeviceArg::Cuda {
        return Ok(());
    }
    check_options(args).map_err(|problem| {
        let (place, label, help) = match args.attention {
            AttentionArg::Flash => (typed.value_or_end("attention"), "one kernel", FLASH_HELP),
            AttentionArg::Auto | AttentionArg::Products => {
                let place = TypedLine(typed).first_of(&["heads", "width"]);
                (place, "decides on the features of a head", HEADS_HELP)
            }
        };
        let refused = typed.refuse(&[place], |spans| {
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
    Err("this build of remuda has no support for GPUs (feature `nccl`)")
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
    // One worker of a node says it for all: their exchanges go through the memory of the host.
    if group.local_rank() == 0
        && 1 < group.world_size()
        && let Err(error) = NcclLibrary::open()
    {
        print_error(&format!("note: rank {}: {error}\n", group.rank()));
    }
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
