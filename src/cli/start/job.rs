//! Plans a job, and prints or launches the plan.

use crate::base::{HostName, NodeRank, Rank, Status, env_vars};
use crate::cli::args::{ProgramArgs, WatchArgs, WorkerArgs};
use crate::cli::error::CliError;
use crate::cli::resolve::environment::working_directory;
use crate::cli::resolve::{self, ResolvedCluster, StartedNodes};
use crate::cli::start::announcement::{announce, announcement, show_local_file, show_single_node};
use crate::cli::start::applied_options::{option_documents, set_origins};
use crate::cli::start::builtin_worker::configure_builtin_worker;
use crate::cli::start::exports::exports;
use crate::cli::start::face::Face;
use crate::cli::start::job_args::JobArgs;
use crate::cli::start::log_files::PidFile;
use crate::cli::start::misplaced::note_of_misplaced;
use crate::cli::start::options::{PrintedRanks, options, options_without_files};
use crate::cli::start::preflight::{check_manager, preflight};
use crate::cli::start::program::WorkerProgram;
use crate::cli::start::size::check_size;
use crate::launch::{
    self, Cores, DialOptions, ElasticNodes, MemberOptions, Options, SupervisorOptions, Transport,
};
use crate::os::process::fork::end_with_parent;
use crate::plan::{self, Export, JobSpec, LaunchPlan, Program};
use crate::report::plan::{Secrets, show_command, show_plan, write_plan_json};
use crate::report::text::show_step;
use crate::report::{ElasticSettings, PlanSettings, Terminal, print, print_message, print_with};

/// Note for a dry run, which contacts no host.
const NO_PREFLIGHT: &str = "note: --preflight has no effect: a dry run checks no host\n";

/// Determines the program of the workers, and starts the job.
pub(in crate::cli) fn start_program(
    cluster: ResolvedCluster,
    args: JobArgs<'_>,
    program: &ProgramArgs,
) -> Result<Status, CliError> {
    start_as(Face::Remuda, cluster, args, program)
}

/// Does the same for the command line of another launcher.
pub(in crate::cli) fn start_as(
    face: Face,
    cluster: ResolvedCluster,
    args: JobArgs<'_>,
    program: &ProgramArgs,
) -> Result<Status, CliError> {
    let JobArgs { watch, workers, terminal, .. } = args;
    let resolved = resolve::program(program, workers.venv_script.as_deref(), face.no_python())?;
    let python = resolve::show_interpreter(&resolved.program, program.python.as_ref());
    if workers.bind_core_list.is_some() && !workers.bind_cores_to_rank && watch.prints_warnings() {
        let warning = "warning: --bind_core_list has no effect without --bind_cores_to_rank\n";
        print_message(warning, terminal.paint);
    }
    if let Some(note) = resolved.note.filter(|_| watch.prints_progress()) {
        print_message(&format!("note: {note}\n"), terminal.paint);
    }
    if let Some(note) = note_of_misplaced(&resolved.args).filter(|_| watch.prints_progress()) {
        print_message(&note, terminal.paint);
    }
    let (program, words) = face.program(resolved.program, resolved.args);
    let worker_program = WorkerProgram::new(program, words, PrintedRanks::All);
    start(cluster, args, WorkerProgram { face, python, ..worker_program })
}

/// Stops the job when the program ends that has started this launcher, if it asks for that: nothing else would, if it is
/// killed.
fn end_with_starter() {
    let starter = env_vars::get_text(env_vars::REMUDA_ENDS_WITH);
    if let Some(starter) = starter.and_then(|number| number.parse().ok()) {
        // Without it, the job goes on as any other.
        let _ = end_with_parent(starter);
    }
}

