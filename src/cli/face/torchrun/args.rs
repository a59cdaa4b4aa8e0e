//! The options of torchrun.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser};

use crate::cli::args::RemoteArgs;
use crate::cli::args::values::{TorchBackendArg, parse_launcher_word};

/// Text after the list of options in the help.
const HELP_FOOTER: &str = "\
Every option of torchrun can be abbreviated, and has an environment variable: `--nproc-per-node` is
PET_NPROC_PER_NODE. `-` and `_` are the same in the name of an option.

Exit status: that of the worker that failed first, 128 + N if signal N ended it; torchrun's is always 1.
COMPAT.md lists the differences.";

/// Run a script as torchrun does, with its options and variables. With `-H` one command starts all
/// nodes, over ssh; without it, start each node with its own command line.
#[derive(Clone, Debug, Parser)]
#[command(name = "remuda torchrun", version, args_override_self = true, after_help = HELP_FOOTER)]
pub struct TorchrunArgs {
    /// Number and place of the workers.
    #[command(flatten)]
    pub size: SizeArgs,
    /// How the nodes meet.
    #[command(flatten)]
    pub rendezvous: RendezvousArgs,
    /// Supervision of the workers.
    #[command(flatten)]
    pub watch: AgentArgs,
    /// Hosts that one command starts.
    #[command(flatten)]
    pub remote: RemoteArgs,
    /// Output of the workers.
    #[command(flatten)]
    pub logs: StreamArgs,
    /// The program.
    #[command(flatten)]
    pub program: TorchrunProgramArgs,
}

/// Number and place of the workers.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Nodes and workers")]
pub struct SizeArgs {
    /// Nodes: N, or MIN:MAX [default: 1, or all of -H]
    ///
    /// With MIN:MAX, nodes may join and leave while the job runs.
    #[arg(long, value_name = "N")]
    pub nnodes: Option<String>,
    /// Workers on each node: a number, `gpu`, `cpu`, `xpu`, or `auto` (GPUs if there are any, else CPUs)
    /// [default: 1, or the slots of -H]
    #[arg(long, value_name = "N")]
    pub nproc_per_node: Option<String>,
    /// Start all nodes from here: a hostfile, or a list such as `n1,n2` [default: with --nnodes, the hosts of
    /// an allocation]
    #[arg(short = 'H', long, value_name = "FILE")]
    pub hostfile: Option<OsString>,
    /// With -H: how agents are started, as for `remuda run`: `ssh`, `slurm`, `openmpi`, `local`, …
    /// [default: `slurm` inside an allocation of Slurm, else `ssh`]
    #[arg(long, value_name = "HOW", value_parser = parse_launcher_word)]
    pub launcher: Option<String>,
    /// Bind each worker to the CPUs near its GPU: `node`, `socket`, `exclusive`, `core-complex`
    #[arg(long, value_name = "HOW")]
    pub numa_binding: Option<String>,
    /// Show each worker only its own device, and set its LOCAL_RANK to 0
    #[arg(long)]
    pub virtual_local_rank: bool,
}

/// How the nodes meet.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Between nodes")]
pub struct RendezvousArgs {
    /// `static` or `c10d`
    #[arg(long, value_name = "NAME")]
    pub rdzv_backend: Option<String>,
    /// Address of the first node: `HOST` or `HOST:PORT`
    #[arg(long, value_name = "HOST:PORT")]
    pub rdzv_endpoint: Option<String>,
    /// Name of the job, for workers and log files
    #[arg(long, value_name = "NAME")]
    pub rdzv_id: Option<String>,
    /// Settings of the rendezvous, in seconds: `join_timeout=60`, `last_call_timeout=30`
    ///
    /// `join_timeout` limits the wait for nodes. With MIN:MAX nodes, `last_call_timeout` is the wait for more nodes
    /// before the first start, and `newcomers=at_once` or `newcomers=at_restart` says when nodes take part that join
    /// later. `is_host=1` makes this node the first one of a c10d rendezvous.
    #[arg(long, value_name = "KEY=VALUE,…")]
    pub rdzv_conf: Option<String>,
    /// One node, with a port of its own
    #[arg(long)]
    pub standalone: bool,
    /// Number of this node, from 0
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub node_rank: Option<String>,
    /// Address of rank 0
    #[arg(long, value_name = "ADDR")]
    pub master_addr: Option<String>,
    /// Port of rank 0 [default: a free one on one node, else 29500]
    #[arg(long, value_name = "PORT", allow_negative_numbers = true)]
    pub master_port: Option<String>,
    /// Address of this node for the others
    #[arg(long, value_name = "ADDR")]
    pub local_addr: Option<String>,
    /// File with a secret of at least 16 bytes, the same on every node: connects the nodes to one
    /// supervised job
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
}

