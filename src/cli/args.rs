//! What was typed. Filling these structs validates and resolves nothing: the world is consulted in
//! `lower`, once.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::ssh_args::SshArgs;
use super::supervision::{parse_beat, parse_restarts, parse_warning};
use super::values::{
    AcceleratorArg, AutotuningArg, CoreList, LauncherArg, LogLevel, StdinArg, Words, parse_cores,
    parse_count, parse_duration, parse_int, parse_job_id, parse_launcher, parse_lease,
    parse_master_addr, parse_master_port, parse_port, parse_slots, parse_stdin, parse_timeout,
    parse_words,
};
use crate::job::Warning;
use crate::pool::SlotCount;

/// Where a job runs.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Where", rename_all = "snake_case")]
pub struct PlaceArgs {
    /// Hosts and their slots: one `name slots=N` a line, or a hostfile of another tool, or
    /// `h1:4,h2:4` [default: /job/hostfile if there is one; else, as `remuda`, a scheduler's
    /// allocation; else this machine]
    #[arg(short = 'H', long, value_name = "FILE")]
    pub hostfile: Option<PathBuf>,
    /// With --hostfile: slots of hosts of which it says none
    #[arg(long, value_name = "N", value_parser = parse_slots)]
    pub slots: Option<SlotCount>,
    /// Hosts and slots to use: `HOST[:SLOT,…][@HOST…]`
    #[arg(short, long, value_name = "HOSTS")]
    pub include: Option<String>,
    /// Hosts and slots to leave out: `HOST[:SLOT,…][@HOST…]`
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
    /// What its slots are.
    #[command(flatten)]
    pub devices: DeviceArgs,
    /// Use a hostfile that others can write
    #[arg(long)]
    pub allow_insecure_files: bool,
    /// How its nodes are reached.
    #[command(flatten)]
    pub reach: ReachArgs,
}

/// What a slot is.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Where", rename_all = "snake_case")]
pub struct DeviceArgs {
    /// What a slot is [default: auto, cuda where there is a GPU]
    #[arg(long, value_name = "KIND", value_enum)]
    pub accelerator: Option<AcceleratorArg>,
    /// More workers than there are GPUs
    #[arg(long)]
    pub oversubscribe: bool,
    /// Use GPUs also while another job has them
    #[arg(long)]
    pub share: bool,
}

/// How nodes are reached, and how they find each other.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Between nodes", rename_all = "snake_case")]
pub struct ReachArgs {
    /// How nodes are reached: `ssh` (also called `pdsh`), or `local`, which starts every host of the
    /// hostfile on this machine
    #[arg(long, value_name = "HOW", value_parser = parse_launcher)]
    pub launcher: Option<LauncherArg>,
    /// Words for pdsh, in one argument: `-f N` and `-l USER` are heeded
    #[arg(long, value_name = "WORDS", value_parser = parse_words)]
    pub launcher_args: Option<Words>,
    /// Where rank 0 of torch listens
    #[arg(long, value_name = "ADDR", value_parser = parse_master_addr)]
    pub master_addr: Option<String>,
    /// Its port [default: 29500, or one that is free]
    #[arg(long, value_name = "PORT", allow_negative_numbers = true, value_parser = parse_master_port)]
    pub master_port: Option<u16>,
    /// Port of the ssh servers
    #[arg(long, value_name = "PORT", allow_negative_numbers = true, value_parser = parse_port)]
    pub ssh_port: Option<u16>,
    /// Do not look whether hosts can be reached before anything starts
    #[arg(long)]
    pub no_ssh_check: bool,
    /// Go through the launcher even when there is one host only
    #[arg(long)]
    pub force_multi: bool,
    /// Start the workers of this node alone; every node is given the same line and its `--node_rank`.
    /// Without --key_file nodes do not hear of each other
    #[arg(long)]
    pub no_ssh: bool,
    /// With --no_ssh: which of the nodes this is, from 0
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_int)]
    pub node_rank: Option<i64>,
    /// With --no_ssh: a secret that every node is given, at least 16 bytes; the nodes become one job,
    /// which node 0 leads
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// With --key_file: a name for the job, the same on every node [default: made from the key
    /// and the port]
    #[arg(long, value_name = "NAME", value_parser = parse_job_id)]
    pub job_id: Option<String>,
    /// With --key_file: how long nodes wait for each other [default: 30m]
    #[arg(long, value_name = "TIME", value_parser = parse_timeout)]
    pub join_timeout: Option<Duration>,
    /// With --key_file: address or interface of this node at which the others find its workers [default:
    /// the one by which it reaches node 0]
    #[arg(long, value_name = "ADDR")]
    pub local_addr: Option<String>,
    /// What else is to be said about ssh.
    #[command(flatten)]
    pub ssh: SshArgs,
}

impl ReachArgs {
    /// The address of `--master_addr`; an empty one is none.
    pub fn master_addr(&self) -> Option<&str> {
        self.master_addr.as_deref().filter(|address| !address.is_empty())
    }
}

