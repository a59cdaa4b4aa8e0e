//! A line of torchrun as a job of remuda.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::args::TorchrunArgs;
use super::c10d_line::{c10d_line, line_without_etcd};
use super::conventions::{USUAL_RUN_ID, conventions, run_id};
use super::node_number::{OPTIONS, no_address, number_of_own_task, other_number};
use super::notes::{
    note_of_conf, note_of_hosts, note_of_local_ranks, notes_of_one_node, notes_of_one_of_several,
};
use super::rendezvous::{
    Endpoint, RendezvousBackend, RendezvousConf, parse_backend, parse_conf, parse_endpoint,
    parse_host,
};
use super::size::{NodeCount, OwnDevices, parse_nnodes, parse_nproc};
use super::streams::streams;
use super::values::Values;
use crate::base::{Diagnostic, HostName, NodeRank, Slot, Status, env_vars};
use crate::cli::args::values::TorchBackendArg;
use crate::cli::args::{RunArgs, check, remote_flag, remote_words};
use crate::cli::command::run;
use crate::cli::error::CliError;
use crate::cli::line::{
    BadValue, CommandLine, LineOrigin, RefusedLine, codes, needs_other, parse_whole, refuse_value,
};
use crate::cli::resolve::hostfile::is_meant_as_file;
use crate::cli::resolve::{self, AllocatedNodes, NodePlace, NodePorts, OneByOne, ResolvedCluster};
use crate::cli::start::{Face, FaceFlags, JobArgs, TorchrunFace, start_as};
use crate::inventory;
use crate::os::net::ports::PortClaim;
use crate::plan::{MASTER_PORT, NumaBinding, RendezvousPort};
use crate::pool::SlotCount;
use crate::report::Terminal;
use crate::report::text::paint_message;

/// Options of `remuda run`, and those of torchrun from which they are made, where the names differ.
const NAMES_IN_RUN: &[(&str, &str)] = &[
    ("num_nodes", "nnodes"),
    ("min_nodes", "nnodes"),
    ("slots", "nproc_per_node"),
    ("num_gpus", "nproc_per_node"),
    ("grace", "shutdown_timeout"),
];
/// Maximum of `--max-restarts`.
const RESTARTS_MAX: i64 = 1 << 20;

/// The launchers with these options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum TorchLauncher {
    /// `torchrun`: scripts read LOCAL_RANK.
    Torchrun,
    /// `python -m torch.distributed.launch`: scripts get `--local-rank=N` unless `--use-env`.
    DistributedLaunch,
}

/// How the nodes of a job are started.
enum Nodes {
    /// This machine alone.
    Here,
    /// One command starts all of them, on the hosts of `-H` or of an allocation.
    Hosts {
        count: Option<NodeCount>,
        /// The value of `--hostfile`.
        hosts: OsString,
        /// How agents are started.
        launcher: Option<String>,
    },
    /// Every node has its own command line; with a note on its number.
    OneByOne(OneByOne, Option<String>),
}

impl Nodes {
    /// Number of workers of every node, if the line says it.
    fn workers(&self, given: Option<usize>) -> Option<usize> {
        match self {
            Self::Here | Self::OneByOne(..) => Some(given.unwrap_or(1)),
            Self::Hosts { .. } => given,
        }
    }
}

