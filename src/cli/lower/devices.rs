//! What a slot is, and which devices this machine has.

use std::path::Path;

use crate::base::{HostName, Slot, env_vars};
use crate::cli::args::PlaceArgs;
use crate::cli::error::CliError;
use crate::cli::values::AcceleratorArg;
use crate::inventory::{self, VisibleDevices};
use crate::plan::Accelerator;

pub(super) fn accelerator(args: &PlaceArgs) -> Result<Accelerator, CliError> {
    let named = match args.accelerator {
        Some(named) => named,
        None => match env_vars::get_text(env_vars::DS_ACCELERATOR).as_deref() {
            None | Some("auto") => AcceleratorArg::Auto,
            Some("cpu") => AcceleratorArg::Cpu,
            Some("cuda") => AcceleratorArg::Cuda,
            Some(other) => {
                return Err(CliError::usage(format!("DS_ACCELERATOR=`{other}` is not supported"))
                    .help("use auto, cpu or cuda"));
            }
        },
    };
    Ok(match named {
        AcceleratorArg::Cuda => Accelerator::Cuda,
        AcceleratorArg::Auto if 0 < gpu_count() => Accelerator::Cuda,
        AcceleratorArg::Auto | AcceleratorArg::Cpu => Accelerator::Cpu,
    })
}

pub(in crate::cli) fn gpu_count() -> u32 {
    inventory::gpu_count(Path::new("/dev"))
}

pub(super) fn visible_slots() -> Result<Vec<Slot>, CliError> {
    let variable = env_vars::get_text(env_vars::CUDA_VISIBLE_DEVICES);
    match inventory::visible_devices(gpu_count(), variable.as_deref()) {
        VisibleDevices::Slots(slots) => Ok(slots),
        VisibleDevices::Uuids(uuids) => {
            inventory::gpus().and_then(|gpus| inventory::slots_of(&uuids, &gpus)).ok_or_else(|| {
                CliError::usage("CUDA_VISIBLE_DEVICES names GPUs that NVML does not know")
            })
        }
    }
}

pub(super) fn check_devices(
    args: &PlaceArgs,
    nodes: &[(HostName, Vec<Slot>)],
    accelerator: Accelerator,
) -> Result<(), CliError> {
    if accelerator == Accelerator::Cpu || args.oversubscribe {
        return Ok(());
    }
    let (wanted, found) = (nodes.iter().map(|(_, slots)| slots.len()).sum::<usize>(), gpu_count());
    if wanted <= found as usize {
        return Ok(());
    }
    Err(CliError::usage(format!("{wanted} GPUs are wanted, this machine has {found}"))
        .help("ask for fewer, share them with `--oversubscribe`, or use `--accelerator cpu`"))
}
