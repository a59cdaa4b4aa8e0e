//! What is known about every worker, for the last screen and for `run.json`.

use std::time::{Duration, Instant};

use crate::base::{HostName, LocalRank, NodeRank, Rank, Slot, WorkerExit};
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
    pub(super) ended: Option<Ended>,
}

/// How a worker ended.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) exit: WorkerExit,
    pub(super) at: Instant,
    pub(super) stopped: bool,
    pub(super) oom_kills: u64,
}

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
}

impl History {
    pub(super) fn new(plan: &LaunchPlan) -> Self {
        let workers = plan.nodes.iter().flat_map(|node| {
            node.workers.iter().map(|worker| WorkerHistory {
                rank: worker.rank,
                local_rank: worker.local_rank,
                slot: worker.slot,
                node: node.node_rank,
                host: node.host.clone(),
                started: None,
                ended: None,
            })
        });
        Self { workers: workers.collect(), undead: Vec::new() }
    }

    pub(super) fn worker(&mut self, rank: Rank) -> &mut WorkerHistory {
        &mut self.workers[rank.index()]
    }
}
