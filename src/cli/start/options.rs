//! Options of a launch besides its plan.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::base::{JobId, Rank, Status, clock, env_vars, show_create_dir_error};
use crate::cli::args::values::{CoreList, StdinArg};
use crate::cli::args::{WatchArgs, WorkerArgs};
use crate::cli::codes::machine::{BAD_VARIABLE, CANNOT_CREATE};
use crate::cli::error::CliError;
use crate::cli::random;
use crate::cli::resolve::environment::working_directory;
use crate::cli::resolve::{allocation_end, program_and_script};
use crate::cli::start::job_args::JobArgs;
use crate::cli::start::log_files::rank_files;
use crate::job::PAUSE_MIN;
use crate::launch::{
    CauseRule, CommandOptions, ContinueWith, Cores, DeviceOptions, FailureOptions, Framing,
    GpuSharing, LimitOptions, Options, OutputOptions, StdinTo, SupervisorOptions, Transport,
};
use crate::plan::{Export, JobSpec, VariableOrigin};
use crate::report::text::show_io_error;
use crate::report::{LogDir, LogRetention, RunClass, RunDir, Style};
use crate::secure::JobKey;
use crate::transport::ssh::AGENT_LIMIT;
use crate::wire::{self, RequiredPackage};

/// Time after which a warning is printed if workers have imported torch but are not connected to
/// rank 0.
const GROUP_LIMIT: Duration = Duration::from_secs(60);

/// The workers with printed output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum PrintedRanks {
    /// All workers: lines have a prefix with their rank.
    All,
    /// Only rank 0, without a prefix. The rule determines whether its exit status 1 is a result of
    /// the job and not a failure.
    Rank0(CauseRule),
}

impl PrintedRanks {
    fn cause_rule(self) -> CauseRule {
        match self {
            Self::All => CauseRule::ExitCodes,
            Self::Rank0(rule) => rule,
        }
    }
}

/// Returns the options of a launch besides its plan, and a note if the run cannot be recorded. `first_rank` is
/// the lowest rank that this process starts.
pub(in crate::cli) fn options(
    args: JobArgs<'_>,
    spec: &JobSpec,
    transport: Transport,
    (printed_ranks, first_rank): (PrintedRanks, Rank),
    class: RunClass,
) -> Result<(Options, String), CliError> {
    let JobArgs { watch, workers, .. } = args;
    let rank_files = rank_files(workers.rank_log_dir(), first_rank)?;
    let mut options = options_without_files(args, spec, transport, printed_ranks)?;
    // Both directories have the time in their names.
    let now = clock::wall();
    let (run_dir, note) = create_run_dir(watch, &options.job, class, now)?;
    let log_dir =
        watch.log_dir.as_deref().map(|dir| log_dir(dir, &options.job, now)).transpose()?;
    let logs = log_dir.as_ref().map(LogDir::path).or(run_dir.as_ref().map(RunDir::path));
    options.output.style.log_dir = logs.map(ToOwned::to_owned);
    options.output.style.rank_files = rank_files;
    (options.output.run_dir, options.output.log_dir) = (run_dir, log_dir);
    Ok((options, note))
}

/// Returns the options of a job that keeps nothing.
pub(super) fn options_without_files(
    args: JobArgs<'_>,
    spec: &JobSpec,
    transport: Transport,
    printed_ranks: PrintedRanks,
) -> Result<Options, CliError> {
    let JobArgs { watch, workers, .. } = args;
    let cores = cores(workers, &spec.exports)?;
    let (job, key) = job_and_key(&transport)?;
    let worker_count = spec.nodes.iter().map(|(_, slots)| slots.len()).sum::<usize>();
    let prints_all = printed_ranks == PrintedRanks::All;
    Ok(Options {
        job,
        key,
        command: command_options(spec, workers)?,
        limits: limits(watch, &transport, printed_ranks),
        failure: FailureOptions {
            restarts_max: watch.max_restarts,
            first_pause: PAUSE_MIN,
            warning: watch.pre_term_signal,
            lets_others_run: false,
            cause_rule: printed_ranks.cause_rule(),
            continue_with: ContinueWith::Nothing,
        },
        output: OutputOptions {
            style: style(args, printed_ranks, worker_count),
            // Workers of bundled programs meet at the store, so messages about it are left out.
            shows_progress: prints_all && watch.prints_progress(),
            announcement: String::new(),
            framing: framing(watch, printed_ranks),
            run_dir: None,
            log_dir: None,
            error_file: env_vars::get(env_vars::TORCHELASTIC_ERROR_FILE).map(PathBuf::from),
        },
        devices: DeviceOptions { cores, gpu_sharing: GpuSharing::None },
        stdin: stdin(watch.stdin, worker_count),
        supervisor: SupervisorOptions::default(),
        transport,
        elastic: None,
    })
}

