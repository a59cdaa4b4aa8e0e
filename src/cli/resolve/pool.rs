//! Finds the hosts: a hostfile, the allocation of a scheduler, or this machine.

use std::path::Path;

use crate::base::{HostName, Slot, Status, env_vars, python_int};
use crate::cli::args::ClusterArgs;
use crate::cli::args::values::{AcceleratorArg, LauncherArg};
use crate::cli::codes::machine::{BAD_VARIABLE, DEVICES_UNKNOWN, NO_DEVICE};
use crate::cli::error::CliError;
use crate::cli::line::{CommandLine, needs_other};
use crate::cli::resolve::allocation::{self, AllocationSource, SchedulerAllocation, StepTask};
use crate::cli::resolve::devices::{Visible, accelerator, too_few_devices, visible};
use crate::cli::resolve::no_ssh::node_named;
use crate::cli::resolve::task_slots::{TaskSlots, task_slots};
use crate::cli::resolve::trust::Trust;
use crate::cli::resolve::{hostfile, mpi_task, selection};
use crate::inventory;
use crate::os::machine::machine_name;
use crate::plan::Accelerator;
use crate::pool::{HostSource, Pool, ReadOptions, Reading, SLOTS_MAX, SlotCount, parse_slot_count};
use crate::report::Terminal;
use crate::report::diagnostic::show_findings;
use crate::report::text::{paint_message, show_count};

/// Path of the hostfile without `-H` (DeepSpeed's default).
pub(super) const DEFAULT_HOSTFILE: &str = "/job/hostfile";
/// Number of workers without a GPU and without an option.
const CPU_WORKERS_DEFAULT: usize = 2;

pub(super) struct FoundPool {
    pub(in crate::cli) accelerator: Accelerator,
    pub(in crate::cli) device_names: Vec<String>,
    pub(in crate::cli) origin: String,
    /// Source of the hosts, for messages about a selection.
    pub(in crate::cli) source: HostSource,
    pub(in crate::cli) warnings: String,
    /// Whether the slots are from `--num_gpus`, which must not select among them again.
    pub(in crate::cli) is_counted: bool,
    /// The hostfile, if there is one.
    pub(in crate::cli) hostfile: Option<Reading>,
}

/// Returns hosts and slots. The allocation of a scheduler is used only if remuda was started by its
/// own name: DeepSpeed's launcher ignores the scheduler, and its users expect that.
pub(super) fn find_pool(
    args: &ClusterArgs,
    typed: &CommandLine,
    terminal: Terminal,
) -> Result<(Pool, FoundPool), CliError> {
    let default = Path::new(DEFAULT_HOSTFILE);
    if let Some(path) = args.hostfile.as_deref().or_else(|| default.is_file().then_some(default)) {
        let slots_option = hostfile::slots_option(&typed.program);
        let options = ReadOptions { slots: args.slots, slots_option, ..ReadOptions::default() };
        let loaded = hostfile::load_value(path, trust(args), options, args.slots_of_list);
        let loaded = loaded.map_err(|error| load_error(&error.named_as(typed), terminal))?;
        let name = path.display().to_string();
        let note = loaded.show_evidence().map(|why| format!("{name}: {why}"));
        // The text of a file is named after its path, that of a list after its option.
        let source = if loaded.findings.source.name == hostfile::OPTION_NAME {
            HostSource::typed_list()
        } else {
            HostSource::Hostfile(name.clone())
        };
        return from_reading(loaded, (name, source), note, args, terminal);
    }
    let is_remuda = typed.program.starts_with("remuda");
    let found = if is_remuda {
        allocation::find(trust(args), args.slots.or_else(|| typed_workers(args, typed)))
    } else {
        Ok(AllocationSource::NotFound)
    };
    match found.map_err(|error| load_error(&error, terminal))? {
        AllocationSource::Nodes(found) if !is_this_machine_only(&found, args)? => {
            if let Some(why) = allocation::unlike_nodes().filter(|_| args.slots.is_none()) {
                return Err(unlike_nodes(&why));
            }
            let note = format!("hosts are those of the {}", found.origin);
            let source = HostSource::Allocation(format!("the {}", found.origin));
            let from = (found.origin, source);
            let (pool, mut found) = from_reading(found.reading, from, Some(note), args, terminal)?;
            let slots = unused_slots_note(args, &pool, &found.origin);
            for note in allocation::component_note().into_iter().chain(slots) {
                found.warnings += &paint_message(&note, terminal.paint);
            }
            Ok((pool, found))
        }
        AllocationSource::Nodes(_) => {
            let (pool, mut found) = this_machine(args, typed)?;
            let note = allocation::component_note().unwrap_or_default();
            found.warnings += &paint_message(&note, terminal.paint);
            Ok((pool, found))
        }
        AllocationSource::NotFound => this_machine(args, typed),
        // The command line does not make the tasks one job.
        AllocationSource::OneTaskOfMany(task) => {
            let (pool, found) = this_machine(args, typed)?;
            let note = format!(
                "note: this process is task {} of {} of {}, and starts a job of its own\n",
                task.number, task.count, task.group
            );
            Ok((pool, FoundPool { warnings: paint_message(&note, terminal.paint), ..found }))
        }
    }
}