/// Plans the job, and prints or launches the plan.
pub(in crate::cli) fn start(
    mut cluster: ResolvedCluster,
    args: JobArgs<'_>,
    worker_program: WorkerProgram,
) -> Result<Status, CliError> {
    let JobArgs { watch, workers, settings, terminal } = args;
    let face = &worker_program.face;
    let exports = exports_with_origins(&cluster, face, args)?;
    check_hosts(&cluster, &worker_program.program, args)?;
    let spares = if watch.dry_run { split_spares(&mut cluster) } else { Vec::new() };
    let spec = job_spec(&mut cluster, &worker_program, watch, exports);
    let (plan, single_node) = started_part(plan::plan(&spec)?, cluster.started);
    if watch.dry_run {
        let mut settings = plan_settings((face, plan.nodes.len()), cluster.started, args);
        settings.elastic = cluster.elastic.map(|elastic| elastic_settings(&elastic, spares));
        settings.program = worker_program.shown;
        return print_plan(&plan, &settings, &spec.program, args);
    }
    check_size(&plan)?;
    end_with_starter();
    note_problems(&mut cluster.transport, &spec.program, workers)?;
    if let (StartedNodes::Dialing(node), Transport::Dial(dial)) =
        (cluster.started, &cluster.transport)
        && node != Some(NodeRank(0))
    {
        let mut member = member_options(node, dial, cluster.supervisor, args);
        member.is_elastic = cluster.elastic.is_some();
        if dial.has_own_lines() {
            let (transport, ranks) = (cluster.transport.clone(), worker_program.printed_ranks);
            let mut own = options_without_files(args, &spec, transport, ranks)?;
            own.command.files = worker_program.files;
            let near_gpus = face.numa_binding().map(Cores::NearGpus);
            own.devices.cores = near_gpus.or(own.devices.cores.take());
            (own.devices.gpu_sharing, own.elastic) = (cluster.devices.sharing, cluster.elastic);
            member.own_line = Some(own);
        }
        return Ok(launch::join(&plan, &member)?);
    }
    let ranks = (worker_program.printed_ranks, first_rank(&plan));
    let (mut options, note) = options(args, &spec, cluster.transport, ranks, worker_program.class)?;
    configure(&mut options, face, (&spec, &plan))?;
    options.command.files = worker_program.files;
    options.command.kept_state = worker_program.kept_state;
    options.devices.gpu_sharing = cluster.devices.sharing;
    options.failure.continue_with = cluster.continue_with;
    options.supervisor = cluster.supervisor;
    options.elastic = cluster.elastic;
    if watch.prints_progress() {
        print_message(&note, terminal.paint);
        let lines = announcement(&plan, &options, &cluster.origin.text, worker_program.python);
        announce(&mut options, show_local_file(settings) + &lines + &single_node, terminal);
    }
    let _pid_file = write_pid_file(workers, watch, terminal)?;
    Ok(launch::run(&plan, &options)?)
}

/// Returns what the plan is made of; the nodes are taken out of the cluster.
fn job_spec(
    cluster: &mut ResolvedCluster,
    workers: &WorkerProgram,
    watch: &WatchArgs,
    exports: Vec<Export>,
) -> JobSpec {
    JobSpec {
        nodes: std::mem::take(&mut cluster.nodes),
        accelerator: cluster.devices.accelerator,
        device_names: std::mem::take(&mut cluster.devices.names),
        program: workers.program.clone(),
        args: workers.args.clone(),
        master_addr: cluster.master.addr.clone(),
        master_port: workers.face.port(cluster.master.port),
        conventions: workers.face.conventions(),
        restarts_max: watch.max_restarts,
        exports,
    }
}

/// Returns the variables for the workers, with the sources of those that a file or a variable gives.
fn exports_with_origins(
    cluster: &ResolvedCluster,
    face: &Face,
    args: JobArgs<'_>,
) -> Result<Vec<Export>, CliError> {
    let reads_files = face.reads_environment_files();
    let mut exports = exports(cluster, args, reads_files)?;
    set_origins(&mut exports, args.settings);
    Ok(exports)
}

/// Notes what this node lacks to start its workers, before it waits for other nodes.
fn note_problems(
    transport: &mut Transport,
    program: &Program,
    workers: &WorkerArgs,
) -> Result<(), CliError> {
    if let Transport::Dial(dial) = transport {
        dial.problems = resolve::missing_requirements(program, workers.venv_script.as_deref())?;
    }
    Ok(())
}

/// Returns the lowest rank that this process starts.
fn first_rank(plan: &LaunchPlan) -> Rank {
    let workers = plan.nodes.iter().flat_map(|node| &node.workers);
    workers.map(|worker| worker.rank).min().unwrap_or(Rank(0))
}

/// Applies what follows from the program and from the launcher whose line was typed.
fn configure(
    options: &mut Options,
    face: &Face,
    (spec, plan): (&JobSpec, &LaunchPlan),
) -> Result<(), CliError> {
    configure_builtin_worker(options, spec);
    options.command.flags = face.flags();
    face.apply(options, plan.nodes.len())
}

/// Returns the part of the plan that this process starts, and a line about a node that is not
/// connected to the others.
fn started_part(whole: LaunchPlan, started: StartedNodes) -> (LaunchPlan, String) {
    let nodes = whole.nodes.len();
    match started {
        StartedNodes::Separate(node) => {
            let plan = whole.only_node(node);
            let line = if 1 < nodes { show_single_node(&plan, nodes) } else { String::new() };
            (plan, line)
        }
        StartedNodes::All | StartedNodes::Dialing(_) => (whole, String::new()),
    }
}

