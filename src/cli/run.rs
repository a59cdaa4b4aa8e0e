//! `remuda run`: a program on every slot of every host.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{CommandFactory, Parser};

use super::args::{ClusterArgs, ProgramArgs, WatchArgs, WorkerArgs};
use super::bundled;
use super::check;
use super::doctor;
use super::error::CliError;
use super::line::{self, CommandLine, RefusedLine};
use super::lower::environment::{self, JobScope};
use super::lower::{self, PidFile, PrintedRanks, ResolvedCluster};
use super::machine_codes::INVALID_FOR_WORKERS;
use crate::base::{NodeRank, Status};
use crate::launch::{
    self, LaunchError, LauncherFlag, MemberOptions, Options, Transport, WorkersFile,
};
use crate::plan::{self, JobSpec, LaunchPlan, PlanError, Program};
use crate::report::plan::{Secrets, show_plan, write_plan_json};
use crate::report::summary::{show_count, show_duration, show_step};
use crate::report::{RunClass, Terminal, print, print_error, print_message, print_with};

/// Description of remuda if it was started by one of DeepSpeed's names.
const ABOUT_DEEPSPEED: &str = "\
Run a program on every slot of every host. This is remuda, which reads the command line of \
DeepSpeed's launcher, version 0.19.8; COMPAT.md lists the differences.";

/// Text after the list of options in the help.
const HELP_FOOTER: &str = "\
Options are placed before the script; every word after the script is an argument of the script.
Options of DeepSpeed can be abbreviated; `-` and `_` are the same in the name of an option.

Signals: SIGINT (^C), SIGTERM and SIGHUP stop the workers, a second one kills them, a third one ends the
launcher at once. SIGTSTP (^Z) suspends workers and time limits until SIGCONT (`fg`). SIGQUIT (^\\)
prints the state of every rank, and the job continues. SIGUSR1 and SIGUSR2 are forwarded to every worker.

Exit status: 0 if every worker of every node returned 0; else that of the worker that failed first,
128 + N if signal N ended it. Statuses of remuda itself: 2 command line, 65 bad input file, 66 missing
input, 69 host unreachable, 70 internal error, 71 system limit, 73/74 output, 75 node lost, 76 protocol,
77 permission, 78 configuration, 124 --timeout, 126/127 program not executable / not found, 130/143
interrupted.";

/// Note for a dry run, which contacts no host.
const NO_PREFLIGHT: &str = "note: --preflight has no effect: a dry run checks no host\n";

/// Run a program on every slot of every host, and report the first cause of a failure.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "remuda run",
    bin_name = "remuda run",
    version,
    args_override_self = true,
    after_help = HELP_FOOTER
)]
pub struct RunArgs {
    /// Hosts and slots.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Script and arguments.
    #[command(flatten)]
    pub program: ProgramArgs,
    /// Processors, environment and log files of the workers.
    #[command(flatten)]
    pub workers: WorkerArgs,
    /// Options of supervision and output.
    #[command(flatten)]
    pub watch: WatchArgs,
}

/// Result of parsing a command line of `remuda run`.
pub type ParsedRun = line::Parsed<RunArgs>;

/// Parses the arguments of `program` (`remuda run`, `deepspeed`) with the rules of DeepSpeed's
/// launcher. Nothing outside the line is read.
pub fn parse(program: &'static str, words: Vec<OsString>) -> Result<ParsedRun, RefusedLine> {
    let mut command = RunArgs::command().name(program).bin_name(program);
    if program != "remuda run" {
        command = command.about(ABOUT_DEEPSPEED);
    }
    line::parse(command, CommandLine::new(program, words))
}

/// Parses the command line, and runs the job.
pub(super) fn main(program: &'static str, words: Vec<OsString>) -> Result<Status, CliError> {
    let (args, typed) = super::into_args(parse(program, words)?)?;
    check::run(&args, &typed)?;
    let terminal = Terminal::detect();
    print_replacements(&args.watch, &typed, terminal);
    let cluster = lower::resolve_cluster(&args.cluster, &typed, terminal)?;
    check::stdin(&args.watch, cluster.workers(), &typed)?;
    if let Some(note) = lower::unused_variables(&args.cluster.transport, &cluster)
        && args.watch.prints_progress()
    {
        print_message(&note, terminal.paint);
    }
    start_program(cluster, &args.watch, &args.workers, &args.program, terminal)
}

/// Prints a note for each value that a later one replaces, which argparse allows.
pub(super) fn print_replacements(watch: &WatchArgs, typed: &CommandLine, terminal: Terminal) {
    if watch.prints_progress() {
        print_message(&typed.show_replacements(), terminal.paint);
    }
}

