//! Facts about every worker, for the final screen and for `run.json`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::options::CauseRule;
use crate::base::{HostName, LocalRank, NodeRank, Rank, Slot, WorkerExit};
use crate::job::{CodePlace, Evidence, parse_error_file, with_error_code};
use crate::plan::LaunchPlan;
use crate::report::AttemptPlace;
use crate::wire::{KernelReport, Leftover};

/// Facts about one worker.
#[derive(Clone, Debug)]
pub(super) struct WorkerHistory {
    pub(super) rank: Rank,
    pub(super) local_rank: LocalRank,
    pub(super) slot: Slot,
    pub(super) node: NodeRank,
    pub(super) host: HostName,
    pub(super) started: Option<(u32, Instant)>,
    pub(super) outcome: Option<WorkerOutcome>,
    /// Whether it reported that a peer had left it in a collective.
    pub(super) lost_peer: bool,
    /// Why it aborted the collectives of all ranks, and when.
    pub(super) gave_up: Option<(String, Instant)>,
    /// The exception that ends its program, as its note names it, and when that was received.
    pub(super) exception: Option<(String, Instant)>,
    /// The error file that torch wrote about its failure.
    pub(super) error_file: Option<ErrorFileCopy>,
    /// Where its program was when remuda stopped it, if its interpreter wrote that.
    pub(super) stopped_in: Option<CodePlace>,
}

/// The error file of a worker as its agent sent it.
#[derive(Clone, Debug)]
pub(super) struct ErrorFileCopy {
    pub(super) bytes: Vec<u8>,
    /// When the failure was recorded.
    pub(super) at: Instant,
}

/// The error file that a worker left.
pub(super) struct LeftErrorFile {
    /// Rank in the job.
    pub(super) rank: Rank,
    pub(super) place: AttemptPlace,
    pub(super) bytes: Vec<u8>,
}

/// The exit of a worker.
#[derive(Clone, Debug)]
pub(super) struct WorkerOutcome {
    pub(super) exit: WorkerExit,
    pub(super) at: Instant,
    pub(super) stopped: bool,
    /// What the kernel reported while it ran.
    pub(super) kernel: KernelReport,
    /// Whether its early exit was reported.
    pub(super) is_early_exit_reported: bool,
}

/// Time that other workers must run on after an exit with 0 before it is reported.
const EARLY_EXIT_REPORT_AFTER: Duration = Duration::from_secs(10);

impl WorkerHistory {
    /// Time that it ran; `None` if it never started or has not exited.
    pub(super) fn run_time(&self) -> Option<Duration> {
        Some(self.outcome.as_ref()?.at.saturating_duration_since(self.started?.1))
    }

    /// Whether it has started and not exited, as far as is known.
    pub(super) fn is_running(&self) -> bool {
        self.started.is_some() && self.outcome.is_none()
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.started.map(|(pid, _)| pid)
    }
}

/// All workers by rank, and the processes that could not be killed.
pub(super) struct History {
    pub(super) workers: Vec<WorkerHistory>,
    /// Number of workers that have started.
    pub(super) started: usize,
    pub(super) unkillable: Vec<(NodeRank, Leftover)>,
    /// When workers were first asked to stop.
    pub(super) stop_requested_at: Option<Instant>,
    /// Signals of the user that were forwarded to the workers, and do not stop the job.
    pub(super) forwarded_signals: Vec<i32>,
    /// What the transport reported about connections that closed.
    pub(super) closed_links: BTreeMap<NodeRank, String>,
}

impl History {
    pub(super) fn new(plan: &LaunchPlan) -> Self {
        let nodes = (0..).map(NodeRank).zip(&plan.nodes);
        let workers = nodes.flat_map(|(place, node)| {
            node.workers.iter().map(move |worker| WorkerHistory {
                rank: worker.rank,
                local_rank: worker.local_rank,
                slot: worker.slot,
                node: place,
                host: node.host.clone(),
                started: None,
                outcome: None,
                lost_peer: false,
                gave_up: None,
                exception: None,
                error_file: None,
                stopped_in: None,
            })
        });
        Self {
            workers: workers.collect(),
            started: 0,
            unkillable: Vec::new(),
            stop_requested_at: None,
            forwarded_signals: Vec::new(),
            closed_links: BTreeMap::new(),
        }
    }