fn check_hosts(
    cluster: &ResolvedCluster,
    program: &Program,
    args: JobArgs<'_>,
) -> Result<(), CliError> {
    let JobArgs { watch, terminal, .. } = args;
    if !watch.dry_run {
        check_manager(&cluster.transport)?;
    }
    match (watch.preflight, watch.dry_run) {
        (true, false) => preflight(cluster, program, watch.prints_warnings(), terminal),
        (true, true) => {
            print_message(NO_PREFLIGHT, terminal.paint);
            Ok(())
        }
        (false, _) => Ok(()),
    }
}

/// Returns the options of a node that joins the job of node 0.
fn member_options(
    node: Option<NodeRank>,
    dial: &DialOptions,
    supervisor: SupervisorOptions,
    args: JobArgs<'_>,
) -> MemberOptions {
    let JobArgs { watch, terminal, .. } = args;
    MemberOptions {
        dial: dial.clone(),
        node,
        is_elastic: false,
        own_line: None,
        grace: watch.grace,
        lease: watch.lease,
        restarts_max: watch.max_restarts,
        supervisor,
        shows_progress: watch.prints_progress(),
        paint: terminal.paint,
    }
}

/// Writes the file of `--save_pid`, which exists until the job ends.
fn write_pid_file(
    workers: &WorkerArgs,
    watch: &WatchArgs,
    terminal: Terminal,
) -> Result<Option<PidFile>, CliError> {
    if !workers.save_pid {
        return Ok(None);
    }
    let file = PidFile::write(workers.pid_in_file_name)?;
    if watch.prints_progress() {
        let (pid, path) = (std::process::id(), file.path().display());
        let line = show_step("Pid", &format!("{pid}, in {path} until the job ends"));
        print_message(&line, terminal.paint);
    }
    Ok(Some(file))
}

/// Returns what a dry run says beside the workers.
fn plan_settings(
    (face, nodes): (&Face, usize),
    started: StartedNodes,
    args: JobArgs<'_>,
) -> PlanSettings {
    let JobArgs { watch, settings, .. } = args;
    let secrets = secrets(watch);
    let node = match started {
        StartedNodes::Separate(node) | StartedNodes::Dialing(Some(node)) => Some(node.0),
        StartedNodes::All | StartedNodes::Dialing(None) => None,
    };
    PlanSettings {
        node,
        max_restarts: watch.max_restarts,
        grace_ms: watch.grace.as_millis() as u64,
        streams: face.stream_settings(nodes),
        numa_binding: face.numa_binding(),
        program: None,
        elastic: None,
        options: settings.map_or_else(Vec::new, |settings| option_documents(settings, secrets)),
    }
}

/// Prints what a dry run says about a command that is no job: its hosts and its line, or the plan as JSON.
pub(in crate::cli) fn print_command(
    plan: &LaunchPlan,
    args: JobArgs<'_>,
) -> Result<Status, CliError> {
    let settings = plan_settings((&Face::Remuda, plan.nodes.len()), StartedNodes::All, args);
    let secrets = secrets(args.watch);
    let printed = if args.watch.json {
        print_with(|out| write_plan_json(out, plan, &settings, secrets))
    } else {
        print(&show_command(plan, &settings, secrets))
    };
    printed.map_err(CliError::output)?;
    Ok(Status::Success)
}

fn secrets(watch: &WatchArgs) -> Secrets {
    if watch.show_env { Secrets::Shown } else { Secrets::Masked }
}

/// Removes the nodes that would have no workers at first from those of a plan that is printed, and returns their
/// names.
fn split_spares(cluster: &mut ResolvedCluster) -> Vec<HostName> {
    let members = cluster.elastic.map_or(usize::MAX, |elastic| elastic.max);
    let spares = cluster.nodes.split_off(members.min(cluster.nodes.len()));
    spares.into_iter().map(|(host, _)| host).collect()
}

fn elastic_settings(elastic: &ElasticNodes, spares: Vec<HostName>) -> ElasticSettings {
    ElasticSettings { min_nodes: elastic.min, max_nodes: elastic.max, spares }
}

/// Prints the plan of a dry run, and a warning if the job would not start.
fn print_plan(
    plan: &LaunchPlan,
    settings: &PlanSettings,
    program: &Program,
    args: JobArgs<'_>,
) -> Result<Status, CliError> {
    let JobArgs { watch, terminal, .. } = args;
    let no_script = resolve::script_problem(program, &working_directory()?);
    if let Some(why) = no_script.filter(|_| watch.prints_warnings()) {
        print_message(&format!("warning: {why}; the job would not start\n"), terminal.paint);
    }
    let secrets = secrets(watch);
    let printed = if watch.json {
        print_with(|out| write_plan_json(out, plan, settings, secrets))
    } else {
        print(&show_plan(plan, settings, secrets))
    };
    printed.map_err(CliError::output)?;
    Ok(Status::Success)
}