/// Determines the program of the workers, and starts the job.
pub(super) fn start_program(
    cluster: ResolvedCluster,
    watch: &WatchArgs,
    workers: &WorkerArgs,
    program: &ProgramArgs,
    terminal: Terminal,
) -> Result<Status, CliError> {
    let named = program.python.as_ref();
    let (program, args, note) = lower::program(program, workers.venv_script.as_deref())?;
    let python = lower::show_interpreter(&program, named);
    if workers.bind_core_list.is_some() && !workers.bind_cores_to_rank && watch.prints_warnings() {
        let warning = "warning: --bind_core_list has no effect without --bind_cores_to_rank\n";
        print_message(warning, terminal.paint);
    }
    if let Some(note) = note.filter(|_| watch.prints_progress()) {
        print_message(&format!("note: {note}\n"), terminal.paint);
    }
    let worker_program =
        WorkerProgram { python, ..WorkerProgram::new(program, args, PrintedRanks::All) };
    start(cluster, watch, workers, worker_program, terminal)
}

/// The program that is started as every worker.
pub(super) struct WorkerProgram {
    pub(super) program: Program,
    pub(super) args: Vec<OsString>,
    /// The workers with printed output.
    pub(super) printed_ranks: PrintedRanks,
    /// Files that the workers need on other machines.
    pub(super) files: Vec<WorkersFile>,
    /// Directory of checkpoints from which a later job can continue.
    pub(super) checkpoint_dir: Option<PathBuf>,
    /// Class of the run: the newest records of each class are kept.
    pub(super) class: RunClass,
    /// The interpreter, if it should be printed.
    pub(super) python: Option<String>,
}

impl WorkerProgram {
    /// Creates a description without any files.
    pub(super) fn new(program: Program, args: Vec<OsString>, speaker: PrintedRanks) -> Self {
        Self {
            program,
            args,
            printed_ranks: speaker,
            files: Vec::new(),
            checkpoint_dir: None,
            class: RunClass::Job,
            python: None,
        }
    }
}

/// Plans the job, and prints or launches the plan.
pub(super) fn start(
    cluster: ResolvedCluster,
    watch: &WatchArgs,
    workers: &WorkerArgs,
    worker_program: WorkerProgram,
    terminal: Terminal,
) -> Result<Status, CliError> {
    let WorkerProgram {
        program,
        args,
        printed_ranks: speaker,
        files: needed,
        checkpoint_dir: kept,
        class,
        python,
    } = worker_program;
    let files = environment::read_files(cluster.trust, cluster.accelerator, terminal.paint)?;
    if watch.prints_warnings() {
        print_error(&cluster.warnings);
        print_error(&files.warnings);
    }
    let reach = JobScope::of(cluster.nodes.len(), &cluster.transport);
    let exports = environment::exports(&watch.env, files, reach, cluster.accelerator)?;
    match (watch.preflight, watch.dry_run) {
        (true, false) => doctor::preflight(&cluster, &program, watch.prints_warnings(), terminal)?,
        (true, true) => print_message(NO_PREFLIGHT, terminal.paint),
        (false, _) => {}
    }
    let (origin, alone) = (cluster.origin.clone(), cluster.local_node);
    let spec = JobSpec {
        nodes: cluster.nodes,
        accelerator: cluster.accelerator,
        device_names: cluster.device_names,
        program,
        args,
        master_addr: cluster.master_addr,
        master_port: cluster.master_port,
        restarts_max: watch.max_restarts,
        exports,
    };
    let plan = plan::plan(&spec).map_err(plan_error)?;
    let nodes = plan.nodes.len();
    let plan = match alone {
        Some(node) => plan.only_node(node),
        None => plan,
    };
    if watch.dry_run {
        let no_script = lower::script_problem(&spec.program, &environment::working_directory()?);
        if let Some(why) = no_script.filter(|_| watch.prints_warnings()) {
            print_message(&format!("warning: {why}; the job would not start\n"), terminal.paint);
        }
        show(&plan, watch).map_err(CliError::output)?;
        return Ok(Status::Success);
    }
    lower::check_size(&plan)?;
    if let (Some(node), Transport::Dial(dial)) = (cluster.dialing_node, &cluster.transport)
        && node != NodeRank(0)
    {
        let member = MemberOptions {
            dial: dial.clone(),
            node,
            grace: watch.grace,
            lease: watch.lease,
            restarts_max: watch.max_restarts,
            supervisor: cluster.supervisor,
            problems: lower::missing_requirements(&spec.program, workers.venv_script.as_deref())?,
            shows_progress: watch.prints_progress(),
            paint: terminal.paint,
        };
        return launch::join(&plan, &member).map_err(launch_error);
    }
    let (mut options, note) =
        lower::options(watch, workers, &spec, cluster.transport, speaker, terminal, class)?;
    bundled::configure_bundled_workers(&mut options, &spec);
    options.flags = launcher_flags;
    (options.files, options.checkpoint_dir) = (needed, kept);
    options.gpu_sharing = cluster.gpu_sharing;
    options.continue_with = cluster.continue_with;
    options.supervisor = cluster.supervisor;
    if watch.prints_progress() {
        let alone = alone.filter(|_| 1 < nodes);
        let alone = alone.map_or_else(String::new, |_| show_single_node(&plan, nodes));
        print_message(&note, terminal.paint);
        let lines = announcement(&plan, &options, &origin, python) + &alone;
        announce(&mut options, lines, terminal);
    }
    let pid_file =
        workers.save_pid.then(|| PidFile::write(workers.pid_in_file_name)).transpose()?;
    if let Some(file) = pid_file.as_ref().filter(|_| watch.prints_progress()) {
        let (pid, path) = (std::process::id(), file.path().display());
        print_message(
            &show_step("Pid", &format!("{pid}, in {path} until the job ends")),
            terminal.paint,
        );
    }
    launch::run(&plan, &options).map_err(launch_error)
}