/// Runs the job of a line; `variables` are more variables for the workers, `NAME=VALUE`, `flags` the options of the
/// launcher whose line was typed.
pub(in crate::cli) fn start(
    args: &TorchrunArgs,
    typed: &CommandLine,
    launcher: TorchLauncher,
    variables: &[String],
    flags: FaceFlags,
) -> Result<Status, CliError> {
    let values = Values { typed };
    refuse_unsupported(args, typed)?;
    check::script(&args.program.script_and_args, typed)?;
    check_values_without_effect(args, values)?;
    let workers = workers(args, values)?;
    let rendezvous = Rendezvous::read(args, values)?;
    let terminal = Terminal::detect();
    let nodes = nodes((args, values), &rendezvous, workers, terminal)?;
    let line = run_line(args, values, launcher, (&nodes, workers))?;
    let mut run_args = parse_run_line(line, typed, workers)?;
    run_args.watch.env.extend(variables.iter().map(OsString::from));
    let slots: Vec<Slot> = (0..workers.unwrap_or(1) as u32).map(Slot).collect();
    let mut cluster = match &nodes {
        Nodes::Here => ResolvedCluster::here(slots, rendezvous.address()),
        Nodes::Hosts { .. } => {
            let mut cluster = resolve::resolve_cluster(&run_args.cluster, typed, terminal)?;
            let elastic = resolve::elastic(&run_args.elastic, &cluster, typed)?;
            cluster.set_elastic(elastic.map(|elastic| rendezvous.conf.adjust(elastic)));
            cluster
        }
        Nodes::OneByOne(one, _) => resolve::one_by_one(one, &slots, typed)?,
    };
    if let (Nodes::Hosts { .. }, Some(address)) = (&nodes, rendezvous.address()) {
        cluster.master.addr = crate::plan::MasterAddr::Given(address.to_owned());
    }
    let streams = streams(args, values)?;
    let mut notes = match &nodes {
        Nodes::Here => notes_of_one_node(args, values, rendezvous.is_standalone, &flags())?,
        Nodes::Hosts { .. } => {
            note_of_hosts(typed, rendezvous.unused_with_hosts()).into_iter().collect()
        }
        Nodes::OneByOne(_, note) => notes_of_one_of_several(note.as_ref(), typed, &cluster),
    };
    notes.extend(note_of_conf(typed, &rendezvous.conf));
    notes.extend(nodes.workers(workers).and_then(|all| note_of_local_ranks(typed, &streams, all)));
    for note in notes {
        cluster.warnings += &paint_message(&note, terminal.paint);
    }
    let face = TorchrunFace {
        conventions: conventions((args, values), workers.unwrap_or(1), rendezvous.run_id(&nodes))?,
        runs_path: values.switch("run-path", args.program.run_path)?,
        port: rendezvous.port(&nodes),
        streams,
        numa_binding: numa_binding(args, typed)?,
        no_python: typed.option_name("no-python"),
        flags,
    };
    let RunArgs { watch, workers: worker_args, program, .. } = run_args;
    let settings = typed.applied_settings();
    let job = JobArgs { watch: &watch, workers: &worker_args, settings, terminal };
    start_as(Face::Torchrun(Box::new(face)), cluster, job, &program)
}

/// Refuses options that are known and have no equivalent.
fn refuse_unsupported(args: &TorchrunArgs, typed: &CommandLine) -> Result<(), CliError> {
    let unsupported = [(
        "logs-specs",
        args.logs.logs_specs.is_some(),
        "it names a class in Python; `--log-dir`, `--redirects` and `--tee` decide where logs go",
    )];
    let Some((flag, _, help)) = unsupported.into_iter().find(|(_, is_given, _)| *is_given) else {
        return Ok(());
    };
    let refused = typed.refuse(&[typed.name_or_end(flag)], |spans| {
        let message = format!("`--{flag}` is not supported");
        Diagnostic::error(codes::NOT_SUPPORTED, spans[0], message)
            .label("only in torchrun")
            .help(help)
    });
    Err(refused.into())
}

/// Reads `--numa-binding`, which has no variable.
fn numa_binding(args: &TorchrunArgs, typed: &CommandLine) -> Result<Option<NumaBinding>, CliError> {
    let Some(text) = &args.size.numa_binding else { return Ok(None) };
    Ok(Some(match text.as_str() {
        "node" => NumaBinding::Node,
        "socket" => NumaBinding::Socket,
        "exclusive" => NumaBinding::Exclusive,
        "core-complex" => NumaBinding::CoreComplex,
        _ => {
            let bad = BadValue::new("expected `node`, `socket`, `exclusive` or `core-complex`");
            let (flag, place) = ("numa-binding", typed.value_or_end("numa-binding"));
            return Err(refuse_value(typed, place, flag, text, &bad).into());
        }
    }))
}

