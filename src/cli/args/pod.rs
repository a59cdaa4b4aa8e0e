//! Options of `remuda pod` about the job of the pod; each has an environment variable.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use crate::base::{Status, env_vars, show_typed};
use crate::cli::args::DeviceArgs;
use crate::cli::args::values::{
    AcceleratorArg, parse_job_id, parse_master_addr, parse_port, parse_timeout,
};
use crate::cli::codes::pod as codes;
use crate::cli::error::CliError;
use crate::cli::line::{BadValue, parse_whole};

/// Job of the pod, and its place in the job.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Nodes", rename_all = "snake_case")]
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
    /// Accept env files that every user can write, or that belong to another user
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

impl PodNodeArgs {
    /// Returns the options, with variables of the environment for those that were not typed.
    pub(in crate::cli) fn with_environment(self) -> Result<Self, CliError> {
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
        cpu_option: typed.cpu_option,
    })
}

pub(super) fn flag_or_variable(typed: bool, name: &str) -> Result<bool, CliError> {
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
pub(super) fn value_or_variable<T>(
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
