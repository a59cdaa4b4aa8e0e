//! Requests to agents, made from a plan. Pure: facts about the nodes are passed in as [`PreparedNode`].

use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

use crate::base::{Epoch, HostName, NodeRank, Rank, env_vars};
use crate::inventory;
use crate::job::MeetingPoint;
use crate::launch::node::table::NodeTable;
use crate::launch::options::{Cores, FileOf, GpuSharing, Options, Transport, WorkersFile};
use crate::plan::{
    Bindings, LaunchPlan, MASTER_PORT, MasterAddr, NodePlan, RendezvousPort, ThreadShare,
    WORKERS_MAX, WorkerPlan,
};
use crate::report::Style;
use crate::wire::{
    self, CoreRequest, FileState, GpuLockRequest, Listen, NodeRoster, PortRequest, Prepare,
    PreparedNode, RequiredFile, Start, ToAgent, WorkerStart,
};

/// Flow-control window of a node: bytes of output that were sent and not yet shown.
const WINDOW_BYTES: u64 = 2 << 20;
/// File descriptors that a worker needs on its node.
const FDS_PER_WORKER: u64 = 8;

/// Maximum number of other hosts to which node 0 looks for a route.
const ROUTE_HOSTS_MAX: usize = 8;

/// The checks of a node before anything starts.
pub(in crate::launch) fn prepare_request(
    plan: &LaunchPlan,
    options: &Options,
    node: &NodePlan,
    epoch: Epoch,
) -> Prepare {
    Prepare {
        cwd: options.command.cwd.clone().into_os_string().into_vec(),
        program: options.command.program.clone().into_vec(),
        script: options.command.script.clone().map(OsStringExt::into_vec),
        fds: FDS_PER_WORKER * node.workers.len() as u64,
        listen: listen_request(plan, options, node),
        key: options.key.clone(),
        rank_limit: rank_limit(plan, &options.transport),
        lease_ms: options.limits.lease.as_millis() as u32,
        heartbeat_ms: options.limits.heartbeat_interval.as_millis() as u32,
        grace_ms: options.limits.grace.as_millis() as u32,
        cores: options.devices.cores.as_ref().map(|cores| core_request(cores, node)),
        venv_script: options
            .command
            .venv_script
            .clone()
            .map(|script| script.into_os_string().into_vec()),
        gpu_locks: gpu_lock_request(options.devices.gpu_sharing, node),
        files: files(options, node, epoch),
        spans_machines: uses_other_machines(plan, &options.transport),
        package: options.command.package.clone(),
    }
}

/// The number that every rank is below; it is not known before all nodes have joined if each starts the workers of
/// its own line.
fn rank_limit(plan: &LaunchPlan, transport: &Transport) -> u32 {
    match transport {
        Transport::Dial(dial) if dial.has_own_lines() => WORKERS_MAX,
        Transport::Dial(_) | Transport::Local | Transport::Ssh(_) | Transport::Managed(_) => {
            plan.world_size
        }
    }
}

/// Whether any other machine has a part in the job; a node that is started alone is one of several.
fn uses_other_machines(plan: &LaunchPlan, transport: &Transport) -> bool {
    let by_other_program = matches!(transport, Transport::Ssh(_) | Transport::Managed(_));
    by_other_program || 1 < plan.nodes.len() || (plan.local_worker_count() as u32) < plan.world_size
}

/// Files that a node must check. Files that the job itself has written exist when it is restarted,
/// also by another node 0, which does not know yet that this is a restart.
fn files(options: &Options, node: &NodePlan, epoch: Epoch) -> Vec<RequiredFile> {
    let is_first = epoch == Epoch(0) && !matches!(options.transport, Transport::Dial(_));
    let is_asked = |file: &&WorkersFile| match file.file.state {
        FileState::Readable => true,
        FileState::NoFilesWithPrefix(_) => is_first,
    };
    let has_rank0 = node.workers.iter().any(|worker| worker.rank == Rank(0));
    let is_needed = |file: &&WorkersFile| match file.owner {
        FileOf::AllWorkers => !node.workers.is_empty(),
        FileOf::Rank0 => has_rank0,
    };
    options
        .command
        .files
        .iter()
        .filter(is_asked)
        .filter(is_needed)
        .map(|file| file.file.clone())
        .collect()
}

/// The request to the node of rank 0 to listen. If any node may be missing, rank 0 may be on any of them.
pub(in crate::launch) fn listen_request(
    plan: &LaunchPlan,
    options: &Options,
    node: &NodePlan,
) -> Option<Listen> {
    let is_any = options.meets_at(MeetingPoint::Launcher);
    let others = plan.nodes.iter().filter(|other| other.node_rank != node.node_rank);
    let others = others.take(ROUTE_HOSTS_MAX);
    (is_any || node.node_rank == NodeRank(0)).then(|| Listen {
        addr: match &plan.master_addr {
            MasterAddr::Given(address) => Some(address.clone()),
            MasterAddr::AskNode0 => None,
        },
        port: match plan.master_port {
            // Simulated hosts share the ports of this machine, and so can hosts over ssh.
            RendezvousPort::Given(port) if is_any => PortRequest::Shared(port),
            RendezvousPort::Given(port) => PortRequest::Exact(port),
            RendezvousPort::Usual => PortRequest::Preferred(MASTER_PORT),
            RendezvousPort::Free => PortRequest::Preferred(0),
        },
        others: others.map(|node| node.host.to_string()).collect(),
        store: 1 < plan.nodes.len(),
        store_port: match &options.transport {
            Transport::Dial(dial) => dial.store_port,
            Transport::Local | Transport::Ssh(_) | Transport::Managed(_) => 0,
        },
    })
}