/// Checks values that torchrun checks and that have no effect here.
fn check_values_without_effect(args: &TorchrunArgs, values: Values<'_>) -> Result<(), CliError> {
    let method = values.text("start-method", args.watch.start_method.as_deref(), "spawn");
    method.parse(|text| match text {
        "spawn" | "fork" | "forkserver" => Ok(()),
        _ => Err(BadValue::new("expected `spawn`, `fork` or `forkserver`")
            .help("leave the option out: workers are always started by exec")),
    })?;
    let interval = values.text("monitor-interval", args.watch.monitor_interval.as_deref(), "0.1");
    interval.parse(|text| match text.trim().parse::<f64>() {
        Ok(seconds) if 0.0 < seconds => Ok(()),
        _ => Err(BadValue::new("expected a number of seconds above 0")
            .help("leave the option out: an exit is noticed at once")),
    })
}

/// Workers on each node; `None`: the slots of the hosts.
fn workers(args: &TorchrunArgs, values: Values<'_>) -> Result<Option<usize>, CliError> {
    let value = values.text("nproc-per-node", args.size.nproc_per_node.as_deref(), "1");
    if !value.is_given() && args.size.hostfile.is_some() {
        return Ok(None);
    }
    let own = OwnDevices {
        gpus: resolve::visible_gpus(),
        xpus: resolve::visible_xpus(),
        cpus: inventory::usable_cpus(),
    };
    value.parse(|text| parse_nproc(text, own)).map(Some)
}

/// What the line says about the rendezvous.
struct Rendezvous {
    backend: RendezvousBackend,
    endpoint: Option<Endpoint>,
    master_addr: Option<String>,
    master_port: Option<u16>,
    is_standalone: bool,
    conf: RendezvousConf,
}

impl Rendezvous {
    fn read(args: &TorchrunArgs, values: Values<'_>) -> Result<Self, CliError> {
        let (all, args) = (args, &args.rendezvous);
        let is_standalone = values.switch("standalone", args.standalone)?;
        let backend = values.text("rdzv-backend", args.rdzv_backend.as_deref(), "static");
        let parse = |text: &str| {
            parse_backend(text).map_err(|bad| match text {
                "etcd" | "etcd-v2" => bad.help(line_without_etcd(all, values.typed)),
                _ => bad,
            })
        };
        let backend = if is_standalone { RendezvousBackend::C10d } else { backend.parse(parse)? };
        let endpoint = values.optional("rdzv-endpoint", args.rdzv_endpoint.as_deref());
        let endpoint = endpoint.filter(|_| !is_standalone);
        let endpoint = endpoint.map(|value| value.parse(parse_endpoint));
        let port = values.number("master-port", args.master_port.as_deref());
        let port = port.map(|port| port.parse(|text| parse_whole(text, 0..=65535)));
        let conf = values.text("rdzv-conf", args.rdzv_conf.as_deref(), "");
        Ok(Self {
            backend,
            endpoint: endpoint.transpose()?,
            master_addr: values
                .optional("master-addr", args.master_addr.as_deref())
                .map(|address| address.parse(parse_host))
                .transpose()?,
            master_port: port.transpose()?.map(|port| port as u16),
            is_standalone,
            conf: conf.parse(parse_conf)?,
        })
    }

    /// Whether the line says where the first node is.
    fn has_address(&self) -> bool {
        self.endpoint.is_some() || self.master_addr.is_some()
    }

    /// Whether the nodes of the line have numbers, and meet at an address.
    fn has_numbers(&self) -> bool {
        self.backend == RendezvousBackend::Static && self.has_address()
    }

