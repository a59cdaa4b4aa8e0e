//! Findings about connections between nodes: addresses, test listeners, the master port,
//! interfaces.

use std::collections::BTreeMap;

use super::compute::speed_outliers;
use crate::base::{NodeRank, Severity};
use crate::doctor::codes;
use crate::doctor::facts::{ClusterFacts, ExaminedNode, Finding, MasterPort};
use crate::wire::{ListenerOwner, ProbeFault};

const FIREWALL: &str = "open all ports between the nodes: NCCL and the store use any of them";

pub(super) fn findings(cluster: &ClusterFacts) -> Vec<Finding> {
    let mut found = Vec::new();
    for (rank, _, examined) in cluster.examined_nodes() {
        found.extend(no_address(rank, examined));
        found.extend(adapters(rank, examined));
    }
    found.extend(master_port(cluster));
    let probes = probes(cluster);
    found.extend(attribute_failures(cluster, &probes));
    found.extend(speed_outliers(cluster));
    found
}

fn no_address(rank: NodeRank, examined: &ExaminedNode) -> Option<Finding> {
    let problem = examined.report.network.listener.as_ref().err()?;
    let finding = Finding::new(codes::NO_ADDRESS, Severity::Error, rank, problem.message.clone());
    Some(match &problem.help {
        Some(help) => finding.help(help.clone()),
        None => finding,
    })
}

fn adapters(rank: NodeRank, examined: &ExaminedNode) -> Option<Finding> {
    let adapters = &examined.report.network.adapters;
    let down: Vec<_> = adapters.iter().filter(|one| one.state != "ACTIVE").collect();
    // An unused second port is common; an adapter without any active port is not.
    let has_no_link = !down.is_empty() && down.len() == adapters.len();
    has_no_link.then(|| {
        let states: Vec<_> =
            down.iter().map(|one| format!("{} is {}", one.name, one.state)).collect();
        let message = "no port of its InfiniBand adapters is active";
        Finding::new(codes::ADAPTER_DOWN, Severity::Warning, rank, message)
            .detail(states.join(", "))
            .help("see `ibstat` there: cable, subnet manager")
    })
}

fn master_port(cluster: &ClusterFacts) -> Option<Finding> {
    let (rank, _, examined) =
        cluster.examined_nodes().next().filter(|(rank, ..)| *rank == NodeRank(0))?;
    let master = examined.report.network.master.as_ref()?;
    match (master, cluster.port) {
        // The missing address is reported by `no_address`.
        (Err(_), _) if examined.report.network.listener.is_err() => None,
        (Err(problem), _) => {
            let finding =
                Finding::new(codes::PORT_TAKEN, Severity::Error, rank, problem.message.clone());
            Some(finding.help(problem.help.clone().unwrap_or_default()))
        }
        (Ok(address), MasterPort::Preferred(port)) if address.port() != port => Some(
            Finding::new(
                codes::PORT_TAKEN,
                Severity::Note,
                rank,
                format!("port {port} is in use: a job would use another one"),
            )
            .help(
                "another job, or a process that an earlier job left, uses the port; on that host, type \
                 `ss -ltnp`",
            ),
        ),
        (Ok(_), _) => None,
    }
}

/// Results of the test connections, by connecting node and target; `None`: connected.
type Probes<'a> = BTreeMap<(NodeRank, ProbeTarget), Option<&'a ProbeFault>>;

/// Target of a test connection: listener of a node, or master port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ProbeTarget {
    Node(NodeRank),
    Master,
}

fn probes(cluster: &ClusterFacts) -> Probes<'_> {
    let mut probes = Probes::new();
    for (rank, _, examined) in cluster.examined_nodes() {
        for dialed in examined.probes.iter().flatten() {
            let side = match dialed.owner {
                ListenerOwner::Node(node) => ProbeTarget::Node(node),
                ListenerOwner::Master => ProbeTarget::Master,
            };
            probes.insert((rank, side), dialed.outcome.as_ref().err());
        }
    }
    probes
}

