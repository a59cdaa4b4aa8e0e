//! The final report of a job for the terminal; `final_record` makes `run.json` of the same facts.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::base::exit::signal_name;
use crate::base::{NodeRank, Rank, Status, WorkerExit};
use crate::job::{FailureCause, MeetingPoint, NodeLoss, StartFailure, StartStep, Verdict};
use crate::launch::codes;
use crate::launch::history::{History, WorkerHistory};
use crate::launch::options::Options;
use crate::launch::progress::JobProgress;
use crate::launch::run_record::RunRecorder;
use crate::launch::screen::loss_help::{help_of_lost, without_lease};
use crate::launch::screen::shown_text::record_of_causes;
use crate::launch::screen::{messages, unreachable};
use crate::launch::startup::state::Startup;
use crate::plan::LaunchPlan;
use crate::pool::nodeset::fold_set;
use crate::report::gather::{group_equal, show_gathered};
use crate::report::text::{
    Failure, ReportScreen, show_count, show_duration, show_failure, show_io_error,
};
use crate::report::{OutputRouter, escape_control};
use crate::transport::ssh::AGENT_KILLED;
use crate::transport::{Fault, FaultKind};
use crate::wire::{Problem, ProblemScope, Stream};

/// Everything that is known at the end of a job.
#[derive(Clone, Copy)]
pub(in crate::launch) struct JobReport<'a> {
    pub(in crate::launch) plan: &'a LaunchPlan,
    pub(in crate::launch) options: &'a Options,
    pub(in crate::launch) verdict: &'a Verdict,
    pub(in crate::launch) history: &'a History,
    pub(in crate::launch) startup: &'a Startup,
    pub(in crate::launch) recorder: &'a RunRecorder,
    pub(in crate::launch) progress: &'a JobProgress,
    /// The screen for which texts are made.
    pub(in crate::launch) screen: ReportScreen,
}

/// Maximum number of different reasons that are shown; the nodes of the others are named.
const REASONS_MAX: usize = 16;

/// Lists the reasons for which nodes cannot start, each once.
pub(in crate::launch) fn show_refusal<'a>(
    what: &str,
    problems: impl Iterator<Item = (&'a str, &'a Problem)>,
) -> String {
    let mut text = format!("error[{}]: {what}\n", codes::CANNOT_START);
    let problems: Vec<_> = problems.collect();
    let reasons =
        group_equal(problems.iter().map(|(host, problem)| (*host, reason_and_help(problem))));
    let mut reasons = reasons.iter().peekable();
    let mut shown = BTreeSet::new();
    while let Some((hosts, _, reason)) = reasons.next_if(|_| shown.len() < REASONS_MAX) {
        shown.insert(*reason);
        let (message, help) = reason;
        let _ = writeln!(text, "  {hosts}: {}", escape_control(message));
        // Advice that applies to several reasons is printed once.
        let is_shown_next = reasons.peek().is_some_and(|(_, _, (_, next))| next == help);
        if let Some(help) = help.filter(|_| !is_shown_next) {
            let _ = writeln!(text, "help: {}", escape_control(help));
        }
    }
    if let more @ 1.. = reasons.count() {
        let others = problems.iter().filter(|(_, other)| !shown.contains(&reason_and_help(other)));
        let hosts = fold_set(others.map(|(host, _)| *host));
        let _ = writeln!(text, "  {} more, of {hosts}", show_count(more, "reason"));
    }
    text
}

fn reason_and_help(problem: &Problem) -> (&str, Option<&str>) {
    (&problem.message, problem.help.as_deref())
}

