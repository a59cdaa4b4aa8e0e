//! Hosts, slots, devices and the transport of a job, from the options of `remuda run`.

use std::collections::HashSet;

use crate::base::{HostName, NodeRank, Slot, Status, env_vars};
use crate::cli::args::ClusterArgs;
use crate::cli::args::values::LauncherArg;
use crate::cli::error::CliError;
use crate::cli::line::CommandLine;
use crate::cli::resolve::allocation::{self, AllocationSource};
use crate::cli::resolve::devices::{JobDevices, accelerator_of, check_devices};
use crate::cli::resolve::dial::{self, DialArgs, JOIN_OPTION, KeySource, NodePorts};
use crate::cli::resolve::master::{LOOPBACK, MasterOptions};
use crate::cli::resolve::pool::FoundPool;
use crate::cli::resolve::program::search_path;
use crate::cli::resolve::selection::with_line_spans;
use crate::cli::resolve::trust::Trust;
use crate::cli::resolve::{no_ssh, pool, ssh_wrapper, transport};
use crate::job::OnTerm;
use crate::launch::{ContinueWith, ElasticNodes, SupervisorOptions, Transport};
use crate::os::machine::machine_name;
use crate::plan::MasterAddr;
use crate::pool::nodeset::fold_set;
use crate::pool::{
    Dialect, HostSource, Pool, Reading, Selected, SelectorArgs, SlotCount, Users, select,
};
use crate::report::Terminal;
use crate::report::diagnostic::show_all;
use crate::transport::manager::kinds::SLURM;

/// Hosts, devices and the transport of a job.
pub(in crate::cli) struct ResolvedCluster {
    /// Hosts and slots of all nodes.
    pub(in crate::cli) nodes: Vec<(HostName, Vec<Slot>)>,
    /// The nodes that this process starts.
    pub(in crate::cli) started: StartedNodes,
    /// Devices of the slots.
    pub(in crate::cli) devices: JobDevices,
    /// Address and port of rank 0.
    pub(in crate::cli) master: MasterOptions,
    pub(in crate::cli) transport: Transport,
    /// How the number of nodes may vary; `None`: all nodes take part.
    pub(in crate::cli) elastic: Option<ElasticNodes>,
    /// Options for the supervisor of the pod.
    pub(in crate::cli) supervisor: SupervisorOptions,
    /// Where the hosts are from.
    pub(in crate::cli) origin: ClusterOrigin,
    /// Ways to continue without a failed host, for help texts.
    pub(in crate::cli) continue_with: ContinueWith,
    /// Warnings, ready to be printed.
    pub(in crate::cli) warnings: String,
}

/// Source of the hosts and slots of a job.
pub(in crate::cli) struct ClusterOrigin {
    /// The source, for messages.
    pub(in crate::cli) text: String,
    /// The hostfile, if there is one.
    pub(in crate::cli) hostfile: Option<Reading>,
    /// Which owners and permissions of files are accepted.
    pub(in crate::cli) trust: Trust,
}

/// The nodes that this process starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum StartedNodes {
    /// All nodes.
    All,
    /// One node, which is not connected to the other nodes (`--no_ssh`).
    Separate(NodeRank),
    /// One node, which dials in to node 0 (`--no_ssh` with a key); `None`: node 0 gives it a number.
    Dialing(Option<NodeRank>),
}

impl StartedNodes {
    /// Returns the nodes that are started if only `node` may be.
    pub(super) fn of(node: Option<NodeRank>, transport: &Transport) -> Self {
        match (node, transport) {
            (None, _) => Self::All,
            (Some(node), Transport::Dial(_)) => Self::Dialing(Some(node)),
            (Some(node), Transport::Local | Transport::Ssh(_) | Transport::Managed(_)) => {
                Self::Separate(node)
            }
        }
    }

    /// Returns the node, if it is only one of the nodes.
    pub(in crate::cli) fn node(self) -> Option<NodeRank> {
        match self {
            Self::All => None,
            Self::Separate(node) => Some(node),
            Self::Dialing(node) => node,
        }
    }
}

