//! Messages of the launcher while a job runs, one line each. Pure.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::base::exit::signal_name;
use crate::base::{Epoch, HostName, Rank};
use crate::job::{ElasticNodes, FAILURES_MAX, StopReason, Warning};
use crate::launch::history::WorkerHistory;
use crate::launch::options::Options;
use crate::plan::{LaunchPlan, MASTER_PORT, RendezvousPort};
use crate::pool::nodeset::fold_set;
use crate::report::text::{show_count, show_duration, show_step};
use crate::report::{RunDir, escape_control};
use crate::transport::Fault;
use crate::wire::{Leftover, PreparedNode};

/// Maximum number of ranks or ranges of ranks that are named.
const RANGES_MAX: usize = 8;
/// Limit of the nodes that are shown with their numbers of workers.
const NODES_MAX: usize = 8;

/// Line for the stop of `others` workers, which are called `noun`; [`None`] if there are none after
/// a failure.
pub(in crate::launch) fn stopping(
    reason: StopReason,
    (others, noun): (usize, &str),
    grace: Duration,
) -> Option<String> {
    let (workers, grace) = (show_count(others, noun), show_duration(grace));
    let text = match reason {
        StopReason::Failure if others == 0 => return None,
        StopReason::Failure => format!("{workers} after a failure, grace {grace}"),
        StopReason::Arrival => format!("{workers}: a node has joined, grace {grace}"),
        StopReason::Eviction => format!("{workers}: a node is being evicted, grace {grace}"),
        StopReason::Timeout => format!("{workers}: --timeout reached, grace {grace}"),
        StopReason::Signal(signal) => {
            let name = signal_name(signal);
            format!("{workers}: {name} received, grace {grace}; send it again to kill them now")
        }
    };
    Some(show_step("Stopping", &text))
}

/// Line with the directory of the workers' logs, and that of `run.json` where it is a different
/// one; [`None`] where nothing is kept.
pub(in crate::launch) fn logs(options: &Options) -> Option<String> {
    let run_dir = options.output.run_dir.as_ref().map(RunDir::path);
    let style = &options.output.style;
    let redirected = style.redirects.as_ref().map(|redirects| redirects.directory.path());
    let text = match (redirected.or(style.log_dir.as_deref()), run_dir) {
        (Some(logs), Some(run_dir)) if !logs.starts_with(run_dir) => {
            format!("{}; run.json in {}", logs.display(), run_dir.display())
        }
        (Some(logs), _) => logs.display().to_string(),
        (None, run_dir) => run_dir?.display().to_string(),
    };
    Some(show_step("Logs", &text))
}

/// Line for a job in which every worker has returned 0.
pub(in crate::launch) fn finished(
    workers: usize,
    time: Duration,
    restarts: Option<&str>,
) -> String {
    let after = restarts.map_or_else(String::new, |restarts| format!(", after {restarts}"));
    show_step(
        "Finished",
        &format!("{} in {}{after}", show_count(workers, "worker"), show_duration(time)),
    )
}

/// Line for the warning signal, after which workers may save their state before they are stopped.
pub(in crate::launch) fn warning_sent(warning: Warning) -> String {
    let (signal, ahead) = (signal_name(warning.signal), show_duration(warning.ahead));
    show_step("Warned", &format!("sent {signal} to all workers; SIGTERM follows in {ahead}"))
}

/// Line for the end of the allocation, before the workers are asked to stop.
pub(in crate::launch) fn allocation_ends(name: &str, left: Duration) -> String {
    show_step("Limit", &format!("{name} ends in {}; SIGTERM to all workers", show_duration(left)))
}

/// Line for a restart after a failure.
pub(in crate::launch) fn restarting(
    what: &str,
    which: u32,
    restarts_max: u32,
    pause: Duration,
) -> String {
    let wait =
        if pause.is_zero() { String::new() } else { format!(" in {}", show_duration(pause)) };
    let text = format!("{what}; restart {which} of {restarts_max}{wait}");
    show_step("Restart", &text)
}

