//! `remuda pod`: the same command runs in every pod of a job, and each pod determines its node
//! number.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use clap::{CommandFactory, Parser};

use crate::base::{Status, env_vars};
use crate::cli::args::{ElasticArgs, PodNodeArgs, ProgramArgs, WatchArgs, WorkerArgs, check};
use crate::cli::codes::pod as codes;
use crate::cli::command::parse::{into_args, refuse_bare};
use crate::cli::error::CliError;
use crate::cli::line::{self, CommandLine, Parsed, RefusedLine};
use crate::cli::resolve::{self, Pod};
use crate::cli::start::{JobArgs, print_replacements, start_program};
use crate::job::OnTerm;
use crate::launch::{self, SupervisorOptions, TerminationLog};
use crate::os::process::signals;
use crate::plan::{IdentityError, MpiLauncher, PodIdentity, PodRole, identify};
use crate::report::diagnostic::Paint;
use crate::report::text::{show_count, show_step};
use crate::report::{Terminal, print_message};

/// Name of the command in messages.
const PROGRAM: &str = "remuda pod";

/// Text after the list of options in the help.
const HELP_FOOTER: &str = "\
Every option under `Nodes` and `Hosts` has an environment variable: `--key_file` is REMUDA_KEY_FILE,
`--nodes` is REMUDA_NODES, and so on. The number of the node comes from the environment of Indexed
Jobs, JobSet, LeaderWorkerSet, StatefulSets, Kubeflow (PET_*, PyTorchJob), Volcano, SkyPilot,
dstack, Nomad and Slurm, from the hostfile of an MPIJob, or from NODE_RANK; a line on the screen names
the source. The launcher of an MPIJob starts the job on the hosts of its hostfile, over ssh and without
a key, as `remuda run -H` does, when their ssh servers accept connections.

If a pod receives SIGTERM while restarts are left (--max_restarts), it exits with 143, and the job
continues from its last checkpoint with the replacement of that pod. Until all pods have joined, a pod
that exits or is lost can be replaced within --join_timeout, without a restart being counted. With
--min_nodes N, the job starts with N pods or more, and continues without lost ones; pods that join later
take part after a restart that is not counted. All pods need the same options.

Exit status: that of the job, the same in every pod, as listed by `remuda run --help`; with
--peer_exit STATUS, the pods that did not cause the failure exit with STATUS instead. For a
podFailurePolicy: a pod that exited with 2, 65, 66, 77, 78, 126 or 127 fails again if it is restarted; 69
means that a pod did not join, 75 that a node was lost, 143 that a pod received SIGTERM.

The end of the job is written to /dev/termination-log if that file exists, or to the file that
REMUDA_TERMINATION_LOG names, which is created if its directory exists: a JSON object of at most
4096 bytes, {\"version\": 1, \"job\": NAME, \"node\": N, \"status\": N, \"cause\": N or null,
\"text\": TEXT}, with this node, its exit status, the node that caused the failure, and the last
screen, truncated if it is long. If the start was refused, job and node are null.";

/// Run one node of a job in each Kubernetes pod, without ssh. Pods with the same key form one job, which
/// pod 0 leads.
#[derive(Clone, Debug, Parser)]
#[command(
    name = PROGRAM,
    bin_name = PROGRAM,
    version,
    args_override_self = true,
    after_help = HELP_FOOTER
)]
pub struct PodArgs {
    /// Job of the pod, and its place in the job.
    #[command(flatten)]
    pub pod: PodNodeArgs,
    /// Pods that the job can do without.
    #[command(flatten)]
    pub elastic: ElasticArgs,
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

/// Default path of the file in which the kubelet reads the reason why a container exited.
const TERMINATION_LOG: &str = "/dev/termination-log";

fn termination_log() -> TerminationLog {
    let named = env_vars::get(env_vars::REMUDA_TERMINATION_LOG).map(PathBuf::from);
    let is_named = named.is_some();
    TerminationLog { path: named.unwrap_or_else(|| TERMINATION_LOG.into()), is_named }
}

/// Returns the options for the supervisor of the pod, the kubelet.
fn supervisor_options(args: &PodNodeArgs, role: &Role) -> SupervisorOptions {
    let termination_log = Some(termination_log());
    let on_term = match role {
        Role::Node(_) => OnTerm::EndNode,
        // A replacement pod could not take the job over.
        Role::Launcher(_) => OnTerm::EndJob,
    };
    let is_kubernetes = env_vars::get(env_vars::KUBERNETES_SERVICE_HOST).is_some();
    SupervisorOptions { status_addr: args.status_addr, termination_log, is_kubernetes, on_term }
}

/// Role of this pod in its job.
enum Role {
    Node(Box<Pod>),
    Launcher(MpiLauncher),
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(pod) => pod.fmt(f),
            Self::Launcher(launcher) => {
                write!(f, "{launcher} of {}, over ssh", show_count(launcher.hosts, "host"))
            }
        }
    }
}

