//! Devices of slots, and devices of this machine.

use std::collections::BTreeMap;
use std::path::Path;

use clap::ValueEnum;

use crate::base::{HostName, Slot, env_vars, show_typed};
use crate::cli::args::DeviceArgs;
use crate::cli::args::values::AcceleratorArg;
use crate::cli::codes::machine::{BAD_VARIABLE, TOO_FEW_DEVICES};
use crate::cli::error::CliError;
use crate::doctor::SlotDevice;
use crate::inventory::{self, VisibleDevices};
use crate::launch::GpuSharing;
use crate::plan::Accelerator;

/// Devices of this machine that may be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Visible {
    /// Slots in the order in which a program would number the devices.
    pub(in crate::cli) slots: Vec<Slot>,
    /// Names of the devices, if they are not numbers.
    pub(in crate::cli) names: Vec<String>,
    /// The variable that selects the devices: `CUDA_VISIBLE_DEVICES=3,1`.
    pub(in crate::cli) variable: Option<String>,
}

impl Visible {
    /// Says how many devices there are, to follow the number that a job needs.
    pub(super) fn available(&self) -> String {
        let count = match self.slots.len() {
            0 => "none".to_owned(),
            count => count.to_string(),
        };
        match &self.variable {
            Some(variable) => format!("{variable} leaves {count}"),
            None => format!("this machine has {count}"),
        }
    }
}

/// Devices of the slots of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct JobDevices {
    pub(in crate::cli) accelerator: Accelerator,
    /// See [`crate::plan::JobSpec::device_names`].
    pub(in crate::cli) names: Vec<String>,
    /// Claims of the job on its GPUs.
    pub(in crate::cli) sharing: GpuSharing,
    /// Devices of the slots, for comparison with the devices of a node.
    pub(in crate::cli) slots_are: SlotDevice,
}

impl JobDevices {
    /// Slots that stand for no device: workers choose among the devices of the environment.
    pub(super) fn of_environment() -> Self {
        Self {
            accelerator: Accelerator::Cpu,
            names: Vec::new(),
            sharing: GpuSharing::None,
            slots_are: SlotDevice::Other,
        }
    }

    pub(super) fn new(
        args: &DeviceArgs,
        accelerator: Accelerator,
        names: Vec<String>,
    ) -> Result<Self, CliError> {
        let slots_are = slots_are(args, args.oversubscribe)?;
        Ok(Self { accelerator, names, sharing: gpu_sharing(args)?, slots_are })
    }
}

pub(super) fn accelerator(args: &DeviceArgs) -> Result<Accelerator, CliError> {
    Ok(match named_accelerator(args)? {
        AcceleratorArg::Kind(kind) => kind,
        AcceleratorArg::Auto if 0 < gpu_count() => Accelerator::Cuda,
        AcceleratorArg::Auto => Accelerator::Cpu,
    })
}

/// Returns the kind of device on the nodes, which is `found` on this machine: other machines may have GPUs
/// although this one has none.
pub(super) fn accelerator_of(
    args: &DeviceArgs,
    found: Accelerator,
    is_here: bool,
) -> Result<Accelerator, CliError> {
    let is_open = named_accelerator(args)? == AcceleratorArg::Auto && !is_here;
    Ok(if is_open && found == Accelerator::Cpu { Accelerator::GpuIfAny } else { found })
}

/// Returns how the job uses GPUs that other jobs use. A node may have GPUs even if this machine has
/// none, so locks are left out only if the options name another kind of device.
fn gpu_sharing(args: &DeviceArgs) -> Result<GpuSharing, CliError> {
    Ok(match named_accelerator(args)? {
        AcceleratorArg::Auto | AcceleratorArg::Kind(Accelerator::Cuda) if args.share => {
            GpuSharing::Shared
        }
        AcceleratorArg::Auto | AcceleratorArg::Kind(Accelerator::Cuda) => GpuSharing::Exclusive,
        AcceleratorArg::Kind(_) => GpuSharing::None,
    })
}

/// Returns the rule by which slots are compared with the devices of a node. If there are more
/// workers than devices, several workers may share one.
pub(in crate::cli) fn slots_are(
    args: &DeviceArgs,
    oversubscribed: bool,
) -> Result<SlotDevice, CliError> {
    Ok(match named_accelerator(args)? {
        AcceleratorArg::Auto | AcceleratorArg::Kind(Accelerator::Cuda) if oversubscribed => {
            SlotDevice::SharedGpus
        }
        AcceleratorArg::Auto => SlotDevice::GpusIfAny,
        AcceleratorArg::Kind(Accelerator::Cuda) => SlotDevice::Gpus,
        AcceleratorArg::Kind(_) => SlotDevice::Other,
    })
}

