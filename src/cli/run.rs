//! `remuda run`: a program on every slot of every host.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{CommandFactory, Parser};

use super::args::{PlaceArgs, ProgramArgs, WatchArgs, WorkerArgs};
use super::bundled;
use super::check;
use super::doctor;
use super::error::CliError;
use super::line::{self, RefusedLine, Typed};
use super::lower::environment::{self, JobScope};
use super::lower::{self, PidFile, ResolvedCluster, Speaker};
use super::machine_codes::NOT_FOR_WORKERS;
use crate::base::{NodeRank, Status};
use crate::launch::{
    self, LaunchError, LauncherFlag, MemberOptions, Options, Transport, WorkersFile,
};
use crate::plan::{self, JobSpec, LaunchPlan, PlanError, Program};
use crate::report::plan::{Secrets, show_plan, write_plan_json};
use crate::report::summary::{count, duration, step};
use crate::report::{RunClass, Terminal, print, print_by, print_error, say};

/// Description of remuda if it was started by one of DeepSpeed's names.
const ABOUT_FACE: &str = "\
Run a program on every slot of every host. This is remuda, which reads the command line of \
DeepSpeed's launcher, version 0.19.8; COMPAT.md lists the differences.";

/// Text after the list of options in the help.
const HELP_END: &str = "\
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
    after_help = HELP_END
)]
pub struct RunArgs {
    /// Hosts and slots.
    #[command(flatten)]
    pub place: PlaceArgs,
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
        command = command.about(ABOUT_FACE);
    }
    line::parse(command, Typed::new(program, words))
}

/// Parses the command line, and runs the job.
pub(super) fn main(program: &'static str, words: Vec<OsString>) -> Result<Status, CliError> {
    let (args, typed) = super::to_run(parse(program, words)?)?;
    check::run(&args, &typed)?;
    let terminal = Terminal::look();
    note_replaced(&args.watch, &typed, terminal);
    let cluster = lower::place(&args.place, &typed, terminal)?;
    check::stdin(&args.watch, cluster.workers(), &typed)?;
    if let Some(note) = lower::unused_variables(&args.place.reach, &cluster)
        && args.watch.talks()
    {
        say(&note, terminal.paint);
    }
    start_program(cluster, &args.watch, &args.workers, &args.program, terminal)
}

