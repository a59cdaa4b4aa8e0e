//! Helpers of the tests of this module: jobs in various states.

use std::time::{Duration, Instant};

use super::event::{Effect, Event, OnEarlyLoss, OnFailure, OnTerm, Policy};
use crate::base::{NodeRank, Rank, WorkerExit};
use crate::job::cause::failure::WorkerEnd;
use crate::job::state::job::Job;

pub(super) const GRACE: Duration = Duration::from_secs(10);
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(36);

pub(super) fn policy() -> Policy {
    Policy {
        grace: GRACE,
        failure: OnFailure::StopAll,
        silence_max: SILENCE_MAX,
        restarts_max: 0,
        warning: None,
        on_term: OnTerm::EndJob,
        early_loss: OnEarlyLoss::EndJob,
        has_evidence: false,
    }
}

/// A job of `nodes` nodes with two workers each.
pub(super) fn preparing(nodes: u32) -> Job {
    let node_of_rank = (0..nodes).flat_map(|node| [NodeRank(node); 2]).collect();
    Job::new(policy(), node_of_rank)
}

pub(super) fn running(nodes: u32, now: Instant) -> Job {
    let mut job = preparing(nodes);
    for node in 0..nodes {
        let effects = job.step(now, Event::Ready(NodeRank(node)));
        assert_eq!(effects.contains(&Effect::Start), node + 1 == nodes);
    }
    job
}

pub(super) fn exit(rank: u32, exit: WorkerExit, at: Instant, sent: &[i32]) -> Event {
    Event::Exited(WorkerEnd { rank: Rank(rank), exit, at, signals_sent: sent.to_vec() })
}

pub(super) fn idle(node: u32) -> Event {
    Event::Idle { node: NodeRank(node), is_clean: true }
}
