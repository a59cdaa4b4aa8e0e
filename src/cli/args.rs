//! Options of a job as they were typed. Parsing them validates and resolves nothing: files and
//! devices are read in `lower`, once.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::ssh_args::SshArgs;
use super::supervision::{parse_heartbeat_interval, parse_restarts, parse_warning};
use super::values::{
    AcceleratorArg, AutotuningArg, CoreList, LauncherArg, LogLevel, StdinArg, Words, parse_cores,
    parse_count, parse_duration, parse_int, parse_job_id, parse_launcher, parse_lease,
    parse_master_addr, parse_master_port, parse_port, parse_slots, parse_stdin, parse_timeout,
    parse_words,
};
use crate::job::Warning;
use crate::pool::SlotCount;
use crate::report::summary::MessageLevel;

/// Hosts and slots of a job.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Where", rename_all = "snake_case")]
pub struct ClusterArgs {
    /// Hosts and their slots: a hostfile with a line `name slots=N` for each host, a hostfile of
    /// another tool, or a list, `n1:8,n2:8` or `n[01-04]:8` [default: /job/hostfile if it exists; as
    /// `remuda`, the allocation of a scheduler; this machine]
    #[arg(short = 'H', long, value_name = "FILE")]
    pub hostfile: Option<PathBuf>,
    /// With --hostfile: slots of each host for which the file or the list gives no number
    #[arg(long, value_name = "N", value_parser = parse_slots)]
    pub slots: Option<SlotCount>,
    /// Slots of the hosts of a list without numbers, for commands that do not use slots.
    #[arg(skip)]
    pub slots_of_list: Option<SlotCount>,
    /// Hosts and slots to use: `HOST[:SLOT,…][@HOST…]`
    #[arg(short, long, value_name = "HOSTS")]
    pub include: Option<String>,
    /// Hosts and slots not to use: `HOST[:SLOT,…][@HOST…]`
    #[arg(short, long, value_name = "HOSTS")]
    pub exclude: Option<String>,
    /// Use the first N hosts
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_count)]
    pub num_nodes: Option<String>,
    /// Use the first N slots of each host; without a hostfile, start N workers here
    #[arg(
        short = 'n',
        long,
        alias = "num_accelerators",
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = parse_count
    )]
    pub num_gpus: Option<String>,
    /// Devices of the slots.
    #[command(flatten)]
    pub devices: DeviceArgs,
    /// Accept a hostfile that every user can write
    #[arg(long)]
    pub allow_insecure_files: bool,
    /// Options of the transport.
    #[command(flatten)]
    pub transport: TransportArgs,
}

/// Devices of the slots.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Where", rename_all = "snake_case")]
pub struct DeviceArgs {
    /// Kind of device of a slot [default: auto: cuda if there is a GPU, else cpu]
    #[arg(long, value_name = "KIND", value_enum)]
    pub accelerator: Option<AcceleratorArg>,
    /// Allow more workers than GPUs
    #[arg(long)]
    pub oversubscribe: bool,
    /// Use GPUs that another job uses
    #[arg(long)]
    pub share: bool,
}