impl JobReport<'_> {
    /// The exit status: if nothing could start, the reason for that; where workers run on whatever
    /// happens to the others, the greatest status, that of nodes without a part in the job
    /// included.
    pub(in crate::launch) fn status(&self) -> Status {
        match self.absent_nodes_status() {
            _ if self.was_stopped() => self.verdict.status,
            Some(why_not) if self.ran_independently() => {
                if self.verdict.status.code() < why_not.code() {
                    why_not
                } else {
                    self.verdict.status
                }
            }
            Some(why_not) if self.verdict.cause.is_none() => why_not,
            _ => self.verdict.status,
        }
    }

    /// The status for nodes that had no part in the job: that of the unreachable ones, else of the
    /// first problem of the first node.
    fn absent_nodes_status(&self) -> Option<Status> {
        match (self.startup.faults.as_slice(), self.startup.problems.as_slice()) {
            ([_, ..], _) => {
                Some(unreachable::status(self.startup.faults.iter().map(|(_, fault)| fault.kind)))
            }
            ([], [(_, problem), ..]) => Some(Status::Worker(problem.status)),
            ([], []) => None,
        }
    }

    /// Whether independent workers ran.
    fn ran_independently(&self) -> bool {
        self.options.failure.lets_others_run && !self.recorder.epochs().is_empty()
    }

    /// Whether the job was stopped by the user or by the time limit before every node had answered.
    fn was_stopped(&self) -> bool {
        matches!(self.verdict.status, Status::Interrupted(_) | Status::Timeout)
    }

    /// The last text of a job. Independent workers are equals, and are listed.
    pub(in crate::launch) fn show(&self, pages: &OutputRouter) -> String {
        if !self.ran_independently() || self.was_stopped() {
            return self.show_end(pages);
        }
        let absent = |node: NodeRank| {
            self.startup.faults.iter().any(|(other, _)| *other == node)
                || self.startup.problems.iter().any(|(other, _)| *other == node)
        };
        let here = self.history.workers.iter().filter(|worker| !absent(worker.node));
        let ends = here.map(|worker| {
            let exit = worker.outcome.as_ref().map(|ended| ended.exit);
            let how = match exit {
                Some(exit) if exit.is_success() => String::new(),
                Some(exit) => exit.to_string(),
                None => "was not started".to_owned(),
            };
            (worker.host.as_str(), how)
        });
        let failed = group_equal(ends.filter(|(_, how)| !how.is_empty()));
        failed.iter().fold(self.show_absent() + &self.show_leaks(), |text, (names, count, how)| {
            text + &format!("error: {names} ({count}): {how}\n")
        })
    }

    /// Prints the gathered output, and returns notes about output that could not be kept.
    pub(in crate::launch) fn show_gathered(&self, pages: &mut OutputRouter) -> String {
        let mut lost = String::new();
        for stream in [Stream::Stdout, Stream::Stderr] {
            // Indices of the workers here, which are not their ranks where one node is started
            // alone.
            let places = (0..).map(Rank).zip(&self.history.workers);
            let outputs: Vec<_> = places
                .filter_map(|(at, worker)| {
                    Some((worker.host.as_str(), pages.gathered(at, stream)?))
                })
                .collect();
            for (host, gathered) in outputs.iter().filter(|(_, output)| 0 < output.dropped_bytes())
            {
                let bytes = gathered.dropped_bytes();
                let _ = writeln!(
                    lost,
                    "note: the last {bytes} bytes of {host} are not shown; `--no_gather` shows all of them"
                );
            }
            let texts: Vec<_> =
                outputs.iter().map(|(host, output)| (*host, output.text())).collect();
            let shown = show_gathered(&texts);
            pages.show(stream, &shown);
        }
        lost
    }

    /// Whether the cause is a node that had joined before the process manager ended, which the list of the others
    /// names as the reason: the manager has ended the agents of all nodes.
    fn is_lost_with_its_manager(&self) -> bool {
        let is_lost = |cause: &FailureCause| {
            matches!(cause, FailureCause::Node { loss: NodeLoss::LinkClosed(_), .. })
        };
        let mut faults = self.startup.faults.iter();
        self.recorder.epochs().is_empty()
            && self.verdict.cause.as_ref().is_some_and(is_lost)
            && faults.any(|(_, fault)| fault.kind == FaultKind::Manager)
    }

    /// The final screen; empty when there is nothing to report.
    pub(in crate::launch) fn show_end(&self, pages: &OutputRouter) -> String {
        let mut text = self.show_absent();
        if let Some(failure) = self.failure(pages) {
            text += &show_failure(&failure, self.screen);
        }
        text += &self.show_leaks();
        text
    }

    /// The faults of nodes for which these nodes themselves are the reason.
    fn own_faults(&self) -> impl Iterator<Item = (NodeRank, &Fault)> {
        let faults = self.startup.faults.iter().map(|(node, fault)| (*node, fault));
        faults.filter(|(_, fault)| fault.kind != FaultKind::EndedWithOthers)
    }

    /// Lists the nodes that cannot be reached, and those that cannot start.
    fn show_absent(&self) -> String {
        let mut text = String::new();
        if !self.startup.faults.is_empty() {
            let faults = self.own_faults().map(|(node, fault)| (self.host(node), fault));
            let faults: Vec<_> = faults.collect();
            // Nodes that join by themselves have no names before, and only those that are needed are missed.
            let joining =
                self.options.elastic.filter(|elastic| elastic.meeting == MeetingPoint::Node0);
            let nodes = joining.map_or(self.plan.nodes.len(), |elastic| elastic.min);
            text += &unreachable::show(&faults, nodes, self.show_consequence());
        }
        if !self.startup.problems.is_empty() {
            text += &self.show_problems();
        }
        // The system that starts nodes one by one starts the missing one or a replacement.
        if self.startup.faults.iter().any(|(_, fault)| fault.kind.joins_by_itself()) {
            return text;
        }
        text + &self.help_without_absent_nodes()
    }

    /// The consequence of nodes that cannot take part.
    pub(in crate::launch) fn show_consequence(&self) -> &'static str {
        match self.recorder.epochs().is_empty() {
            true => "nothing was started",
            false if self.options.failure.lets_others_run => "the command ran on the other nodes",
            false => "there was no restart",
        }
    }

    /// The command that continues without the nodes that cannot take part, if any other node is
    /// left.
    fn help_without_absent_nodes(&self) -> String {
        let unreachable = self.own_faults().map(|(node, _)| node);
        let mut nodes: Vec<NodeRank> =
            unreachable.chain(self.startup.problems.iter().map(|(node, _)| *node)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        let is_of_job =
            self.startup.problems.iter().any(|(_, problem)| problem.scope == ProblemScope::Job);
        let is_all = nodes.len() == self.plan.nodes.len();
        if nodes.is_empty() || self.ran_independently() || is_all || is_of_job {
            return String::new();
        }
        let how = self.help_to_continue_without(&nodes, None);
        how.map_or_else(String::new, |how| format!("help: {how}\n"))
    }

    fn help_to_continue_without(&self, nodes: &[NodeRank], kept: Option<&Path>) -> Option<String> {
        let hosts: Vec<String> = nodes.iter().map(|node| self.host(*node)).collect();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        unreachable::help_to_continue_without(&hosts, &self.options.failure.continue_with, kept)
    }

    fn show_problems(&self) -> String {
        let mut nodes: Vec<NodeRank> =
            self.startup.problems.iter().map(|(node, _)| *node).collect();
        nodes.dedup();
        let consequence = self.show_consequence();
        let what = match self.plan.nodes.len() {
            1 if self.recorder.epochs().is_empty() => "the job cannot start".to_owned(),
            all => format!("{} of {all} nodes cannot take part; {consequence}", nodes.len()),
        };
        let host = |node: NodeRank| self.plan.nodes[node.index()].host.as_str();
        let problems = self.startup.problems.iter().map(|(node, problem)| (host(*node), problem));
        show_refusal(&what, problems)
    }

    /// The node of the cause.
    pub(in crate::launch) fn node_of_cause(&self) -> Option<NodeRank> {
        Some(match self.verdict.cause.as_ref()? {
            FailureCause::Worker(end) => self.worker(end.rank).node,
            FailureCause::GaveUp { rank, .. }
            | FailureCause::Exiting { rank, .. }
            | FailureCause::NotStarted { rank, .. } => self.worker(*rank).node,
            FailureCause::MissingRanks { ranks, .. } => self.worker(*ranks.first()?).node,
            FailureCause::Node { node, .. } => *node,
        })
    }

    fn failure(&self, pages: &OutputRouter) -> Option<Failure> {
        if self.is_finding_of_rank0() || self.is_lost_with_its_manager() {
            return None;
        }
        if let Some(cause) = &self.verdict.cause {
            let mut title = self.headline(cause);
            if self.exception_headline(cause).is_none() {
                title += &self.and_other_workers();
            }
            let mut failure = match cause {
                FailureCause::Worker(end) => self.worker_failed(end.rank, title, pages),
                FailureCause::GaveUp { rank, detector } => {
                    self.worker_gave_up(*rank, detector.rank, title, pages)
                }
                FailureCause::Exiting { rank, .. } => self.worker_failed(*rank, title, pages),
                FailureCause::MissingRanks { ranks, reported_class, first } => {
                    self.workers_missing((ranks, *reported_class), first.rank, title, pages)
                }
                FailureCause::NotStarted { failure, .. } => self.not_started(*failure, title),
                FailureCause::Node { node, loss } => self.node_lost(*node, loss, title),
            };
            failure.facts.extend(self.also_lost());
            failure.facts.extend(self.hidden_lines(pages));
            failure.facts.extend(self.restarts_note());
            if !failure.help.iter().any(|help| help.contains("--resume")) {
                failure.help.extend(self.help_to_resume(cause));
            }
            if matches!(cause, FailureCause::Node { .. }) {
                failure.log = self.dir_of_started_job();
            }
            let is_paused = self.verdict.status == Status::Timeout;
            return Some(if is_paused { self.timed_out_before_restart(failure) } else { failure });
        }
        match self.verdict.status {
            Status::Timeout => Some(match &self.startup.pending_at_timeout {
                Some(awaited) => self.not_ready(awaited),
                None => self.timed_out(pages),
            }),
            Status::Interrupted(signal) => Some(Failure {
                code: codes::INTERRUPTED,
                title: format!(
                    "the job was stopped by {}{}; {}",
                    signal_name(signal),
                    self.reason_of_signal(),
                    self.show_other_workers()
                ),
                log: self.dir_of_started_job(),
                ..Failure::default()
            }),
            _ => None,
        }
    }

    /// The directory of the logs. That of a job that started nothing is removed.
    fn dir_of_started_job(&self) -> Option<PathBuf> {
        self.run_dir().filter(|_| self.recorder.first_started_at().is_some())
    }

    /// Why the launcher sent the signal itself, if it did.
    fn reason_of_signal(&self) -> String {
        let Some((name, left)) = self.recorder.allocation_end() else { return String::new() };
        format!(", because {name} would have ended {} later", show_duration(*left))
    }

    /// Whether nothing failed, and rank 0 has printed the findings.
    fn is_finding_of_rank0(&self) -> bool {
        let by_rank0 =
            matches!(&self.verdict.cause, Some(FailureCause::Worker(end)) if end.rank == Rank(0));
        by_rank0 && self.history.has_reported_findings(self.options.failure.cause_rule)
    }

    /// A note that it was not the first failure.
    pub(in crate::launch) fn restarts_note(&self) -> Option<String> {
        let what = self.recorder.show_restarts()?;
        let run_dir = self.options.output.run_dir.as_ref();
        let record = run_dir.map(|dir| dir.path().join("run.json"));
        let causes = record.map(|path| record_of_causes(&path, self.screen));
        let causes = causes.map_or_else(String::new, |causes| format!("; {causes}"));
        Some(format!("after {what}{causes}"))
    }

    fn not_started(&self, failure: StartFailure, title: String) -> Failure {
        let reason = show_io_error(&std::io::Error::from_raw_os_error(failure.errno));
        let program = self.options.command.program.display();
        let what = match failure.step {
            StartStep::SharedMemory => format!("cannot create shared memory: {reason}"),
            StartStep::Fork => format!("cannot create a process: {reason}"),
            StartStep::Chdir => {
                format!("cannot enter `{}`: {reason}", self.options.command.cwd.display())
            }
            StartStep::Setup => format!("cannot set up its file descriptors: {reason}"),
            StartStep::Exec => format!("cannot execute `{program}`: {reason}"),
        };
        let help = match failure.errno {
            libc::ENOEXEC => {
                vec!["a script needs `#!` and its interpreter in the first line".to_owned()]
            }
            libc::EAGAIN => vec!["check `ulimit -u` and the pids limit of the cgroup".to_owned()],
            libc::EFBIG if failure.step == StartStep::SharedMemory => vec![
                "`ulimit -f` is smaller than the memory that workers share: raise it".to_owned(),
            ],
            libc::ENOMEM => vec!["check `ulimit -v` and the memory limit of the cgroup".to_owned()],
            _ => Vec::new(),
        };
        Failure {
            code: codes::WORKER_NOT_STARTED,
            title,
            facts: vec![what],
            help,
            ..Failure::default()
        }
    }

    fn node_lost(&self, node: NodeRank, loss: &NodeLoss, title: String) -> Failure {
        let is_killed = self.closed_link(node) == Some(AGENT_KILLED);
        let next = help_of_lost(&self.host(node), loss, is_killed, &self.options.supervisor);
        let has_lease = self.has_option("--lease");
        let next = next.map(|next| if has_lease { next } else { without_lease(&next) });
        let ranks = match loss {
            NodeLoss::ShimExited => None,
            NodeLoss::LinkClosed(_)
            | NodeLoss::LeaseExpired
            | NodeLoss::ShimNotResponding
            | NodeLoss::InvalidData(_)
            | NodeLoss::Evicted => Some(format!("lost with it: {}", self.ranks_of(node))),
        };
        Failure {
            code: codes::NODE_LOST,
            title,
            facts: ranks.into_iter().collect(),
            help: next.into_iter().chain(self.help_without_lost_nodes(node)).collect(),
            ..Failure::default()
        }
    }

    /// What the transport reported about the end of the connection to a node.
    pub(in crate::launch) fn closed_link(&self, node: NodeRank) -> Option<&str> {
        self.history.closed_links.get(&node).map(String::as_str)
    }

    /// Other nodes that were lost; the cause describes how.
    fn also_lost(&self) -> Option<String> {
        let nodes = self.verdict.also_lost.iter().map(|node| &self.plan.nodes[node.index()]);
        let hosts: Vec<_> = nodes.map(|node| node.host.as_str()).collect();
        (!hosts.is_empty()).then(|| format!("lost too: {}", messages::name_hosts(&hosts)))
    }

    /// What workers other than the cause wrote after the first failure, which the screen does not show.
    fn hidden_lines(&self, pages: &OutputRouter) -> Option<String> {
        let of_cause = self.verdict.cause.as_ref().and_then(rank_of);
        let mut hidden = pages.hidden_lines();
        hidden.retain(|(rank, _, _)| Some(*rank) != of_cause);
        let (first, stream, _) = *hidden.first()?;
        let ranks: BTreeSet<Rank> = hidden.iter().map(|(rank, _, _)| *rank).collect();
        let count = hidden.iter().map(|(_, _, count)| count).sum();
        let whose = match ranks.len() {
            1 => format!("rank {first}"),
            others => show_count(others, "other rank"),
        };
        let file = match hidden.len() {
            1 => pages.log_path(first, stream),
            _ => pages.log_path(first, stream).and_then(|file| Some(file.parent()?.to_owned())),
        };
        let place = match (file, self.screen) {
            (None, _) => String::new(),
            (Some(file), ReportScreen::Node0) => format!(": {}", file.display()),
            (Some(file), ReportScreen::OtherNode) => format!(": {} on node 0", file.display()),
        };
        let lines = show_count(count, "line");
        let are = if count == 1 { "is" } else { "are" };
        Some(format!("{lines} of {whose} after the failure {are} not shown{place}"))
    }

    /// The command that continues with the remaining nodes, if there are any.
    fn help_without_lost_nodes(&self, node: NodeRank) -> Vec<String> {
        let mut nodes = vec![node];
        nodes.extend(&self.verdict.also_lost);
        if nodes.len() == self.plan.nodes.len() {
            return Vec::new();
        }
        let kept = self.options.command.kept_state.as_ref().filter(|kept| kept.is_saved_regularly);
        let dir = kept.map(|kept| &*kept.dir);
        self.help_to_continue_without(&nodes, dir).into_iter().collect()
    }

    pub(in crate::launch) fn ranks_of(&self, node: NodeRank) -> String {
        let workers = &self.plan.nodes[node.index()].workers;
        match (workers.first(), workers.last()) {
            (Some(first), Some(last)) if first.rank != last.rank => {
                format!("ranks {}-{}", first.rank, last.rank)
            }
            (Some(first), _) => format!("rank {}", first.rank),
            (None, _) => "no rank".to_owned(),
        }
    }

    /// Returns `; 3 other workers were stopped` for the end of a sentence, or nothing if the job has one
    /// worker.
    pub(in crate::launch) fn and_other_workers(&self) -> String {
        let verdict = &self.verdict;
        let has_others = 1 < self.history.workers.len()
            || 0 < verdict.also_failed + verdict.stopped + self.count_unkillable_workers()
            || !verdict.unconfirmed.is_empty()
            || self.recorder.epochs().is_empty();
        if has_others { format!("; {}", self.show_other_workers()) } else { String::new() }
    }

    /// What happened to the other workers.
    pub(in crate::launch) fn show_other_workers(&self) -> String {
        self.show_ends_of_others(self.verdict.also_failed, self.verdict.stopped)
    }

    /// What happened to the other workers, of which these numbers failed and were stopped.
    pub(in crate::launch) fn show_ends_of_others(&self, failed: usize, stopped: usize) -> String {
        let other = if self.verdict.cause.is_some() { "other worker" } else { "worker" };
        let workers = |number| show_count(number, other);
        let were = |number: usize| if number == 1 { "was" } else { "were" };
        let unkillable = self.count_unkillable_workers();
        let ends = match (failed, stopped) {
            (0, 0) if self.recorder.epochs().is_empty() => {
                return self.show_consequence().to_owned();
            }
            (0, 0) if 0 < unkillable => {
                return format!("{} still running after SIGKILL", workers(unkillable));
            }
            (0, 0) if !self.verdict.unconfirmed.is_empty() => {
                format!("the exit of the {other}s is not confirmed")
            }
            (0, 0) => format!("no {other} had to be stopped"),
            (0, stopped) => {
                let how = self.how_stopped(stopped);
                format!("{} {} {how}", workers(stopped), were(stopped))
            }
            (failed, 0) => format!("{} failed too", workers(failed)),
            (failed, stopped) => {
                format!("{} failed too, {stopped} {} stopped", workers(failed), were(stopped))
            }
        };
        if unkillable == 0 {
            ends
        } else {
            format!("{ends}, {unkillable} still running after SIGKILL")
        }
    }

    /// Returns `stopped`, and how many of the workers SIGKILL ended if the user or the time limit ended the job.
    fn how_stopped(&self, stopped: usize) -> String {
        let is_killed = |worker: &&WorkerHistory| {
            let ended = worker.outcome.as_ref().filter(|ended| ended.stopped);
            ended.is_some_and(|ended| {
                matches!(ended.exit, WorkerExit::Signal { signal: libc::SIGKILL, .. })
            })
        };
        let killed = self.history.workers.iter().filter(is_killed).count();
        let is_request = matches!(self.verdict.status, Status::Interrupted(_) | Status::Timeout);
        match killed {
            _ if killed == 0 || !is_request => "stopped".to_owned(),
            _ if killed == stopped => "killed".to_owned(),
            _ => format!("stopped, {killed} of them by SIGKILL"),
        }
    }

    /// Number of workers that were still running after SIGKILL, so that their exit is unknown.
    fn count_unkillable_workers(&self) -> usize {
        let is_undead = |worker: &&WorkerHistory| {
            let mut undead = self.history.unkillable.iter();
            undead.any(|(node, left)| *node == worker.node && worker.pid() == Some(left.pid))
        };
        self.history.workers.iter().filter(is_undead).count()
    }

    fn show_leaks(&self) -> String {
        let mut text = String::new();
        for (node, process) in &self.history.unkillable {
            let _ = writeln!(
                text,
                "warning: pid {} ({}) on {} is still running after SIGKILL",
                process.pid,
                escape_control(&process.name),
                self.host(*node)
            );
        }
        if !self.verdict.unconfirmed.is_empty() {
            let hosts: Vec<_> =
                self.verdict.unconfirmed.iter().map(|node| self.host(*node)).collect();
            let _ = writeln!(
                text,
                "warning: could not confirm that all processes have exited on: {}",
                hosts.join(", ")
            );
        }
        text
    }

    pub(in crate::launch) fn worker(&self, rank: Rank) -> &WorkerHistory {
        &self.history.workers[rank.index()]
    }

    pub(in crate::launch) fn host(&self, node: NodeRank) -> String {
        self.plan.nodes[node.index()].host.to_string()
    }
}

/// Returns ` after 1.1 s`, where that is known.
pub(in crate::launch) fn after(worker: &WorkerHistory) -> String {
    worker.run_time().map_or_else(String::new, |ran| format!(" after {}", show_duration(ran)))
}
/// The worker whose end the report describes.
fn rank_of(cause: &FailureCause) -> Option<Rank> {
    match cause {
        FailureCause::Worker(end) => Some(end.rank),
        FailureCause::GaveUp { rank, .. }
        | FailureCause::Exiting { rank, .. }
        | FailureCause::NotStarted { rank, .. } => Some(*rank),
        FailureCause::MissingRanks { .. } | FailureCause::Node { .. } => None,
    }
}