    /// A worker has started. Returns whether it is the last one.
    pub(super) fn on_started(&mut self, rank: Rank, pid: u32, at: Instant) -> bool {
        let is_first = self.worker(rank).started.replace((pid, at)).is_none();
        self.started += usize::from(is_first);
        is_first && self.have_all_started()
    }

    /// Whether all workers of the epoch have started.
    pub(super) fn have_all_started(&self) -> bool {
        self.started == self.workers.len()
    }

    /// Workers that exited with 0 a while ago while others run; each is returned once.
    pub(super) fn take_early_exits(&mut self, now: Instant) -> Vec<&WorkerHistory> {
        if self.workers.iter().all(|worker| worker.outcome.is_some()) {
            return Vec::new();
        }
        let mut early = Vec::new();
        for worker in &mut self.workers {
            let Some(ended) = &mut worker.outcome else { continue };
            if ended.exit.is_success()
                && !ended.is_early_exit_reported
                && ended.at + EARLY_EXIT_REPORT_AFTER <= now
            {
                ended.is_early_exit_reported = true;
                early.push(&*worker);
            }
        }
        early
    }

    /// Whether the worker that judges exited because of its findings.
    pub(super) fn has_reported_findings(&self, judge: CauseRule) -> bool {
        if judge == CauseRule::ExitCodes {
            return false;
        }
        let first = self.workers.first().filter(|worker| worker.rank == Rank(0));
        let ended = first.and_then(|worker| worker.outcome.as_ref());
        ended.is_some_and(|ended| ended.exit == WorkerExit::Code(1))
    }

    /// The error files that workers left.
    pub(super) fn take_error_files(&mut self) -> Vec<LeftErrorFile> {
        let taken = self.workers.iter_mut().filter_map(|worker| {
            let bytes = worker.error_file.take()?.bytes;
            let place = AttemptPlace { node: worker.node, local_rank: worker.local_rank };
            Some(LeftErrorFile { rank: worker.rank, place, bytes })
        });
        taken.collect()
    }

    /// The error file of a worker as an outer launcher reads it: with the code of the exit, which the worker
    /// itself did not know.
    pub(super) fn error_file_with_code(&self, rank: Rank) -> Option<Vec<u8>> {
        let worker = self.workers.get(rank.index())?;
        let (file, ended) = (worker.error_file.as_ref()?, worker.outcome.as_ref()?);
        with_error_code(&file.bytes, ended.exit)
    }

    /// What workers reported about their failures: what they printed, their error files and notes.
    pub(super) fn evidence_with(
        &self,
        mut printed: BTreeMap<Rank, Evidence>,
    ) -> BTreeMap<Rank, Evidence> {
        let places = (0..).map(Rank).zip(&self.workers);
        let evidence = places.filter_map(|(place, worker)| {
            let file = worker.error_file.as_ref().and_then(|copy| {
                Some(Evidence::of_error_file(&parse_error_file(&copy.bytes)?, copy.at))
            });
            // The same without a traceback, from a worker whose error file could not be written or read.
            let file = file.or_else(|| {
                let (exception, at) = worker.exception.as_ref()?;
                Some(Evidence::of_exception(exception, *at))
            });
            let note = || {
                let (reason, at) = worker.gave_up.as_ref()?;
                Evidence::of_note(reason, *at)
            };
            let describes_exit = |evidence: &Evidence| {
                let ended = worker.outcome.as_ref();
                !evidence.is_usage_error
                    || ended.is_some_and(|ended| evidence.describes_exit(ended.exit, ended.at))
            };
            let printed = printed.remove(&place).filter(describes_exit);
            Some((place, Evidence::merge(file, printed).or_else(note)?))
        });
        evidence.collect()
    }

