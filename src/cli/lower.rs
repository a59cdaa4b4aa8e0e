//! What was typed → what will be done. The world is consulted here, once: files, environment,
//! devices. Everything after this is a function of its result.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::args::{AcceleratorArg, PlaceArgs, ProgramArgs, StdinArg, WatchArgs};
use super::error::CliError;
use super::hostfile::{self, Trust};
use super::ssh_args;
use crate::base::{HostName, JobId, Rank, Slot, Status, env_vars};
use crate::inventory::{self, VisibleDevices};
use crate::launch::{Options, StdinTo, Transport};
use crate::plan::{Accelerator, JobSpec, MasterAddr, Program};
use crate::pool::{Pool, SelectorArgs, select};
use crate::report::diagnostic::show_all;
use crate::report::{Keep, RunDir, Style, Terminal};

/// Where a pool is looked for when nobody says (DeepSpeed's default).
const DEFAULT_HOSTFILE: &str = "/job/hostfile";
/// Local jobs need no more.
const LOOPBACK: &str = "127.0.0.1";
/// Without a GPU and without a number, this many workers are started.
const CPU_WORKERS_DEFAULT: usize = 2;

/// Who of the workers has something to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaker {
    /// Anybody: lines say whose they are.
    Everybody,
    /// Rank 0 speaks for all: its output is shown as it is.
    Rank0,
}

/// Hosts, slots and what they are.
pub(super) struct Place {
    pub(super) nodes: Vec<(HostName, Vec<Slot>)>,
    pub(super) accelerator: Accelerator,
    pub(super) master_addr: MasterAddr,
    pub(super) master_port: Option<u16>,
    /// Where the slots come from, for the screen.
    pub(super) origin: String,
    /// Warnings, ready to be shown.
    pub(super) warnings: String,
    pub(super) transport: Transport,
}

/// Finds the hosts and applies the selection.
pub(super) fn place(args: &PlaceArgs, terminal: Terminal) -> Result<Place, CliError> {
    let (pool, found) = find_pool(args, terminal)?;
    let selector = SelectorArgs {
        include: args.include.clone(),
        exclude: args.exclude.clone(),
        num_nodes: args.num_nodes.clone(),
        num_gpus: if found.counted { None } else { args.num_gpus.clone() },
    };
    let selected = select(&pool, &selector).map_err(|findings| CliError::Screen {
        status: Status::Usage,
        text: show_all(&findings, terminal.paint),
    })?;
    let nodes = selected.pool.into_nodes();
    let transport =
        ssh_args::transport(args.launcher, &args.ssh, nodes.iter().map(|node| &node.0))?;
    if transport == Transport::Local {
        check_devices(args, &nodes, found.accelerator)?;
    }
    Ok(Place {
        nodes,
        accelerator: found.accelerator,
        master_addr: match (&args.master_addr, &transport) {
            (Some(address), _) => MasterAddr::Given(address.clone()),
            (None, Transport::Local) => MasterAddr::Given(LOOPBACK.to_owned()),
            (None, Transport::Ssh(_)) => MasterAddr::AskNode0,
        },
        transport,
        master_port: args.master_port,
        origin: found.origin,
        warnings: found.warnings + &show_all(&selected.findings, terminal.paint),
    })
}

struct FoundPool {
    accelerator: Accelerator,
    origin: String,
    warnings: String,
    /// `--num_gpus` made the slots and must not choose among them again.
    counted: bool,
}