/// Returns the kind of device of a line, or of DS_ACCELERATOR.
pub(in crate::cli) fn named_accelerator(args: &DeviceArgs) -> Result<AcceleratorArg, CliError> {
    let variable = env_vars::get_text(env_vars::DS_ACCELERATOR);
    match (args.accelerator, variable) {
        (Some(named), _) => Ok(named),
        (None, None) => Ok(AcceleratorArg::Auto),
        (None, Some(name)) => AcceleratorArg::from_str(&name, false).map_err(|_| {
            let message = format!("DS_ACCELERATOR=`{}` is not supported", show_typed(&name));
            let known = AcceleratorArg::value_variants().iter();
            let known =
                known.filter_map(|known| Some(known.to_possible_value()?.get_name().to_owned()));
            CliError::usage(BAD_VARIABLE, message)
                .help(format!("use {}", known.collect::<Vec<_>>().join(", ")))
        }),
    }
}

pub(in crate::cli) fn gpu_count() -> u32 {
    inventory::gpu_count(Path::new("/dev"))
}

/// Returns the devices of this machine that the environment makes visible, or `None` if their
/// number is not known.
pub(super) fn visible(accelerator: Accelerator) -> Option<Visible> {
    let environment = env_vars::all();
    match accelerator {
        Accelerator::Cpu | Accelerator::GpuIfAny => None,
        Accelerator::Cuda => Some(visible_to_cuda(&environment, gpu_count())),
        Accelerator::Rocm
        | Accelerator::Xpu
        | Accelerator::Npu
        | Accelerator::Mps
        | Accelerator::Hpu
        | Accelerator::Mlu
        | Accelerator::Sdaa
        | Accelerator::Supa
        | Accelerator::Klxpu => visible_to_others(&environment, accelerator),
    }
}

/// Returns the number of GPUs that the environment makes visible here.
pub(in crate::cli) fn visible_gpus() -> usize {
    visible(Accelerator::Cuda).map_or(0, |visible| visible.slots.len())
}

/// Returns the number of Intel GPUs here, as far as the environment tells it.
pub(in crate::cli) fn visible_xpus() -> usize {
    visible(Accelerator::Xpu).map_or(0, |visible| visible.slots.len())
}

type Environment = BTreeMap<Vec<u8>, Vec<u8>>;

fn mask(environment: &Environment, name: &str) -> Option<String> {
    let value = environment.get(name.as_bytes())?;
    Some(String::from_utf8_lossy(value).into_owned())
}

fn visible_to_cuda(environment: &Environment, count: u32) -> Visible {
    let name = env_vars::CUDA_VISIBLE_DEVICES;
    let mask = mask(environment, name);
    let variable = mask.as_ref().map(|mask| show(name, mask));
    match inventory::visible_devices(count, mask.as_deref()) {
        VisibleDevices::Slots(slots) => Visible { slots, names: Vec::new(), variable },
        VisibleDevices::Uuids(names) => named(names, variable),
    }
}

/// Returns devices that remuda cannot count: their number follows from the variable, or is not
/// known.
fn visible_to_others(environment: &Environment, accelerator: Accelerator) -> Option<Visible> {
    let set = |name: &&str| mask(environment, name).filter(|mask| !mask.is_empty());
    let variables = accelerator.visible_devices();
    if let Some((name, mask)) = variables.iter().find_map(|name| Some((*name, set(name)?))) {
        let entries: Vec<String> = mask.split(',').map(|entry| entry.trim().to_owned()).collect();
        let numbers = entries.iter().map(|entry| entry.parse().ok().map(Slot));
        let variable = Some(show(name, &mask));
        return Some(match numbers.collect() {
            Some(slots) => Visible { slots, names: Vec::new(), variable },
            None => named(entries, variable),
        });
    }
    // The variable is not changed: HIP numbers the devices that it leaves from 0.
    let below =
        set(&env_vars::ROCR_VISIBLE_DEVICES).filter(|_| accelerator == Accelerator::Rocm)?;
    let slots = (0..below.split(',').count() as u32).map(Slot).collect();
    let variable = Some(show(env_vars::ROCR_VISIBLE_DEVICES, &below));
    Some(Visible { slots, names: Vec::new(), variable })
}

