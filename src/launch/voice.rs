//! What the launcher says while a job runs, line by line. Pure.

use std::time::{Duration, Instant};

use super::history::WorkerHistory;
use crate::base::Rank;
use crate::base::exit::signal_name;
use crate::job::StopReason;
use crate::plan::{LaunchPlan, MASTER_PORT};
use crate::report::neutral;
use crate::report::summary::{self, count, duration, step};
use crate::wire::{Found, Leftover};

/// `others` workers are being stopped; nothing to say if there are none.
pub(super) fn stopping(reason: StopReason, others: usize, grace: Duration) -> Option<String> {
    let (workers, grace) = (count(others, "worker"), duration(grace));
    let text = match reason {
        StopReason::Failure if others == 0 => return None,
        StopReason::Failure => format!("{workers} after a failure, grace {grace}"),
        StopReason::Timeout => format!("{workers}: the time is over, grace {grace}"),
        StopReason::Signal(signal) => {
            let name = signal_name(signal);
            format!("{workers}: {name} received, grace {grace}; again to kill now")
        }
    };
    Some(step("Stopping", &text))
}

/// The port of rank 0, if it is neither the one that was asked for nor the usual one.
pub(super) fn port(plan: &LaunchPlan, found: &[Found]) -> Option<String> {
    let (master, host) = (found.first()?.master.as_ref()?, &plan.nodes.first()?.host);
    let port = master.port;
    (plan.master_port.is_none() && port != MASTER_PORT)
        .then(|| format!("note: port {MASTER_PORT} is taken on {host}; MASTER_PORT is {port}\n"))
}

/// A worker that has ended left processes behind.
pub(super) fn leftovers(rank: Rank, processes: &[Leftover]) -> String {
    let name = |process: &Leftover| format!("{} (pid {})", neutral(&process.name), process.pid);
    let names: Vec<_> = processes.iter().map(name).collect();
    let number = summary::processes(processes.len());
    let text = format!("rank {rank} left {number} behind: {}; stopping", names.join(", "));
    step("Leftover", &text)
}

/// Nothing can start before these nodes have answered.
pub(super) fn waiting(hosts: &[&str], since: Duration) -> String {
    const NAMED_MAX: usize = 4;
    let named = hosts[..hosts.len().min(NAMED_MAX)].join(", ");
    let more = match hosts.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    step("Waiting", &format!("for {named}{more}, since {}", duration(since)))
}

/// A node has not been heard of for a while.
pub(super) fn silent(host: &str, silence: Duration) -> String {
    step("Waiting", &format!("{host}: nothing heard for {}", duration(silence)))
}

/// How a worker is doing.
pub(super) fn state(worker: &WorkerHistory, now: Instant) -> String {
    let state = match (&worker.started, &worker.ended) {
        (_, Some(ended)) => ended.exit.to_string(),
        (Some((pid, since)), None) => {
            let time = duration(now.saturating_duration_since(*since));
            format!("pid {pid}, runs for {time}")
        }
        (None, None) => "has not started".to_owned(),
    };
    step("State", &format!("rank {} ({}): {state}", worker.rank, worker.host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_being_stopped_and_why() {
        let grace = Duration::from_secs(10);
        let say = |reason, others| stopping(reason, others, grace).unwrap_or_default();
        assert_eq!(say(StopReason::Failure, 0), "");
        assert_eq!(
            say(StopReason::Failure, 1),
            "  Stopping  1 worker after a failure, grace 10.0 s\n"
        );
        assert_eq!(
            say(StopReason::Signal(2), 3),
            "  Stopping  3 workers: SIGINT received, grace 10.0 s; again to kill now\n"
        );
    }

    #[test]
    fn names_of_leftovers_cannot_draw() {
        let process = Leftover { pid: 7, name: "\x1b[2Jx".to_owned() };
        let line = leftovers(Rank(1), &[process]);
        assert_eq!(line, "  Leftover  rank 1 left 1 process behind: \\x1b[2Jx (pid 7); stopping\n");
    }
}