/// Returns the task that this process is, and its slots, if the line leaves it to remuda where workers run and a process
/// manager has started several tasks.
pub(super) fn step_task(
    args: &ClusterArgs,
    typed: &CommandLine,
) -> Result<Option<(StepTask, TaskSlots)>, CliError> {
    let transport = &args.transport;
    let is_open = matches!(transport.launcher, None | Some(LauncherArg::Auto));
    let has_hosts = args.hostfile.is_some() || Path::new(DEFAULT_HOSTFILE).is_file();
    let is_remuda = typed.program.starts_with("remuda");
    if !is_open || !is_remuda || transport.no_ssh {
        return Ok(None);
    }
    let task = match (mpi_task::find(), has_hosts) {
        (Some(task), true) => return Err(mpi_task::refuse_hosts(&task, typed).into()),
        (Some(task), false) => task,
        (None, true) => return Ok(None),
        (None, false) => match allocation::find(trust(args), None) {
            Ok(AllocationSource::OneTaskOfMany(task)) => task,
            _ => return Ok(None),
        },
    };
    let workers = wanted_slots(args, typed)?.unwrap_or(1);
    let slots = task_slots(task.local, workers, &args.devices)?;
    Ok(Some((task, slots)))
}

pub(super) fn load_error(error: &hostfile::LoadError, terminal: Terminal) -> CliError {
    CliError::Screen { status: error.status(), text: error.screen(terminal.paint) }
}

/// Refuses an allocation whose nodes have different numbers of GPUs, which Slurm does not tell.
fn unlike_nodes(why: &str) -> CliError {
    let message = format!("the number of GPUs of each node is not known: {why}");
    CliError::usage(DEVICES_UNKNOWN, message)
        .help("name the nodes and their GPUs: `--launcher slurm -H n1:8,n2:4`")
}

/// Returns a note on a number of slots that was typed, if the scheduler gives the nodes other numbers.
fn unused_slots_note(args: &ClusterArgs, pool: &Pool, origin: &str) -> Option<String> {
    let typed = args.slots?.get() as usize;
    let is_used = pool.nodes().iter().all(|(_, slots)| slots.len() == typed);
    (!is_used).then(|| {
        format!(
            "note: `--slots` has no effect: the {origin} gives the number of slots of each node; `--num_gpus N` uses \
             fewer of them\n"
        )
    })
}

/// Whether an allocation contains only this machine: then its visible GPUs are read from this
/// machine, which is more exact.
fn is_this_machine_only(found: &SchedulerAllocation, args: &ClusterArgs) -> Result<bool, CliError> {
    let pool = found.reading.hostfile.pool();
    let is_alone = pool.nodes().len() == 1;
    let is_here = is_alone && node_named(&machine_name(), pool.nodes()).is_some();
    let is_all = is_here && args.slots.is_none();
    Ok(is_all && accelerator(&args.devices)? != Accelerator::Cpu)
}

fn from_reading(
    reading: Reading,
    (origin, source): (String, HostSource),
    note: Option<String>,
    args: &ClusterArgs,
    terminal: Terminal,
) -> Result<(Pool, FoundPool), CliError> {
    let note = note.map_or(String::new(), |note| format!("note: {note}\n"));
    let warnings = show_findings(&reading.findings, terminal.paint);
    let found = FoundPool {
        accelerator: accelerator(&args.devices)?,
        device_names: Vec::new(),
        origin,
        source,
        warnings: paint_message(&note, terminal.paint) + &warnings,
        is_counted: false,
        hostfile: None,
    };
    Ok((reading.hostfile.pool(), FoundPool { hostfile: Some(reading), ..found }))
}

pub(super) fn trust(args: &ClusterArgs) -> Trust {
    Trust::of(args.allow_insecure_files)
}

/// Returns the pool without a hostfile: the devices of this machine, or the requested number of CPU
/// slots.
fn this_machine(args: &ClusterArgs, typed: &CommandLine) -> Result<(Pool, FoundPool), CliError> {
    if args.slots.is_some() {
        return Err(needs_other(typed, "slots", "hostfile").into());
    }
    let host = HostName::parse("localhost").expect("a valid name");
    let accelerator = accelerator(&args.devices)?;
    let wanted = wanted_slots(args, typed)?;
    let (visible, origin) = match accelerator {
        Accelerator::Cpu => cpu_slots(args, wanted)?,
        _ => device_slots(args, accelerator, wanted)?,
    };
    let found = FoundPool {
        accelerator,
        device_names: visible.names,
        origin,
        source: HostSource::ThisMachine,
        warnings: String::new(),
        // Beside a filter the number is kept, and is refused later.
        is_counted: wanted.is_some() && args.include.is_none() && args.exclude.is_none(),
        hostfile: None,
    };
    Ok((Pool::single(host, visible.slots), found))
}

