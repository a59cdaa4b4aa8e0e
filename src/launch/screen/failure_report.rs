//! The part of the final screen that shows what workers reported about a failure.

use std::path::Path;

use crate::base::{Rank, clock};
use crate::job::{
    CodePlace, Evidence, EvidenceSource, FailureCause, FailureClass, WorkerReports, component_of,
};
use crate::launch::codes;
use crate::launch::history::WorkerHistory;
use crate::launch::screen::job_report::{JobReport, after};
use crate::launch::screen::messages::fold_ranks;
use crate::launch::screen::shown_text::{
    ShownWorker, first_line, further_lines, without_shown_text,
};
use crate::launch::screen::worker_failure::place_of;
use crate::report::record::PlaceRecord;
use crate::report::text::Failure;
use crate::report::{OutputRouter, escape_control};
use crate::wire::Stream;

impl JobReport<'_> {
    /// The exception that a worker reported as its own failure.
    pub(in crate::launch) fn exception(&self) -> Option<&str> {
        let is_named_for_it = matches!(
            self.verdict.cause,
            Some(FailureCause::Worker(_) | FailureCause::Exiting { .. })
        );
        let evidence = self.own_evidence().filter(|_| is_named_for_it)?;
        evidence.exception.as_deref().filter(|_| !self.has_survived(evidence))
    }

    /// The worker's report of a failure of its own, unless it was killed from outside.
    fn own_evidence(&self) -> Option<&Evidence> {
        let evidence = self.verdict.reports.evidence.as_ref()?;
        let is_own = evidence.class == FailureClass::Own && !self.was_killed_from_outside();
        is_own.then_some(evidence)
    }

    /// The traceback in the error file of the worker that is the cause.
    pub(in crate::launch) fn recorded_stack(&self) -> Option<&str> {
        self.own_evidence()?.recorded_stack.as_deref()
    }

    /// Whether the worker that is the cause survived what it reported, and exited later.
    fn has_survived(&self, evidence: &Evidence) -> bool {
        matches!(&self.verdict.cause,
            Some(FailureCause::Worker(end)) if !evidence.describes_exit(end.exit, end.at))
    }

    /// Whether SIGKILL from outside ended the worker, which it does whatever was printed before.
    fn was_killed_from_outside(&self) -> bool {
        matches!(&self.verdict.cause, Some(FailureCause::Worker(end)) if end.is_killed_from_outside())
    }

    /// Title such as `rank 2 (n1) failed: ValueError: bad batch`, if the worker reported its
    /// exception.
    pub(in crate::launch) fn exception_headline(&self, cause: &FailureCause) -> Option<String> {
        let (FailureCause::Worker(crate::job::WorkerEnd { rank, .. })
        | FailureCause::Exiting { rank, .. }) = cause
        else {
            return None;
        };
        let worker = self.worker(*rank);
        let exception = first_line(self.exception()?);
        Some(format!("rank {} ({}) failed: {exception}", worker.rank, worker.host))
    }

    /// Where the exception was raised, and what happened to the worker and the others.
    pub(in crate::launch) fn exception_facts(&self, worker: &WorkerHistory) -> Vec<String> {
        let mut facts = self.exception().map_or_else(Vec::new, further_lines);
        let evidence = self.own_evidence();
        let place = evidence.and_then(|evidence| evidence.place.as_ref());
        let place = place.map(|place| self.show_place(place));
        match evidence.filter(|evidence| self.has_survived(evidence)) {
            Some(Evidence { exception: Some(exception), .. }) => {
                let place = place.map_or_else(String::new, |place| format!(", {place}"));
                let exception = first_line(exception);
                facts.push(format!("the last traceback it printed: {exception}{place}"));
            }
            _ => facts.extend(place),
        }
        let root = evidence.and_then(|evidence| evidence.root.as_deref());
        facts.extend(
            root.filter(|_| self.exception().is_some())
                .map(|root| format!("caused by {}", first_line(root))),
        );
        if let (Some(_), Some(ended)) = (self.exception(), &worker.outcome) {
            let how = match self.verdict.cause {
                Some(FailureCause::Exiting { .. }) => {
                    "remuda stopped it before it had exited".to_owned()
                }
                _ => format!("it {}{}", ended.exit, after(worker)),
            };
            facts.push(how + &self.and_workers_with_the_same_exception());
        }
        facts
    }

    /// What happened to the other workers, those first that reported the exception of the cause.
    fn and_workers_with_the_same_exception(&self) -> String {
        let same = &self.verdict.reports.same_exception;
        let all = self.history.workers.len();
        if same.is_empty() {
            return self.and_other_workers();
        }
        if same.len() + 1 == all {
            return format!("; all {all} ranks failed the same way");
        }
        let is_stopped =
            |rank: &&Rank| self.worker(**rank).outcome.as_ref().is_some_and(|end| end.stopped);
        let stopped = same.iter().filter(is_stopped).count();
        let failed = self.verdict.also_failed.saturating_sub(same.len() - stopped);
        let stopped = self.verdict.stopped.saturating_sub(stopped);
        let others = match failed + stopped {
            0 => String::new(),
            _ => format!("; {}", self.show_ends_of_others(failed, stopped)),
        };
        format!("; {} failed the same way{others}", self.show_ranks(same))
    }

    /// Where the program of a worker was when remuda stopped it, if that is known.
    pub(in crate::launch) fn stopped_in(&self, rank: Rank) -> Option<String> {
        Some(self.show_place(self.worker(rank).stopped_in.as_ref()?))
    }

    /// Returns `at train.py:13 in main`.
    fn show_place(&self, place: &CodePlace) -> String {
        let file = Path::new(&place.file);
        let file = file.strip_prefix(&self.options.command.cwd).unwrap_or(file);
        let file = escape_control(&file.to_string_lossy());
        let function = match place.function.as_str() {
            "" | "<module>" => String::new(),
            name => format!(" in {}", escape_control(name)),
        };
        format!("at {file}:{}{function}", place.line)
    }

    /// Whether the worker that is the cause reported that its peers had left it.
    pub(in crate::launch) fn has_lost_peers(&self) -> bool {
        let class = self.verdict.reports.evidence.as_ref().map(|evidence| evidence.class);
        matches!(class, Some(FailureClass::LostPeer | FailureClass::TimedOut))
    }

    /// What other workers reported because of the failure.
    pub(in crate::launch) fn reports_of_others(&self) -> Vec<String> {
        let WorkerReports { lost_peer, was_told, timed_out, .. } = &*self.verdict.reports;
        if self.has_lost_peers() {
            return Vec::new();
        }
        let is_told = |rank: &&Rank| was_told.contains(rank);
        let lost: Vec<Rank> = lost_peer.iter().filter(|rank| !is_told(rank)).copied().collect();
        let whose = if lost.len() == 1 { "its" } else { "their" };
        let reports = [
            (&lost, format!("then lost {whose} connection to it")),
            (was_told, "then failed because of it".to_owned()),
            (timed_out, "timed out waiting for it".to_owned()),
        ];
        let reports = reports.iter().filter(|(ranks, _)| !ranks.is_empty());
        reports.map(|(ranks, what)| format!("{} {what}", self.show_ranks(ranks))).collect()
    }

    /// Title such as `rank 2 (n1) did not take part: ranks 0, 1, 3 timed out waiting for a
    /// collective`.
    pub(in crate::launch) fn show_missing(
        &self,
        missing: &[Rank],
        reported: FailureClass,
    ) -> String {
        let ranks = match missing {
            [rank] => format!("rank {} ({})", self.worker(*rank).rank, self.worker(*rank).host),
            ranks => self.show_ranks(ranks),
        };
        let (late, lost) = (&self.verdict.reports.timed_out, &self.verdict.reports.lost_peer);
        let left = if self.have_left(missing) {
            let ran = missing.first().map_or_else(String::new, |rank| after(self.worker(*rank)));
            Some(format!("{ranks} exited with code 0{ran}, before "))
        } else {
            None
        };
        let was_joining = self.verdict.reports.was_joining;
        let it = if missing.len() == 1 { "it" } else { "they" };
        match (left, reported) {
            (left, FailureClass::TimedOut) if !late.is_empty() => {
                let late = self.show_ranks(late);
                let what = match (left, was_joining) {
                    (Some(left), true) => format!("{left}{it} joined the process group"),
                    (None, true) => format!("{ranks} did not join the process group"),
                    (Some(left), false) => format!("{left}the other ranks"),
                    (None, false) => format!("{ranks} did not take part"),
                };
                let how = if was_joining {
                    "in `init_process_group`"
                } else {
                    "waiting for a collective"
                };
                format!("{what}: {late} timed out {how}")
            }
            (left, FailureClass::LostPeer | FailureClass::TimedOut) => {
                let lost = self.show_ranks(lost);
                let what = match (left, was_joining) {
                    (Some(left), true) => format!("{left}all ranks had joined the process group"),
                    (Some(left), false) => format!("{left}the other ranks"),
                    (None, _) => format!("{ranks} closed connections before exiting"),
                };
                format!("{what}: {lost} lost a connection")
            }
            (_, FailureClass::Own | FailureClass::Stopped) => {
                format!("{ranks} did not take part")
            }
        }
    }

    /// Whether these workers exited with 0 while the others needed them.
    fn have_left(&self, missing: &[Rank]) -> bool {
        missing.iter().all(|rank| {
            let ended = self.worker(*rank).outcome.as_ref();
            ended.is_some_and(|ended| ended.exit.is_success() && !ended.stopped)
        })
    }

    /// Report of the missing workers, with what the first of the others reported.
    pub(in crate::launch) fn workers_missing(
        &self,
        (missing, class): (&[Rank], FailureClass),
        first: Rank,
        title: String,
        pages: &OutputRouter,
    ) -> Failure {
        let mut facts = self.missing_facts(missing, pages);
        let has_left = self.have_left(missing);
        let help = self.missing_help(missing, class, first).into_iter().collect();
        let reporter = self.worker(first);
        let (rank, host) = (reporter.rank, &reporter.host);
        let last_lines = pages.last_lines(first);
        let stream = last_lines.as_ref().map_or(Stream::Stderr, |(stream, _)| *stream);
        let log = pages.log_path(first, stream);
        let mut above = Vec::new();
        let whose = format!("rank {rank}'s");
        let shown = ShownWorker {
            rank: first,
            whose: &whose,
            same: &[],
            title_has: None,
            screen: self.screen,
        };
        let last_lines = without_shown_text(last_lines, pages, shown, &mut above);
        let below = if last_lines.is_some() { "; its last lines are below" } else { "" };
        facts.push(match &self.verdict.reports.first_exception {
            Some(exception) if has_left => {
                format!("rank {rank} ({host}) then failed: {}{below}", first_line(exception))
            }
            _ if has_left => format!("rank {rank} ({host}) then failed{below}"),
            _ => format!("the first to exit was rank {rank} ({host}){below}"),
        });
        facts.extend(above);
        let lines_of = Some(rank);
        Failure { code: codes::WORKER_FAILED, title, facts, last_lines, lines_of, log, help }
    }

    /// What to do about missing workers: those that left too early, or that wait somewhere else.
    fn missing_help(&self, missing: &[Rank], class: FailureClass, first: Rank) -> Option<String> {
        if !self.have_left(missing) {
            let is_stopped =
                |rank: &&Rank| self.worker(**rank).outcome.as_ref().is_some_and(|end| end.stopped);
            let rank = missing.iter().find(is_stopped)?;
            let worker = self.worker(*rank);
            let has_hung = class == FailureClass::TimedOut && worker.stopped_in.is_none();
            let rank = format!("rank {}", worker.rank);
            return has_hung.then(|| self.see_where_it_waits(&rank, worker.host.as_str()));
        }
        let ranks = self.show_ranks(missing);
        Some(if self.verdict.reports.was_joining {
            format!(
                "every rank must call `init_process_group` before it exits: see why {ranks} did not, for example a \
                 condition such as `if rank == 0`"
            )
        } else if self.has_failed_in_a_message() {
            let other = self.worker(first).rank;
            format!(
                "a message needs both ranks: let {ranks} call `send` and `recv` as often as rank {other} expects it \
                 before the program ends"
            )
        } else {
            "collectives need all ranks: give each rank the same number of batches, or let a rank that has none left \
             wait for the others before it exits"
                .to_owned()
        })
    }

    /// Whether the first worker that failed because of missing ones sent a message, or waited for one.
    fn has_failed_in_a_message(&self) -> bool {
        let exception = self.verdict.reports.first_exception.as_deref().unwrap_or_default();
        ["send", "recv", "send_recv", "exchange"]
            .iter()
            .any(|operation| exception.contains(&format!(" {operation} (operation ")))
    }

    /// What is known of the missing workers themselves: those that were still running, and the last
    /// line of a single one, such as the argument of `sys.exit`.
    fn missing_facts(&self, missing: &[Rank], pages: &OutputRouter) -> Vec<String> {
        let stopped_at = self.history.stop_requested_at.unwrap_or_else(clock::now);
        let is_stopped =
            |rank: &&Rank| self.worker(**rank).outcome.as_ref().is_some_and(|end| end.stopped);
        let last_line = |rank: Rank| pages.last_line(rank, stopped_at);
        let mut facts = Vec::new();
        let still_ran: Vec<Rank> = missing.iter().filter(is_stopped).copied().collect();
        if !still_ran.is_empty() {
            let was = if still_ran.len() == 1 { "was" } else { "were" };
            let ranks = self.show_ranks(&still_ran);
            let has_said =
                |rank: &Rank| last_line(*rank).is_some() || self.progress_beside(*rank).is_some();
            let was_told = |rank: &Rank| {
                last_line(*rank).is_some_and(|(_, line)| component_of(&line).is_some())
            };
            let what = match missing.iter().any(has_said) {
                true if missing.iter().any(was_told) => "no exception of its own",
                true => "no exception",
                false => "nothing",
            };
            facts.push(format!(
                "{ranks} {was} still running when remuda stopped the job, and had reported {what}"
            ));
        }
        if let [rank] = *missing {
            facts.extend(self.stopped_in(rank).map(|place| format!("it was {place}")));
            facts.push(place_of(self.worker(rank)));
            facts.extend(self.progress_beside(rank));
            facts.extend(
                last_line(rank).map(|(stream, line)| {
                    format!("last line of its {stream}: {}", first_line(&line))
                }),
            );
        }
        facts
    }

    /// The step and the phase that a worker has reported last.
    pub(in crate::launch) fn last_progress(&self, rank: Rank) -> Option<String> {
        Some(format!("it last reported {}", self.progress.of(rank).show()?))
    }

    /// The progress of a worker, and of the lowest other rank that reports any.
    fn progress_beside(&self, rank: Rank) -> Option<String> {
        let own = self.last_progress(rank)?;
        let others = (0..).map(Rank).zip(&self.history.workers).filter(|(place, _)| *place != rank);
        let mut others = others.filter_map(|(place, worker)| {
            Some(format!("; rank {} reported {}", worker.rank, self.progress.of(place).show()?))
        });
        Some(format!("{own}{}", others.next().unwrap_or_default()))
    }

    /// Returns `rank 0`, or `ranks 0-3, 7`.
    fn show_ranks(&self, places: &[Rank]) -> String {
        let mut ranks: Vec<u32> = places.iter().map(|place| self.worker(*place).rank.0).collect();
        ranks.sort_unstable();
        let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
        format!("{noun} {}", fold_ranks(&ranks))
    }

    /// The exception, and why the worker is the cause, for the run record.
    pub(in crate::launch) fn recorded_evidence(&self) -> (Option<String>, Option<&'static str>) {
        let why = match (&self.verdict.cause, &self.verdict.reports.evidence) {
            (Some(FailureCause::MissingRanks { .. }), _) => "reports_of_others",
            (_, Some(evidence))
                if !self.was_killed_from_outside() && !self.has_survived(evidence) =>
            {
                match evidence.source {
                    EvidenceSource::ErrorFile => "error_file",
                    EvidenceSource::Output => "output",
                    EvidenceSource::Note => "note",
                }
            }
            _ => "exit",
        };
        let exception =
            self.verdict.reports.evidence.as_ref().filter(|_| !self.was_killed_from_outside());
        let exception = exception.and_then(|evidence| evidence.exception.as_deref());
        (exception.map(first_line), Some(why))
    }

    /// Where the worker that is the cause failed in its program, or waited, for the run record.
    pub(in crate::launch) fn recorded_place(&self) -> Option<PlaceRecord> {
        let place = match self.verdict.cause.as_ref()? {
            FailureCause::MissingRanks { ranks, .. } => {
                self.worker(*ranks.first()?).stopped_in.as_ref()?
            }
            _ => self.own_evidence()?.place.as_ref()?,
        };
        let CodePlace { file, line, function } = place.clone();
        Some(PlaceRecord { file, line, function })
    }
}
