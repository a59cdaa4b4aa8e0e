//! Which hosts there are: a hostfile, or this machine.

use std::path::Path;

use super::devices::{Visible, accelerator, too_few, visible};
use crate::base::{HostName, Slot, Status, env_vars};
use crate::cli::args::PlaceArgs;
use crate::cli::error::CliError;
use crate::cli::hostfile::{self, Trust};
use crate::cli::values::AcceleratorArg;
use crate::inventory;
use crate::plan::Accelerator;
use crate::pool::{Pool, count_to_make};
use crate::report::Terminal;
use crate::report::summary::count;

/// Where a pool is looked for when nobody says (DeepSpeed's default).
const DEFAULT_HOSTFILE: &str = "/job/hostfile";
/// Without a GPU and without a number, this many workers are started.
const CPU_WORKERS_DEFAULT: usize = 2;

pub(super) struct FoundPool {
    pub(super) accelerator: Accelerator,
    pub(super) device_names: Vec<String>,
    pub(super) origin: String,
    pub(super) warnings: String,
    /// `--num_gpus` made the slots and must not choose among them again.
    pub(super) counted: bool,
}

pub(super) fn find_pool(
    args: &PlaceArgs,
    terminal: Terminal,
) -> Result<(Pool, FoundPool), CliError> {
    let default = Path::new(DEFAULT_HOSTFILE);
    let path = match &args.hostfile {
        Some(path) => Some(path.as_path()),
        None => default.is_file().then_some(default),
    };
    match path {
        Some(path) => from_hostfile(path, args, terminal),
        None => this_machine(args),
    }
}

fn from_hostfile(
    path: &Path,
    args: &PlaceArgs,
    terminal: Terminal,
) -> Result<(Pool, FoundPool), CliError> {
    let loaded = hostfile::load(path, trust(args)).map_err(|error| CliError::Screen {
        status: error.status(),
        text: error.screen(terminal.paint),
    })?;
    let found = FoundPool {
        accelerator: accelerator(&args.devices)?,
        device_names: Vec::new(),
        origin: path.display().to_string(),
        warnings: crate::report::diagnostic::show_findings(&loaded.findings, terminal.paint),
        counted: false,
    };
    Ok((loaded.hostfile.pool(), found))
}

pub(super) fn trust(args: &PlaceArgs) -> Trust {
    if args.allow_insecure_files { Trust::Anyone } else { Trust::Owner }
}

/// No hostfile: this machine's devices, or as many CPU slots as were asked for.
fn this_machine(args: &PlaceArgs) -> Result<(Pool, FoundPool), CliError> {
    let host = HostName::parse("localhost").expect("a valid name");
    let accelerator = accelerator(&args.devices)?;
    let wanted = wanted_slots(args)?;
    let (visible, origin) = match accelerator {
        Accelerator::Cpu => cpu_slots(args, wanted),
        _ => device_slots(args, accelerator, wanted)?,
    };
    let found = FoundPool {
        accelerator,
        device_names: visible.names,
        origin,
        warnings: String::new(),
        // Beside a filter it stays, to be refused.
        counted: wanted.is_some() && args.include.is_none() && args.exclude.is_none(),
    };
    Ok((Pool::single(host, visible.slots), found))
}

fn cpu_slots(args: &PlaceArgs, wanted: Option<usize>) -> (Visible, String) {
    let local_size = || env_vars::get_text(env_vars::LOCAL_SIZE)?.parse().ok().filter(|n| 0 < *n);
    let count = wanted.or_else(local_size);
    let count = count.unwrap_or_else(|| inventory::usable_cpus().min(CPU_WORKERS_DEFAULT));
    let why =
        if args.devices.accelerator == Some(AcceleratorArg::Cpu) { "" } else { ": no GPU found" };
    let slots = (0..count as u32).map(Slot).collect();
    (Visible { slots, ..Visible::default() }, format!("this machine, CPU slots{why}"))
}

fn device_slots(
    args: &PlaceArgs,
    accelerator: Accelerator,
    wanted: Option<usize>,
) -> Result<(Visible, String), CliError> {
    let Some(mut visible) = visible(accelerator).or_else(|| wanted.map(first_slots)) else {
        let variable = accelerator.visible_devices()[0];
        return Err(CliError::usage("nobody says how many devices this machine has")
            .help(format!("give `--num_gpus N`, or set {variable}")));
    };
    let there_are = match &visible.said_by {
        Some(said_by) => format!("{said_by} leaves {}", visible.slots.len()),
        None => format!("this machine has {}", visible.slots.len()),
    };
    if visible.slots.is_empty() {
        return Err(CliError::usage(format!("no GPU may be used: {there_are}"))
            .help("give `--accelerator cpu` to use the CPU, or see CUDA_VISIBLE_DEVICES"));
    }
    match wanted {
        Some(wanted) if wanted <= visible.slots.len() => visible.slots.truncate(wanted),
        Some(wanted) if args.devices.oversubscribe => {
            let next = visible.slots.iter().max().map_or(0, |slot| slot.0 + 1);
            let missing = wanted - visible.slots.len();
            visible.slots.extend((next..).take(missing).map(Slot));
        }
        Some(wanted) => return Err(too_few(wanted, &there_are)),
        None => {}
    }
    let origin = match &visible.said_by {
        Some(said_by) => format!("this machine, {said_by}"),
        None => format!("this machine, {}", count(visible.slots.len(), "GPU")),
    };
    Ok((visible, origin))
}

fn first_slots(count: usize) -> Visible {
    Visible { slots: (0..count as u32).map(Slot).collect(), ..Visible::default() }
}

/// `--num_gpus` as a number of local slots. Beside a filter it is left to the selector, which refuses
/// the two together.
fn wanted_slots(args: &PlaceArgs) -> Result<Option<usize>, CliError> {
    let filters = [&args.include, &args.exclude];
    let is_filtered = filters.into_iter().flatten().any(|text| !text.is_empty());
    match args.num_gpus.as_deref().map_or(Ok(None), count_to_make) {
        Err(_) if is_filtered => Ok(None),
        Err(found) => Err(CliError::Findings { status: Status::Usage, findings: vec![found] }),
        Ok(wanted) => Ok(wanted),
    }
}