    pub(super) fn worker(&mut self, rank: Rank) -> &mut WorkerHistory {
        &mut self.workers[rank.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock;
    use crate::launch::scale;

    const SECOND: Duration = Duration::from_secs(1);

    /// Workers of two nodes with two workers each.
    fn history() -> History {
        History::new(&scale::plan_of(2))
    }

    fn outcome(exit: WorkerExit, at: Instant) -> WorkerOutcome {
        let (stopped, is_early_exit_reported) = (false, false);
        WorkerOutcome { exit, at, stopped, kernel: KernelReport::default(), is_early_exit_reported }
    }

    fn early(history: &mut History, now: Instant) -> Vec<u32> {
        history.take_early_exits(now).iter().map(|worker| worker.rank.0).collect()
    }

    #[test]
    fn workers_are_known_by_rank_with_their_nodes() {
        let history = history();
        let rows = history.workers.iter().map(|worker| (worker.rank.0, worker.node.0));
        assert_eq!(rows.collect::<Vec<_>>(), [(0, 0), (1, 0), (2, 1), (3, 1)]);
        assert!(history.workers.iter().all(|worker| !worker.is_running()));
    }

    #[test]
    fn early_exits_are_returned_once_while_others_run() {
        let (mut history, now) = (history(), clock::now());
        history.worker(Rank(1)).outcome = Some(outcome(WorkerExit::Code(0), now));
        history.worker(Rank(2)).outcome = Some(outcome(WorkerExit::Code(1), now));
        assert!(early(&mut history, now + 9 * SECOND).is_empty());
        assert_eq!(early(&mut history, now + 10 * SECOND), [1]);
        assert!(early(&mut history, now + 60 * SECOND).is_empty(), "it was returned");
        history.worker(Rank(0)).outcome = Some(outcome(WorkerExit::Code(0), now));
        history.worker(Rank(3)).outcome = Some(outcome(WorkerExit::Code(0), now));
        assert!(early(&mut history, now + 60 * SECOND).is_empty(), "no worker runs");
    }

    #[test]
    fn findings_are_an_exit_of_rank_0_with_1() {
        let (mut history, now) = (history(), clock::now());
        let mut check = |exit, judge, expect| {
            history.worker(Rank(0)).outcome = Some(outcome(exit, now));
            assert_eq!(history.has_reported_findings(judge), expect, "{exit:?}, {judge:?}");
        };
        check(WorkerExit::Code(1), CauseRule::Rank0, true);
        check(WorkerExit::Code(1), CauseRule::ExitCodes, false);
        check(WorkerExit::Code(2), CauseRule::Rank0, false);
        check(WorkerExit::Signal { signal: 9, core: false }, CauseRule::Rank0, false);
        let mut other = self::history();
        other.worker(Rank(1)).outcome = Some(outcome(WorkerExit::Code(1), now));
        assert!(!other.has_reported_findings(CauseRule::Rank0), "rank 1 does not judge");
    }

    #[test]
    fn error_files_are_evidence_and_are_taken_once() {
        let (mut history, now) = (history(), clock::now());
        let bytes = br#"{"message": {"message": "ValueError: bad", "extraInfo": {}}}"#.to_vec();
        history.worker(Rank(2)).error_file = Some(ErrorFileCopy { bytes: bytes.clone(), at: now });
        let evidence = history.evidence_with(BTreeMap::new());
        assert_eq!(evidence.keys().collect::<Vec<_>>(), [&Rank(2)]);
        let taken = history.take_error_files();
        assert_eq!(taken.len(), 1);
        assert_eq!((taken[0].rank, taken[0].place.node), (Rank(2), NodeRank(1)));
        assert_eq!(taken[0].bytes, bytes);
        assert!(history.take_error_files().is_empty());
    }

    #[test]
    fn run_time_lasts_from_start_to_exit() {
        let (mut history, now) = (history(), clock::now());
        let worker = history.worker(Rank(0));
        worker.outcome = Some(outcome(WorkerExit::Code(1), now));
        assert_eq!((worker.run_time(), worker.is_running()), (None, false), "never started");
        worker.started = Some((7, now));
        assert_eq!(worker.run_time(), Some(Duration::ZERO));
        worker.outcome = None;
        assert_eq!((worker.run_time(), worker.is_running()), (None, true));
    }
}