/// An epoch as users count it: the first start is attempt 1.
pub(in crate::launch) fn attempt(epoch: Epoch) -> String {
    format!("attempt {}", epoch.attempt())
}

/// The same where a user reads the number of an attempt for the first time.
pub(in crate::launch) fn attempt_explained(epoch: Epoch) -> String {
    match epoch {
        Epoch(0) => "attempt 1 (the first start)".to_owned(),
        later => format!("{} (attempt 1 was the first start)", attempt(later)),
    }
}

/// Line for a restart in which another node replaces a leaving one; `attempt` names the next epoch.
pub(in crate::launch) fn replacing(what: &str, attempt: &str, pause: Duration) -> String {
    let pause = show_duration(pause);
    show_step("Restart", &format!("{what}; {attempt} starts in {pause} with a replacement"))
}

/// Line for a restart without a node that was asked to end.
pub(in crate::launch) fn restarting_without(what: &str, attempt: &str) -> String {
    show_step("Restart", &format!("{what}; {attempt} starts without it"))
}

/// Line for a restart in which a node takes part that has joined.
pub(in crate::launch) fn restarting_for_newcomer(attempt: &str) -> String {
    show_step("Restart", &format!("a node has joined; {attempt} starts with it"))
}

/// Line for the nodes with which an epoch starts, if their number may vary.
pub(in crate::launch) fn members(
    plan: &LaunchPlan,
    ElasticNodes { min, max, lanes, .. }: ElasticNodes,
    spares: usize,
) -> String {
    let count = plan.node_count();
    let (nodes, workers) =
        (show_count(count, "node"), show_count(plan.local_worker_count(), "worker"));
    let more = match (count < max, spares) {
        (true, 1..) if let Some(lanes) = lanes => {
            let have = if spares == 1 { "has" } else { "have" };
            format!("; {} {have} no workers (--lanes {lanes})", show_count(spares, "node"))
        }
        (true, _) => "; more nodes may join".to_owned(),
        (false, 0) => String::new(),
        (false, _) => format!("; {} ready", show_count(spares, "spare node")),
    };
    let limits =
        if min == max { String::new() } else { format!(" (minimum {min}, maximum {max})") };
    // Nodes without workers stay in the plan, so that their numbers stay.
    let members = plan.nodes.iter().filter(|node| !node.workers.is_empty());
    let hosts = name_hosts(&members.map(|node| node.host.as_str()).collect::<Vec<_>>());
    show_step("Nodes", &format!("{workers} on {nodes}: {hosts}{limits}{more}"))
}

/// Line for nodes that start other numbers of workers than the line of node 0 has: `5 workers: 2 on a, 3 on b`.
pub(in crate::launch) fn workers_of_nodes(plan: &LaunchPlan) -> String {
    let all = plan.nodes.iter().map(|node| format!("{} on {}", node.workers.len(), node.host));
    let mut nodes: Vec<_> = all.take(NODES_MAX).collect();
    if let more @ 1.. = plan.nodes.len() - nodes.len() {
        nodes.push(format!("… and {more} more nodes"));
    }
    let workers = show_count(plan.local_worker_count(), "worker");
    show_step("Nodes", &format!("{workers}: {}", nodes.join(", ")))
}

/// Line for nodes that failed too often to take part.
pub(in crate::launch) fn excluded(hosts: &[&str]) -> String {
    let get = if hosts.len() == 1 { "gets" } else { "get" };
    let why = format!("failed {FAILURES_MAX} times and {get} no workers (--exclude_failing)");
    show_step("Excluded", &format!("{} {why}", name_hosts(hosts)))
}

/// Line for a node that cannot be reached, in a job that can do without it.
pub(in crate::launch) fn absent(host: &HostName, fault: &Fault) -> String {
    let detail: Vec<_> = fault.detail.lines().map(escape_control).collect();
    format!(
        "warning: the job runs without {host}; remuda will connect to it again. Cause: {}\n",
        detail.join("\n  ")
    )
}

