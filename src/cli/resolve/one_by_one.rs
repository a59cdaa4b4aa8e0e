//! Nodes that are started one by one, each with its number and the address of the first, without a
//! hostfile.

use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use crate::base::{HostName, NodeRank, Slot, env_vars};
use crate::cli::args::ClusterArgs;
use crate::cli::error::CliError;
use crate::cli::line::CommandLine;
use crate::cli::resolve::allocation::StepTask;
use crate::cli::resolve::cluster::{ClusterOrigin, ResolvedCluster, StartedNodes};
use crate::cli::resolve::devices::JobDevices;
use crate::cli::resolve::dial::{self, DialArgs, KeySource, NodePorts};
use crate::cli::resolve::master::MasterOptions;
use crate::cli::resolve::own_task::own_task;
use crate::cli::resolve::slurm_address::meeting_address;
use crate::cli::resolve::task_slots::TaskSlots;
use crate::cli::resolve::trust::Trust;
use crate::cli::resolve::wide_allocation::WideAllocation;
use crate::cli::resolve::{allocation, mpi_task};
use crate::launch::{
    ContinueWith, DialOptions, ElasticNodes, LaunchError, NodeOptions, SupervisorOptions,
    Transport, WaitHelp,
};
use crate::plan::MasterAddr;
use crate::report::Terminal;
use crate::report::text::{paint_message, show_count};
use crate::transport::dial::{BoundListener, NameStart};

/// How long nodes wait for another node 0 after the loss of the first one, unless the line has a time limit.
/// Under torchrun they do not wait; a script or a scheduler that starts the line again needs seconds.
const RETURN_LIMIT: Duration = Duration::from_secs(60);

/// The option of torchrun with settings of the rendezvous.
const CONF: &str = "rdzv-conf";

/// A node that is started alone.
#[derive(Clone, Debug)]
pub(in crate::cli) struct OneByOne {
    pub(in crate::cli) place: NodePlace,
    /// Number of nodes.
    pub(in crate::cli) count: usize,
    /// How their number may vary; `None`: all take part.
    pub(in crate::cli) elastic: Option<ElasticNodes>,
    /// Address of the first node.
    pub(in crate::cli) address: String,
    pub(in crate::cli) ports: NodePorts,
    /// Without a file the key follows from the run id.
    pub(in crate::cli) key_file: Option<PathBuf>,
    /// Public name of the job.
    pub(in crate::cli) run_id: String,
    pub(in crate::cli) local_addr: Option<String>,
    pub(in crate::cli) join_limit: Option<Duration>,
    /// Whether a process manager started this process, so that its variables describe this process.
    pub(in crate::cli) is_task: bool,
}

/// Which of the nodes this one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum NodePlace {
    /// The node with this number.
    Number(NodeRank),
    /// Node 0, which accepts the others.
    First,
    /// A node that gets its number from node 0.
    Joins,
    /// The first process at the address of node 0 is node 0, the others join it.
    ByAddress,
}

/// Resolves the nodes, which have the same slots, and the connection to them.
pub(in crate::cli) fn one_by_one(
    one: &OneByOne,
    slots: &[Slot],
    typed: &CommandLine,
) -> Result<ResolvedCluster, CliError> {
    let key = match &one.key_file {
        Some(path) => KeySource::File(path),
        None => KeySource::RunId(&one.run_id),
    };
    let options = DialArgs {
        key,
        job_id: None,
        join_timeout: one.join_limit,
        join_option: join_option(one, typed),
        local_addr: one.local_addr.as_deref(),
        address: &one.address,
        ports: one.ports,
        peer_exit: None,
        options: if one.is_task { dial::options_of_run(typed) } else { options_of_torchrun(typed) },
    };
    let (mut dial, mut warnings) = dial::dial(&options, typed)?;
    (dial.is_task, dial.has_host_names) = (one.is_task, false);
    dial.shares_screen = one.is_task || own_task().is_some();
    (dial.wait_help, dial.name_start) = (Box::new(wait_help(one, typed)), name_start());
    if one.join_limit.is_none() {
        dial.return_limit.time = RETURN_LIMIT;
    }
    if one.place == NodePlace::ByAddress {
        dial.listener = listen_if_first(&one.address, dial.port)?;
    }
    let node = match one.place {
        NodePlace::Number(node) => Some(node),
        NodePlace::First => Some(NodeRank(0)),
        NodePlace::Joins => None,
        NodePlace::ByAddress => dial.listener.as_ref().map(|_| NodeRank(0)),
    };
    warnings += &unprotected(&dial, node, &key_option(one, typed));
    let name = |node: usize| HostName::parse(&format!("node-{node}")).expect("a valid name");
    let mut cluster = ResolvedCluster {
        nodes: (0..one.count).map(|node| (name(node), slots.to_vec())).collect(),
        started: StartedNodes::Dialing(node),
        devices: JobDevices::of_environment(),
        master: MasterOptions {
            addr: MasterAddr::Given(one.address.clone()),
            port: one.ports.master(),
        },
        transport: Transport::Dial(dial),
        elastic: None,
        supervisor: SupervisorOptions::default(),
        origin: ClusterOrigin {
            text: origin_text(one).to_owned(),
            hostfile: None,
            trust: Trust::of(false),
        },
        continue_with: ContinueWith::Nothing,
        warnings,
    };
    cluster.set_elastic(one.elastic);
    Ok(cluster)
}