fn gpu_lock_request(claims: GpuSharing, node: &NodePlan) -> Option<GpuLockRequest> {
    let share = match claims {
        GpuSharing::None => return None,
        GpuSharing::Exclusive => false,
        GpuSharing::Shared => true,
    };
    Some(GpuLockRequest { slots: node.workers.iter().map(|worker| worker.slot).collect(), share })
}

fn core_request(cores: &Cores, node: &NodePlan) -> CoreRequest {
    let (list, near_gpus) = match cores {
        Cores::All => (None, None),
        Cores::List(list) => (Some(list.clone()), None),
        Cores::NearGpus(binding) => (None, Some(*binding)),
    };
    CoreRequest { list, near_gpus, workers: node.workers.len() as u32 }
}

/// The start messages of all nodes, made one after the other: together they are as large as the
/// environments of all workers. There is none for a node without a part in the job.
pub(in crate::launch) fn start_requests<'a>(
    plan: &'a LaunchPlan,
    options: &'a Options,
    table: &'a NodeTable,
    epoch: Epoch,
) -> impl Iterator<Item = Option<Start>> + 'a {
    let node0 = table.prepared(node_of_rank_0(plan));
    let (master_addr, master_port) = match node0.and_then(|found| found.master.as_ref()) {
        Some(master) => (master.addr.clone(), master.port),
        None => remote_master(plan),
    };
    let bindings = Bindings { master_addr, master_port, job: options.job.clone() };
    let mut ranks = (0..).map(Rank);
    let start = move |(place, node): (NodeRank, &NodePlan)| {
        let ranks: Vec<Rank> = ranks.by_ref().take(node.workers.len()).collect();
        let own = table.prepared(place)?;
        if options.elastic.is_some() && ranks.is_empty() {
            return None;
        }
        Some(Start {
            workers: worker_starts(plan, options, (node, own), (&bindings, epoch), ranks),
            store: node0.and_then(|found| found.store),
            window_bytes: WINDOW_BYTES,
            group_limit_ms: options.limits.group.as_millis() as u32,
        })
    };
    table.all().zip(&plan.nodes).map(start)
}

/// The start message of a node that executes its own line only: of the message of node 0 it takes the
/// address of rank 0, the address of the store and limits.
pub(in crate::launch) fn own_start_request(
    plan: &LaunchPlan,
    options: &Options,
    node: NodeRank,
    from_node_0: &Start,
    epoch: Epoch,
) -> Option<Start> {
    let (master_addr, master_port) = master_of(from_node_0).unwrap_or_else(|| remote_master(plan));
    let bindings = Bindings { master_addr, master_port, job: options.job.clone() };
    let own = nodes_to_connect(plan).find(|other| other.node == node)?;
    let found = PreparedNode {
        master: None,
        store: None,
        cpus: inventory::usable_cpus() as u32,
        notes: Vec::new(),
    };
    let ranks = own.ranks.map(Rank).collect();
    let node = &plan.nodes[node.index()];
    let workers = worker_starts(plan, options, (node, &found), (&bindings, epoch), ranks);
    Some(Start { workers, ..from_node_0.clone() })
}

/// Address and port of rank 0 in a message, if they are an address and a port.
fn master_of(start: &Start) -> Option<(String, u16)> {
    let env = &start.workers.first()?.env;
    let value = |name: &str| {
        let (_, value) = env.iter().find(|(found, _)| found == name.as_bytes())?;
        std::str::from_utf8(value).ok()
    };
    let address = value(env_vars::MASTER_ADDR)?;
    let is_address = |c: char| c.is_ascii_alphanumeric() || "_.:-".contains(c);
    let port = value(env_vars::MASTER_PORT)?.parse().ok()?;
    address.chars().all(is_address).then(|| (address.to_owned(), port))
}

/// The list of all nodes as a frame for every node; encoded once, because one encoding per node
/// would cost time quadratic in the number of nodes. The names are those of the line, which all nodes have.
pub(in crate::launch) fn roster(
    plan: &LaunchPlan,
    of_epoch: &LaunchPlan,
    epoch: Epoch,
) -> Arc<[u8]> {
    let members = plan.nodes.iter().zip(&of_epoch.nodes);
    let members = members.filter(|(_, node)| !node.workers.is_empty());
    let nodes = members.map(|(own, node)| (own.host.to_string(), node.workers.len() as u32));
    let roster = NodeRoster { nodes: nodes.collect() };
    wire::encode(epoch, &ToAgent::Roster(roster.pack())).into()
}

