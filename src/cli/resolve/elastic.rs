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
const LAST_CALL_OF_LAUNCHER: Duration = Duration::from_millis(800);
/// Time that a start waits for more hosts that join by themselves; torchrun's.
const LAST_CALL_OF_NODE_0: Duration = Duration::from_secs(30);

/// Returns how the number of hosts may vary; `None`: all take part.
pub(in crate::cli) fn elastic(
    args: &ElasticArgs,
    cluster: &ResolvedCluster,
    typed: &CommandLine,
) -> Result<Option<ElasticNodes>, RefusedLine> {
    let Some(option) = args.given() else {
        return match args.dependent() {
            Some(option) => Err(no_effect(option, typed)),
            None => Ok(None),
        };
    };
    let meeting = meeting_point(option, cluster, typed)?;
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
    let last_call = match meeting {
        MeetingPoint::Launcher => LAST_CALL_OF_LAUNCHER,
        MeetingPoint::Node0 => LAST_CALL_OF_NODE_0,
    };
    Ok(Some(ElasticNodes {
        min,
        max,
        meeting,
        last_call: args.last_call.unwrap_or(last_call),
        newcomers: Newcomers::AtOnce,
        excludes_failing: args.exclude_failing,
        lanes: None,
    }))
}

/// Returns where the nodes meet; refuses hosts that cannot come back after they were lost.
fn meeting_point(
    option: &str,
    cluster: &ResolvedCluster,
    typed: &CommandLine,
) -> Result<MeetingPoint, RefusedLine> {
    const ONE_COMMAND: &str = "start all hosts with one command (`remuda run` without `srun` or `mpirun` in front, or with `-H hosts`)";
    const ONE_KEY: &str = "give all nodes the same key (`--key_file FILE`)";
    let once = "the process manager starts each of these nodes once";
    let (why, way) = match (&cluster.transport, cluster.started) {
        (Transport::Local | Transport::Ssh(_) | Transport::Managed(_), StartedNodes::All) => {
            return Ok(MeetingPoint::Launcher);
        }
        (Transport::Dial(dial), StartedNodes::Dialing(_)) if !dial.is_task => {
            return Ok(MeetingPoint::Node0);
        }
        (Transport::Managed(_) | Transport::Dial(_), _) => (once, ONE_COMMAND),
        (_, _) => ("this node is not connected to the others", ONE_KEY),
    };
    Err(typed.refuse(&[typed.name_or_end(option)], |spans| {
        let message =
            format!("`--{option}` needs hosts that remuda starts, or nodes with a common key");
        Diagnostic::error(codes::CANNOT_COMBINE, spans[0], message)
            .label(why)
            .help(format!("{way}, or leave `--{option}` out"))
    }))
}

/// Returns the error for an option that needs a number of hosts that varies.
fn no_effect(option: &str, typed: &CommandLine) -> RefusedLine {
    typed.refuse(&[typed.name_or_end(option)], |spans| {
        let message = format!("`--{option}` needs `--min_nodes` or `--spares`");
        let help = format!("add `--min_nodes N` or `--spares N`, or leave `--{option}` out");
        Diagnostic::error(codes::NEEDS_OTHER, spans[0], message)
            .label("has no effect alone")
            .help(help)
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
