//! Helpers of the tests of this module: jobs in various states.

use std::time::{Duration, Instant};

use super::event::{Effect, Event, OnEarlyLoss, OnFailure, OnTerm, Policy, SilentNode};
use crate::base::{NodeRank, Rank, WorkerExit};
use crate::job::cause::failure::{NodeLoss, Verdict, WorkerEnd};
use crate::job::signal_numbers::SIGTERM;
use crate::job::state::job_state::JobState;
use crate::job::state::restarting::PAUSE_MIN;

pub(super) const GRACE: Duration = Duration::from_secs(10);
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(36);

pub(super) fn policy() -> Policy {
    Policy {
        grace: GRACE,
        failure: OnFailure::StopAll,
        silence_max: SILENCE_MAX,
        restarts_max: 0,
        first_pause: PAUSE_MIN,
        warning: None,
        on_term: OnTerm::EndJob,
        early_loss: OnEarlyLoss::EndJob,
        has_evidence: false,
        elastic: None,
    }
}

/// A job of `nodes` nodes with two workers each.
pub(super) fn preparing(nodes: u32) -> JobState {
    let node_of_rank = (0..nodes).flat_map(|node| [NodeRank(node); 2]).collect();
    JobState::new(policy(), node_of_rank)
}

pub(super) fn running(nodes: u32, now: Instant) -> JobState {
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

const TERM: WorkerExit = WorkerExit::Signal { signal: SIGTERM, core: false };

/// The node of each rank.
pub(super) fn nodes_of_ranks(job: &JobState) -> Vec<NodeRank> {
    job.workers.iter().map(|worker| worker.node).collect()
}

/// All workers exit after a request, and their nodes are idle. Returns the effects of the end.
pub(super) fn stop_workers(job: &mut JobState, now: Instant, nodes: &[u32]) -> Vec<Effect> {
    for rank in 0..job.workers.len() as u32 {
        if !job.workers[rank as usize].has_ended {
            job.step(now, exit(rank, TERM, now, &[SIGTERM]));
        }
    }
    nodes.iter().flat_map(|node| job.step(now, idle(*node))).collect()
}

/// The verdict with which a restart begins, and the pause before it.
#[track_caller]
pub(super) fn verdict_of_pause(effects: &[Effect], expected: Duration) -> Verdict {
    let found = effects.iter().find_map(|effect| match effect {
        Effect::PauseBeforeRestart { verdict, pause, .. } => Some((verdict, *pause)),
        _ => None,
    });
    let (verdict, pause) = found.unwrap_or_else(|| panic!("{effects:?}"));
    assert_eq!(pause, expected);
    verdict.clone()
}

/// A node is lost when that is noticed.
pub(super) fn node_lost(node: u32, loss: NodeLoss) -> Event {
    Event::NodeLost { node: NodeRank(node), loss, since: None }
}

/// The leases of these nodes have expired, all at once.
pub(crate) fn leases_expired(nodes: &[u32], since: Instant) -> Event {
    let silent = |node: &u32| SilentNode { node: NodeRank(*node), since };
    Event::LeaseExpired(nodes.iter().map(silent).collect())
}
