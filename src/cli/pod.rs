//! `remuda pod`: the same command runs in every pod of a job, and each pod determines its node
//! number.

use std::ffi::OsString;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{CommandFactory, Parser, ValueEnum};

use super::args::{DeviceArgs, ProgramArgs, WatchArgs, WorkerArgs};
use super::check;
use super::error::CliError;
use super::line::{self, BadValue, CommandLine, Parsed, RefusedLine, parse_whole};
use super::lower::{self, Pod};
use super::pod_codes as codes;
use super::run;
use super::values::{AcceleratorArg, parse_job_id, parse_master_addr, parse_port, parse_timeout};
use crate::base::{Status, env_vars, show_typed};
use crate::job::OnTerm;
use crate::launch::{self, SupervisorOptions, TerminationLog};
use crate::os::signals;
use crate::plan::{IdentityError, MpiLauncher, PodIdentity, PodRole, identify};
use crate::report::diagnostic::Paint;
use crate::report::summary::{show_count, show_step};
use crate::report::{Terminal, print_message};

/// Name of the command in messages.
const PROGRAM: &str = "remuda pod";

/// Text after the list of options in the help.
const HELP_FOOTER: &str = "\
Every option under `Where` has an environment variable: `--key_file` is REMUDA_KEY_FILE,
`--nodes` is REMUDA_NODES, and so on. The number of the node comes from the environment of Indexed
Jobs, JobSet, LeaderWorkerSet, StatefulSets, Kubeflow (PET_*, PyTorchJob), Volcano, SkyPilot,
dstack, Nomad and Slurm, from the hostfile of an MPIJob, or from NODE_RANK; a line on the screen names
the source. The launcher of an MPIJob starts the job on the hosts of its hostfile, over ssh and without
a key, as `remuda run -H` does, when their ssh servers accept connections.

If a pod receives SIGTERM while restarts are left (--max_restarts), it exits with 143, and the job
continues from its last checkpoint with the replacement of that pod. Until all pods have joined, a pod
that exits or is lost can be replaced within --join_timeout, without a restart being counted.

Exit status: that of the job, the same in every pod, as listed by `remuda run --help`; with
--peer_exit only the pod that caused a failure has it. For a podFailurePolicy: 2, 65, 66, 77, 78, 126
and 127 will fail again, 69 is a pod that did not join, 75 a lost node, 143 SIGTERM.

