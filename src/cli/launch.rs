//! `remuda launch`: one node of a job, with the options of DeepSpeed's `deepspeed.launcher.launch`.

use std::ffi::OsString;

use clap::{CommandFactory, Parser};

use super::args::{DeviceArgs, ProgramArgs, WatchArgs, WorkerArgs};
use super::check;
use super::error::CliError;
use super::line::{self, CommandLine, Parsed, RefusedLine};
use super::lower;
use super::run;
use super::values::{
    CoreList, parse_cores, parse_int, parse_master_addr, parse_master_port, parse_pid,
};
use crate::base::Status;
use crate::report::Terminal;

/// Name of the command in messages.
const PROGRAM: &str = "remuda launch";

/// Start the workers of one node of a job, as DeepSpeed's launcher of a node does. Run the same line on
/// every node, each with its `--node_rank`. The nodes are not connected to each other; `remuda run`
/// starts and monitors all of them.
#[derive(Clone, Debug, Parser)]
#[command(name = PROGRAM, bin_name = PROGRAM, version, args_override_self = true)]
pub struct LaunchArgs {
    /// Hosts of the job, and the node that is started.
    #[command(flatten)]
    pub node: NodeArgs,
    /// Script and arguments.
    #[command(flatten)]
    pub program: ProgramArgs,
    /// Processors and log files of the workers.
    #[command(flatten)]
    pub workers: NodeWorkerArgs,
    /// Options of supervision and output.
    #[command(flatten)]
    pub watch: WatchArgs,
}

/// Hosts of the job, and the node that is started.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Where", rename_all = "snake_case")]
pub struct NodeArgs {
    /// Hosts and slots of the whole job: base64 of `{"HOST": [SLOT, …], …}`
    #[arg(long, value_name = "BASE64", required = true)]
    pub world_info: String,
    /// Number of this host, from 0 [default: that of the host with the name of this machine]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = parse_int)]
    pub node_rank: Option<i64>,
    /// Address of rank 0 (MASTER_ADDR) [default: the first host]
    #[arg(long, value_name = "ADDR", value_parser = parse_master_addr)]
    pub master_addr: Option<String>,
    /// Port of rank 0 (MASTER_PORT) [default: 29500]
    #[arg(long, value_name = "PORT", allow_negative_numbers = true, value_parser = parse_master_port)]
    pub master_port: Option<u16>,
    /// Devices of the slots.
    #[command(flatten)]
    pub devices: DeviceArgs,
    /// Accept environment files that every user can write
    #[arg(long)]
    pub allow_insecure_files: bool,
}

/// Processors and log files of the workers of one node.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Workers", rename_all = "snake_case")]
pub struct NodeWorkerArgs {
    /// Bind each worker to its own processors
    #[arg(long)]
    pub bind_cores_to_rank: bool,
    /// With --bind_cores_to_rank: processors to divide among the workers: `0,2-4,6` [default: all]
    #[arg(long, value_name = "CORES", value_parser = parse_cores)]
    pub bind_core_list: Option<CoreList>,
    /// Write the output of each rank to DIR/TIME_rankN.log and not to the screen
    #[arg(long, value_name = "DIR")]
    pub enable_each_rank_log: Option<OsString>,
    /// Write the process id of the launcher to /tmp/PID.deepspeed, where PID is the process id of its
    /// parent; 0: write no file
    #[arg(long, value_name = "PID", allow_negative_numbers = true, value_parser = parse_pid)]
    pub save_pid: Option<u32>,
}

impl From<NodeWorkerArgs> for WorkerArgs {
    fn from(args: NodeWorkerArgs) -> Self {
        let pid_of = args.save_pid.filter(|pid| *pid != 0);
        Self {
            bind_cores_to_rank: args.bind_cores_to_rank,
            bind_core_list: args.bind_core_list,
            enable_each_rank_log: args.enable_each_rank_log,
            save_pid: pid_of.is_some(),
            pid_in_file_name: pid_of,
            ..Self::default()
        }
    }
}

/// Parses the arguments of `remuda launch` in the same way as DeepSpeed's launcher of one node.
pub fn parse(words: Vec<OsString>) -> Result<Parsed<LaunchArgs>, RefusedLine> {
    line::parse(LaunchArgs::command(), CommandLine::new(PROGRAM, words))
}

/// Returns the definition of the command.
pub(super) fn definition() -> clap::Command {
    LaunchArgs::command()
}

/// Parses the command line, and runs the node.
pub(super) fn main(words: Vec<OsString>) -> Result<Status, CliError> {
    let (args, typed) = super::into_args(parse(words)?)?;
    check::program(&args.program, &typed)?;
    check::watch(&args.watch, &typed)?;
    run::print_replacements(&args.watch, &typed, Terminal::detect());
    let cluster = lower::node_of_world(&args.node, &typed)?;
    check::stdin(&args.watch, cluster.workers(), &typed)?;
    let workers = args.workers.into();
    run::start_program(cluster, &args.watch, &workers, &args.program, Terminal::detect())
}
