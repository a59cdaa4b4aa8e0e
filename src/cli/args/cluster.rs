//! Options about hosts, slots and the transport, as they were typed. Parsing them validates and
//! resolves nothing: files and devices are read in `resolve`, once.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::cli::args::SshArgs;
use crate::cli::args::values::{
    AcceleratorArg, LauncherArg, Words, launcher_help, parse_count, parse_int, parse_job_id,
    parse_launcher, parse_master_addr, parse_master_port, parse_port, parse_slots, parse_timeout,
    parse_words,
};
use crate::pool::SlotCount;

/// Hosts and slots of a job.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Hosts", rename_all = "snake_case")]
pub struct ClusterArgs {
    /// Hosts and their slots: a hostfile with a line `name slots=N` for each host, a hostfile of
    /// another tool, or a list, `n1:8,n2:8` or `n[01-04]:8` [default: /job/hostfile if it exists; as
    /// `remuda`, the allocation of a scheduler; this machine]
    #[arg(short = 'H', long, value_name = "FILE")]
    pub hostfile: Option<PathBuf>,
    /// With --hostfile: slots of each host for which the file or the list gives no number; in an
    /// allocation of Slurm without GPUs: workers of each node
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
    /// Use the first N slots of each host; without a hostfile, N slots of this machine
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
    /// Accept hostfiles, env files and remuda.toml that other users can write, and env files and remuda.toml that
    /// belong to another user
    #[arg(long)]
    pub allow_insecure_files: bool,
    /// Options of the transport.
    #[command(flatten)]
    pub transport: TransportArgs,
}

/// Devices of the slots.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Hosts", rename_all = "snake_case")]
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
    /// What chooses the CPU instead, for help texts.
    #[arg(skip = CPU_SLOTS)]
    pub cpu_option: &'static str,
}

/// The option that makes slots of processors.
const CPU_SLOTS: &str = "--accelerator cpu";

/// Options of the transport to the nodes, and of the rendezvous.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Between nodes", rename_all = "snake_case")]
pub struct TransportArgs {
    /// How remuda starts its process on each host, the agent.
    #[arg(long, value_name = "HOW", value_parser = parse_launcher, help = launcher_help())]
    pub launcher: Option<LauncherArg>,
    /// Options for the process manager in one argument; for pdsh `-f N` (fan-out) and `-l USER` have an
    /// effect
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
    /// No effect; accepted because DeepSpeed has it: remuda has no check that could be skipped
    #[arg(long)]
    pub no_ssh_check: bool,
    /// Use ssh even for a single host
    #[arg(long)]
    pub force_multi: bool,
    /// Start only the workers of this node: run the same command line on every node, each with
    /// its `--node_rank`. Without --key_file the nodes are not connected to each other
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