/// Address and port of a rank 0 on another node, which was started separately with the same values.
/// If that node has no part in the job, the workers run without it and do not use the address.
fn remote_master(plan: &LaunchPlan) -> (String, u16) {
    const NOWHERE: &str = "127.0.0.1";
    let addr = match &plan.master_addr {
        MasterAddr::Given(addr) => addr.clone(),
        MasterAddr::AskNode0 => NOWHERE.to_owned(),
    };
    (addr, plan.master_port.given().unwrap_or(MASTER_PORT))
}

/// The node of each worker that is started here. In messages between launcher, agents and `job`,
/// nodes and workers are numbered by their index in what is started here.
pub(in crate::launch) fn node_of_rank(plan: &LaunchPlan) -> Vec<NodeRank> {
    let nodes = (0..).map(NodeRank).zip(&plan.nodes);
    nodes.flat_map(|(place, node)| std::iter::repeat_n(place, node.workers.len())).collect()
}

/// The first node with workers.
pub(in crate::launch) fn node_of_rank_0(plan: &LaunchPlan) -> NodeRank {
    let nodes = (0..).map(NodeRank).zip(&plan.nodes);
    let mut members = nodes.filter(|(_, node)| !node.workers.is_empty());
    members.next().map_or(NodeRank(0), |(place, _)| place)
}

/// A node to connect to.
#[derive(Clone, Debug)]
pub(in crate::launch) struct NodeToConnect<'a> {
    pub(in crate::launch) node: NodeRank,
    pub(in crate::launch) host: &'a HostName,
    /// Ranks that it may report on.
    pub(in crate::launch) ranks: Range<u32>,
}

/// Every node of a plan, in order.
pub(in crate::launch) fn nodes_to_connect(
    plan: &LaunchPlan,
) -> impl Iterator<Item = NodeToConnect<'_>> {
    let mut next = 0;
    (0..).map(NodeRank).zip(&plan.nodes).map(move |(place, node)| {
        let first = next;
        next += node.workers.len() as u32;
        NodeToConnect { node: place, host: &node.host, ranks: first..next }
    })
}

fn worker_starts(
    plan: &LaunchPlan,
    options: &Options,
    (node, found): (&NodePlan, &PreparedNode),
    (bindings, epoch): (&Bindings, Epoch),
    ranks: Vec<Rank>,
) -> Vec<WorkerStart> {
    let sharing = match options.transport {
        // Every node of a local job is this machine: all workers share its CPUs.
        Transport::Local => plan.local_worker_count(),
        Transport::Ssh(_) | Transport::Dial(_) | Transport::Managed(_) => node.workers.len(),
    };
    let threads = ThreadShare::share(found.cpus as usize, sharing);
    let run_path = run_path(options);
    let worker = |(worker, rank): (&WorkerPlan, Rank)| WorkerStart {
        rank,
        local_rank: worker.local_rank,
        argv: worker.argv().map(|word| word.into_owned().into_vec()).collect(),
        env: [
            to_bytes(worker.bind(bindings, ThreadShare::Inherited, epoch)),
            to_bytes(run_path.clone()),
        ]
        .concat(),
        env_default: [to_bytes(worker.defaults(threads)), terminal_size(options, worker.rank)]
            .concat(),
        env_without_gpu: to_bytes(worker.defaults_without_gpu()),
        stdin: options.stdin.includes(worker.rank),
    };
    node.workers.iter().zip(ranks).map(worker).collect()
}

/// The directory of the run, where a worker on the same machine leaves records of a failure.
fn run_path(options: &Options) -> Vec<(OsString, OsString)> {
    let run_dir = options.output.run_dir.as_ref();
    let path = run_dir.and_then(|dir| std::path::absolute(dir.path()).ok());
    path.map(|path| (env_vars::REMUDA_RUN_PATH.into(), path.into())).into_iter().collect()
}

/// The size of the terminal for a worker whose output is shown as it is: the worker writes to a pipe, and a
/// progress bar that is wider than the terminal cannot be redrawn.
fn terminal_size(options: &Options, rank: Rank) -> Vec<(Vec<u8>, Vec<u8>)> {
    let Style { solo, terminal, .. } = &options.output.style;
    let Some((columns, rows)) = terminal.size.filter(|_| *solo == Some(rank)) else {
        return Vec::new();
    };
    // A bar in the last column would continue in the next row.
    let bar = columns.saturating_sub(1).max(1);
    let size = [(env_vars::COLUMNS, columns), (env_vars::LINES, rows), (env_vars::TQDM_NCOLS, bar)];
    size.map(|(name, number)| (name.into(), number.to_string().into_bytes())).into()
}

fn to_bytes(env: Vec<(OsString, OsString)>) -> Vec<(Vec<u8>, Vec<u8>)> {
    env.into_iter().map(|(name, value)| (name.into_vec(), value.into_vec())).collect()
}