/// Line for nodes that were lost while they had no part in the job.
pub(in crate::launch) fn lost_without_part(hosts: &[&str]) -> String {
    show_step("Lost", &format!("{}, without workers; other nodes may join", name_hosts(hosts)))
}

/// Note with the port of rank 0, if it is neither the one that was requested nor the default.
pub(in crate::launch) fn master_port_note(
    plan: &LaunchPlan,
    node0: Option<&PreparedNode>,
) -> Option<String> {
    let node = plan.nodes.iter().find(|node| !node.workers.is_empty());
    let (master, host) = (node0?.master.as_ref()?, &node?.host);
    let port = master.port;
    (plan.master_port == RendezvousPort::Usual && port != MASTER_PORT)
        .then(|| format!("note: port {MASTER_PORT} is in use on {host}; MASTER_PORT is {port}\n"))
}

/// Line for processes that an exited worker left behind.
pub(in crate::launch) fn leftovers(rank: Rank, processes: &[Leftover]) -> String {
    let name =
        |process: &Leftover| format!("{} (pid {})", escape_control(&process.name), process.pid);
    let names: Vec<_> = processes.iter().map(name).collect();
    let number = crate::report::text::show_processes(processes.len());
    let text = format!("rank {rank} left {number} behind: {}; stopping", names.join(", "));
    show_step("Leftover", &text)
}

/// Line for nodes that were lost before the start, with the time that is left for replacements.
pub(in crate::launch) fn lost_before_start(hosts: &[&str], left: Duration) -> String {
    let (hosts, left) = (name_hosts(hosts), show_duration(left));
    let text = format!("{hosts} before the job started; waiting up to {left} for a replacement");
    show_step("Lost", &text)
}

/// All hosts in short form, or a few of them by name.
pub(in crate::launch) fn fold_hosts(hosts: &[String]) -> String {
    const BYTES_MAX: usize = 80;
    let folded = fold_set(hosts.iter().map(String::as_str));
    if folded.len() <= BYTES_MAX {
        return folded;
    }
    name_hosts(&hosts.iter().map(String::as_str).collect::<Vec<_>>())
}

/// A few of the hosts by name, and the number of the others.
pub(in crate::launch) fn name_hosts(hosts: &[&str]) -> String {
    const NAMED_MAX: usize = 4;
    let named = hosts[..hosts.len().min(NAMED_MAX)].join(", ");
    match hosts.len().saturating_sub(NAMED_MAX) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// Line for workers that exited with 0 before the others.
pub(in crate::launch) fn early_exits(early: &[&WorkerHistory], running: usize) -> Option<String> {
    let first = early.first()?;
    let remaining = format!("{} still running", show_count(running, "worker"));
    let ranks = rank_and_others(early);
    let ran =
        first.run_time().map_or_else(String::new, |ran| format!(" after {}", show_duration(ran)));
    Some(show_step("Ended", &format!("{ranks} exited with 0{ran}; {remaining}")))
}

/// Returns `rank 0 (n1)`, or `rank 0 (n1) and 3 others`.
pub(in crate::launch) fn rank_and_others(workers: &[&WorkerHistory]) -> String {
    let Some((first, others)) = workers.split_first() else {
        return String::new();
    };
    let first = format!("rank {} ({})", first.rank, first.host);
    match others.len() {
        0 => first,
        others => format!("{first} and {}", show_count(others, "other")),
    }
}

/// Line for nodes without a message for a while, with the longest time.
pub(in crate::launch) fn not_responding(nodes: &[(&str, Duration)]) -> Option<String> {
    let longest = nodes.iter().map(|(_, silence)| *silence).max()?;
    let hosts: Vec<_> = nodes.iter().map(|(host, _)| *host).collect();
    let text = format!("{}: no heartbeat for {}", name_hosts(&hosts), show_duration(longest));
    Some(show_step("Waiting", &text))
}

/// Line for a launcher that was suspended for longer than the lease.
pub(in crate::launch) fn launcher_suspended(time: Duration, lease: Duration) -> String {
    let (time, lease) = (show_duration(time), show_duration(lease));
    let consequence =
        format!("nodes stop their workers after {lease} without a heartbeat (--lease)");
    show_step("Stalled", &format!("launcher was suspended for {time}; {consequence}"))
}

/// Warning for workers that import torch and form no process group: a script that needs its own
/// launcher.
pub(in crate::launch) fn ungrouped(workers: usize, master: &str, seconds: u32) -> String {
    let (workers, master) = (show_count(workers, "worker"), escape_control(master));
    format!(
        "warning: {workers} import torch, but none has connected to MASTER_ADDR:MASTER_PORT ({master}) \
         within {seconds} s: the script still compiles or loads data, or each worker trains a copy of its \
         own\n\
         help: if the workers form a group, the script must call `torch.distributed.init_process_group()`; \
         independent workers can ignore this\n"
    )
}

/// Folds sorted ranks, consecutive ones as a range: `0-3, 7`.
pub(in crate::launch) fn fold_ranks(ranks: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *rank => *last = *rank,
            _ => ranges.push((*rank, *rank)),
        }
    }
    let show = |(first, last): &(u32, u32)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}-{last}"),
    };
    let shown: Vec<String> = ranges.iter().take(RANGES_MAX).map(show).collect();
    let more: u32 = ranges.iter().skip(RANGES_MAX).map(|(first, last)| last - first + 1).sum();
    match more {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// How to see where a worker waits.
pub(in crate::launch) fn stack_hint(options: &Options) -> String {
    let command = stack_command(options);
    format!("help: `{command}` on the host of a rank shows where it waits\n")
}

/// Command that shows where a process of the job waits.
pub(in crate::launch) fn stack_command(options: &Options) -> &'static str {
    let program = Path::new(&options.command.program).file_name().unwrap_or_default();
    if program.as_encoded_bytes().starts_with(b"python") {
        "py-spy dump --pid PID"
    } else {
        "gdb -p PID -batch -ex 'thread apply all bt'"
    }
}