/// Options of the transport to the nodes, and of the rendezvous.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Between nodes", rename_all = "snake_case")]
pub struct TransportArgs {
    /// How to connect to nodes: `ssh` (or `pdsh`, the same), or `local`, which simulates every host of
    /// the hostfile on this machine
    #[arg(long, value_name = "HOW", value_parser = parse_launcher)]
    pub launcher: Option<LauncherArg>,
    /// Options for pdsh in one argument, of which `-f N` (fan-out) and `-l USER` have an effect
    #[arg(long, value_name = "WORDS", value_parser = parse_words)]
    pub launcher_args: Option<Words>,
    /// Address of rank 0 (MASTER_ADDR) [default: that of the first node]
    #[arg(long, value_name = "ADDR", value_parser = parse_master_addr)]
    pub master_addr: Option<String>,
    /// Port of rank 0 (MASTER_PORT) [default: 29500, or a free port if that is in use]
    #[arg(long, value_name = "PORT", allow_negative_numbers = true, value_parser = parse_master_port)]
    pub master_port: Option<u16>,
    /// Port of the ssh server on every host
    #[arg(long, value_name = "PORT", allow_negative_numbers = true, value_parser = parse_port)]
    pub ssh_port: Option<u16>,
    /// No effect, for lines of DeepSpeed: remuda has no separate check that could be skipped
    #[arg(long)]
    pub no_ssh_check: bool,
    /// Use ssh even for a single host
    #[arg(long)]
    pub force_multi: bool,
    /// Start only the workers of this node: run the same line on every node, each with its
    /// `--node_rank`. Without --key_file the nodes are not connected to each other
    #[arg(long)]
    pub no_ssh: bool,
    /// With --no_ssh: number of this node, from 0
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_int)]
    pub node_rank: Option<i64>,
    /// With --no_ssh: file with a secret of at least 16 bytes, the same on every node; connects the
    /// nodes to one job, which node 0 leads
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// With --key_file: name of the job, the same on every node [default: derived from the key and the
    /// port]
    #[arg(long, value_name = "NAME", value_parser = parse_job_id)]
    pub job_id: Option<String>,
    /// With --key_file: time limit for all nodes to join [default: 30m]
    #[arg(long, value_name = "TIME", value_parser = parse_timeout)]
    pub join_timeout: Option<Duration>,
    /// With --key_file: address or interface of this node for connections between workers [default:
    /// the one on the route to node 0]
    #[arg(long, value_name = "ADDR")]
    pub local_addr: Option<String>,
    /// Options of ssh.
    #[command(flatten)]
    pub ssh: SshArgs,
}

impl TransportArgs {
    /// Returns the value of `--master_addr`; an empty value means that it was not given.
    pub fn master_addr(&self) -> Option<&str> {
        self.master_addr.as_deref().filter(|address| !address.is_empty())
    }
}

/// Program of the workers.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "What", rename_all = "snake_case")]
pub struct ProgramArgs {
    /// Run SCRIPT as a module: `python -m SCRIPT`
    #[arg(long)]
    pub module: bool,
    /// Execute SCRIPT directly, without Python; an ELF file needs no option
    #[arg(long)]
    pub no_python: bool,
    /// Do not pass `--local_rank=N` to the script
    #[arg(long)]
    pub no_local_rank: bool,
    /// Python interpreter [default: $PYTHON_EXEC, that of the active virtual or conda environment, the
    /// first in PATH]
    #[arg(long, value_name = "FILE")]
    pub python: Option<OsString>,
    /// Script, then its own arguments
    #[arg(required = true, num_args = 1.., trailing_var_arg = true, value_name = "SCRIPT")]
    pub script_and_args: Vec<OsString>,
}

/// Processors, environment and log files of the workers.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Workers", rename_all = "snake_case")]
pub struct WorkerArgs {
    /// Bind each worker to its own processors
    #[arg(long)]
    pub bind_cores_to_rank: bool,
    /// With --bind_cores_to_rank: processors to divide among the workers: `0,2-4,6` [default: all]
    #[arg(long, value_name = "CORES", value_parser = parse_cores)]
    pub bind_core_list: Option<CoreList>,
    /// Activation script of a Python environment, sourced on every node
    #[arg(long, value_name = "FILE")]
    pub venv_script: Option<PathBuf>,
    /// Write the output of each rank to DIR/TIME_rankN.log and not to the screen
    #[arg(long, value_name = "DIR")]
    pub enable_each_rank_log: Option<OsString>,
    /// Write the process id of the launcher to /tmp/PID.deepspeed
    #[arg(long)]
    pub save_pid: bool,
    /// Process id in the name of that file: that of the parent process if it gave one, else that of
    /// this process.
    #[arg(skip)]
    pub pid_in_file_name: Option<u32>,
    /// DeepSpeed's search for a fast configuration; not part of remuda
    #[arg(long, value_name = "HOW", value_enum, hide = true)]
    pub autotuning: Option<AutotuningArg>,
}

