//! Hosts, slots, devices and the transport of a job, from the options of `remuda run`.

use super::selection::with_line_spans;
use super::{devices, dial, no_ssh, pool, transport};
use crate::base::{HostName, NodeRank, Slot, Status};
use crate::cli::args::ClusterArgs;
use crate::cli::error::CliError;
use crate::cli::line::CommandLine;
use crate::cli::resolve::trust::Trust;
use crate::doctor::SlotDevice;
use crate::launch::{ContinueWith, GpuSharing, SupervisorOptions, Transport};
use crate::plan::{Accelerator, MasterAddr};
use crate::pool::{Reading, SelectorArgs, select};
use crate::report::Terminal;
use crate::report::diagnostic::show_all;

/// Hosts and slots of a job, and the way in which nodes are reached.
pub(in crate::cli) struct ResolvedCluster {
    pub(in crate::cli) nodes: Vec<(HostName, Vec<Slot>)>,
    pub(in crate::cli) accelerator: Accelerator,
    /// See [`crate::plan::JobSpec::device_names`].
    pub(in crate::cli) device_names: Vec<String>,
    pub(in crate::cli) master_addr: MasterAddr,
    pub(in crate::cli) master_port: Option<u16>,
    /// The only node that is started here (`--no_ssh`).
    pub(in crate::cli) local_node: Option<NodeRank>,
    /// Number of this node, if the nodes of the job dial in (`--no_ssh` with a key).
    pub(in crate::cli) dialing_node: Option<NodeRank>,
    /// Source of the slots, for messages.
    pub(in crate::cli) origin: String,
    /// Which owners and permissions of files are accepted.
    pub(in crate::cli) trust: Trust,
    /// Warnings, ready to be printed.
    pub(in crate::cli) warnings: String,
    pub(in crate::cli) transport: Transport,
    /// Options for the supervisor of the pod.
    pub(in crate::cli) supervisor: SupervisorOptions,
    /// Claims of the job on its GPUs.
    pub(in crate::cli) gpu_sharing: GpuSharing,
    /// Devices of the slots, for comparison with the devices of a node.
    pub(in crate::cli) slots_are: SlotDevice,
    /// The hostfile, if there is one.
    pub(in crate::cli) hostfile: Option<Reading>,
    /// Ways to continue without a failed host, for help texts.
    pub(in crate::cli) continue_with: ContinueWith,
}

impl ResolvedCluster {
    /// Number of workers of all nodes.
    pub(in crate::cli) fn workers(&self) -> usize {
        self.nodes.iter().map(|(_, slots)| slots.len()).sum()
    }
}

fn ways_to_continue(args: &ClusterArgs, joins: Option<NodeRank>) -> ContinueWith {
    let chooses = [&args.include, &args.num_nodes, &args.num_gpus];
    if joins.is_some() {
        ContinueWith::Nothing
    } else if chooses.into_iter().flatten().any(|text| !text.is_empty()) {
        ContinueWith::Hostfile
    } else {
        ContinueWith::Exclude(args.exclude.clone().unwrap_or_default())
    }
}

/// Finds the hosts, and applies the selection.
pub(in crate::cli) fn resolve_cluster(
    args: &ClusterArgs,
    typed: &CommandLine,
    terminal: Terminal,
) -> Result<ResolvedCluster, CliError> {
    let (pool, found) = pool::find_pool(args, typed, terminal)?;
    // If the slots are from `--num_gpus`, it contradicts a filter as well.
    let is_filtered =
        [&args.include, &args.exclude].into_iter().flatten().any(|text| !text.is_empty());
    let selector = SelectorArgs {
        include: args.include.clone(),
        exclude: args.exclude.clone(),
        num_nodes: args.num_nodes.clone(),
        num_gpus: args.num_gpus.clone().filter(|_| is_filtered || !found.is_counted),
    };
    let selected =
        select(&pool, &found.source, &selector).map_err(|findings| CliError::Findings {
            status: Status::Usage,
            findings: findings.into_iter().map(|found| with_line_spans(found, typed)).collect(),
        })?;
    let (nodes, users) = selected.pool.into_parts();
    let alone = no_ssh::started_node(&args.transport, typed, nodes.len())?;
    let here = match alone {
        Some(node) => &nodes[node.index()..=node.index()],
        None => &nodes,
    };
    let key_file = args.transport.key_file.as_deref().filter(|_| 1 < nodes.len());
    let (transport, of_key) = match (alone, key_file) {
        (Some(_), Some(key_file)) => {
            let (address, master_port) = no_ssh::rendezvous(&args.transport, &nodes);
            let meeting = dial::DialArgs {
                key_file,
                job_id: args.transport.job_id.as_deref(),
                join_timeout: args.transport.join_timeout,
                local_addr: args.transport.local_addr.as_deref(),
                address,
                master_port,
                peer_exit: None,
                key_location: dial::KeyLocation::File,
            };
            let (dial, warning) = dial::dial(&meeting, typed)?;
            (Transport::Dial(dial), warning)
        }
        (Some(_), None) => (Transport::Local, String::new()),
        (None, _) => {
            let hosts = nodes.iter().map(|(host, _)| host);
            (
                transport::transport(&args.transport, hosts, users, &no_ssh::machine_name())?,
                String::new(),
            )
        }
    };
    let is_here = !matches!(transport, Transport::Ssh(_));
    if is_here && found.device_names.is_empty() {
        devices::check_devices(&args.devices, here, found.accelerator)?;
    }
    let (master_addr, master_port) = match alone {
        Some(_) => no_ssh::master(args.transport.master_addr(), args.transport.master_port, &nodes),
        None => (transport::master_addr(&args.transport, &transport), args.transport.master_port),
    };
    let doubt = alone.map_or_else(String::new, |node| no_ssh::name_warning(node, &nodes));
    let (alone, joins) = match transport {
        Transport::Dial(_) => (None, alone),
        Transport::Local | Transport::Ssh(_) => (alone, None),
    };
    Ok(ResolvedCluster {
        continue_with: ways_to_continue(args, joins),
        nodes,
        accelerator: found.accelerator,
        device_names: found.device_names,
        master_addr,
        master_port,
        local_node: alone,
        dialing_node: joins,
        transport,
        supervisor: SupervisorOptions::default(),
        gpu_sharing: devices::gpu_sharing(&args.devices)?,
        slots_are: devices::slots_are(&args.devices, args.devices.oversubscribe)?,
        hostfile: found.hostfile,
        origin: found.origin,
        trust: pool::trust(args),
        warnings: found.warnings + &show_all(&selected.findings, terminal.paint) + &doubt + &of_key,
    })
}
