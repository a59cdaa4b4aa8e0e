//! Findings about host names that do not resolve to the same machine on all nodes.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::base::{HostName, NodeRank, Severity};
use crate::doctor::codes;
use crate::doctor::facts::{ClusterFacts, Finding};
use crate::doctor::judge::outliers::outliers;
use crate::pool::nodeset::fold;
use crate::wire::ListenerOwner;

/// Result of resolving a host name on a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum LookupProblem {
    Unresolved,
    OtherMachine,
}

/// Compares the lookups of each name; a name that no node resolves, because only ssh knows it, is
/// no problem.
pub(super) fn findings(cluster: &ClusterFacts) -> Vec<Finding> {
    let mut odd: BTreeMap<(NodeRank, LookupProblem), Vec<(&HostName, String)>> = BTreeMap::new();
    for host in (0..cluster.nodes.len() as u32).map(NodeRank) {
        for (node, there, usual) in differing_lookups(cluster, host) {
            let found = if there.is_empty() {
                LookupProblem::Unresolved
            } else {
                LookupProblem::OtherMachine
            };
            let detail = format!("{} there, {} elsewhere", show(there), show(usual));
            odd.entry((node, found)).or_default().push((cluster.host(host), detail));
        }
    }
    odd.into_iter().map(|((node, found), hosts)| finding(node, found, &hosts)).collect()
}

/// Nodes on which the name of a host resolves to other addresses than on most: node, its addresses,
/// the usual addresses.
fn differing_lookups(
    cluster: &ClusterFacts,
    host: NodeRank,
) -> Vec<(NodeRank, &[IpAddr], &[IpAddr])> {
    let lookups = cluster.examined_nodes().filter_map(|(node, _, examined)| {
        let mut dialed = examined.probes.iter().flatten();
        let of_host = dialed.find(|dialed| dialed.owner == ListenerOwner::Node(host))?;
        Some((node, of_host.resolved.as_deref()?))
    });
    let lookups: Vec<_> = lookups.collect();
    let Some((usual, odd)) = outliers(&lookups) else { return Vec::new() };
    let differs =
        |there: &[IpAddr]| !usual.is_empty() && !there.iter().any(|one| usual.contains(one));
    let odd = odd.into_iter().filter(|(_, there)| differs(there));
    odd.map(|(node, there)| (node, there, usual)).collect()
}

fn finding(node: NodeRank, found: LookupProblem, hosts: &[(&HostName, String)]) -> Finding {
    let names = fold(hosts.iter().map(|(host, _)| host.as_str()));
    let message = match found {
        LookupProblem::Unresolved => format!("`{names}` does not resolve there"),
        LookupProblem::OtherMachine => format!("`{names}` resolves to another machine there"),
    };
    let (first, detail) = &hosts[0];
    Finding::new(codes::OTHER_NAME, Severity::Warning, node, message)
        .detail(format!("{first}: {detail}"))
        .help(format!(
            "compare `getent ahosts {first}` with other hosts; see /etc/hosts and the search list"
        ))
}

fn show(addresses: &[IpAddr]) -> String {
    if addresses.is_empty() {
        return "none".to_owned();
    }
    addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, cluster, examined_mut};
    use super::*;
    use crate::wire::ProbeResult;

    /// Checks four hosts; `resolved` gives the last bytes of the addresses that one finds for
    /// another.
    #[track_caller]
    fn check_names(resolved: impl Fn(usize, usize) -> Vec<u8>, expect: &[&str]) {
        let mut one = cluster(4);
        for dialer in 0..4 {
            let others = (0..4).filter(|host| *host != dialer);
            let dialed = others.map(|host| ProbeResult {
                owner: ListenerOwner::Node(NodeRank(host as u32)),
                outcome: Ok(90),
                resolved: Some(
                    resolved(dialer, host)
                        .into_iter()
                        .map(|last| [10, 0, 0, last].into())
                        .collect(),
                ),
            });
            examined_mut(&mut one, dialer).probes = Some(dialed.collect());
        }
        check(&one, expect);
    }

    #[test]
    fn doctor_reports_nodes_that_resolve_a_name_differently() {
        check_names(|_, host| vec![host as u8], &[]);
        check_names(|_, _| Vec::new(), &[]);
        // A machine with two addresses, either of which a resolver may return first.
        check_names(
            |dialer, host| if dialer == 1 { vec![host as u8, 9] } else { vec![host as u8] },
            &[],
        );
        check_names(
            |dialer, host| vec![if (dialer, host) == (1, 2) { 99 } else { host as u8 }],
            &["warning[D037] n2: `n3` resolves to another machine there"],
        );
        check_names(
            |dialer, host| if dialer == 3 { Vec::new() } else { vec![host as u8] },
            &["warning[D037] n4: `n[1-3]` does not resolve there"],
        );
    }
}