    /// Address of rank 0, if the line says one that the job uses.
    fn address(&self) -> Option<&str> {
        match self.backend {
            _ if self.is_standalone => None,
            RendezvousBackend::Static => {
                let endpoint = self.endpoint.as_ref().map(|endpoint| endpoint.host.as_str());
                endpoint.or(self.master_addr.as_deref())
            }
            RendezvousBackend::C10d => None,
        }
    }

    /// The run id of a line without one. As under torchrun, a node that meets no other one has an id of its own.
    fn run_id(&self, nodes: &Nodes) -> Option<&'static str> {
        let is_static = self.backend == RendezvousBackend::Static;
        let has_place = self.endpoint.is_some() || self.master_port.is_some() || !is_static;
        match nodes {
            Nodes::Here if self.is_standalone || !has_place => None,
            Nodes::Here | Nodes::Hosts { .. } | Nodes::OneByOne(..) => Some(USUAL_RUN_ID),
        }
    }

    /// Returns the options that have no effect if one command starts all nodes.
    fn unused_with_hosts(&self) -> &'static [&'static str] {
        match self.backend {
            RendezvousBackend::Static => &["node-rank", "local-addr", "key-file"],
            RendezvousBackend::C10d => {
                &["node-rank", "local-addr", "key-file", "rdzv-endpoint", "master-addr"]
            }
        }
    }

    /// Port of rank 0. A job on one machine has a port of its own unless the line says one, so that
    /// two jobs do not collide.
    fn port(&self, nodes: &Nodes) -> RendezvousPort {
        let endpoint = self.endpoint.as_ref().and_then(|endpoint| endpoint.port);
        let given = endpoint.or(self.master_port).filter(|port| *port != 0);
        match (nodes, self.backend) {
            _ if self.is_standalone => RendezvousPort::Free,
            (Nodes::OneByOne(one, _), _) => {
                one.ports.master().map_or(RendezvousPort::Free, RendezvousPort::Given)
            }
            (Nodes::Here | Nodes::Hosts { .. }, RendezvousBackend::C10d) => RendezvousPort::Free,
            (Nodes::Here, RendezvousBackend::Static) => {
                given.map_or(RendezvousPort::Free, RendezvousPort::Given)
            }
            (Nodes::Hosts { .. }, RendezvousBackend::Static) => RendezvousPort::or_usual(given),
        }
    }
}