fn command_options(spec: &JobSpec, workers: &WorkerArgs) -> Result<CommandOptions, CliError> {
    let (program, script) = program_and_script(&spec.program);
    let package = needed_package(&program, &spec.exports);
    Ok(CommandOptions {
        typed: std::env::args_os().collect(),
        flags: Vec::new,
        cwd: working_directory()?,
        program,
        script,
        files: Vec::new(),
        venv_script: workers.venv_script.clone(),
        kept_state: None,
        package,
    })
}

/// The package without which `--torch_backend remuda` would leave the groups of the program to gloo. Only a Python can
/// be asked for it.
fn needed_package(program: &OsStr, exports: &[Export]) -> Option<RequiredPackage> {
    let name = Path::new(program).file_name()?.to_string_lossy();
    let is_python = ["python", "pypy"].iter().any(|python| name.starts_with(python));
    let of_name = |export: &&Export| export.name == env_vars::REMUDA_TORCH_BACKEND;
    let decides = exports.iter().rfind(of_name)?;
    let by_option = decides.origin == VariableOrigin::Option("--torch_backend");
    let searches =
        exports.iter().filter(|export| export.name.to_string_lossy().starts_with("PYTHON"));
    let bytes = |text: &OsStr| text.as_encoded_bytes().to_vec();
    (is_python && by_option && decides.value == "remuda").then(|| RequiredPackage {
        name: "remuda".to_owned(),
        option: "--torch_backend remuda".to_owned(),
        env: searches.map(|export| (bytes(&export.name), bytes(&export.value))).collect(),
    })
}

fn limits(watch: &WatchArgs, transport: &Transport, printed_ranks: PrintedRanks) -> LimitOptions {
    LimitOptions {
        grace: watch.grace,
        lease: watch.lease,
        heartbeat_interval: watch
            .heartbeat
            .unwrap_or_else(|| wire::heartbeat_interval(watch.lease)),
        job: watch.timeout,
        allocation: allocation_end(lead(watch)),
        preflight: preflight_limit(transport),
        group: group_limit(watch, printed_ranks),
    }
}

/// Returns the time that workers need to save their state and to exit.
fn lead(watch: &WatchArgs) -> Duration {
    const MARGIN: Duration = Duration::from_secs(30);
    let ahead = watch.pre_term_signal.map_or(Duration::ZERO, |warning| warning.ahead);
    ahead + watch.grace + MARGIN
}

fn group_limit(watch: &WatchArgs, printed_ranks: PrintedRanks) -> Duration {
    let warns = printed_ranks == PrintedRanks::All && watch.prints_warnings();
    if warns { GROUP_LIMIT } else { Duration::ZERO }
}

/// Returns the name of the job and its key; nodes that dial in were given both.
fn job_and_key(transport: &Transport) -> Result<(JobId, JobKey), CliError> {
    match transport {
        Transport::Dial(dial) => Ok((dial.job.clone(), dial.key.clone())),
        Transport::Local | Transport::Ssh(_) | Transport::Managed(_) => {
            Ok((job_id()?, JobKey::from_random(random::random_bytes()?)))
        }
    }
}

fn preflight_limit(transport: &Transport) -> Duration {
    match transport {
        Transport::Ssh(ssh) => ssh.agent_limit,
        Transport::Managed(manager) => manager.join_limit,
        Transport::Local | Transport::Dial(_) => AGENT_LIMIT,
    }
}

