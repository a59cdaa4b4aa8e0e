//! The part of the final screen that shows what workers reported about a failure.

use std::path::Path;

use super::codes;
use super::history::WorkerHistory;
use super::verdict::{JobReport, after};
use crate::base::Rank;
use crate::job::{Evidence, EvidenceSource, FailureCause, FailureClass};
use crate::report::summary::{Failure, show_count};
use crate::report::{OutputRouter, escape_control};
use crate::wire::Stream;

/// Maximum number of characters of an exception in one line.
const EXCEPTION_CHARS_MAX: usize = 240;
/// Maximum number of ranks or ranges of ranks that are named.
const RANGES_MAX: usize = 8;

/// The last lines of a worker, with their stream.
type LastLines = Option<(Stream, Vec<Vec<u8>>)>;

/// The last lines of a worker, unless they are the traceback that is already the last text on the
/// screen.
pub(super) fn without_shown_traceback(
    last_lines: LastLines,
    pages: &OutputRouter,
    rank: Rank,
    facts: &mut Vec<String>,
) -> LastLines {
    let (stream, _) = last_lines.as_ref()?;
    if !pages.shows_traceback(rank, *stream) {
        return last_lines;
    }
    facts.push("its traceback is above".to_owned());
    None
}

impl JobReport<'_> {
    /// The exception that a worker reported as its own failure.
    fn exception(&self) -> Option<&str> {
        let evidence = self.verdict.reports.evidence.as_ref()?;
        let is_named_for_it = matches!(
            self.verdict.cause,
            Some(FailureCause::Worker(_) | FailureCause::Exiting { .. })
        );
        if !is_named_for_it {
            return None;
        }
        let is_own = evidence.class == FailureClass::Own && !self.was_killed_from_outside();
        evidence.exception.as_deref().filter(|_| is_own)
    }

    /// Whether SIGKILL from outside ended the worker, which it does whatever was printed before.
    fn was_killed_from_outside(&self) -> bool {
        matches!(&self.verdict.cause, Some(FailureCause::Worker(end)) if end.is_killed_from_outside())
    }

    /// Title such as `rank 2 (n1) failed: ValueError: bad batch`, if the worker reported its
    /// exception.
    pub(super) fn exception_headline(&self, cause: &FailureCause) -> Option<String> {
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
    pub(super) fn exception_facts(&self, worker: &WorkerHistory) -> Vec<String> {
        let mut facts = Vec::new();
        let evidence = self.verdict.reports.evidence.as_ref();
        let is_own = |evidence: &&Evidence| evidence.class == FailureClass::Own;
        if let Some(place) = evidence.filter(is_own).and_then(|evidence| evidence.place.as_ref())
            && !self.was_killed_from_outside()
        {
            let file = Path::new(&place.file);
            let file = file.strip_prefix(&self.options.cwd).unwrap_or(file);
            let function = match place.function.as_str() {
                "" | "<module>" => String::new(),
                name => format!(" in {}", escape_control(name)),
            };
            facts.push(format!(
                "at {}:{}{function}",
                escape_control(&file.to_string_lossy()),
                place.line
            ));
        }
        let root = evidence.and_then(|evidence| evidence.root.as_deref());
        facts.extend(
            root.filter(|_| self.exception().is_some())
                .map(|root| format!("caused by {}", first_line(root))),
        );
        let ended = worker.outcome.as_ref();
        if let (Some(_), Some(ended)) = (self.exception(), ended) {
            let how = match self.verdict.cause {
                Some(FailureCause::Exiting { .. }) => {
                    "remuda stopped it before it had exited".to_owned()
                }
                _ => format!("it {}{}", ended.exit, after(worker)),
            };
            facts.push(format!("{how}; {}", self.show_other_workers()));
        }
        facts
    }

    /// Whether the worker that is the cause reported that its peers had left it.
    pub(super) fn has_lost_peers(&self) -> bool {
        let class = self.verdict.reports.evidence.as_ref().map(|evidence| evidence.class);
        matches!(class, Some(FailureClass::LostPeer | FailureClass::TimedOut))
    }

    /// What other workers reported because of the failure.
    pub(super) fn reports_of_others(&self) -> Vec<String> {
        let (lost, late) = (&self.verdict.reports.lost_peer, &self.verdict.reports.timed_out);
        if self.has_lost_peers() {
            return Vec::new();
        }
        let lost = (!lost.is_empty())
            .then(|| format!("{} then lost their connection to it", self.show_ranks(lost)));
        let lost = lost.map(|text| match self.verdict.reports.lost_peer.len() {
            1 => text.replace("their connection", "its connection"),
            _ => text,
        });
        let late = (!late.is_empty())
            .then(|| format!("{} timed out waiting for it", self.show_ranks(late)));
        lost.into_iter().chain(late).collect()
    }

    /// Title such as `rank 2 (n1) did not take part: ranks 0, 1, 3 timed out waiting for a
    /// collective`.
    pub(super) fn show_missing(&self, missing: &[Rank], reported: FailureClass) -> String {
        let ranks = match missing {
            [rank] => format!("rank {} ({})", self.worker(*rank).rank, self.worker(*rank).host),
            ranks => self.show_ranks(ranks),
        };
        let (late, lost) = (&self.verdict.reports.timed_out, &self.verdict.reports.lost_peer);
        match reported {
            FailureClass::TimedOut if !late.is_empty() => {
                let late = self.show_ranks(late);
                format!("{ranks} did not take part: {late} timed out waiting for a collective")
            }
            FailureClass::LostPeer | FailureClass::TimedOut => {
                let lost = self.show_ranks(lost);
                format!("{ranks} closed connections before it exited: {lost} lost a connection")
            }
            FailureClass::Own | FailureClass::Stopped => format!("{ranks} did not take part"),
        }
    }

    /// Report of the missing workers, with what the first of the others reported.
    pub(super) fn workers_missing(
        &self,
        missing: &[Rank],
        first: Rank,
        title: String,
        pages: &OutputRouter,
    ) -> Failure {
        let ended =
            |rank: &Rank| self.worker(*rank).outcome.as_ref().is_some_and(|end| end.stopped);
        let still_ran = missing.iter().filter(|rank| ended(rank)).count();
        let mut facts = Vec::new();
        if 0 < still_ran {
            let was = if still_ran == 1 { "was" } else { "were" };
            let workers = show_count(still_ran, "worker");
            facts.push(format!(
                "{workers} that reported nothing {was} still running when remuda stopped the job"
            ));
        }
        let reporter = self.worker(first);
        let (rank, host) = (reporter.rank, &reporter.host);
        facts.push(format!("the first to fail was rank {rank} ({host}); its last lines are below"));
        let shown = missing.first().copied().filter(|_| missing.len() == 1);
        facts.extend(shown.map(|rank| {
            let worker = self.worker(rank);
            let pid = worker.pid().map_or_else(|| "-".to_owned(), |pid| pid.to_string());
            let (host, local, slot) = (&worker.host, worker.local_rank, worker.slot);
            format!("host {host}   local rank {local}   slot {slot}   pid {pid}")
        }));
        let last_lines = pages.last_lines(first);
        let stream = last_lines.as_ref().map_or(Stream::Stderr, |(stream, _)| *stream);
        let log = pages.log_path(shown.unwrap_or(first), stream);
        let last_lines = without_shown_traceback(last_lines, pages, first, &mut facts);
        Failure { code: codes::WORKER_FAILED, title, facts, last_lines, log, help: Vec::new() }
    }

    /// Returns `rank 0`, or `ranks 0-3, 7`.
    fn show_ranks(&self, places: &[Rank]) -> String {
        let mut ranks: Vec<u32> = places.iter().map(|place| self.worker(*place).rank.0).collect();
        ranks.sort_unstable();
        let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
        format!("{noun} {}", fold_ranks(&ranks))
    }

    /// The exception, and why the worker is the cause, for the run record.
    pub(super) fn recorded_evidence(&self) -> (Option<String>, Option<&'static str>) {
        let why = match (&self.verdict.cause, &self.verdict.reports.evidence) {
            (Some(FailureCause::MissingRanks { .. }), _) => "reports_of_others",
            (_, Some(evidence)) if !self.was_killed_from_outside() => match evidence.source {
                EvidenceSource::ErrorFile => "error_file",
                EvidenceSource::Output => "output",
            },
            _ => "exit",
        };
        let exception =
            self.verdict.reports.evidence.as_ref().filter(|_| !self.was_killed_from_outside());
        let exception = exception.and_then(|evidence| evidence.exception.as_deref());
        (exception.map(first_line), Some(why))
    }
}

/// Folds sorted ranks, consecutive ones as a range: `0-3, 7`.
fn fold_ranks(ranks: &[u32]) -> String {
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

/// The first line of an exception, short enough for a line of the screen.
fn first_line(exception: &str) -> String {
    let line = exception.lines().next().unwrap_or_default().trim_end();
    let mut shown: String = line.chars().take(EXCEPTION_CHARS_MAX).collect();
    if shown.len() < line.len() {
        shown.push('…');
    }
    escape_control(&shown)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn exception_fits_a_line() {
        assert_eq!(first_line("E: a \x1b[2J\nsecond"), "E: a \\x1b[2J");
        assert_eq!(first_line(&"x".repeat(1000)).chars().count(), EXCEPTION_CHARS_MAX + 1);
        assert_eq!(first_line(""), "");
    }
}