/// Attributes failed connections: if most connections to a node fail, to that node; if most
/// connections from a node fail, to that node; any other failure to the pair of nodes.
fn attribute_failures(cluster: &ClusterFacts, probes: &Probes<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    let ranks = || (0..cluster.nodes.len() as u32).map(NodeRank);
    let mut unreached: Vec<NodeRank> = Vec::new();
    for target in ranks() {
        let to_target: Vec<_> = probes_of(probes, ProbeTarget::Node(target), target).collect();
        if let Some(fault) = most_failed(&to_target) {
            unreached.push(target);
            let message = format!("the other nodes cannot connect to it: {}", show(fault));
            let finding = Finding::new(codes::NOT_REACHED, Severity::Error, target, message);
            found.push(finding.detail(address_of(cluster, target)).help(FIREWALL));
        }
    }
    let mut isolated: Vec<NodeRank> = Vec::new();
    for dialer in ranks() {
        let of_dialer: Vec<_> = probes
            .iter()
            .filter(|((from, side), _)| {
                *from == dialer
                    && matches!(side, ProbeTarget::Node(node) if *node != dialer && !unreached.contains(node))
            })
            .map(|(_, fault)| *fault)
            .collect();
        if let Some(fault) = most_failed(&of_dialer) {
            isolated.push(dialer);
            let message = format!("cannot connect to the other nodes: {}", show(fault));
            let finding = Finding::new(codes::CANNOT_CONNECT, Severity::Error, dialer, message);
            found.push(finding.help(FIREWALL));
        }
    }
    for ((dialer, side), fault) in probes {
        let (Some(fault), ProbeTarget::Node(target)) = (fault, side) else { continue };
        if unreached.contains(target) || isolated.contains(dialer) {
            continue;
        }
        let message = format!("cannot connect to {}: {}", cluster.host(*target), show(fault));
        let finding = Finding::new(codes::CANNOT_CONNECT, Severity::Error, *dialer, message);
        found.push(finding.detail(address_of(cluster, *target)).help(FIREWALL));
    }
    found.extend(master_port_failures(cluster, probes, &unreached, &isolated));
    found
}

/// Findings for nodes that can connect to node 0, but not to the port of rank 0.
fn master_port_failures(
    cluster: &ClusterFacts,
    probes: &Probes<'_>,
    unreached: &[NodeRank],
    isolated: &[NodeRank],
) -> Vec<Finding> {
    if unreached.contains(&NodeRank(0)) {
        return Vec::new();
    }
    let reaches_node = |dialer: NodeRank| {
        !matches!(probes.get(&(dialer, ProbeTarget::Node(NodeRank(0)))), Some(Some(_)))
    };
    let of_master = probes.iter().filter(|((_, side), _)| *side == ProbeTarget::Master);
    let failed = of_master.filter_map(|((dialer, _), fault)| Some((*dialer, (*fault)?)));
    let reported = failed.filter(|(dialer, _)| !isolated.contains(dialer) && reaches_node(*dialer));
    let finding = |(dialer, fault): (NodeRank, &ProbeFault)| {
        let message = format!("cannot connect to the port of rank 0: {}", show(fault));
        let finding = Finding::new(codes::NO_MASTER, Severity::Error, dialer, message);
        finding.detail(master_address(cluster)).help(FIREWALL)
    };
    reported.map(finding).collect()
}

fn probes_of<'a>(
    probes: &'a Probes<'_>,
    target: ProbeTarget,
    owner: NodeRank,
) -> impl Iterator<Item = Option<&'a ProbeFault>> {
    let is_at = move |(from, side): &(NodeRank, ProbeTarget)| *side == target && *from != owner;
    probes.iter().filter(move |(probe, _)| is_at(probe)).map(|(_, fault)| *fault)
}

/// The first fault, if at least two and more than half of the connections failed.
fn most_failed<'a>(probes: &[Option<&'a ProbeFault>]) -> Option<&'a ProbeFault> {
    let mut faults = probes.iter().filter_map(|fault| *fault);
    let failed = faults.clone().count();
    faults.next().filter(|_| 2 <= failed && probes.len() < 2 * failed)
}

fn show(fault: &ProbeFault) -> &str {
    match fault {
        ProbeFault::NoAnswer => "no answer",
        ProbeFault::Refused => "connection refused; a filter may reject it",
        ProbeFault::NoRoute => "no route to its address",
        ProbeFault::WrongPeer => "another process answers at its address",
        ProbeFault::Other(why) => why,
    }
}

fn address_of(cluster: &ClusterFacts, node: NodeRank) -> String {
    let mut nodes = cluster.examined_nodes();
    let examined = nodes.find(|(rank, ..)| *rank == node).map(|(.., examined)| examined);
    match examined.map(|examined| &examined.report.network.listener) {
        Some(Ok(address)) => format!("at {}", address.ip()),
        Some(Err(_)) | None => "at an unknown address".to_owned(),
    }
}