fn show(name: &str, value: &str) -> String {
    format!("{name}={}", show_typed(value))
}

/// Returns devices with names; they are numbered in the order of the list.
fn named(names: Vec<String>, variable: Option<String>) -> Visible {
    Visible { slots: (0..names.len() as u32).map(Slot).collect(), names, variable }
}

pub(super) fn check_devices(
    args: &DeviceArgs,
    nodes: &[(HostName, Vec<Slot>)],
    accelerator: Accelerator,
) -> Result<(), CliError> {
    if accelerator != Accelerator::Cuda || args.oversubscribe {
        return Ok(());
    }
    let (wanted, found) = (nodes.iter().map(|(_, slots)| slots.len()).sum::<usize>(), gpu_count());
    if wanted <= found as usize {
        return Ok(());
    }
    Err(too_few_devices(args, wanted, &format!("this machine has {found}")))
}

pub(super) fn too_few_devices(args: &DeviceArgs, wanted: usize, available: &str) -> CliError {
    CliError::usage(TOO_FEW_DEVICES, format!("the job needs {wanted} GPUs, but {available}")).help(
        format!(
            "start fewer workers, share GPUs with `--oversubscribe`, or use `{}`",
            args.cpu_option
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(set: &[(&str, &str)]) -> Environment {
        set.iter()
            .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
            .collect()
    }

    /// Checks the slots or names, separated by commas.
    #[track_caller]
    fn check(found: Option<&Visible>, expect: Option<&str>) {
        let show = |visible: &Visible| match &visible.names[..] {
            [] => visible.slots.iter().map(Slot::to_string).collect::<Vec<_>>().join(","),
            names => names.join(","),
        };
        assert_eq!(found.map(show).as_deref(), expect);
    }

    #[test]
    fn cuda_variable_selects_devices() {
        let check = |set: &[(&str, &str)], expect| {
            check(Some(&visible_to_cuda(&environment(set), 4)), Some(expect));
        };
        check(&[], "0,1,2,3");
        check(&[("CUDA_VISIBLE_DEVICES", "3,1")], "3,1");
        check(&[("CUDA_VISIBLE_DEVICES", "")], "");
        check(&[("CUDA_VISIBLE_DEVICES", "GPU-aa,GPU-bb")], "GPU-aa,GPU-bb");
        check(
            &[("CUDA_VISIBLE_DEVICES", "MIG-1,MIG-2,MIG-3,MIG-4,MIG-5")],
            "MIG-1,MIG-2,MIG-3,MIG-4,MIG-5",
        );
        check(&[("HIP_VISIBLE_DEVICES", "1")], "0,1,2,3");
    }

    #[test]
    fn variables_of_other_accelerators_select_devices() {
        let check = |accelerator, set: &[(&str, &str)], expect| {
            check(visible_to_others(&environment(set), accelerator).as_ref(), expect);
        };
        check(Accelerator::Rocm, &[], None);
        check(Accelerator::Rocm, &[("HIP_VISIBLE_DEVICES", "2,0")], Some("2,0"));
        check(Accelerator::Rocm, &[("CUDA_VISIBLE_DEVICES", "1")], Some("1"));
        check(Accelerator::Rocm, &[("ROCR_VISIBLE_DEVICES", "6,7")], Some("0,1"));
        check(Accelerator::Xpu, &[("ZE_AFFINITY_MASK", "0.0,0.1")], Some("0.0,0.1"));
        check(Accelerator::Xpu, &[("CUDA_VISIBLE_DEVICES", "1")], None);
        check(Accelerator::Npu, &[("ASCEND_RT_VISIBLE_DEVICES", "4,5")], Some("4,5"));
        check(Accelerator::Mlu, &[("MLU_VISIBLE_DEVICES", "1,0")], Some("1,0"));
        check(Accelerator::Sdaa, &[("SDAA_VISIBLE_DEVICES", "2")], Some("2"));
        check(Accelerator::Supa, &[("SUPA_VISIBLE_DEVICES", "3")], Some("3"));
        check(Accelerator::Supa, &[("CUDA_VISIBLE_DEVICES", "3")], None);
        for of_cuda in [Accelerator::Mps, Accelerator::Hpu, Accelerator::Klxpu] {
            check(of_cuda, &[("CUDA_VISIBLE_DEVICES", "0,1")], Some("0,1"));
        }
    }
}
