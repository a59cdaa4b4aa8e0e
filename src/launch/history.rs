//! Facts about every worker, for the final screen and for `run.json`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::options::CauseRule;
use crate::base::{HostName, LocalRank, NodeRank, Rank, Slot, WorkerExit};
use crate::job::{Evidence, parse_error_file};
use crate::plan::LaunchPlan;
use crate::report::AttemptPlace;
use crate::wire::Leftover;

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
    /// The error file that torch wrote about its failure.
    pub(super) error_file: Option<ErrorFileCopy>,
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
    pub(super) oom_kills: u64,
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
    pub(super) unkillable: Vec<(NodeRank, Leftover)>,
    /// When workers were first asked to stop.
    pub(super) stop_requested_at: Option<Instant>,
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
                error_file: None,
            })
        });
        Self {
            workers: workers.collect(),
            unkillable: Vec::new(),
            stop_requested_at: None,
            closed_links: BTreeMap::new(),
        }
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

    /// What workers reported about their failures, their error files included.
    pub(super) fn with_error_files(
        &self,
        mut printed: BTreeMap<Rank, Evidence>,
    ) -> BTreeMap<Rank, Evidence> {
        for (place, worker) in (0..).map(Rank).zip(&self.workers) {
            let Some(copy) = &worker.error_file else { continue };
            let file = parse_error_file(&copy.bytes);
            let file = file.map(|recorded| Evidence::of_error_file(&recorded, copy.at));
            let merged = Evidence::merge(file, printed.remove(&place));
            printed.extend(merged.map(|evidence| (place, evidence)));
        }
        printed
    }

    pub(super) fn worker(&mut self, rank: Rank) -> &mut WorkerHistory {
        &mut self.workers[rank.index()]
    }
}
