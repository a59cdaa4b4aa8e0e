//! Events and causes in words, for the story.

use crate::base::WorkerExit;
use crate::base::exit::signal_name;
use crate::job::{Event, FailureCause, Verdict, WorkerEnd};

/// An event of the job.
pub(super) fn describe_event(event: &Event) -> String {
    match event {
        Event::Ready(node) => format!("node {node} can start"),
        Event::Refused(node) => format!("node {node} cannot start"),
        Event::OwnWorkers { node, workers } => format!("node {node} starts {workers} workers"),
        Event::Arrived(node) => format!("node {node} has joined"),
        Event::Absent(node) => format!("node {node} cannot be reached"),
        Event::JoinTimeOver => "the time to join is over".to_owned(),
        Event::EarlierEpochs { epoch, .. } => format!("a node has been in epochs before {epoch}"),
        Event::Started(rank) => format!("rank {rank} has started"),
        Event::NotStarted { rank, failure } => format!("rank {rank} has not started: {failure:?}"),
        Event::PeerLost { rank, peer } => format!("rank {rank} has lost rank {peer}"),
        Event::Exited(end) => describe_end(end),
        Event::Idle { node, is_clean: true } => format!("nothing is left on node {node}"),
        Event::Idle { node, .. } => format!("only what cannot be killed is left on node {node}"),
        Event::Evidence(found) => format!("{} workers reported lost peers", found.len()),
        Event::NodeLost { node, loss, .. } => format!("node {node} is lost: {loss:?}"),
        Event::LeaseExpired(nodes) => {
            let nodes: Vec<_> = nodes.iter().map(|lost| lost.node).collect();
            format!("the leases of {nodes:?} have expired")
        }
        Event::Signal(signal) => format!("the user sent {}", signal_name(*signal)),
        Event::NodeSignal(node, signal) => format!("node {node} got {}", signal_name(*signal)),
        Event::TimedOut => "the time limit is reached".to_owned(),
        Event::Timer => "its timer fires".to_owned(),
        Event::Suspended(time) => format!("it was suspended for {time:?}"),
        Event::Stalled(time) => format!("it did not run for {time:?}"),
    }
}

fn describe_end(end: &WorkerEnd) -> String {
    let sent: Vec<String> = end.signals_sent.iter().map(|signal| signal_name(*signal)).collect();
    let sent = if sent.is_empty() { String::new() } else { format!(" after {}", sent.join(", ")) };
    match end.exit {
        WorkerExit::Lost => format!("rank {} was lost", end.rank),
        exit => format!("rank {} {exit}{sent}", end.rank),
    }
}

/// What a verdict names.
pub(super) fn describe_verdict(verdict: &Verdict) -> String {
    let cause = verdict.cause.as_ref().map_or("no failure".to_owned(), describe_cause);
    format!("status {}, {cause}", verdict.status.code())
}

/// A cause.
pub(super) fn describe_cause(cause: &FailureCause) -> String {
    match cause {
        FailureCause::Worker(end) => format!("because {}", describe_end(end)),
        FailureCause::GaveUp { rank, .. } => {
            format!("because rank {rank} aborted the collectives of all ranks")
        }
        FailureCause::Exiting { rank, .. } => format!("because rank {rank} was exiting"),
        FailureCause::MissingRanks { ranks, .. } => format!("because {ranks:?} were missing"),
        FailureCause::NotStarted { rank, .. } => format!("because rank {rank} did not start"),
        FailureCause::Node { node, loss } => format!("because node {node} was lost: {loss:?}"),
    }
}