/// What every worker runs.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "What", rename_all = "snake_case")]
pub struct ProgramArgs {
    /// The script is a module: `python -m`
    #[arg(long)]
    pub module: bool,
    /// Run the program itself, without Python
    #[arg(long)]
    pub no_python: bool,
    /// Do not pass `--local_rank=N` to the script
    #[arg(long)]
    pub no_local_rank: bool,
    /// The interpreter [default: $PYTHON_EXEC, the active environment's, the first in PATH]
    #[arg(long, value_name = "FILE")]
    pub python: Option<OsString>,
    /// The script, then its own arguments
    #[arg(required = true, num_args = 1.., trailing_var_arg = true, value_name = "SCRIPT")]
    pub script_and_args: Vec<OsString>,
}

/// What every worker finds around it.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Workers", rename_all = "snake_case")]
pub struct WorkerArgs {
    /// Give every worker processors of its own
    #[arg(long)]
    pub bind_cores_to_rank: bool,
    /// Processors to share out: `0,2-4,6` [default: all]
    #[arg(long, value_name = "CORES", value_parser = parse_cores)]
    pub bind_core_list: Option<CoreList>,
    /// Activation script of the Python environment on every node
    #[arg(long, value_name = "FILE")]
    pub venv_script: Option<PathBuf>,
    /// Write what a rank says into DIR/TIME_rankN.log instead of the screen
    #[arg(long, value_name = "DIR")]
    pub enable_each_rank_log: Option<OsString>,
    /// Write our process id to /tmp/PID.deepspeed
    #[arg(long)]
    pub save_pid: bool,
    /// Whose process id names that file: that of the program that started us, else our own.
    #[arg(skip)]
    pub pid_of: Option<u32>,
    /// DeepSpeed's search for a fast configuration; not part of remuda
    #[arg(long, value_name = "HOW", value_enum, hide = true)]
    pub autotuning: Option<AutotuningArg>,
}

impl WorkerArgs {
    /// The directory of `--enable_each_rank_log`; DeepSpeed's default is the *text* `None`.
    pub fn rank_log_dir(&self) -> Option<PathBuf> {
        let given = self.enable_each_rank_log.as_ref();
        given.filter(|dir| !dir.is_empty() && *dir != "None").map(PathBuf::from)
    }
}

/// How a job is watched over and shown.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag that was typed or not")]
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "How", rename_all = "snake_case")]
pub struct WatchArgs {
    /// Time that the job may take: `90`, `500ms`, `2m`, `1h`
    #[arg(long, value_name = "TIME", value_parser = parse_timeout)]
    pub timeout: Option<Duration>,
    /// Time between asking workers to stop and killing them
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "10s")]
    pub grace: Duration,
    /// Start all workers anew after a failure, so often at most
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 0, value_parser = parse_restarts)]
    pub max_restarts: u32,
    /// Signal that workers get before they are asked to stop, and how long before: `USR1:20`
    /// [default: 10s before]
    #[arg(long, value_name = "SIGNAL[:TIME]", value_parser = parse_warning)]
    pub pre_term_signal: Option<Warning>,
    /// Silence after which a node counts as lost
    #[arg(long, value_name = "TIME", value_parser = parse_lease, default_value = "30s")]
    pub lease: Duration,
    /// How often nodes say that they live [default: a tenth of the lease, 3s at most]
    #[arg(long, value_name = "TIME", value_parser = parse_beat)]
    pub beat: Option<Duration>,
    /// Set a variable in every worker; without a value, pass ours on (repeatable)
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub env: Vec<OsString>,
    /// Who reads standard input: a rank, `all` or `none` [default: a single worker does]
    #[arg(long, value_name = "RANK", value_parser = parse_stdin)]
    pub stdin: Option<StdinArg>,
    /// What workers' lines begin with: `{host}` `{rank}` `{local_rank}` `{stream}`, or nothing
    #[arg(long, value_name = "TEXT")]
    pub prefix: Option<String>,
    /// Keep everything that workers write below this directory, in one directory for each job, without
    /// a limit
    #[arg(long, value_name = "DIR")]
    pub log_dir: Option<PathBuf>,
    /// Where run directories are made: the newest 100 are kept, those of `ssh` and `bench` apart
    /// [default: $XDG_STATE_HOME/remuda/runs]
    #[arg(long, value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
    /// Examine every host before anything starts, as `remuda doctor --quick` does; errors refuse
    #[arg(long)]
    pub preflight: bool,
    /// Print what would be started, and start nothing
    #[arg(long = "dry-run")]
    pub dry_run: bool,
    /// With --dry-run: as JSON
    #[arg(long)]
    pub json: bool,
    /// With --dry-run: show also values that look like secrets
    #[arg(long)]
    pub show_env: bool,
    /// How much we say ourselves
    #[arg(long, value_name = "LEVEL", value_enum, default_value = "info")]
    pub log_level: LogLevel,
    /// Of what we say ourselves, say only what went wrong; workers are shown as ever
    #[arg(short, long)]
    pub quiet: bool,
}

impl WatchArgs {
    /// How much we say; `--quiet` wins, as in DeepSpeed.
    pub fn level(&self) -> LogLevel {
        if self.quiet { LogLevel::Error } else { self.log_level }
    }

    /// Whether what happens is said.
    pub fn talks(&self) -> bool {
        self.level() <= LogLevel::Info
    }

    /// Whether what may be wrong is said.
    pub fn warns(&self) -> bool {
        self.level() <= LogLevel::Warning
    }
}
