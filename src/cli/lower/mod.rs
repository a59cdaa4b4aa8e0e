//! Resolves the options of a command line to the description of a job. Files, environment and
//! devices are read here, once; everything after this is a function of the result.

mod allocation;
mod alone;
mod devices;
mod dial;
pub(super) mod environment;
mod keep;
mod options;
mod pod;
mod pool;
mod program;
mod reach;
mod rendezvous;
mod size;
mod world;

pub(super) use devices::{gpu_count, slots_are};
pub(super) use keep::PidFile;
pub(super) use options::{PrintedRanks, options, program_and_script, random_bytes};
pub(super) use pod::{Pod, mpi_hosts, pod, surroundings};
pub(super) use program::{
    interpreter, missing_requirements, program, script_problem, search_path, show_interpreter,
};
pub(super) use rendezvous::unused_variables;
pub(super) use size::check_size;
pub(super) use world::node_of_world;

use super::args::ClusterArgs;
use super::error::CliError;
use super::hostfile::Trust;
use super::line::CommandLine;
use crate::base::{Diagnostic, Findings, HostName, NodeRank, Slot, Span, Status};
use crate::doctor::SlotDevice;
use crate::launch::{ContinueWith, GpuSharing, SupervisorOptions, Transport};
use crate::plan::{Accelerator, MasterAddr};
use crate::pool::{Reading, SelectorArgs, select};
use crate::report::Terminal;
use crate::report::diagnostic::show_all;

/// Hosts and slots of a job, and the way in which nodes are reached.
pub(super) struct ResolvedCluster {
    pub(super) nodes: Vec<(HostName, Vec<Slot>)>,
    pub(super) accelerator: Accelerator,
    /// See [`crate::plan::JobSpec::device_names`].
    pub(super) device_names: Vec<String>,
    pub(super) master_addr: MasterAddr,
    pub(super) master_port: Option<u16>,
    /// The only node that is started here (`--no_ssh`).
    pub(super) local_node: Option<NodeRank>,
    /// Number of this node, if the nodes of the job dial in (`--no_ssh` with a key).
    pub(super) dialing_node: Option<NodeRank>,
    /// Source of the slots, for messages.
    pub(super) origin: String,
    /// Which owners and permissions of files are accepted.
    pub(super) trust: Trust,
    /// Warnings, ready to be printed.
    pub(super) warnings: String,
    pub(super) transport: Transport,
    /// Options for the supervisor of the pod.
    pub(super) supervisor: SupervisorOptions,
    /// Claims of the job on its GPUs.
    pub(super) gpu_sharing: GpuSharing,
    /// Devices of the slots, for comparison with the devices of a node.
    pub(super) slots_are: SlotDevice,
    /// The hostfile, if there is one.
    pub(super) hostfile: Option<Reading>,
    /// Ways to continue without a failed host, for help texts.
    pub(super) continue_with: ContinueWith,
}

impl ResolvedCluster {
    /// Number of workers of all nodes.
    pub(super) fn workers(&self) -> usize {
        self.nodes.iter().map(|(_, slots)| slots.len()).sum()
    }
}

/// Moves findings to the options in the command line: the number of `-n 9`, or both of two options
/// that contradict each other. Other findings keep the text of the selector.
fn with_line_spans(findings: Findings, typed: &CommandLine) -> Findings {
    contradiction(&findings, typed).unwrap_or_else(|| number(findings, typed))
}

/// Returns the finding for `--include` beside `--num_gpus`, with both places in one excerpt of the
/// line, if both were typed.
fn contradiction(findings: &Findings, typed: &CommandLine) -> Option<Findings> {
    let [problem] = &findings.diagnostics[..] else { return None };
    let [(first, label)] = &problem.related[..] else { return None };
    let flag = |span: Span| findings.source.text[span.start..span.end].strip_prefix("--");
    let places = [typed.name_span(flag(*first)?)?, typed.name_span(flag(problem.span?)?)?];
    let problem = problem.clone();
    let related = |span| vec![(span, label.clone())];
    let make =
        |spans: &[Span]| Diagnostic { span: Some(spans[1]), related: related(spans[0]), ..problem };
    Some(typed.refuse(&places, make).findings)
}

fn number(findings: Findings, typed: &CommandLine) -> Findings {
    let flag = findings.source.name.strip_prefix("--").filter(|flag| flag.starts_with("num_"));
    let (Some(place), [problem]) =
        (flag.and_then(|flag| typed.value_span(flag)), &findings.diagnostics[..])
    else {
        return findings;
    };
    let problem = problem.clone();
    typed.refuse(&[place], |spans| Diagnostic { span: Some(spans[0]), ..problem }).findings
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
pub(super) fn resolve_cluster(
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
    let alone = alone::started_node(&args.transport, typed, nodes.len())?;
    let here = match alone {
        Some(node) => &nodes[node.index()..=node.index()],
        None => &nodes,
    };
    let key_file = args.transport.key_file.as_deref().filter(|_| 1 < nodes.len());
    let (transport, of_key) = match (alone, key_file) {
        (Some(_), Some(key_file)) => {
            let (address, master_port) = alone::rendezvous(&args.transport, &nodes);
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
                reach::transport(&args.transport, hosts, users, &alone::machine_name())?,
                String::new(),
            )
        }
    };
    let is_here = !matches!(transport, Transport::Ssh(_));
    if is_here && found.device_names.is_empty() {
        devices::check_devices(&args.devices, here, found.accelerator)?;
    }
    let (master_addr, master_port) = match alone {
        Some(_) => alone::master(args.transport.master_addr(), args.transport.master_port, &nodes),
        None => (reach::master_addr(&args.transport, &transport), args.transport.master_port),
    };
    let doubt = alone.map_or_else(String::new, |node| alone::name_warning(node, &nodes));
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
