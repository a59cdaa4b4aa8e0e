//! Which hosts there are: a hostfile, or this machine.

use std::path::Path;

use super::devices::{accelerator, visible_slots};
use crate::base::{HostName, Slot};
use crate::cli::args::PlaceArgs;
use crate::cli::error::CliError;
use crate::cli::hostfile::{self, Trust};
use crate::cli::values::AcceleratorArg;
use crate::inventory;
use crate::plan::Accelerator;
use crate::pool::Pool;
use crate::report::Terminal;

/// Where a pool is looked for when nobody says (DeepSpeed's default).
const DEFAULT_HOSTFILE: &str = "/job/hostfile";
/// Without a GPU and without a number, this many workers are started.
const CPU_WORKERS_DEFAULT: usize = 2;

pub(super) struct FoundPool {
    pub(super) accelerator: Accelerator,
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
        accelerator: accelerator(args)?,
        origin: path.display().to_string(),
        warnings: crate::report::diagnostic::show_findings(&loaded.findings, terminal.paint),
        counted: false,
    };
    Ok((loaded.hostfile.pool(), found))
}

pub(super) fn trust(args: &PlaceArgs) -> Trust {
    if args.allow_insecure_files { Trust::Anyone } else { Trust::Owner }
}

/// No hostfile: this machine's GPUs, or as many CPU slots as were asked for.
fn this_machine(args: &PlaceArgs) -> Result<(Pool, FoundPool), CliError> {
    let host = HostName::parse("localhost").expect("a valid name");
    let accelerator = accelerator(args)?;
    let wanted = wanted_slots(args)?;
    let (slots, origin) = match (accelerator, wanted) {
        (Accelerator::Cuda, None) => {
            let slots = visible_slots()?;
            let count = slots.len();
            (slots, format!("this machine, {count} GPUs"))
        }
        (Accelerator::Cuda, Some(count)) => {
            let gpus = visible_slots()?;
            let more = (gpus.len()..count).map(|slot| Slot(slot as u32));
            (
                gpus.iter().copied().take(count).chain(more).collect(),
                "this machine, GPUs".to_owned(),
            )
        }
        (Accelerator::Cpu, count) => {
            let count = count.unwrap_or_else(|| inventory::usable_cpus().min(CPU_WORKERS_DEFAULT));
            let why =
                if args.accelerator == Some(AcceleratorArg::Cpu) { "" } else { ": no GPU found" };
            ((0..count as u32).map(Slot).collect(), format!("this machine, CPU slots{why}"))
        }
    };
    if slots.is_empty() {
        return Err(CliError::usage("this machine has no GPU that may be used")
            .help("give `--accelerator cpu` to use the CPU, or see CUDA_VISIBLE_DEVICES"));
    }
    let found =
        FoundPool { accelerator, origin, warnings: String::new(), counted: wanted.is_some() };
    Ok((Pool::single(host, slots), found))
}

/// `--num_gpus` as a number of local slots. Other texts are left to the selector, which says what
/// is wrong with them; -1 is DeepSpeed's way of not asking.
fn wanted_slots(args: &PlaceArgs) -> Result<Option<usize>, CliError> {
    const SLOTS_MAX: usize = crate::pool::SLOTS_MAX as usize;
    match args.num_gpus.as_deref().map(|text| text.trim().parse::<usize>()) {
        Some(Ok(count)) if SLOTS_MAX < count => {
            Err(CliError::usage(format!("--num_gpus {count} is above the limit of {SLOTS_MAX}")))
        }
        Some(Ok(count)) if 0 < count => Ok(Some(count)),
        _ => Ok(None),
    }
}
