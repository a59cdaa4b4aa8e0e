//! `--no_ssh`: one node of a job; its other nodes are started separately.

use crate::base::{Diagnostic, HostName, NodeRank, Slot};
use crate::cli::args::TransportArgs;
use crate::cli::line::{CommandLine, RefusedLine, codes, needs_other};
use crate::os::machine::machine_name;
use crate::plan::MASTER_PORT;

/// Returns the number of the node that is started here with `--no_ssh`.
pub(super) fn started_node(
    args: &TransportArgs,
    typed: &CommandLine,
    nodes: usize,
) -> Result<Option<NodeRank>, RefusedLine> {
    let node_rank = args.node_rank.filter(|rank| *rank != -1);
    match (args.no_ssh, node_rank) {
        (false, None) => Ok(None),
        (false, Some(_)) => Err(needs_other(typed, "node_rank", "no_ssh")),
        (true, Some(rank)) => check_node_rank(typed, rank, nodes).map(Some),
        // The default of DeepSpeed, -1, may be typed.
        (true, None) => Err(bad_node_rank(typed, args.node_rank, nodes)),
    }
}

/// Checks that the number of a node is less than the number of nodes.
pub(super) fn check_node_rank(
    typed: &CommandLine,
    rank: i64,
    nodes: usize,
) -> Result<NodeRank, RefusedLine> {
    match u32::try_from(rank) {
        Ok(found) if (found as usize) < nodes => Ok(NodeRank(found)),
        _ => Err(bad_node_rank(typed, Some(rank), nodes)),
    }
}

fn bad_node_rank(typed: &CommandLine, found: Option<i64>, nodes: usize) -> RefusedLine {
    let last = nodes - 1;
    let which = match found {
        Some(_) => typed.value_span("node_rank"),
        None => typed.name_span("no_ssh"),
    };
    let (range, with) = if last == 0 {
        ("0".to_owned(), "1 node".to_owned())
    } else {
        (format!("0 to {last}"), format!("{nodes} nodes"))
    };
    typed.refuse(&[which.unwrap_or_else(|| typed.end_span())], |spans| {
        let (code, message) = match found {
            Some(rank) => (codes::BAD_VALUE, format!("`--node_rank` cannot be `{rank}`")),
            None => (codes::NEEDS_OTHER, "`--no_ssh` needs `--node_rank`".to_owned()),
        };
        Diagnostic::error(code, spans[0], message)
            .label(format!("expected {range} for {with}"))
            .help("run the same command line on every node, each with its own `--node_rank`")
    })
}

/// Returns address and port of rank 0 of a job with several nodes.
pub(super) fn rendezvous<'a>(
    args: &'a TransportArgs,
    nodes: &'a [(HostName, Vec<Slot>)],
) -> (&'a str, u16) {
    let address = args.master_addr().unwrap_or_else(|| nodes[0].0.as_str());
    (address, args.master_port.unwrap_or(MASTER_PORT))
}

/// Returns a warning if this machine has the name of another node.
pub(super) fn name_warning(node: NodeRank, nodes: &[(HostName, Vec<Slot>)]) -> String {
    let own = machine_name();
    let Some(other) = node_named(&own, nodes).filter(|other| *other != node) else {
        return String::new();
    };
    format!(
        "warning: this machine has the name `{}` of node {other}, but --node_rank is {node}\n",
        nodes[other.index()].0
    )
}

/// Returns the node with this name, with or without its domain.
pub(super) fn node_named(own: &str, nodes: &[(HostName, Vec<Slot>)]) -> Option<NodeRank> {
    let place = nodes.iter().position(|(host, _)| has_name(own, host));
    place.map(|node| NodeRank(node as u32))
}

/// Whether a host is the machine with this name, with or without its domain.
pub(super) fn has_name(own: &str, host: &HostName) -> bool {
    let own = own.to_ascii_lowercase();
    let short = own.split('.').next().unwrap_or_default();
    [own.as_str(), short].contains(&&*host.canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_is_found_by_machine_name() {
        let host = |name| (HostName::parse(name).expect("a name"), vec![Slot(0)]);
        let nodes = [host("N0"), host("n1.cluster"), host("n2")];
        assert_eq!(node_named("n0", &nodes), Some(NodeRank(0)));
        assert_eq!(node_named("n1.cluster", &nodes), Some(NodeRank(1)));
        assert_eq!(node_named("n2.cluster", &nodes), Some(NodeRank(2)));
        assert_eq!(node_named("n3", &nodes), None);
        assert_eq!(node_named("", &nodes), None);
    }
}