impl ResolvedCluster {
    /// Returns slots of this machine that stand for no device, with an address for rank 0.
    pub(in crate::cli) fn here(slots: Vec<Slot>, address: Option<&str>) -> Self {
        let host = HostName::parse("localhost").expect("a valid name");
        let address = address.unwrap_or(LOOPBACK).to_owned();
        Self {
            nodes: vec![(host, slots)],
            started: StartedNodes::All,
            devices: JobDevices::of_environment(),
            master: MasterOptions { addr: MasterAddr::Given(address), port: None },
            transport: Transport::Local,
            elastic: None,
            supervisor: SupervisorOptions::default(),
            origin: ClusterOrigin {
                text: "this machine".to_owned(),
                hostfile: None,
                trust: Trust::of(false),
            },
            continue_with: ContinueWith::Nothing,
            warnings: String::new(),
        }
    }

    /// Sets how the number of nodes may vary. A node with a command line of its own that is asked to end leaves such
    /// a job, which continues.
    pub(in crate::cli) fn set_elastic(&mut self, elastic: Option<ElasticNodes>) {
        if elastic.is_some() && matches!(self.transport, Transport::Dial(_)) {
            self.supervisor.on_term = OnTerm::EndNode;
        }
        self.elastic = elastic;
    }

    /// Whether this is a node that joins node 0, which has another screen.
    pub(in crate::cli) fn joins_on_own_screen(&self) -> bool {
        let is_first = self.started == StartedNodes::Dialing(Some(NodeRank(0)));
        matches!(&self.transport, Transport::Dial(dial) if !is_first && !dial.shares_screen)
    }

    /// Numbers of workers of all nodes.
    fn sizes(&self) -> Vec<usize> {
        self.nodes.iter().map(|(_, slots)| slots.len()).collect()
    }

    /// Number of workers that run at once. Nodes that stand ready as spares have none, and those whose workers cannot
    /// share the lanes of a training.
    pub(in crate::cli) fn workers(&self) -> usize {
        let sizes = self.sizes();
        let world = self.elastic.and_then(|elastic| elastic.largest_world(&sizes));
        let without_lanes = || Some(ElasticNodes { lanes: None, ..self.elastic? });
        let world = world.or_else(|| without_lanes()?.largest_world(&sizes));
        world.unwrap_or(sizes).iter().sum()
    }

    /// Returns the option with which fewer nodes start, whose workers can share the lanes, and their number; `None` if
    /// there are no such nodes.
    #[cfg(feature = "train")]
    pub(in crate::cli) fn way_to_share(&self, lanes: usize) -> Option<(String, usize)> {
        let sizes = self.sizes();
        if let Some(elastic) = self.elastic {
            let world =
                ElasticNodes { min: 1, lanes: Some(lanes), ..elastic }.largest_world(&sizes)?;
            return Some((format!("--min_nodes {}", world.len()), world.iter().sum()));
        }
        let workers = |nodes: usize| sizes[..nodes].iter().sum::<usize>();
        let can_share = |nodes: &usize| lanes.checked_rem(workers(*nodes)) == Some(0);
        let nodes = (1..sizes.len()).rev().find(can_share)?;
        Some((format!("--num_nodes {nodes}"), workers(nodes)))
    }

    /// Number of workers of every node; `None` if it differs.
    #[cfg(feature = "train")]
    pub(in crate::cli) fn workers_per_node(&self) -> Option<usize> {
        let mut counts = self.nodes.iter().map(|(_, slots)| slots.len());
        let first = counts.next()?;
        counts.all(|count| count == first).then_some(first)
    }
}