fn cpu_slots(args: &ClusterArgs, wanted: Option<usize>) -> Result<(Visible, String), CliError> {
    let count = match wanted {
        Some(wanted) => Some(wanted),
        None => local_size()?,
    };
    let count = count.unwrap_or_else(|| inventory::usable_cpus().min(CPU_WORKERS_DEFAULT));
    let why = if args.devices.accelerator == Some(AcceleratorArg::Kind(Accelerator::Cpu)) {
        ""
    } else {
        ": no GPU found"
    };
    let slots = (0..count as u32).map(Slot).collect();
    Ok((Visible { slots, ..Visible::default() }, format!("this machine, CPU slots{why}")))
}

/// Returns the value of `LOCAL_SIZE`, which DeepSpeed uses; 0 and less mean that it is not set.
fn local_size() -> Result<Option<usize>, CliError> {
    let Some(text) = env_vars::get(env_vars::LOCAL_SIZE) else { return Ok(None) };
    match text.to_str().and_then(python_int) {
        Some(count) if count <= 0 => Ok(None),
        Some(count) if count <= i64::from(SLOTS_MAX) => Ok(Some(count as usize)),
        _ => Err(CliError::usage(
            BAD_VARIABLE,
            format!(
                "LOCAL_SIZE is `{}`: expected a number of workers, at most {SLOTS_MAX}",
                text.display()
            ),
        )
        .help("correct the variable, unset it, or give `--num_gpus N`, which overrides it")),
    }
}

fn device_slots(
    args: &ClusterArgs,
    accelerator: Accelerator,
    wanted: Option<usize>,
) -> Result<(Visible, String), CliError> {
    let Some(mut visible) = visible(accelerator).or_else(|| wanted.map(first_slots)) else {
        let variable = accelerator.visible_devices()[0];
        return Err(CliError::usage(
            DEVICES_UNKNOWN,
            "the number of devices of this machine is not known",
        )
        .help(format!("give `--num_gpus N`, or set {variable}")));
    };
    let available = visible.available();
    if visible.slots.is_empty() {
        let cpu = args.devices.cpu_option;
        let help = match &visible.variable {
            // Of other kinds of devices, a variable that is set names at least one.
            Some(_) => format!("correct {}, or use `{cpu}`", env_vars::CUDA_VISIBLE_DEVICES),
            None => format!("use `{cpu}` to run on the CPU; `nvidia-smi -L` lists the GPUs"),
        };
        let message = format!("no GPU is available: {available}");
        return Err(CliError::usage(NO_DEVICE, message).help(help));
    }
    match wanted {
        Some(wanted) if wanted <= visible.slots.len() => visible.slots.truncate(wanted),
        Some(wanted) if args.devices.oversubscribe => {
            let next = visible.slots.iter().max().map_or(0, |slot| slot.0 + 1);
            let missing = wanted - visible.slots.len();
            visible.slots.extend((next..).take(missing).map(Slot));
        }
        Some(wanted) => return Err(too_few_devices(&args.devices, wanted, &available)),
        None => {}
    }
    let origin = match &visible.variable {
        Some(variable) => format!("this machine, {variable}"),
        None => format!("this machine, {}", show_count(visible.slots.len(), "GPU")),
    };
    Ok((visible, origin))
}

/// The number of workers of each node that was typed: in an allocation without GPUs that many workers have room.
fn typed_workers(args: &ClusterArgs, typed: &CommandLine) -> Option<SlotCount> {
    SlotCount::new(wanted_slots(args, typed).ok()?? as u32)
}

fn first_slots(count: usize) -> Visible {
    Visible { slots: (0..count as u32).map(Slot).collect(), ..Visible::default() }
}

/// Returns `--num_gpus` as a number of local slots. Beside a filter it is left to the selector,
/// which refuses the two together.
fn wanted_slots(args: &ClusterArgs, typed: &CommandLine) -> Result<Option<usize>, CliError> {
    let filters = [&args.include, &args.exclude];
    let is_filtered = filters.into_iter().flatten().any(|text| !text.is_empty());
    match args.num_gpus.as_deref().map_or(Ok(None), parse_slot_count) {
        Err(_) if is_filtered => Ok(None),
        Err(found) => {
            let findings = vec![selection::with_line_spans(found, typed)];
            Err(CliError::Findings { status: Status::Usage, findings })
        }
        Ok(wanted) => Ok(wanted),
    }
}
