//! Plans a job, and prints or launches the plan.

use clap::CommandFactory;

use crate::base::{NodeRank, Status};
use crate::cli::args::{ProgramArgs, RunArgs, WatchArgs, WorkerArgs};
use crate::cli::error::CliError;
use crate::cli::resolve::environment::{self, JobScope};
use crate::cli::resolve::{self, ResolvedCluster};
use crate::cli::start::announcement::{announce, announcement, show_single_node};
use crate::cli::start::builtin_worker;
use crate::cli::start::log_files::PidFile;
use crate::cli::start::options::{PrintedRanks, options};
use crate::cli::start::preflight::preflight;
use crate::cli::start::program::WorkerProgram;
use crate::cli::start::size::check_size;
use crate::launch::{self, LauncherFlag, MemberOptions, Transport};
use crate::plan::{self, JobSpec, LaunchPlan};
use crate::report::plan::{Secrets, show_plan, write_plan_json};
use crate::report::summary::show_step;
use crate::report::{Terminal, print, print_error, print_message, print_with};

/// Note for a dry run, which contacts no host.
pub(in crate::cli) const NO_PREFLIGHT: &str =
    "note: --preflight has no effect: a dry run checks no host\n";

/// Determines the program of the workers, and starts the job.
pub(in crate::cli) fn start_program(
    cluster: ResolvedCluster,
    watch: &WatchArgs,
    workers: &WorkerArgs,
    program: &ProgramArgs,
    terminal: Terminal,
) -> Result<Status, CliError> {
    let named = program.python.as_ref();
    let (program, args, note) = resolve::program(program, workers.venv_script.as_deref())?;
    let python = resolve::show_interpreter(&program, named);
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

/// Plans the job, and prints or launches the plan.
pub(in crate::cli) fn start(
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
        (true, false) => preflight(&cluster, &program, watch.prints_warnings(), terminal)?,
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
    let plan = plan::plan(&spec)?;
    let nodes = plan.nodes.len();
    let plan = match alone {
        Some(node) => plan.only_node(node),
        None => plan,
    };
    if watch.dry_run {
        let no_script = resolve::script_problem(&spec.program, &environment::working_directory()?);
        if let Some(why) = no_script.filter(|_| watch.prints_warnings()) {
            print_message(&format!("warning: {why}; the job would not start\n"), terminal.paint);
        }
        show(&plan, watch).map_err(CliError::output)?;
        return Ok(Status::Success);
    }
    check_size(&plan)?;
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
            problems: resolve::missing_requirements(&spec.program, workers.venv_script.as_deref())?,
            shows_progress: watch.prints_progress(),
            paint: terminal.paint,
        };
        return Ok(launch::join(&plan, &member)?);
    }
    let (mut options, note) =
        options(watch, workers, &spec, cluster.transport, speaker, terminal, class)?;
    builtin_worker::configure_bundled_workers(&mut options, &spec);
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
    Ok(launch::run(&plan, &options)?)
}

/// Returns the options of `remuda run`, for hints about an option that was typed after the script.
pub(in crate::cli) fn launcher_flags() -> Vec<LauncherFlag> {
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

fn show(plan: &LaunchPlan, watch: &WatchArgs) -> std::io::Result<()> {
    let secrets = if watch.show_env { Secrets::Shown } else { Secrets::Masked };
    if watch.json {
        print_with(|out| write_plan_json(out, plan, secrets))
    } else {
        print(&show_plan(plan, secrets))
    }
}