/// Line for workers that are killed after the grace period, or at the second request.
pub(in crate::launch) fn killing(running: &[u32]) -> String {
    let what = match running {
        [] => "the remaining processes".to_owned(),
        [rank] => format!("rank {rank}"),
        ranks => format!("ranks {}", fold_ranks(ranks)),
    };
    show_step("Killing", &what)
}

/// State of a worker with its progress, without the end of the line.
pub(in crate::launch) fn state(
    worker: &WorkerHistory,
    progress: Option<String>,
    now: Instant,
) -> String {
    let state = match (&worker.started, &worker.outcome) {
        (_, Some(ended)) => ended.exit.to_string(),
        (Some((pid, since)), None) => {
            let time = show_duration(now.saturating_duration_since(*since));
            let progress = progress.map_or_else(String::new, |progress| format!(", {progress}"));
            format!("pid {pid}, running for {time}{progress}")
        }
        (None, None) => "has not started".to_owned(),
    };
    let line = show_step("State", &format!("rank {} ({}): {state}", worker.rank, worker.host));
    line.trim_end().to_owned()
}

/// Line for a worker that is suspended until it receives SIGCONT.
pub(in crate::launch) fn suspended(worker: &WorkerHistory) -> String {
    let (rank, host) = (worker.rank, &worker.host);
    let pid = worker.pid().map_or_else(|| "PID".to_owned(), |pid| pid.to_string());
    let text = format!(
        "rank {rank} ({host}): pid {pid} is suspended (state T); `kill -CONT {pid}` there continues it"
    );
    show_step("State", &text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::base::{HostName, LocalRank, NodeRank, Slot, WorkerExit};
    use crate::launch::history::{History, WorkerOutcome};
    use crate::wire::KernelReport;

    #[test]
    fn workers_without_a_process_group_cause_a_warning() {
        let text = ungrouped(4, "n1:29500\x1b[2J", 60);
        let expect = "warning: 4 workers import torch, but none has connected to \
                      MASTER_ADDR:MASTER_PORT (n1:29500";
        assert!(text.starts_with(expect) && !text.contains('\x1b'), "{text}");
        assert!(
            text.contains(" within 60 s: the script still compiles or loads data, or "),
            "{text}"
        );
    }

    #[test]
    fn stopping_line_has_count_and_reason() {
        let grace = Duration::from_secs(10);
        let say = |reason, others| stopping(reason, (others, "worker"), grace).unwrap_or_default();
        assert_eq!(say(StopReason::Failure, 0), "");
        assert_eq!(
            say(StopReason::Failure, 1),
            "  Stopping  1 worker after a failure, grace 10 s\n"
        );
        assert_eq!(
            say(StopReason::Signal(2), 3),
            "  Stopping  3 workers: SIGINT received, grace 10 s; send it again to kill them now\n"
        );
    }

    #[test]
    fn early_exits_are_reported_once_while_others_run() {
        let start = crate::base::clock::now();
        let worker = |rank: u32, ended: Option<u64>| WorkerHistory {
            rank: Rank(rank),
            local_rank: LocalRank(rank),
            slot: Slot(rank),
            node: NodeRank(0),
            host: HostName::parse("n0").expect("a name"),
            started: Some((7, start)),
            outcome: ended.map(|seconds| WorkerOutcome {
                exit: WorkerExit::Code(0),
                at: start + Duration::from_secs(seconds),
                stopped: false,
                kernel: KernelReport::default(),
                is_early_exit_reported: false,
            }),
            lost_peer: false,
            gave_up: None,
            exception: None,
            error_file: None,
            stopped_in: None,
        };
        let after = |history: &mut History, seconds| {
            early_exits(&history.take_early_exits(start + Duration::from_secs(seconds)), 1)
        };
        let history = |workers| History {
            workers,
            started: 0,
            unkillable: Vec::new(),
            stop_requested_at: None,
            forwarded_signals: Vec::new(),
            closed_links: BTreeMap::new(),
        };
        let workers = vec![worker(0, Some(3)), worker(1, Some(4)), worker(2, None)];
        let mut all = history(workers);
        assert_eq!(after(&mut all, 12), None);
        let line = "     Ended  rank 0 (n0) and 1 other exited with 0 after 3.0 s; 1 worker still running\n";
        assert_eq!(after(&mut all, 14).as_deref(), Some(line));
        assert_eq!(after(&mut all, 99), None);
        let workers = vec![worker(0, Some(1)), worker(1, Some(20))];
        let mut all = history(workers);
        assert_eq!(after(&mut all, 60), None, "no worker is running");
    }

    #[test]
    fn consecutive_ranks_are_one_range() {
        #[track_caller]
        fn check(ranks: &[u32], expect: &str) {
            assert_eq!(fold_ranks(ranks), expect);
        }
        check(&[3], "3");
        check(&[0, 1], "0, 1");
        check(&[0, 1, 2, 5, 7, 8], "0-2, 5, 7, 8");
        let odd: Vec<u32> = (0..12).map(|number| 2 * number).collect();
        check(&odd, "0, 2, 4, 6, 8, 10, 12, 14 and 4 more");
    }

    #[test]
    fn killing_line_names_ranks() {
        assert_eq!(killing(&[]), "   Killing  the remaining processes\n");
        assert_eq!(killing(&[3]), "   Killing  rank 3\n");
        assert_eq!(killing(&[0, 1, 2, 7]), "   Killing  ranks 0-2, 7\n");
    }

    #[test]
    fn finished_line_counts_workers_and_restarts() {
        let time = Duration::from_secs(21);
        assert_eq!(finished(8, time, None), "  Finished  8 workers in 21 s\n");
        let restarts = Some("2 restarts");
        assert_eq!(finished(1, time, restarts), "  Finished  1 worker in 21 s, after 2 restarts\n");
    }

    #[test]
    fn leftover_names_are_escaped() {
        let process = Leftover { pid: 7, name: "\x1b[2Jx".to_owned() };
        let line = leftovers(Rank(1), &[process]);
        assert_eq!(line, "  Leftover  rank 1 left 1 process behind: \\x1b[2Jx (pid 7); stopping\n");
    }
}