The end of the job is written to /dev/termination-log if that file exists, or to the file that
REMUDA_TERMINATION_LOG names, which is created if its directory exists: a JSON object of at most
4096 bytes, {\"version\": 1, \"job\": NAME, \"node\": N, \"status\": N, \"cause\": N or null,
\"text\": TEXT}, with this node, its exit status, the node that caused the failure, and the last
screen, truncated if it is long. If the start was refused, job and node are null.";

/// Join a job as the node that this pod is, without ssh. Pods with the same key form one job, which
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

/// Job of the pod, and its place in the job.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Where", rename_all = "snake_case")]
pub struct PodNodeArgs {
    /// Number of pods of the job [default: from the platform]
    #[arg(long, value_name = "N", value_parser = parse_nodes)]
    pub nodes: Option<u32>,
    /// Number of this pod, from 0 [default: from the platform]
    #[arg(long, value_name = "N", value_parser = parse_rank)]
    pub node_rank: Option<u32>,
    /// Workers of each pod [default: from the platform, else its number of GPUs, else 1]
    #[arg(short = 'n', long, value_name = "N", value_parser = parse_nodes)]
    pub num_gpus: Option<u32>,
    /// Devices of the slots.
    #[command(flatten)]
    pub devices: DeviceArgs,
    /// Name or address of pod 0 (MASTER_ADDR) [default: from the platform]
    #[arg(long, value_name = "ADDR", value_parser = parse_master_addr)]
    pub master_addr: Option<String>,
    /// Port of rank 0 (MASTER_PORT); remuda uses the next two ports too [default: 29500]
    #[arg(long, value_name = "PORT", value_parser = parse_port)]
    pub master_port: Option<u16>,
    /// Address or interface of this pod for connections between workers [default: the one on the route
    /// to pod 0]
    #[arg(long, value_name = "ADDR")]
    pub local_addr: Option<String>,
    /// File with a secret of at least 16 bytes, the same in every pod
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Name of the job, the same in every pod [default: derived from the key and the port]
    #[arg(long, value_name = "NAME", value_parser = parse_job_id)]
    pub job_id: Option<String>,
    /// Time limit for all pods to join [default: 30m]
    #[arg(long, value_name = "TIME", value_parser = parse_timeout)]
    pub join_timeout: Option<Duration>,
    /// Start the workers of this pod without a key and without connections between pods
    #[arg(long)]
    pub isolated: bool,
    /// Address and port on which to serve /livez, /readyz and /metrics, such as 0.0.0.0:8080
    #[arg(long, value_name = "IP:PORT", value_parser = parse_status_addr)]
    pub status_addr: Option<SocketAddr>,
    /// Exit status of pods that are stopped because another pod failed [default: that of the failed pod]
    #[arg(long, value_name = "STATUS", value_parser = parse_status)]
    pub peer_exit: Option<u8>,
    /// Accept environment files that every user can write
    #[arg(long)]
    pub allow_insecure_files: bool,
}

fn parse_nodes(text: &str) -> Result<u32, BadValue> {
    parse_whole(text, 1..=1 << 17).map(|nodes| nodes as u32)
}

fn parse_rank(text: &str) -> Result<u32, BadValue> {
    parse_whole(text, 0..=(1 << 17) - 1).map(|rank| rank as u32)
}

fn parse_status(text: &str) -> Result<u8, BadValue> {
    parse_whole(text, 1..=255).map(|status| status as u8)
}

fn parse_status_addr(text: &str) -> Result<SocketAddr, BadValue> {
    text.parse().map_err(|_| BadValue::new("expected an address and a port, such as 0.0.0.0:8080"))
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

impl PodNodeArgs {
    /// Returns the options, with variables of the environment for those that were not typed.
    fn with_environment(self) -> Result<Self, CliError> {
        let text = |text: &str| Ok(text.to_owned());
        Ok(Self {
            nodes: value_or_variable(self.nodes, env_vars::REMUDA_NODES, parse_nodes)?,
            node_rank: value_or_variable(self.node_rank, env_vars::REMUDA_NODE_RANK, parse_rank)?,
            num_gpus: value_or_variable(self.num_gpus, env_vars::REMUDA_NUM_GPUS, parse_nodes)?,
            master_addr: value_or_variable(
                self.master_addr,
                env_vars::REMUDA_MASTER_ADDR,
                parse_master_addr,
            )?,
            master_port: value_or_variable(
                self.master_port,
                env_vars::REMUDA_MASTER_PORT,
                parse_port,
            )?,
            local_addr: value_or_variable(self.local_addr, env_vars::REMUDA_LOCAL_ADDR, text)?,
            key_file: match self.key_file {
                Some(file) => Some(file),
                None => {
                    value_or_variable(None, env_vars::REMUDA_KEY_FILE, text)?.map(PathBuf::from)
                }
            },
            job_id: value_or_variable(self.job_id, env_vars::REMUDA_JOB_ID, parse_job_id)?,
            join_timeout: value_or_variable(
                self.join_timeout,
                env_vars::REMUDA_JOIN_TIMEOUT,
                parse_timeout,
            )?,
            isolated: flag_or_variable(self.isolated, env_vars::REMUDA_ISOLATED)?,
            status_addr: value_or_variable(
                self.status_addr,
                env_vars::REMUDA_STATUS_ADDR,
                parse_status_addr,
            )?,
            peer_exit: value_or_variable(self.peer_exit, env_vars::REMUDA_PEER_EXIT, parse_status)?,
            devices: devices_with_environment(&self.devices)?,
            allow_insecure_files: flag_or_variable(
                self.allow_insecure_files,
                env_vars::REMUDA_ALLOW_INSECURE_FILES,
            )?,
        })
    }
}

fn devices_with_environment(typed: &DeviceArgs) -> Result<DeviceArgs, CliError> {
    let kind = |text: &str| AcceleratorArg::from_str(text, false).map_err(BadValue::new);
    Ok(DeviceArgs {
        accelerator: value_or_variable(typed.accelerator, env_vars::REMUDA_ACCELERATOR, kind)?,
        oversubscribe: flag_or_variable(typed.oversubscribe, env_vars::REMUDA_OVERSUBSCRIBE)?,
        share: flag_or_variable(typed.share, env_vars::REMUDA_SHARE)?,
    })
}

fn flag_or_variable(typed: bool, name: &str) -> Result<bool, CliError> {
    Ok(typed || value_or_variable(None, name, parse_flag)?.unwrap_or(false))
}

fn parse_flag(text: &str) -> Result<bool, BadValue> {
    match text {
        "1" | "true" | "yes" => Ok(true),
        "0" | "false" | "no" => Ok(false),
        _ => Err(BadValue::new("expected 1 or 0")),
    }
}

/// Returns the typed value, else that of the variable.
fn value_or_variable<T>(
    typed: Option<T>,
    name: &str,
    parse: impl Fn(&str) -> Result<T, BadValue>,
) -> Result<Option<T>, CliError> {
    let Some(text) = env_vars::get_text(name).filter(|_| typed.is_none()) else {
        return Ok(typed);
    };
    parse(&text).map(Some).map_err(|bad| {
        let message = format!("{name}=`{}`: {}", show_typed(&text), bad.label);
        CliError::new(Status::Config, codes::MALFORMED, message)
            .help(format!("correct {name}, or unset it"))
    })
}

/// Returns the definition of the command, with all of its options.
pub(super) fn definition() -> clap::Command {
    PodArgs::command()
}

/// Parses the arguments of `remuda pod`.
pub fn parse(words: Vec<OsString>) -> Result<Parsed<PodArgs>, RefusedLine> {
    line::parse(definition(), CommandLine::new(PROGRAM, words))
}

/// Parses the command line, and runs the pod; an error before the start is also reported to the
/// kubelet.
pub(super) fn main(words: Vec<OsString>) -> Result<Status, CliError> {
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
    let (args, typed) = super::into_args(parse(words)?)?;
    check::program(&args.program, &typed)?;
    check::watch(&args.watch, &typed)?;
    let terminal = Terminal::detect();
    run::print_replacements(&args.watch, &typed, terminal);
    let pod = args.pod.with_environment()?;
    let role = role(&pod)?;
    if args.watch.prints_progress() {
        print_message(&show_step("Pod", &role.to_string()), terminal.paint);
    }
    let mut cluster = match &role {
        Role::Node(node) => lower::pod(&pod, node, &typed)?,
        Role::Launcher(launcher) => lower::mpi_hosts(&pod, launcher, &typed, terminal)?,
    };
    cluster.supervisor = supervisor_options(&pod, &role);
    check::stdin(&args.watch, cluster.workers(), &typed)?;
    run::start_program(cluster, &args.watch, &args.workers, &args.program, terminal)
}

/// Returns the role of this pod. Typed options take precedence over the platform; if all are typed,
/// no platform is needed.
fn role(args: &PodNodeArgs) -> Result<Role, CliError> {
    let found = match identify(&lower::surroundings()) {
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