fn find_pool(args: &PlaceArgs, terminal: Terminal) -> Result<(Pool, FoundPool), CliError> {
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
    let trust = if args.allow_insecure_files { Trust::Anyone } else { Trust::Owner };
    let loaded = hostfile::load(path, trust).map_err(|error| CliError::Screen {
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

fn accelerator(args: &PlaceArgs) -> Result<Accelerator, CliError> {
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

pub(super) fn gpu_count() -> u32 {
    inventory::gpu_count(Path::new("/dev"))
}

fn visible_slots() -> Result<Vec<Slot>, CliError> {
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

fn check_devices(
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

/// The script or program, and a note if it is not run the way it was typed.
pub(super) fn program(
    args: &ProgramArgs,
) -> Result<(Program, Vec<OsString>, Option<String>), CliError> {
    let (script, rest) = args.script_and_args.split_first().expect("clap requires a script");
    let local_rank = !args.no_local_rank;
    let elf = !args.no_python && !args.module && is_elf(Path::new(script));
    let note = elf.then(|| format!("`{}` is an executable: run without Python", script.display()));
    let program = if args.no_python || elf {
        // DeepSpeed passes `--local_rank` to any program; `true --local_rank=0` would not mind, but
        // an executable that somebody named as a script does not expect it.
        Program::Exec { program: script.clone(), local_rank: local_rank && !elf }
    } else {
        Program::Python {
            script: script.clone(),
            module: args.module,
            local_rank,
            interpreter: interpreter(args.python.as_ref())?,
        }
    };
    Ok((program, rest.to_vec(), note))
}

fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok()
        && magic == *b"\x7fELF"
}

/// `--python`, `PYTHON_EXEC`, the active environment, PATH; absolute, links never resolved, since
/// that leaves a virtual environment.
fn interpreter(named: Option<&OsString>) -> Result<OsString, CliError> {
    if let Some(named) = named.cloned().or_else(|| env_vars::get(env_vars::PYTHON_EXEC)) {
        return absolute(Path::new(&named));
    }
    for root in [env_vars::VIRTUAL_ENV, env_vars::CONDA_PREFIX] {
        let python = env_vars::get(root).map(|root| Path::new(&root).join("bin/python"));
        if let Some(python) = python.filter(|python| python.exists()) {
            return absolute(&python);
        }
    }
    ["python3", "python"].iter().find_map(|name| search_path(name)).ok_or_else(|| {
        CliError::new(Status::NotFound, "there is no `python3` and no `python` in PATH")
            .help("give `--python FILE`, or `--no_python` for a program that is no Python script")
    })
}

fn absolute(python: &Path) -> Result<OsString, CliError> {
    if !python.as_os_str().as_bytes().contains(&b'/') {
        return search_path(&python.to_string_lossy()).ok_or_else(|| {
            CliError::new(Status::NotFound, format!("`{}` is not in PATH", python.display()))
        });
    }
    let absolute = std::path::absolute(python);
    absolute
        .map(PathBuf::into_os_string)
        .map_err(|error| CliError::new(Status::Io, error.to_string()))
}

fn search_path(name: &str) -> Option<OsString> {
    let path = env_vars::get(env_vars::PATH)?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
        .map(Into::into)
}

/// `NAME=VALUE` as it is, `NAME` with our value.
pub(super) fn exports(typed: &[OsString]) -> Result<Vec<(OsString, OsString)>, CliError> {
    typed.iter().map(|text| export(text)).collect()
}

fn export(text: &OsStr) -> Result<(OsString, OsString), CliError> {
    let bytes = text.as_bytes();
    if let Some(at) = bytes.iter().position(|byte| *byte == b'=') {
        let (name, value) = (bytes[..at].to_vec(), bytes[at + 1..].to_vec());
        return Ok((OsString::from_vec(name), OsString::from_vec(value)));
    }
    let value = text.to_str().and_then(env_vars::get);
    value.map(|value| (text.to_owned(), value)).ok_or_else(|| {
        CliError::usage(format!("--env {}: the variable is not set here", text.display()))
            .help("give it a value: `--env NAME=VALUE`")
    })
}

/// Everything that a launch needs beside its plan.
pub(super) fn options(
    args: &WatchArgs,
    spec: &JobSpec,
    transport: Transport,
    speaker: Speaker,
    terminal: Terminal,
) -> Result<(Options, String), CliError> {
    let job = job_id()?;
    let workers = spec.nodes.iter().map(|(_, slots)| slots.len()).sum::<usize>();
    let (run_dir, note) = match RunDir::create(args.run_dir.as_deref(), &job) {
        Ok(run_dir) => (Some(run_dir), String::new()),
        Err(error) if args.run_dir.is_some() => {
            return Err(CliError::new(
                Status::CantCreate,
                format!("cannot make the run directory: {error}"),
            ));
        }
        Err(error) => (None, format!("note: nothing is recorded: {error}\n")),
    };
    let log_dir =
        args.log_dir.clone().or_else(|| run_dir.as_ref().map(|dir| dir.path().to_owned()));
    if let Some(log_dir) = &args.log_dir {
        std::fs::create_dir_all(log_dir).map_err(|error| {
            CliError::new(
                Status::CantCreate,
                format!("cannot make `{}`: {error}", log_dir.display()),
            )
        })?;
    }
    let keep = if args.log_dir.is_some() { Keep::All } else { Keep::CAPPED };
    let (program, script) = program_and_script(&spec.program);
    let options = Options {
        job,
        key: random_bytes()?,
        cwd: std::env::current_dir().map_err(|error| {
            CliError::new(Status::NoInput, format!("no working directory: {error}"))
        })?,
        program,
        script,
        grace: args.grace,
        lease: args.lease,
        timeout: args.timeout,
        stdin: stdin(args.stdin, workers)?,
        style: Style {
            prefix: args.prefix.clone().or_else(|| (speaker == Speaker::Rank0).then(String::new)),
            solo: solo(args, speaker, workers, terminal),
            log_dir,
            keep,
            terminal,
        },
        // Programs of ours meet at the store.
        tell_port: speaker == Speaker::Everybody && !args.quiet,
        run_dir,
        transport,
    };
    Ok((options, note))
}

/// The worker whose output needs no prefix.
fn solo(args: &WatchArgs, speaker: Speaker, workers: usize, terminal: Terminal) -> Option<Rank> {
    let speaks = match speaker {
        Speaker::Everybody => workers == 1,
        // Its progress bar is for terminals.
        Speaker::Rank0 => terminal.stdout,
    };
    (args.prefix.is_none() && speaks).then_some(Rank(0))
}

fn program_and_script(program: &Program) -> (OsString, Option<OsString>) {
    match program {
        Program::Python { script, module, interpreter, .. } => {
            (interpreter.clone(), (!module).then(|| script.clone()))
        }
        Program::Exec { program, .. } => (program.clone(), None),
    }
}

fn stdin(named: Option<StdinArg>, workers: usize) -> Result<StdinTo, CliError> {
    match named {
        Some(StdinArg::Rank(rank)) if workers <= rank as usize => {
            Err(CliError::usage(format!("--stdin {rank}: ranks are 0 to {}", workers - 1)))
        }
        Some(StdinArg::Rank(rank)) => Ok(StdinTo::Rank(Rank(rank))),
        Some(StdinArg::All) => Ok(StdinTo::All),
        None if workers == 1 => Ok(StdinTo::Rank(Rank(0))),
        Some(StdinArg::None) | None => Ok(StdinTo::Nobody),
    }
}

/// A name for the job that no other job of this user has.
fn job_id() -> Result<JobId, CliError> {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let bytes = random_bytes()?;
    let letters = bytes[..8].iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)]));
    Ok(JobId(letters.collect()))
}

fn random_bytes() -> Result<[u8; 32], CliError> {
    let mut bytes = [0; 32];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match filled {
        Ok(32) => Ok(bytes),
        _ => Err(CliError::new(Status::OsLimit, "the kernel gives no random numbers")),
    }
}