/// What the announcement says about the origin of the nodes.
fn origin_text(one: &OneByOne) -> &'static str {
    if one.elastic.is_some() { "their number may vary" } else { "started one by one" }
}

/// Resolves the tasks of a process manager: each is a node, and task 0 accepts the others.
pub(super) fn of_step(
    task: &StepTask,
    TaskSlots { slots, devices }: TaskSlots,
    (args, typed): (&ClusterArgs, &CommandLine),
    terminal: Terminal,
) -> Result<ResolvedCluster, CliError> {
    let transport = &args.transport;
    let address = transport.master_addr().or(task.first_host.as_deref());
    let address = address.ok_or_else(|| mpi_task::refuse_unknown_address(task, typed))?;
    let address = meeting_address(address);
    let one = OneByOne {
        place: NodePlace::Number(NodeRank(task.number)),
        count: task.count,
        elastic: None,
        address: address.text,
        ports: NodePorts::Agents(port_of(&task.run_id)),
        key_file: (transport.key_file.clone())
            .or_else(|| env_vars::get(env_vars::REMUDA_KEY_FILE).map(PathBuf::from)),
        run_id: task.run_id.clone(),
        local_addr: None,
        join_limit: None,
        is_task: true,
    };
    let found = ResolvedCluster { devices, ..one_by_one(&one, &slots, typed)? };
    let StepTask { number, count, group, .. } = task;
    let note = format!(
        "note: this process is task {number} of {count} of {group}: each task is a node with {} (-n); \
         with `--launcher local` each is a job of its own\n",
        show_count(slots.len(), "worker")
    );
    // The others would print the same.
    let address_note = address.note.unwrap_or_default();
    let warnings =
        if *number == 0 { note + &address_note + &found.warnings } else { String::new() };
    Ok(ResolvedCluster {
        warnings: paint_message(&warnings, terminal.paint),
        origin: ClusterOrigin { text: format!("tasks of {group}"), ..found.origin },
        ..found
    })
}

/// A port that all tasks derive from the name of their job, below those that the kernel gives to
/// connections.
pub(super) fn port_of(name: &str) -> u16 {
    const FIRST: u32 = 20_000;
    const COUNT: u32 = 10_000;
    let mixed = name.bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    (FIRST + mixed % COUNT) as u16
}

/// Returns the options of a line of torchrun, or of the one from which it was made.
fn options_of_torchrun(typed: &CommandLine) -> NodeOptions {
    const ENDPOINT: &str = "rdzv-endpoint";
    let port = if typed.last(ENDPOINT).is_some() { ENDPOINT } else { "master-port" };
    NodeOptions { number: typed.option_name("node-rank"), port: typed.option_name(port) }
}

/// Listens at the address of node 0 if that is this machine and no other process listens there.
fn listen_if_first(address: &str, port: u16) -> Result<Option<BoundListener>, CliError> {
    let bare = address.trim_start_matches('[').trim_end_matches(']');
    // A name that does not exist yet is the name of another machine.
    let found: Vec<_> = (bare, port).to_socket_addrs().map(Iterator::collect).unwrap_or_default();
    let is_loopback = !found.is_empty() && found.iter().all(|found| found.ip().is_loopback());
    let is_machine_name = is_loopback && bare != "localhost" && bare.parse::<IpAddr>().is_err();
    // Debian's /etc/hosts gives the machine's name a loopback address that other nodes cannot reach.
    let addresses =
        if is_machine_name { vec![(Ipv4Addr::UNSPECIFIED, port).into()] } else { found };
    BoundListener::try_first(address, addresses).map_err(|error| LaunchError::Bind(error).into())
}