/// Returns the definition of the command, with all of its options.
pub(in crate::cli) fn definition() -> clap::Command {
    PodArgs::command()
}

/// Parses the arguments of `remuda pod`.
pub fn parse(words: Vec<OsString>) -> Result<Parsed<PodArgs>, RefusedLine> {
    line::parse(definition(), CommandLine::new(PROGRAM, words))
}

/// Parses the command line, and runs the pod; an error before the start is also reported to the
/// kubelet.
pub(in crate::cli) fn main(words: Vec<OsString>) -> Result<Status, CliError> {
    // The kernel discards signals of process 1 that have no handler, unless they are blocked.
    let _waiting = signals::defer_requests();
    let result = start(words);
    // A requested text, such as that of `--help`, is not an error.
    if let Some(error) = result.as_ref().err().filter(|error| error.status() != Status::Success) {
        launch::write_refusal_message(
            &termination_log(),
            error.status(),
            &error.screen(Paint::Plain),
        );
    }
    result
}

fn start(words: Vec<OsString>) -> Result<Status, CliError> {
    refuse_bare(&words, definition)?;
    let (mut args, typed) = into_args(parse(words)?)?;
    check::program(&args.program, &typed)?;
    check::watch(&args.watch, &typed)?;
    let terminal = Terminal::detect();
    print_replacements(&args.watch, &typed, terminal);
    let (pod, elastic) = (args.pod.with_environment()?, args.elastic.with_environment()?);
    elastic.set_restarts(&mut args.watch, &typed);
    let role = role(&pod)?;
    if args.watch.prints_progress() {
        print_message(&show_step("Pod", &role.to_string()), terminal.paint);
    }
    let mut cluster = match &role {
        Role::Node(node) => resolve::pod(&pod, node, &typed)?,
        Role::Launcher(launcher) => resolve::mpi_hosts(&pod, launcher, &typed, terminal)?,
    };
    cluster.supervisor = supervisor_options(&pod, &role);
    cluster.set_elastic(resolve::elastic(&elastic, &cluster, &typed)?);
    check::stdin(&args.watch, cluster.workers(), &typed)?;
    let job = JobArgs { watch: &args.watch, workers: &args.workers, settings: None, terminal };
    start_program(cluster, job, &args.program)
}

/// Returns the role of this pod. Typed options take precedence over the platform; if all are typed,
/// no platform is needed.
fn role(args: &PodNodeArgs) -> Result<Role, CliError> {
    let found = match identify(&resolve::surroundings()) {
        Ok(PodRole::Node(found)) => Some(found),
        Ok(PodRole::Launcher(launcher)) if args.node_rank.is_none() => {
            return Ok(Role::Launcher(launcher));
        }
        Ok(PodRole::Launcher(_)) => None,
        Err(IdentityError::Unknown) if args.node_rank.is_some() => None,
        Err(error) => return Err(identity_error(&error)),
    };
    let rank = args.node_rank.or(found.as_ref().map(|found| found.rank));
    let of_platform = |get: fn(&PodIdentity) -> Option<u32>| found.as_ref().and_then(get);
    let Some(nodes) = args.nodes.or(of_platform(|found| found.nodes)) else {
        let message = "the number of pods is not set";
        return Err(CliError::new(Status::Config, codes::NODES_UNKNOWN, message)
            .help("give `--nodes N`, or set REMUDA_NODES to the `completions` of an Indexed Job"));
    };
    let rank = rank.expect("the rank was typed or is from the platform");
    if nodes <= rank {
        let message = format!("there is no node {rank} among {nodes} pods");
        return Err(CliError::new(Status::Config, codes::NO_SUCH_NODE, message)
            .help("`--nodes` is the number of pods; it must be the same in every pod"));
    }
    let slots = args.num_gpus.or(of_platform(|found| found.slots));
    Ok(Role::Node(Box::new(Pod { rank, nodes, slots, found })))
}

fn identity_error(error: &IdentityError) -> CliError {
    let refuse = |code| CliError::new(Status::Config, code, error.to_string());
    match error {
        IdentityError::Unknown => refuse(codes::UNKNOWN_POD).help(
            "give `--nodes N --node_rank N --master_addr ADDR`, or set NODE_RANK; \
             `remuda pod --help` lists the known platforms",
        ),
        IdentityError::MpiHostfile(..) => refuse(codes::MPI_HOSTFILE)
            .help("unset the variable that names it, or give `--node_rank` and `--nodes`"),
        IdentityError::Malformed { name, .. } => {
            refuse(codes::MALFORMED).help(format!("correct {name}, or unset it"))
        }
        IdentityError::Conflict { .. } => refuse(codes::CONFLICT)
            .help("unset one of the two, or give `--node_rank` and `--nodes`"),
    }
}