/// Returns the options of `remuda run`, for hints about an option that was typed after the script.
fn launcher_flags() -> Vec<LauncherFlag> {
    let command = RunArgs::command();
    let flag = |arg: &clap::Arg| {
        let longs = arg.get_long_and_visible_aliases().unwrap_or_default();
        let longs = longs.into_iter().map(|long| format!("--{long}"));
        let short = arg.get_short().map(|letter| format!("-{letter}"));
        LauncherFlag {
            spellings: longs.chain(short).collect(),
            takes_value: arg.get_action().takes_values(),
        }
    };
    command.get_arguments().filter(|arg| !arg.is_positional()).map(flag).collect()
}

#[expect(clippy::needless_pass_by_value, reason = "made to be handed to `map_err`")]
pub(super) fn plan_error(error: PlanError) -> CliError {
    CliError::new(error.status(), INVALID_FOR_WORKERS, error.to_string())
}

#[expect(clippy::needless_pass_by_value, reason = "made to be handed to `map_err`")]
pub(super) fn launch_error(error: LaunchError) -> CliError {
    let refused = CliError::new(error.status(), error.code(), error.to_string());
    match error.help() {
        Some(help) => refused.help(help),
        None => refused,
    }
}

/// Returns the line of the announcement about a node that is not connected to the other nodes.
fn show_single_node(plan: &LaunchPlan, nodes: usize) -> String {
    let Some(node) = plan.nodes.first() else { return String::new() };
    let ranks = match &node.workers[..] {
        [first, .., last] => format!("ranks {}-{}", first.rank, last.rank),
        [only] => format!("rank {}", only.rank),
        [] => "no rank".to_owned(),
    };
    let node = format!("{} of {nodes}, {ranks} of {}", node.node_rank, plan.world_size);
    show_step("Node", &format!("{node}; not connected to the other nodes (see --key_file)"))
}

/// Prints the announcement when the start is certain. Nodes that dial in may take long until then,
/// so for them it is printed immediately, with the time limit.
fn announce(options: &mut Options, lines: String, terminal: Terminal) {
    match &options.transport {
        Transport::Local | Transport::Ssh(_) => options.announcement = lines,
        Transport::Dial(dial) => {
            let limit = show_duration(dial.join_limit);
            let at = format!("{}:{}", dial.address, dial.port);
            let waiting =
                format!("for the other nodes to connect to {at}, up to {limit} (--join_timeout)");
            print_message(&(lines + &show_step("Waiting", &waiting)), terminal.paint);
        }
    }
}

/// Returns the announcement of a job.
fn announcement(
    plan: &LaunchPlan,
    options: &Options,
    origin: &str,
    python: Option<String>,
) -> String {
    let workers = show_count(plan.local_worker_count(), "worker");
    let nodes = show_count(plan.nodes.len(), "node");
    let files = options.style.rank_files.as_ref();
    let output = files.map_or_else(String::new, |files| {
        show_step("Output", &format!("of each rank is written to {}", files.pattern().display()))
    });
    let launch = format!("{workers} on {nodes} ({origin}), job {}", options.job);
    let python = python.map_or_else(String::new, |python| show_step("Python", &python));
    show_step("Launch", &launch) + &python + &output
}

fn show(plan: &LaunchPlan, watch: &WatchArgs) -> std::io::Result<()> {
    let secrets = if watch.show_env { Secrets::Shown } else { Secrets::Masked };
    if watch.json {
        print_with(|out| write_plan_json(out, plan, secrets))
    } else {
        print(&show_plan(plan, secrets))
    }
}