fn master_address(cluster: &ClusterFacts) -> String {
    let mut nodes = cluster.examined_nodes();
    let master = nodes.next().and_then(|(.., examined)| examined.report.network.master.as_ref());
    match master {
        Some(Ok(address)) => format!("at {address}"),
        Some(Err(_)) | None => "at an unknown address".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, cluster, examined_mut};
    use super::*;
    use crate::base::Status;
    use crate::wire::{ProbeResult, Problem};

    /// Nodes that all connect to each other; the connections that `shut` selects get no answer.
    fn with_shut(nodes: usize, shut: impl Fn(usize, usize) -> bool) -> ClusterFacts {
        let mut one = cluster(nodes);
        for dialer in 0..nodes {
            let others = (0..nodes).filter(|target| *target != dialer);
            let dialed = others.map(|target| ProbeResult {
                owner: ListenerOwner::Node(NodeRank(target as u32)),
                outcome: if shut(dialer, target) { Err(ProbeFault::NoAnswer) } else { Ok(90) },
                resolved: None,
            });
            examined_mut(&mut one, dialer).probes = Some(dialed.collect());
        }
        one
    }

    #[test]
    fn doctor_blames_the_node_with_failed_connections() {
        check(&with_shut(4, |_, _| false), &[]);
        check(
            &with_shut(4, |_, target| target == 2),
            &["error[D031] n3: the other nodes cannot connect to it: no answer"],
        );
        check(
            &with_shut(4, |dialer, _| dialer == 2),
            &["error[D030] n3: cannot connect to the other nodes: no answer"],
        );
        check(
            &with_shut(4, |dialer, target| dialer == 2 || target == 2),
            &[
                "error[D030] n3: cannot connect to the other nodes: no answer",
                "error[D031] n3: the other nodes cannot connect to it: no answer",
            ],
        );
        check(
            &with_shut(4, |dialer, target| (dialer, target) == (1, 3)),
            &["error[D030] n2: cannot connect to n4: no answer"],
        );
        check(
            &with_shut(2, |_, _| true),
            &[
                "error[D030] n1: cannot connect to n2: no answer",
                "error[D030] n2: cannot connect to n1: no answer",
            ],
        );
    }

    #[test]
    fn doctor_reports_an_unreachable_master_port() {
        let mut one = with_shut(3, |_, _| false);
        let shut = ProbeResult {
            owner: ListenerOwner::Master,
            outcome: Err(ProbeFault::Refused),
            resolved: None,
        };
        examined_mut(&mut one, 1).probes.as_mut().expect("set").push(shut);
        let why = "connection refused; a filter may reject it";
        check(&one, &[&format!("error[D032] n2: cannot connect to the port of rank 0: {why}")]);
    }

    #[test]
    fn master_port_in_use_is_an_error_if_requested() {
        let mut one = cluster(2);
        let address = |port: u16| Some(Ok(([10, 0, 0, 1], port).into()));
        examined_mut(&mut one, 0).report.network.master = address(29500);
        check(&one, &[]);
        examined_mut(&mut one, 0).report.network.master = address(40001);
        check(&one, &["note[D029] n1: port 29500 is in use: a job would use another one"]);
        one.port = MasterPort::Exact(29500);
        let problem = Problem::new(Status::Config, "port 29500 of rank 0 is in use");
        examined_mut(&mut one, 0).report.network.master = Some(Err(problem));
        check(&one, &["error[D029] n1: port 29500 of rank 0 is in use"]);
    }

    #[test]
    fn doctor_reports_missing_address_and_inactive_adapters() {
        let mut one = cluster(2);
        let problem = Problem::new(Status::Config, "no address is known");
        examined_mut(&mut one, 1).report.network.listener = Err(problem);
        check(&one, &["error[D036] n2: no address is known"]);
        let mut one = cluster(2);
        let adapter = |state: &str| crate::wire::Adapter {
            name: "mlx5_0/1".to_owned(),
            state: state.to_owned(),
            rate: String::new(),
        };
        examined_mut(&mut one, 1).report.network.adapters =
            vec![adapter("DOWN"), adapter("ACTIVE")];
        check(&one, &[]);
        examined_mut(&mut one, 1).report.network.adapters.pop();
        check(&one, &["warning[D034] n2: no port of its InfiniBand adapters is active"]);
    }
}
