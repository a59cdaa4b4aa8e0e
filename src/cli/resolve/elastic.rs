//! How the number of hosts may vary, from `--min_nodes` and `--spares`.

use std::time::Duration;

use crate::base::Diagnostic;
use crate::cli::args::ElasticArgs;
use crate::cli::line::{CommandLine, RefusedLine, codes};
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
            return Err(nothing_excluded(typed));
        }
        return Ok(None);
    };
    check_transport(option, cluster, typed)?;
    let (hosts, spares) = (cluster.nodes.len(), args.spares.unwrap_or(0) as usize);
    if hosts <= spares {
        let selected = format!("{} {} selected", show_count(hosts, "host"), are(hosts));
        let message = format!("--spares {spares} leaves no host for workers; {selected}");
        return Err(too_many(typed, "spares", hosts - 1, message));
    }
    let max = hosts - spares;
    let min = args.min_nodes.map_or(max, |min| min as usize);
    if max < min {
        let needs = match args.spares {
            Some(spares) => format!("--min_nodes {min} and --spares {spares} need"),
            None => format!("--min_nodes {min} needs"),
        };
        let needed = show_count(min + spares, "host");
        let message = format!("{needs} {needed}; {hosts} {} selected", are(hosts));
        return Err(too_many(typed, "min_nodes", max, message));
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
        (_, _) => "every node has its own command line",
    };
    Err(typed.refuse(&[typed.name_or_end(option)], |spans| {
        let message = format!("`--{option}` needs hosts over ssh");
        Diagnostic::error(codes::CANNOT_COMBINE, spans[0], message).label(why).help(format!(
            "start all hosts with one command (`-H hosts --launcher ssh`, without `--no_ssh`), or \
             leave `--{option}` out"
        ))
    }))
}

/// Returns the error for `--exclude_failing` with a fixed number of hosts.
fn nothing_excluded(typed: &CommandLine) -> RefusedLine {
    typed.refuse(&[typed.name_or_end("exclude_failing")], |spans| {
        let message = "`--exclude_failing` needs `--min_nodes` or `--spares`";
        Diagnostic::error(codes::NEEDS_OTHER, spans[0], message)
            .label("has no effect alone")
            .help("add `--min_nodes N` or `--spares N`, or leave `--exclude_failing` out")
    })
}

/// Returns the error for a number of hosts that is larger than `max`.
fn too_many(typed: &CommandLine, option: &str, max: usize, message: String) -> RefusedLine {
    typed.refuse(&[typed.value_or_end(option)], |spans| {
        let help = match max {
            0 => format!("select more hosts, or leave `--{option}` out"),
            1 => format!("write `--{option} 1`, or select more hosts"),
            _ => format!("write `--{option} {max}` or less, or select more hosts"),
        };
        Diagnostic::error(codes::BAD_VALUE, spans[0], message).label("too large").help(help)
    })
}

/// The verb for a number of hosts.
fn are(hosts: usize) -> &'static str {
    if hosts == 1 { "is" } else { "are" }
}