/// How the nodes of the job are started.
fn nodes(
    (args, values): (&TorchrunArgs, Values<'_>),
    rendezvous: &Rendezvous,
    workers: Option<usize>,
    terminal: Terminal,
) -> Result<Nodes, CliError> {
    let value = values.text("nnodes", args.size.nnodes.as_deref(), "1");
    let count = value.parse(parse_nnodes)?;
    let node_rank = values.number("node-rank", args.rendezvous.node_rank.as_deref());
    let any = i64::from(i32::MIN)..=i64::from(i32::MAX);
    node_rank.as_ref().map(|rank| rank.parse(|text| parse_whole(text, any))).transpose()?;
    if count.varies() && !rendezvous.is_standalone {
        refuse_fixed_nodes(args, values, rendezvous)?;
    }
    let (size, count) = (count, count.max);
    if let Some(hostfile) = &args.size.hostfile {
        return Ok(Nodes::Hosts {
            count: value.is_given().then_some(size),
            hosts: hosts(hostfile, workers),
            launcher: args.size.launcher.clone(),
        });
    }
    if 1 < count && !rendezvous.is_standalone && !rendezvous.has_address() && node_rank.is_none() {
        let found = resolve::allocated_nodes(terminal)?;
        let found = found.map(|found| of_allocation(found, (args, values.typed), size, workers));
        if let Some(nodes) = found.transpose()?.flatten() {
            return Ok(nodes);
        }
    }
    let of_hosts = args.size.launcher.as_ref().map(|_| "launcher").or(remote_flag(values.typed));
    if let Some(flag) = of_hosts {
        return Err(needs_other(values.typed, flag, "hostfile").into());
    }
    if count == 1 || rendezvous.is_standalone {
        return Ok(Nodes::Here);
    }
    let number = node_rank.map(|rank| rank.parse(|text| parse_whole(text, 0..=count as i64 - 1)));
    let number = number.transpose()?.map(|number| NodeRank(number as u32));
    let is_open = number.is_none() && rendezvous.has_numbers();
    let found = is_open.then(|| number_of_own_task(values.typed, OPTIONS, count)).transpose()?;
    let (number, note) = match found {
        Some(found) => (Some(found.number), found.note),
        None => (number, None),
    };
    let node = one_by_one((args, values), rendezvous, size, number)?;
    let address = resolve::meeting_address(&node.address);
    // All tasks would print the same.
    let is_first = resolve::own_task().is_none_or(|task| task.number == NodeRank(0));
    let notes = note.into_iter().chain(address.note.filter(|_| is_first));
    let notes = Some(notes.collect::<String>()).filter(|notes| !notes.is_empty());
    Ok(Nodes::OneByOne(OneByOne { address: address.text, ..node }, notes))
}

/// Refuses a varying number of nodes where all nodes are known from the beginning.
fn refuse_fixed_nodes(
    args: &TorchrunArgs,
    values: Values<'_>,
    rendezvous: &Rendezvous,
) -> Result<(), CliError> {
    if args.size.hostfile.is_some() || rendezvous.backend == RendezvousBackend::C10d {
        return Ok(());
    }
    let master = rendezvous.master_addr.as_deref().unwrap_or("HOST");
    let host = rendezvous.endpoint.is_none().then_some(master);
    // A backend that was typed is not repeated.
    let line = c10d_line(args, values.typed, &["rdzv-backend"], host);
    let help = format!("type on every node: `{line}`");
    let refused = values.typed.refuse(&[values.typed.value_or_end("nnodes")], |spans| {
        let message = "a varying number of nodes needs a c10d rendezvous, or -H hosts";
        Diagnostic::error(codes::CANNOT_COMBINE, spans[0], message)
            .label("a varying number")
            .help(help)
    });
    Err(refused.into())
}

/// Returns the node that a line with an address starts; `number` is its `--node-rank`.
fn one_by_one(
    (args, values): (&TorchrunArgs, Values<'_>),
    rendezvous: &Rendezvous,
    count: NodeCount,
    number: Option<NodeRank>,
) -> Result<OneByOne, CliError> {
    let (address, port) = match (&rendezvous.endpoint, rendezvous.backend) {
        (Some(endpoint), backend) => {
            let port = match endpoint.port {
                // Other nodes must know the port.
                Some(0) => PortClaim::any().map_or(0, |claim| claim.port()),
                given => given.unwrap_or(backend.usual_port()),
            };
            (endpoint.host.clone(), port)
        }
        (None, RendezvousBackend::Static) => {
            let address = rendezvous.master_addr.clone();
            let port = rendezvous.master_port.filter(|port| *port != 0);
            (address.unwrap_or_default(), port.unwrap_or(MASTER_PORT))
        }
        (None, RendezvousBackend::C10d) => (String::new(), 0),
    };
    if address.is_empty() {
        return Err(no_address(values.typed, rendezvous.backend));
    }
    let key_file = args.rendezvous.key_file.clone();
    let key_file = key_file.or_else(|| env_vars::get(env_vars::REMUDA_KEY_FILE).map(PathBuf::from));
    let (place, ports) = match rendezvous.backend {
        RendezvousBackend::Static => {
            (NodePlace::Number(number.unwrap_or_default()), NodePorts::Apart(port))
        }
        RendezvousBackend::C10d => {
            // As under torchrun, the endpoint decides which node is the first; every line of a batch script may
            // have number 0.
            let number = number.filter(|number| *number != NodeRank(0));
            let place = number.map_or(rendezvous.conf.place(), NodePlace::Number);
            (place, NodePorts::Agents(port))
        }
    };
    let id = values.text("rdzv-id", args.rendezvous.rdzv_id.as_deref(), USUAL_RUN_ID);
    Ok(OneByOne {
        place,
        count: count.max,
        elastic: count.varies().then(|| rendezvous.conf.elastic(count)),
        address,
        ports,
        key_file,
        run_id: id.parse(run_id)?,
        local_addr: args.rendezvous.local_addr.clone().filter(|addr| !addr.is_empty()),
        join_limit: rendezvous.conf.join_limit.map(std::time::Duration::from_secs_f64),
        is_task: false,
    })
}

/// Returns the nodes that a scheduler gave to this process; `None` if the line says how else to start them.
fn of_allocation(
    found: AllocatedNodes,
    (args, typed): (&TorchrunArgs, &CommandLine),
    count: NodeCount,
    workers: Option<usize>,
) -> Result<Option<Nodes>, CliError> {
    Ok(match found {
        AllocatedNodes::Task { .. } if args.size.launcher.is_some() => None,
        AllocatedNodes::Task { node, note, .. } if node.count == count.max => {
            let typed_key = args.rendezvous.key_file.clone();
            let key_file = typed_key.or_else(|| node.key_file.clone());
            Some(Nodes::OneByOne(OneByOne { key_file, ..node }, note))
        }
        AllocatedNodes::Task { .. } if count.varies() => None,
        AllocatedNodes::Task { node, tasks, .. } => {
            let line = (OPTIONS.count, count.max);
            return Err(other_number(typed, line, (&tasks, node.count), "").into());
        }
        AllocatedNodes::Hosts { names, launcher } => {
            let workers = workers.unwrap_or(1);
            let hosts: Vec<String> = names.iter().map(|name| format!("{name}:{workers}")).collect();
            Some(Nodes::Hosts {
                count: Some(NodeCount { min: count.max, max: count.max }),
                hosts: hosts.join(",").into(),
                launcher: args.size.launcher.clone().or(launcher.map(str::to_owned)),
            })
        }
    })
}

/// The options of `remuda run` of a line that was made for it.
fn parse_run_line(
    line: Vec<OsString>,
    typed: &CommandLine,
    workers: Option<usize>,
) -> Result<RunArgs, CliError> {
    let origin = LineOrigin::translated(typed, NAMES_IN_RUN, None);
    let (mut run_args, _) = run::parse_made(CommandLine::made(&typed.program, line, origin))?;
    // As without `-H`, a node has one worker if neither the line nor its host says another number.
    run_args.cluster.slots_of_list = SlotCount::new(1).filter(|_| workers.is_none());
    Ok(run_args)
}

/// The words of `remuda run` for the same job.
fn run_line(
    args: &TorchrunArgs,
    values: Values<'_>,
    launcher: TorchLauncher,
    (nodes, workers): (&Nodes, Option<usize>),
) -> Result<Vec<OsString>, CliError> {
    let mut line: Vec<OsString> = vec!["--accelerator=cpu".into(), "--prefix=".into()];
    if let Nodes::Hosts { count, hosts, launcher } = nodes {
        line.extend(["--hostfile".into(), hosts.clone()]);
        line.extend(launcher.as_ref().map(|name| format!("--launcher={name}").into()));
        line.extend(count.map(|count| format!("--num_nodes={}", count.max).into()));
        let varying = count.filter(|count| count.varies());
        line.extend(varying.map(|count| format!("--min_nodes={}", count.min).into()));
        let of_workers =
            workers.map(|workers| [format!("--slots={workers}"), format!("--num_gpus={workers}")]);
        line.extend(of_workers.into_iter().flatten().map(OsString::from));
    }
    line.extend(remote_words(values.typed));
    let restarts = values.text("max-restarts", args.watch.max_restarts.as_deref(), "0");
    let restarts = restarts.parse(|text| parse_whole(text, 0..=RESTARTS_MAX))?;
    line.push(format!("--max_restarts={restarts}").into());
    line.push(format!("--grace={}", grace(args, values)?).into());
    for (flag, is_given) in [("--dry-run", args.watch.dry_run), ("--json", args.watch.json)] {
        line.extend(is_given.then(|| OsString::from(flag)));
    }
    let program = &args.program;
    // `--run-path` outranks the two other ways to run a script.
    let runs_path = values.switch("run-path", program.run_path)?;
    let is_module = values.switch("module", program.module)? && !runs_path;
    let no_python = values.switch("no-python", program.no_python)? && !runs_path;
    let use_env = launcher == TorchLauncher::Torchrun || program.use_env;
    check_program(values.typed, is_module, no_python)?;
    if no_python && !use_env {
        return Err(needs_use_env(values.typed).into());
    }
    if !is_module && !no_python {
        let for_programs: &[&str] =
            if use_env { &["no-python"] } else { &["no-python", "use-env"] };
        check::python_script(&program.script_and_args, values.typed, for_programs)?;
    }
    line.extend(is_module.then(|| OsString::from("--module")));
    line.extend(no_python.then(|| OsString::from("--no_python")));
    line.extend(use_env.then(|| OsString::from("--no_local_rank")));
    let backend = program.torch_backend.map(TorchBackendArg::name);
    line.extend(backend.map(|name| format!("--torch_backend={name}").into()));
    line.push("--".into());
    line.extend_from_slice(&program.script_and_args);
    Ok(line)
}

/// The value of `-H`. The name of one host is a list here: it needs no slots, because
/// `--nproc-per-node` gives their number.
fn hosts(typed: &OsStr, workers: Option<usize>) -> OsString {
    let name = typed.to_str().filter(|name| HostName::parse(name).is_ok());
    match name.map(Path::new).filter(|path| !path.exists() && !is_meant_as_file(path)) {
        Some(name) => format!("{}:{}", name.display(), workers.unwrap_or(1)).into(),
        None => typed.to_owned(),
    }
}

/// Time between the request to stop and SIGKILL, as `remuda run` reads it.
fn grace(args: &TorchrunArgs, values: Values<'_>) -> Result<String, CliError> {
    let typed = args.watch.shutdown_timeout.as_deref();
    let variable = env_vars::TORCH_ELASTIC_SHUTDOWN_TIMEOUT;
    let value = values.text_or_variable("shutdown-timeout", typed, variable, "30");
    let seconds = value.parse(|text| {
        let seconds = text.trim().parse::<f64>().ok();
        let seconds = seconds.filter(|seconds| (0.0..=86_400.0).contains(seconds));
        seconds.ok_or_else(|| BadValue::new("expected a number of seconds"))
    })?;
    Ok(format!("{}ms", (seconds * 1000.0) as u64))
}

/// The error for a program in the place of a script, which would get the option of scripts.
fn needs_use_env(typed: &CommandLine) -> RefusedLine {
    typed.refuse(&[typed.name_or_end("no-python")], |spans| {
        let (no_python, use_env) = (typed.option_name("no-python"), typed.option_name("use-env"));
        Diagnostic::error(codes::NEEDS_OTHER, spans[0], format!("`{no_python}` needs `{use_env}`"))
            .label("the program would get `--local-rank=N`")
            .help(format!("add `{use_env}`: programs read their local rank from LOCAL_RANK"))
    })
}

fn check_program(typed: &CommandLine, is_module: bool, no_python: bool) -> Result<(), CliError> {
    if is_module && no_python {
        let why = "a module needs Python";
        return Err(crate::cli::line::cannot_combine(typed, "module", "no-python", why).into());
    }
    Ok(())
}
