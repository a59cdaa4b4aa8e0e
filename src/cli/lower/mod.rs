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
pub(super) use options::{Speaker, options, program_and_script, random_bytes};
pub(super) use pod::{Pod, mpi_hosts, pod, surroundings};
pub(super) use program::{interpreter, lacks, no_script, program, python_named, search_path};
pub(super) use rendezvous::unused_variables;
pub(super) use size::check_size;
pub(super) use world::node_of_world;

use super::args::PlaceArgs;
use super::error::CliError;
use super::hostfile::Trust;
use super::line::Typed;
use crate::base::{Diagnostic, Findings, HostName, NodeRank, Slot, Span, Status};
use crate::doctor::SlotsAre;
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
    pub(super) alone: Option<NodeRank>,
    /// Number of this node, if the nodes of the job dial in (`--no_ssh` with a key).
    pub(super) joins: Option<NodeRank>,
    /// Source of the slots, for messages.
    pub(super) origin: String,
    /// Which owners and permissions of files are accepted.
    pub(super) trust: Trust,
    /// Warnings, ready to be printed.
    pub(super) warnings: String,
    pub(super) transport: Transport,
    /// Options for the supervisor of the pod.
    pub(super) keeper: SupervisorOptions,
    /// Claims of the job on its GPUs.
    pub(super) claims: GpuSharing,
    /// Devices of the slots, for comparison with the devices of a node.
    pub(super) slots_are: SlotsAre,
    /// The hostfile, if there is one.
    pub(super) reading: Option<Reading>,
    /// Ways to continue without a failed host, for help texts.
    pub(super) way_on: ContinueWith,
}

impl ResolvedCluster {
    /// Number of workers of all nodes.
    pub(super) fn workers(&self) -> usize {
        self.nodes.iter().map(|(_, slots)| slots.len()).sum()
    }
}

/// Moves findings to the options in the command line: the number of `-n 9`, or both of two options
/// that contradict each other. Other findings keep the text of the selector.
fn in_line(findings: Findings, typed: &Typed) -> Findings {
    contradiction(&findings, typed).unwrap_or_else(|| number(findings, typed))
}

/// Returns the finding for `--include` beside `--num_gpus`, with both places in one excerpt of the
/// line, if both were typed.
fn contradiction(findings: &Findings, typed: &Typed) -> Option<Findings> {
    let [problem] = &findings.diagnostics[..] else { return None };
    let [(first, label)] = &problem.related[..] else { return None };
    let flag = |span: Span| findings.source.text[span.start..span.end].strip_prefix("--");
    let places = [typed.name_of(flag(*first)?)?, typed.name_of(flag(problem.span?)?)?];
    let problem = problem.clone();
    let related = |span| vec![(span, label.clone())];
    let make =
        |spans: &[Span]| Diagnostic { span: Some(spans[1]), related: related(spans[0]), ..problem };
    Some(typed.refuse(&places, make).findings)
}

fn number(findings: Findings, typed: &Typed) -> Findings {
    let flag = findings.source.name.strip_prefix("--").filter(|flag| flag.starts_with("num_"));
    let (Some(place), [problem]) =
        (flag.and_then(|flag| typed.place_of(flag)), &findings.diagnostics[..])
    else {
        return findings;
    };
    let problem = problem.clone();
    typed.refuse(&[place], |spans| Diagnostic { span: Some(spans[0]), ..problem }).findings
}

fn way_on(args: &PlaceArgs, joins: Option<NodeRank>) -> ContinueWith {
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
pub(super) fn place(
    args: &PlaceArgs,
    typed: &Typed,
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
        num_gpus: args.num_gpus.clone().filter(|_| is_filtered || !found.counted),
    };
    let selected = select(&pool, &selector).map_err(|findings| CliError::Findings {
        status: Status::Usage,
        findings: findings.into_iter().map(|found| in_line(found, typed)).collect(),
    })?;
    let (nodes, users) = selected.pool.into_parts();
    let alone = alone::node(&args.reach, typed, nodes.len())?;
    let here = match alone {
        Some(node) => &nodes[node.index()..=node.index()],
        None => &nodes,
    };
    let key_file = args.reach.key_file.as_deref().filter(|_| 1 < nodes.len());
    let (transport, of_key) = match (alone, key_file) {
        (Some(_), Some(key_file)) => {
            let (address, master_port) = alone::rendezvous(&args.reach, &nodes);
            let meeting = dial::Meeting {
                key_file,
                job_id: args.reach.job_id.as_deref(),
                join_timeout: args.reach.join_timeout,
                local_addr: args.reach.local_addr.as_deref(),
                address,
                master_port,
                peer_exit: None,
                key_is: dial::KeyIs::File,
            };
            let (dial, warning) = dial::dial(&meeting, typed)?;
            (Transport::Dial(dial), warning)
        }
        (Some(_), None) => (Transport::Local, String::new()),
        (None, _) => {
            let hosts = nodes.iter().map(|(host, _)| host);
            (reach::transport(&args.reach, hosts, users, &alone::machine_name())?, String::new())
        }
    };
    let is_here = !matches!(transport, Transport::Ssh(_));
    if is_here && found.device_names.is_empty() {
        devices::check_devices(&args.devices, here, found.accelerator)?;
    }
    let (master_addr, master_port) = match alone {
        Some(_) => alone::master(args.reach.master_addr(), args.reach.master_port, &nodes),
        None => (reach::master_addr(&args.reach, &transport), args.reach.master_port),
    };
    let doubt = alone.map_or_else(String::new, |node| alone::doubt(node, &nodes));
    let (alone, joins) = match transport {
        Transport::Dial(_) => (None, alone),
        Transport::Local | Transport::Ssh(_) => (alone, None),
    };
    Ok(ResolvedCluster {
        way_on: way_on(args, joins),
        nodes,
        accelerator: found.accelerator,
        device_names: found.device_names,
        master_addr,
        master_port,
        alone,
        joins,
        transport,
        keeper: SupervisorOptions::default(),
        claims: devices::claims(&args.devices)?,
        slots_are: devices::slots_are(&args.devices, args.devices.oversubscribe)?,
        reading: found.reading,
        origin: found.origin,
        trust: pool::trust(args),
        warnings: found.warnings + &show_all(&selected.findings, terminal.paint) + &doubt + &of_key,
    })
}