/// Finds the hosts, and applies the selection.
pub(in crate::cli) fn resolve_hosts(
    args: &ClusterArgs,
    typed: &CommandLine,
    terminal: Terminal,
) -> Result<ResolvedCluster, CliError> {
    let (pool, found) = pool::find_pool(args, typed, terminal)?;
    let selected = select_slots(args, &pool, &found, typed)?;
    let (nodes, users) = selected.pool.into_parts();
    let node = no_ssh::started_node(&args.transport, typed, nodes.len())?;
    let (transport, transport_note) =
        match slurm_step(args, (&nodes, &users), &found)?.filter(|_| node.is_none()) {
            Some(step) => step,
            None if is_local_with_manager(args, &found) => (Transport::Local, local_note(args)),
            None => connection(args, &nodes, users, node, typed)?,
        };
    let is_here = matches!(transport, Transport::Local | Transport::Dial(_));
    let accelerator = accelerator_of(&args.devices, found.accelerator, is_here)?;
    if is_here && found.device_names.is_empty() {
        let here = node.map_or(&nodes[..], |node| &nodes[node.index()..=node.index()]);
        check_devices(&args.devices, here, found.accelerator)?;
    }
    let (address, port) = (args.transport.master_addr(), args.transport.master_port);
    let master = match node {
        Some(_) => MasterOptions::of_separate_nodes(address, port, &nodes),
        None => MasterOptions::of_transport(&args.transport, &transport),
    };
    let ssh_note = hosts_outside_note(args, &nodes, &transport);
    let name_warning = node.map_or_else(String::new, |node| no_ssh::name_warning(node, &nodes));
    let selection_warnings = show_all(&selected.findings, terminal.paint);
    let started = StartedNodes::of(node, &transport);
    Ok(ResolvedCluster {
        continue_with: ways_to_continue(args, started),
        nodes,
        started,
        devices: JobDevices::new(&args.devices, accelerator, found.device_names)?,
        master,
        transport,
        elastic: None,
        supervisor: SupervisorOptions::default(),
        origin: ClusterOrigin {
            text: found.origin,
            hostfile: found.hostfile,
            trust: pool::trust(args),
        },
        warnings: found.warnings
            + &selection_warnings
            + &name_warning
            + &transport_note
            + &ssh_note,
    })
}

fn select_slots(
    args: &ClusterArgs,
    pool: &Pool,
    found: &FoundPool,
    typed: &CommandLine,
) -> Result<Selected, CliError> {
    // If the slots are from `--num_gpus`, it contradicts a filter as well.
    let is_filtered =
        [&args.include, &args.exclude].into_iter().flatten().any(|text| !text.is_empty());
    let selector = SelectorArgs {
        include: args.include.clone(),
        exclude: args.exclude.clone(),
        num_nodes: args.num_nodes.clone(),
        num_gpus: args.num_gpus.clone().filter(|_| is_filtered || !found.is_counted),
    };
    select(pool, &found.source, &selector).map_err(|findings| CliError::Findings {
        status: Status::Usage,
        findings: findings.into_iter().map(|found| with_line_spans(found, typed)).collect(),
    })
}

/// Returns a step of Slurm as the transport, if the nodes are those of the allocation in which this process runs
/// and the line names no other transport; and a note if the line names the nodes itself.
fn slurm_step(
    args: &ClusterArgs,
    (nodes, users): (&[(HostName, Vec<Slot>)], &Users),
    found: &FoundPool,
) -> Result<Option<(Transport, String)>, CliError> {
    let is_open = matches!(args.transport.launcher, None | Some(LauncherArg::Auto));
    let is_allocation = matches!(found.source, HostSource::Allocation(_))
        && found.hostfile.as_ref().is_some_and(|found| found.dialect == Dialect::Slurm);
    let Some(job) = env_vars::get_text(env_vars::SLURM_JOB_ID) else { return Ok(None) };
    let is_here = nodes.len() == 1 && no_ssh::node_named(&machine_name(), nodes).is_some();
    if !is_open || is_here || search_path(SLURM.usual_program()).is_none() {
        return Ok(None);
    }
    let note = if is_allocation {
        String::new()
    } else if users.is_empty() && are_allocated(args, nodes) {
        format!(
            "note: the hosts are nodes of Slurm job {job}, so `srun` starts the agents there; `--launcher ssh` \
             uses ssh\n"
        )
    } else {
        return Ok(None);
    };
    let options = transport::manager_options(&SLURM, &args.transport)?;
    Ok(Some((Transport::Managed(options), note)))
}

/// Returns whether all of these hosts are nodes of the allocation of Slurm in which this process runs.
fn are_allocated(args: &ClusterArgs, nodes: &[(HostName, Vec<Slot>)]) -> bool {
    hosts_outside(args, nodes).is_some_and(|outside| outside.is_empty())
}