/// Creates the run directory, or returns a note if that is not possible.
fn create_run_dir(
    watch: &WatchArgs,
    job: &JobId,
    class: RunClass,
    at: Duration,
) -> Result<(Option<RunDir>, String), CliError> {
    match RunDir::create(watch.run_dir.as_deref(), job, class, at) {
        Ok(run_dir) => Ok((Some(run_dir), String::new())),
        Err(error) if watch.run_dir.is_some() => {
            let message = format!("cannot create the run directory: {}", show_io_error(&error));
            Err(CliError::new(Status::CantCreate, CANNOT_CREATE, message)
                .help("name a directory that you can write: `--run_dir DIR`"))
        }
        Err(error) => Ok((None, format!("note: the run is not recorded: {error}\n"))),
    }
}

/// Returns the format of the output, without the files to which it is written.
fn style(args: JobArgs<'_>, printed_ranks: PrintedRanks, worker_count: usize) -> Style {
    let JobArgs { watch, terminal, .. } = args;
    let prints_all = printed_ranks == PrintedRanks::All;
    Style {
        prefix: watch.prefix.clone().or_else(|| (!prints_all).then(String::new)),
        solo: unprefixed_rank(watch, printed_ranks, worker_count),
        log_dir: None,
        retention: if watch.log_dir.is_some() { LogRetention::All } else { LogRetention::CAPPED },
        rank_files: None,
        redirects: None,
        gather: false,
        // The report of the cause is better than the messages of bundled programs about a lost
        // peer.
        hide_after_peer_loss: !prints_all,
        least_message: watch.message_level(),
        terminal: if watch.quiet { terminal.without_status() } else { terminal },
    }
}

fn framing(watch: &WatchArgs, printed_ranks: PrintedRanks) -> Framing {
    match printed_ranks {
        _ if !watch.prints_progress() => Framing::None,
        // The tool prints its own results at the end.
        PrintedRanks::Rank0(CauseRule::Rank0) => Framing::Start,
        PrintedRanks::All | PrintedRanks::Rank0(CauseRule::ExitCodes) => Framing::StartAndEnd,
    }
}

fn log_dir(parent: &Path, job: &JobId, at: Duration) -> Result<LogDir, CliError> {
    LogDir::create(parent, job, at).map_err(|error| {
        let (shown, why) = (parent.display(), show_create_dir_error(&error));
        let message = format!("`--log_dir`: cannot create directory `{shown}`: {why}");
        CliError::new(Status::CantCreate, CANNOT_CREATE, message)
            .help("name a directory that you can write: `--log_dir DIR`")
    })
}

fn cores(args: &WorkerArgs, exports: &[Export]) -> Result<Option<Cores>, CliError> {
    if !args.bind_cores_to_rank {
        return Ok(None);
    }
    if let Some(found) = exports.iter().find(|found| found.name == env_vars::KMP_AFFINITY) {
        let message = format!("{} sets KMP_AFFINITY, which also binds threads", found.origin);
        return Err(CliError::new(Status::Config, BAD_VARIABLE, message)
            .help("do not set it, or leave --bind_cores_to_rank out"));
    }
    Ok(Some(match &args.bind_core_list {
        None => Cores::All,
        Some(CoreList(ranges)) => Cores::List(ranges.iter().cloned().flatten().collect()),
    }))
}

/// Returns the worker with output that gets no prefix.
fn unprefixed_rank(args: &WatchArgs, printed_ranks: PrintedRanks, workers: usize) -> Option<Rank> {
    let is_unprefixed = match printed_ranks {
        PrintedRanks::All => workers == 1,
        // Its progress is sent in notes, and drawn below its lines.
        PrintedRanks::Rank0(_) => false,
    };
    (args.prefix.is_none() && is_unprefixed).then_some(Rank(0))
}

fn stdin(named: Option<StdinArg>, workers: usize) -> StdinTo {
    match named {
        Some(StdinArg::Rank(rank)) => StdinTo::Rank(Rank(rank)),
        Some(StdinArg::All) => StdinTo::All,
        None if workers == 1 => StdinTo::Rank(Rank(0)),
        Some(StdinArg::None) | None => StdinTo::None,
    }
}

/// Returns a name for the job that no other job of this user has.
fn job_id() -> Result<JobId, CliError> {
    Ok(JobId::from_bytes(random::random_bytes()?))
}