impl WorkerArgs {
    /// Returns the directory of `--enable_each_rank_log`; DeepSpeed's default is the *text* `None`.
    pub fn rank_log_dir(&self) -> Option<PathBuf> {
        let given = self.enable_each_rank_log.as_ref();
        given.filter(|dir| !dir.is_empty() && *dir != "None").map(PathBuf::from)
    }
}

/// Options of supervision and output.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that was typed or not")]
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "How", rename_all = "snake_case")]
pub struct WatchArgs {
    /// Stop the job after this time: `90` (seconds), `500ms`, `2m`, `1h`
    #[arg(long, value_name = "TIME", value_parser = parse_timeout)]
    pub timeout: Option<Duration>,
    /// Time between SIGTERM and SIGKILL when workers are stopped
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "10s")]
    pub grace: Duration,
    /// Restart all workers after a failure, at most N times
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 0, value_parser = parse_restarts)]
    pub max_restarts: u32,
    /// Signal to send before SIGTERM, and how long before it: `USR1:20` [default: 10s before]
    #[arg(long, value_name = "SIGNAL[:TIME]", value_parser = parse_warning)]
    pub pre_term_signal: Option<Warning>,
    /// Time without a heartbeat after which a node is lost
    #[arg(long, value_name = "TIME", value_parser = parse_lease, default_value = "30s")]
    pub lease: Duration,
    /// Interval of heartbeats [default: a tenth of --lease, at most 3s]
    #[arg(long, alias = "beat", value_name = "TIME", value_parser = parse_heartbeat_interval)]
    pub heartbeat: Option<Duration>,
    /// Set an environment variable in every worker; without a value, that of the launcher (repeatable)
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub env: Vec<OsString>,
    /// Rank that reads standard input, `all` or `none` [default: the worker, if there is one only]
    #[arg(long, value_name = "RANK", value_parser = parse_stdin)]
    pub stdin: Option<StdinArg>,
    /// Prefix of the lines of workers, with `{host}`, `{rank}`, `{local_rank}`, `{stream}`; may be empty
    #[arg(long, value_name = "TEXT")]
    pub prefix: Option<String>,
    /// Write the whole output of the workers below this directory, in one directory for each job,
    /// without a size limit
    #[arg(long, value_name = "DIR")]
    pub log_dir: Option<PathBuf>,
    /// Directory for run directories: the newest 100 are kept, those of `ssh` and `bench` are counted
    /// separately [default: $XDG_STATE_HOME/remuda/runs]
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// Check every host first, as `remuda doctor --quick` does; an error prevents the start
    #[arg(long)]
    pub preflight: bool,
    /// Print the plan of the job and start nothing
    #[arg(long = "dry-run")]
    pub dry_run: bool,
    /// With --dry-run: print the plan as JSON
    #[arg(long)]
    pub json: bool,
    /// With --dry-run: show values that look like secrets
    #[arg(long)]
    pub show_env: bool,
    /// Least severe messages of the launcher to print
    #[arg(long, value_name = "LEVEL", value_enum, default_value = "info")]
    pub log_level: LogLevel,
    /// Print only errors of the launcher; the output of workers is not affected
    #[arg(short, long)]
    pub quiet: bool,
}

impl WatchArgs {
    /// Returns the level of printed messages; `--quiet` takes precedence, as in DeepSpeed.
    pub fn level(&self) -> LogLevel {
        if self.quiet { LogLevel::Error } else { self.log_level }
    }

    /// Returns the severity of the messages about the progress of the job that are printed.
    pub fn message_level(&self) -> MessageLevel {
        match self.level() {
            LogLevel::Debug | LogLevel::Info => MessageLevel::Info,
            LogLevel::Warning => MessageLevel::Warning,
            LogLevel::Error | LogLevel::Critical => MessageLevel::Error,
        }
    }

    /// Whether messages about the progress of the job are printed.
    pub fn prints_progress(&self) -> bool {
        self.level() <= LogLevel::Info
    }

    /// Whether warnings are printed.
    pub fn prints_warnings(&self) -> bool {
        self.level() <= LogLevel::Warning
    }
}
