//! `remuda launch`: finds the node of the world info that is this machine.

use crate::base::{Diagnostic, HostName, NodeRank, Slot, Status, show_typed};
use crate::cli::args::NodeArgs;
use crate::cli::error::CliError;
use crate::cli::line::{CommandLine, RefusedLine};
use crate::cli::resolve::cluster::{ClusterOrigin, ResolvedCluster, StartedNodes};
use crate::cli::resolve::devices::{JobDevices, accelerator, check_devices};
use crate::cli::resolve::master::MasterOptions;
use crate::cli::resolve::no_ssh;
use crate::cli::resolve::trust::Trust;
use crate::launch::{ContinueWith, SupervisorOptions, Transport};
use crate::os::machine::machine_name;
use crate::pool::{codes, read_world};
use crate::report::text::show_count;

/// Resolves hosts and slots of the job, and the node that is started here.
pub(in crate::cli) fn node_of_world(
    args: &NodeArgs,
    typed: &CommandLine,
) -> Result<ResolvedCluster, CliError> {
    let nodes = read_world(&args.world_info)
        .map_err(|found| CliError::Findings { status: Status::BadInput, findings: vec![found] })?;
    let node = match args.node_rank {
        Some(rank) => no_ssh::check_node_rank(typed, rank, nodes.len())?,
        None => own_node(&nodes, &machine_name(), typed)?,
    };
    let accelerator = accelerator(&args.devices)?;
    check_devices(&args.devices, &nodes[node.index()..=node.index()], accelerator)?;
    let given = args.master_addr.as_deref().filter(|address| !address.is_empty());
    Ok(ResolvedCluster {
        continue_with: ContinueWith::Nothing,
        devices: JobDevices::new(&args.devices, accelerator, Vec::new())?,
        master: MasterOptions::of_separate_nodes(given, args.master_port, &nodes),
        started: StartedNodes::Separate(node),
        origin: ClusterOrigin {
            text: format!("world info, {}", show_count(nodes.len(), "node")),
            hostfile: None,
            trust: Trust::of(args.allow_insecure_files),
        },
        warnings: no_ssh::name_warning(node, &nodes),
        transport: Transport::Local,
        elastic: None,
        supervisor: SupervisorOptions::default(),
        nodes,
    })
}

/// Returns the only node, or the one with the name of this machine.
fn own_node(
    nodes: &[(HostName, Vec<Slot>)],
    own: &str,
    typed: &CommandLine,
) -> Result<NodeRank, RefusedLine> {
    if let [_] = nodes {
        return Ok(NodeRank(0));
    }
    no_ssh::node_named(own, nodes).ok_or_else(|| {
        typed.refuse(&[typed.end_span()], |spans| {
            let message = format!("this host (`{}`) is not in `--world_info`", show_typed(own));
            let (first, last) = (&nodes[0].0, &nodes[nodes.len() - 1].0);
            Diagnostic::error(codes::HOST_NOT_IN_WORLD, spans[0], message)
                .label("expected `--node_rank`")
                .help(format!(
                    "`--node_rank 0` is `{first}`, `--node_rank {}` is `{last}`",
                    nodes.len() - 1
                ))
        })
    })
}