/// When names of nodes begin to exist: those of pods after their processes.
fn name_start() -> NameStart {
    match env_vars::get(env_vars::KUBERNETES_SERVICE_HOST) {
        Some(_) => NameStart::Late,
        None => NameStart::Early,
    }
}

/// What to type if the wait of this node does not end.
fn wait_help(one: &OneByOne, typed: &CommandLine) -> WaitHelp {
    if !one.is_task {
        let given =
            ["rdzv-endpoint", "master-addr"].into_iter().find(|name| typed.last(name).is_some());
        let source = given.map_or_else(
            || "the name".to_owned(),
            |name| format!("the name in `{}`", typed.option_name(name)),
        );
        let unresolved =
            format!("correct {source}, or type an address; it is looked up again until then");
        let not_started = help_to_start_all(one, typed);
        return WaitHelp { unresolved: Some(unresolved), not_started };
    }
    let name = &one.address;
    let is_of_slurm = allocation::is_slurm_run(&one.run_id) && typed.last("master_addr").is_none();
    let lookup = if is_of_slurm {
        format!("; `scontrol show node {name}` shows one as NodeAddr")
    } else {
        String::new()
    };
    let option = address_option(one, typed);
    let unresolved =
        format!("type `{option} ADDR` with an address of {name} that all nodes reach{lookup}");
    WaitHelp { unresolved: Some(unresolved), not_started: None }
}

/// How to start the other nodes, if this process is in an allocation of several.
fn help_to_start_all(one: &OneByOne, typed: &CommandLine) -> Option<String> {
    let found = WideAllocation::find()?;
    let options = ["rdzv-endpoint", "master-addr", "node-rank"];
    let typed_ones = options.into_iter().filter(|name| typed.last(name).is_some());
    let options: Vec<String> = typed_ones.map(|name| typed.option_name(name)).collect();
    Some(found.help_to_start_all(&options, !matches!(one.place, NodePlace::Number(_))))
}

/// The option that sets how long the nodes wait for each other; empty: tasks have none.
fn join_option(one: &OneByOne, typed: &CommandLine) -> &'static str {
    match one.is_task {
        true => "",
        false if typed.spelled(CONF).contains('_') => "--rdzv_conf join_timeout=SECONDS",
        false => "--rdzv-conf join_timeout=SECONDS",
    }
}

/// The option that names a key.
fn key_option(one: &OneByOne, typed: &CommandLine) -> String {
    typed.option_name(if is_of_run(one, typed) { "key_file" } else { "key-file" })
}

/// The option that gives tasks the address of node 0.
fn address_option(one: &OneByOne, typed: &CommandLine) -> String {
    typed.option_name(if is_of_run(one, typed) { "master_addr" } else { "master-addr" })
}

/// Whether this is a task with a line of `remuda run`, which spells options in its own way.
fn is_of_run(one: &OneByOne, typed: &CommandLine) -> bool {
    one.is_task && !typed.program.contains("torch")
}

/// Whether only processes of this machine reach the address.
fn is_loopback(address: &str) -> bool {
    let bare = address.trim_start_matches('[').trim_end_matches(']');
    bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// What the nodes are not protected from. Only node 0 says it, because the others do not listen. At a loopback
/// address all nodes are on this machine.
fn unprotected(dial: &DialOptions, node: Option<NodeRank>, key_option: &str) -> String {
    let is_secret = dial.key_origin.is_secret();
    if is_secret || node != Some(NodeRank(0)) || is_loopback(&dial.address) {
        return String::new();
    }
    format!(
        "note: the nodes have no key in common: every process that reaches port {} of {} can join the job, read \
         its output and stop it; every node executes its own command line only\n\
         help: `(umask 077; head -c 32 /dev/urandom > key)` makes a key; copy it to every node, and add \
         `{key_option} key` to each line\n",
        dial.show_port(),
        dial.address
    )
}