/// Returns those of the hosts that are no nodes of the allocation of Slurm in which this process runs; `None`: there is
/// none.
fn hosts_outside<'a>(
    args: &ClusterArgs,
    nodes: &'a [(HostName, Vec<Slot>)],
) -> Option<Vec<&'a HostName>> {
    // The line has the slots already.
    let found = allocation::find(pool::trust(args), SlotCount::new(1)).ok()?;
    let AllocationSource::Nodes(found) = found else { return None };
    let own = found.reading.hostfile.pool();
    let names: HashSet<&HostName> = own.nodes().iter().map(|(host, _)| host).collect();
    let outside = nodes.iter().map(|(host, _)| host).filter(|host| !names.contains(host));
    (found.reading.dialect == Dialect::Slurm).then(|| outside.collect())
}

/// Returns a note on hosts outside the allocation in which this process runs, unless the line says how agents are
/// started.
fn hosts_outside_note(
    args: &ClusterArgs,
    nodes: &[(HostName, Vec<Slot>)],
    transport: &Transport,
) -> String {
    let is_open = matches!(args.transport.launcher, None | Some(LauncherArg::Auto));
    let job = env_vars::get_text(env_vars::SLURM_JOB_ID);
    let job = job.filter(|_| is_open && matches!(transport, Transport::Ssh(_)));
    let outside = || hosts_outside(args, nodes).filter(|outside| !outside.is_empty());
    let Some((job, outside)) = job.and_then(|job| Some((job, outside()?))) else {
        return String::new();
    };
    let are = if outside.len() == 1 { "is not a node" } else { "are not nodes" };
    let names = fold_set(outside.into_iter().map(HostName::as_str));
    format!(
        "note: {names} {are} of Slurm job {job}, so ssh starts all agents; `--launcher ssh` does so without this note\n"
    )
}

/// Returns whether a process manager is named for a job that has no hosts: it is a local job, as in
/// DeepSpeed.
fn is_local_with_manager(args: &ClusterArgs, found: &FoundPool) -> bool {
    let is_manager = matches!(args.transport.launcher, Some(LauncherArg::Manager(_)));
    let has_no_hosts = matches!(found.source, HostSource::ThisMachine);
    is_manager && has_no_hosts && !args.transport.force_multi
}

/// Returns the note that the named process manager is not used.
fn local_note(args: &ClusterArgs) -> String {
    let Some(LauncherArg::Manager(manager)) = args.transport.launcher else {
        return String::new();
    };
    let hosts = match manager.allocation {
        Some(needed) => format!("type `{} 2 remuda …`, or name hosts with `-H`", needed.command),
        None => "name hosts with `-H`".to_owned(),
    };
    format!(
        "note: `--launcher {}` has no hosts here, so the job runs on this machine alone; {hosts}\n",
        manager.option
    )
}

/// Returns the transport to the nodes, and a warning about the key.
fn connection(
    args: &ClusterArgs,
    nodes: &[(HostName, Vec<Slot>)],
    users: Users,
    node: Option<NodeRank>,
    typed: &CommandLine,
) -> Result<(Transport, String), CliError> {
    let args = &args.transport;
    if node.is_none() {
        let hosts = nodes.iter().map(|(host, _)| host);
        let transport = transport::transport(args, hosts, users, &machine_name())?;
        let notes = [transport::note_of_addresses(&transport), ssh_wrapper::note(&transport)];
        return Ok((transport, notes.into_iter().flatten().collect()));
    }
    let Some(key_file) = args.key_file.as_deref().filter(|_| 1 < nodes.len()) else {
        return Ok((Transport::Local, String::new()));
    };
    let (address, master_port) = no_ssh::rendezvous(args, nodes);
    let options = DialArgs {
        key: KeySource::File(key_file),
        job_id: args.job_id.as_deref(),
        join_timeout: args.join_timeout,
        join_option: JOIN_OPTION,
        local_addr: args.local_addr.as_deref(),
        address,
        ports: NodePorts::From(master_port),
        peer_exit: None,
        options: dial::options_of_run(typed),
    };
    let (dial, warning) = dial::dial(&options, typed)?;
    Ok((Transport::Dial(dial), warning))
}

fn ways_to_continue(args: &ClusterArgs, started: StartedNodes) -> ContinueWith {
    let selectors = [&args.include, &args.num_nodes, &args.num_gpus];
    if matches!(started, StartedNodes::Dialing(_)) {
        ContinueWith::Nothing
    } else if selectors.into_iter().flatten().any(|text| !text.is_empty()) {
        ContinueWith::Hostfile
    } else {
        ContinueWith::Exclude(args.exclude.clone().unwrap_or_default())
    }
}
