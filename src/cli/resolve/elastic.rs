//! How the number of hosts may vary, from `--min_nodes` and `--spares`.

use std::time::Duration;

use crate::base::Diagnostic;
use crate::cli::args::ElasticArgs;
use crate::cli::line::{CommandLine, RefusedLine, codes, needs_other};
use crate::cli::resolve::cluster::{ResolvedCluster, StartedNodes};
use crate::launch::{ElasticNodes, MeetingPoint, Newcomers, Transport};
use crate::report::text::show_count;

/// Time that a start waits for hosts that are being connected to again: enough for a host whose agent alone
/// was lost.
const LAST_CALL: Duration = Duration::from_millis(800);

/// Returns how the number of hosts may vary; `None`: all take part.
pub(in crate::cli) fn elastic(
    args: &ElasticArgs,
    cluster: &ResolvedCluster,
    typed: &CommandLine,
) -> Result<Option<ElasticNodes>, RefusedLine> {
    let Some(option) = args.given() else {
        if args.exclude_failing {
            return Err(needs_other(typed, "exclude_failing", "min_nodes"));
        }
        return Ok(None);
    };
    check_transport(option, cluster, typed)?;
    let (hosts, spares) = (cluster.nodes.len(), args.spares.unwrap_or(0) as usize);
    if hosts <= spares {
        return Err(too_many(typed, "spares", hosts, "at least one host must run workers"));
    }
    let max = hosts - spares;
    let min = args.min_nodes.map_or(max, |min| min as usize);
    if max < min {
        let why = if 0 < spares { "the others are spares" } else { "no more hosts are selected" };
        return Err(too_many(typed, "min_nodes", max, why));
    }
    Ok(Some(ElasticNodes {
        min,
        max,
        meeting: MeetingPoint::Launcher,
        last_call: LAST_CALL,
        newcomers: Newcomers::AtOnce,
        excludes_failing: args.exclude_failing,
        lanes: None,
    }))
}

/// Refuses hosts that remuda does not connect to itself.
fn check_transport(
    option: &str,
    cluster: &ResolvedCluster,
    typed: &CommandLine,
) -> Result<(), RefusedLine> {
    let why = match (&cluster.transport, cluster.started) {
        (Transport::Local | Transport::Ssh(_), StartedNodes::All) => return Ok(()),
        (Transport::Managed(_), _) => "a process manager starts the agents, each of them once",
        (_, _) => "every node has a line of its own",
    };
    Err(typed.refuse(&[typed.name_or_end(option)], |spans| {
        let message = format!("`--{option}` needs hosts over ssh");
        Diagnostic::error(codes::CANNOT_COMBINE, spans[0], message)
            .label(why)
            .help("use `-H hosts` with `--launcher ssh`, or leave the option out")
    }))
}

fn too_many(typed: &CommandLine, option: &str, hosts: usize, why: &str) -> RefusedLine {
    typed.refuse(&[typed.value_or_end(option)], |spans| {
        let message = format!("`--{option}` is too large for {}", show_count(hosts, "host"));
        Diagnostic::error(codes::BAD_VALUE, spans[0], message)
            .label(why)
            .help("select more hosts, or write a smaller number")
    })
}
