//! What is known about every worker, for the last screen and for `run.json`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::options::CauseRule;
use crate::base::{HostName, LocalRank, NodeRank, Rank, Slot, WorkerExit};
use crate::job::{Evidence, parse_error_file};
use crate::plan::LaunchPlan;
use crate::wire::Leftover;

/// One worker.
#[derive(Clone, Debug)]
pub(super) struct WorkerHistory {
    pub(super) rank: Rank,
    pub(super) local_rank: LocalRank,
    pub(super) slot: Slot,
    pub(super) node: NodeRank,
    pub(super) host: HostName,
    pub(super) started: Option<(u32, Instant)>,
    pub(super) ended: Option<WorkerOutcome>,
    /// It said that a peer had left it alone in a collective.
    pub(super) lost_peer: bool,
    /// What torch recorded about its failure.
    pub(super) error_file: Option<ErrorFileCopy>,
}

/// The error file of a worker as its agent sent it.
#[derive(Clone, Debug)]
pub(super) struct ErrorFileCopy {
    pub(super) bytes: Vec<u8>,
    /// When the failure was recorded.
    pub(super) at: Instant,
}

/// How a worker ended.
#[derive(Clone, Debug)]
pub(super) struct WorkerOutcome {
    pub(super) exit: WorkerExit,
    pub(super) at: Instant,
    pub(super) stopped: bool,
    pub(super) oom_kills: u64,
    /// Whether it was said that it ended before others.
    pub(super) told: bool,
}

/// An end with 0 that others survive so long is worth a line.
const EARLY_AFTER: Duration = Duration::from_secs(10);

impl WorkerHistory {
    /// How long it ran; `None` if it never started or has not ended.
    pub(super) fn ran(&self) -> Option<Duration> {
        Some(self.ended.as_ref()?.at.saturating_duration_since(self.started?.1))
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.started.map(|(pid, _)| pid)
    }
}

/// All of them, by rank, and what could not be killed.
pub(super) struct History {
    pub(super) workers: Vec<WorkerHistory>,
    pub(super) undead: Vec<(NodeRank, Leftover)>,
    /// When workers were first asked to stop.
    pub(super) stop_asked: Option<Instant>,
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
                ended: None,
                lost_peer: false,
                error_file: None,
            })
        });
        Self { workers: workers.collect(), undead: Vec::new(), stop_asked: None }
    }

    /// Ends with 0 a while ago, while others run; each is told once.
    pub(super) fn take_early(&mut self, now: Instant) -> Vec<&WorkerHistory> {
        if self.workers.iter().all(|worker| worker.ended.is_some()) {
            return Vec::new();
        }
        let mut early = Vec::new();
        for worker in &mut self.workers {
            let Some(ended) = &mut worker.ended else { continue };
            if ended.exit.is_success() && !ended.told && ended.at + EARLY_AFTER <= now {
                ended.told = true;
                early.push(&*worker);
            }
        }
        early
    }

    /// Whether a judge has ended because of what it found.
    pub(super) fn is_judged(&self, judge: CauseRule) -> bool {
        if judge == CauseRule::Nobody {
            return false;
        }
        let first = self.workers.first().filter(|worker| worker.rank == Rank(0));
        let ended = first.and_then(|worker| worker.ended.as_ref());
        ended.is_some_and(|ended| ended.exit == WorkerExit::Code(1))
    }

    /// The error files that workers left, by the rank in the job.
    pub(super) fn take_error_files(&mut self) -> Vec<(Rank, Vec<u8>)> {
        let taken = self.workers.iter_mut().filter_map(|worker| {
            let copy = worker.error_file.take()?;
            Some((worker.rank, copy.bytes))
        });
        taken.collect()
    }

    /// What workers reported about their failures, that of their error files included.
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