/// Prints a note for each value that a later one replaces, which argparse allows.
pub(super) fn note_replaced(watch: &WatchArgs, typed: &Typed, terminal: Terminal) {
    if watch.talks() {
        say(&typed.replacements(), terminal.paint);
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
    let python = lower::python_named(&program, named);
    if workers.bind_core_list.is_some() && !workers.bind_cores_to_rank && watch.warns() {
        let warning = "warning: --bind_core_list has no effect without --bind_cores_to_rank\n";
        say(warning, terminal.paint);
    }
    if let Some(note) = note.filter(|_| watch.talks()) {
        say(&format!("note: {note}\n"), terminal.paint);
    }
    let worker_program = Started { python, ..Started::new(program, args, Speaker::Everybody) };
    start(cluster, watch, workers, worker_program, terminal)
}

/// The program that is started as every worker.
pub(super) struct Started {
    pub(super) program: Program,
    pub(super) args: Vec<OsString>,
    /// The workers with printed output.
    pub(super) speaker: Speaker,
    /// Files that the workers need on other machines.
    pub(super) files: Vec<WorkersFile>,
    /// Directory of checkpoints from which a later job can continue.
    pub(super) kept: Option<PathBuf>,
    /// Class of the run: the newest records of each class are kept.
    pub(super) class: RunClass,
    /// The interpreter, if it should be printed.
    pub(super) python: Option<String>,
}

impl Started {
    /// Creates a description without any files.
    pub(super) fn new(program: Program, args: Vec<OsString>, speaker: Speaker) -> Self {
        Self {
            program,
            args,
            speaker,
            files: Vec::new(),
            kept: None,
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
    worker_program: Started,
    terminal: Terminal,
) -> Result<Status, CliError> {
    let Started { program, args, speaker, files: needed, kept, class, python } = worker_program;
    let files = environment::read_files(cluster.trust, cluster.accelerator, terminal.paint)?;
    if watch.warns() {
        print_error(&cluster.warnings);
        print_error(&files.warnings);
    }
    let reach = JobScope::of(cluster.nodes.len(), &cluster.transport);
    let exports = environment::exports(&watch.env, files, reach, cluster.accelerator)?;
    match (watch.preflight, watch.dry_run) {
        (true, false) => doctor::preflight(&cluster, &program, watch.warns(), terminal)?,
        (true, true) => say(NO_PREFLIGHT, terminal.paint),
        (false, _) => {}
    }
    let (origin, alone) = (cluster.origin.clone(), cluster.alone);
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
    let plan = plan::plan(&spec).map_err(cannot_plan)?;
    let nodes = plan.nodes.len();
    let plan = match alone {
        Some(node) => plan.only(node),
        None => plan,
    };
    if watch.dry_run {
        let no_script = lower::no_script(&spec.program, &environment::working_directory()?);
        if let Some(why) = no_script.filter(|_| watch.warns()) {
            say(&format!("warning: {why}; the job would not start\n"), terminal.paint);
        }
        show(&plan, watch).map_err(CliError::output)?;
        return Ok(Status::Success);
    }
    lower::check_size(&plan)?;
    if let (Some(node), Transport::Dial(dial)) = (cluster.joins, &cluster.transport)
        && node != NodeRank(0)
    {
        let member = MemberOptions {
            dial: dial.clone(),
            node,
            grace: watch.grace,
            lease: watch.lease,
            restarts_max: watch.max_restarts,
            keeper: cluster.keeper,
            lacks: lower::lacks(&spec.program, workers.venv_script.as_deref())?,
            talks: watch.talks(),
            paint: terminal.paint,
        };
        return launch::join(&plan, &member).map_err(cannot_launch);
    }
    let (mut options, note) =
        lower::options(watch, workers, &spec, cluster.transport, speaker, terminal, class)?;
    bundled::set_up_own_workers(&mut options, &spec);
    options.flags = launcher_flags;
    (options.files, options.kept) = (needed, kept);
    options.claims = cluster.claims;
    options.way_on = cluster.way_on;
    options.keeper = cluster.keeper;
    if watch.talks() {
        let alone = alone.filter(|_| 1 < nodes);
        let alone = alone.map_or_else(String::new, |_| lonely(&plan, nodes));
        say(&note, terminal.paint);
        let lines = announcement(&plan, &options, &origin, python) + &alone;
        announce(&mut options, lines, terminal);
    }
    let pid_file = workers.save_pid.then(|| PidFile::write(workers.pid_of)).transpose()?;
    if let Some(file) = pid_file.as_ref().filter(|_| watch.talks()) {
        let (pid, path) = (std::process::id(), file.path().display());
        say(&step("Pid", &format!("{pid}, in {path} until the job ends")), terminal.paint);
    }
    launch::run(&plan, &options).map_err(cannot_launch)
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
pub(super) fn cannot_plan(error: PlanError) -> CliError {
    CliError::new(error.status(), NOT_FOR_WORKERS, error.to_string())
}

#[expect(clippy::needless_pass_by_value, reason = "made to be handed to `map_err`")]
pub(super) fn cannot_launch(error: LaunchError) -> CliError {
    let refused = CliError::new(error.status(), error.code(), error.to_string());
    match error.help() {
        Some(help) => refused.help(help),
        None => refused,
    }
}

/// Returns the line of the announcement about a node that is not connected to the other nodes.
fn lonely(plan: &LaunchPlan, nodes: usize) -> String {
    let Some(node) = plan.nodes.first() else { return String::new() };
    let ranks = match &node.workers[..] {
        [first, .., last] => format!("ranks {}-{}", first.rank, last.rank),
        [only] => format!("rank {}", only.rank),
        [] => "no rank".to_owned(),
    };
    let node = format!("{} of {nodes}, {ranks} of {}", node.node_rank, plan.world_size);
    step("Node", &format!("{node}; not connected to the other nodes (see --key_file)"))
}

/// Prints the announcement when the start is certain. Nodes that dial in may take long until then,
/// so for them it is printed immediately, with the time limit.
fn announce(options: &mut Options, lines: String, terminal: Terminal) {
    match &options.transport {
        Transport::Local | Transport::Ssh(_) => options.announcement = lines,
        Transport::Dial(dial) => {
            let limit = duration(dial.join_limit);
            let at = format!("{}:{}", dial.address, dial.port);
            let waiting =
                format!("for the other nodes to connect to {at}, up to {limit} (--join_timeout)");
            say(&(lines + &step("Waiting", &waiting)), terminal.paint);
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
    let workers = count(plan.workers_here(), "worker");
    let nodes = count(plan.nodes.len(), "node");
    let files = options.style.rank_files.as_ref();
    let output = files.map_or_else(String::new, |files| {
        step("Output", &format!("of each rank is written to {}", files.pattern().display()))
    });
    let launch = format!("{workers} on {nodes} ({origin}), job {}", options.job);
    let python = python.map_or_else(String::new, |python| step("Python", &python));
    step("Launch", &launch) + &python + &output
}

fn show(plan: &LaunchPlan, watch: &WatchArgs) -> std::io::Result<()> {
    let secrets = if watch.show_env { Secrets::Shown } else { Secrets::Masked };
    if watch.json {
        print_by(|out| write_plan_json(out, plan, secrets))
    } else {
        print(&show_plan(plan, secrets))
    }
}