/// Supervision of the workers.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Job")]
pub struct AgentArgs {
    /// Restart all workers after a failure, at most N times
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_restarts: Option<String>,
    /// No effect: remuda notices the exit of a worker at once
    #[arg(long, value_name = "SECONDS")]
    pub monitor_interval: Option<String>,
    /// No effect: workers are always started by exec
    #[arg(long, value_name = "NAME")]
    pub start_method: Option<String>,
    /// No effect: the events are in run.json
    #[arg(long, value_name = "NAME")]
    pub event_log_handler: Option<String>,
    /// Name of the workers' role, for ROLE_NAME and the lines of --tee
    #[arg(long, value_name = "NAME")]
    pub role: Option<String>,
    /// Signals that end the job, for TORCHELASTIC_SIGNALS_TO_HANDLE
    #[arg(long, value_name = "NAMES")]
    pub signals_to_handle: Option<String>,
    /// Time between the request to stop and SIGKILL [default: $TORCH_ELASTIC_SHUTDOWN_TIMEOUT, 30]
    #[arg(long, value_name = "SECONDS")]
    pub shutdown_timeout: Option<String>,
    /// Print the plan of the job and start nothing
    #[arg(long = "dry-run")]
    pub dry_run: bool,
    /// With --dry-run: print the plan as JSON
    #[arg(long)]
    pub json: bool,
}

/// Output of the workers.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub struct StreamArgs {
    /// Directory for files of streams and errors, DIR/ID_NAME/attempt_N/LOCAL_RANK
    #[arg(long, value_name = "DIR")]
    pub log_dir: Option<OsString>,
    /// Streams that go to files only: 0 none, 1 stdout, 2 stderr, 3 both, or by local rank `0:3,1:1`
    #[arg(short, long, value_name = "STREAMS")]
    pub redirects: Option<String>,
    /// Streams that go to files and to the screen: as --redirects
    #[arg(short, long, value_name = "STREAMS")]
    pub tee: Option<String>,
    /// Prefix of the lines of --tee, with `${role_name}`, `${local_rank}`, `${rank}`, `${hostname}`
    #[arg(long, value_name = "TEXT")]
    pub log_line_prefix_template: Option<String>,
    /// Local ranks whose output the screen shows: `0,1`
    #[arg(long, value_name = "RANKS")]
    pub local_ranks_filter: Option<String>,
    /// Copy lines of --tee that contain one of these texts to filtered_stdout.log: `apple,orange`
    #[arg(long, value_name = "TEXTS")]
    pub duplicate_stdout_filters: Option<String>,
    /// The same for standard error and filtered_stderr.log
    #[arg(long, value_name = "TEXTS")]
    pub duplicate_stderr_filters: Option<String>,
    /// Class in Python that decides where logs go
    #[arg(long, value_name = "NAME", hide = true)]
    pub logs_specs: Option<String>,
}

/// The program.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Program")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that was typed or not")]
pub struct TorchrunProgramArgs {
    /// Run SCRIPT as a module: `python -m SCRIPT`
    #[arg(short, long)]
    pub module: bool,
    /// Execute SCRIPT directly, without Python
    #[arg(long)]
    pub no_python: bool,
    /// Run SCRIPT with `runpy.run_path`
    #[arg(long)]
    pub run_path: bool,
    /// Do not pass `--local-rank=N` to the script, which reads LOCAL_RANK
    #[arg(long, hide = true)]
    pub use_env: bool,
    /// Backend of the groups that the script makes with `gloo` [default: gloo]
    #[arg(long, value_name = "NAME", value_enum)]
    pub torch_backend: Option<TorchBackendArg>,
    /// Script, then its own arguments
    #[arg(required = true, num_args = 1.., trailing_var_arg = true, value_name = "SCRIPT")]
    pub script_and_args: Vec<OsString>,
}
