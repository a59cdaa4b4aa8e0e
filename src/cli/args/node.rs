//! Options of `remuda launch` about the job, and the node that is started.

use std::ffi::OsString;

use crate::cli::args::values::{
    CoreList, parse_cores, parse_int, parse_master_addr, parse_master_port, parse_pid,
};
use crate::cli::args::{DeviceArgs, WorkerArgs};

/// Hosts of the job, and the node that is started.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Hosts", rename_all = "snake_case")]
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
    /// Accept env files that every user can write, or that belong to another user
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
