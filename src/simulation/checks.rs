//! The checks of a run: what the launcher says, compared with what really happened.

use super::clock::{MS, Micros, SECOND};
use super::incidents::{Blame, Check, Ending, Incident};
use super::processes::{LeftoverState, SimulatedWorker};
use super::traffic::KEEPALIVE;
use super::words::describe_cause;
use super::workers::KILLED;
use super::world::Simulation;
use crate::base::{Rank, Status, WorkerExit};
use crate::job::{FailureCause, NodeLoss, OnFailure, Verdict, WorkerEnd};

/// Failures this close to the first one compete with it, by the rules of `job::cause`.
pub(super) const COMPETITION: Micros = 200 * MS;
/// Time in which everything ends after the last lease and grace period: the kills of shim and agent
/// are confirmed one after the other.
const END_MARGIN: Micros = 25 * SECOND;

impl Simulation {
    /// Checks the end of an epoch after which the job restarts.
    pub(super) fn check_epoch(&mut self, verdict: &Verdict) {
        self.check_ends(verdict);
        if verdict.cause.is_none() && self.scenario.policy.elastic.is_some() {
            self.truth.endings.push(Ending::Newcomer);
            self.check_newcomer();
        } else {
            self.truth.endings.push(ending_of(verdict));
            self.check_cause(verdict);
        }
        self.check_restart(verdict);
    }

    /// Checks the end of the job.
    pub(super) fn check_verdict(&mut self, verdict: &Verdict) {
        if self.truth.previous.as_ref() == Some(verdict) {
            // The restart failed for another reason than the failure before it, which is the cause
            // and was checked.
            let is_other = |incident: &&Incident| {
                let cause = verdict.cause.as_ref();
                let is_named = || cause.is_some_and(|cause| self.is_blamed(cause, incident));
                let is_news = self.truth.previously_noticed_at.is_none_or(|at| at < incident.at);
                self.truth.epoch_began_at <= incident.until
                    && match incident.blame {
                        Blame::Node(_) | Blame::Evicted(_) => is_news || !is_named(),
                        Blame::AnyNode => true,
                        Blame::Worker { .. } | Blame::Witness { .. } | Blame::NotStarted(_) => {
                            false
                        }
                    }
            };
            let has_other = self.truth.incidents.iter().any(|incident| is_other(&incident));
            if self.truth.refusals == 0 && !has_other && !self.cannot_share_lanes() {
                self.truth
                    .fail(Check::ExitStatus, || "a restart failed without a reason".to_owned());
            }
            return;
        }
        self.check_ends(verdict);
        self.truth.endings.push(ending_of(verdict));
        self.check_last_restart(verdict);
        match verdict.status {
            Status::Success => self.check_success(),
            Status::LeaseLost
                if verdict.cause.is_none() && self.is_stuck_after_newcomer(verdict) => {}
            Status::Interrupted(signal) if verdict.cause.is_none() => {
                let mut signals = self.truth.user_signals.iter().chain(&self.truth.node_signals);
                if !signals.any(|sent| *sent == signal) {
                    self.truth.fail(Check::ExitStatus, || format!("signal {signal} was not sent"));
                }
            }
            // In the pause before a restart, the failure before it stands beside the time limit.
            Status::Timeout if verdict.cause.is_none() || self.is_previous_cause(verdict) => {
                if !self.truth.has_timed_out {
                    self.truth.fail(Check::ExitStatus, || "the time was not over".to_owned());
                }
            }
            Status::Config if verdict.cause.is_none() => {
                if self.truth.refusals == 0 && !self.cannot_share_lanes() {
                    self.truth.fail(Check::ExitStatus, || "no node has refused".to_owned());
                }
            }
            _ => self.check_cause(verdict),
        }
    }

    /// Whether the cause is that of the epoch before, which was checked.
    fn is_previous_cause(&self, verdict: &Verdict) -> bool {
        self.truth.previous.as_ref().is_some_and(|previous| previous.cause == verdict.cause)
    }

    /// Success: every worker of the last epoch exited with 0.
    fn check_success(&mut self) {
        let starts_all = self.scenario.policy.failure == OnFailure::StopAll;
        let ranks = (0..self.world_size() as u32).map(Rank);
        let has_failed = ranks.into_iter().find(|rank| {
            let of_rank =
                |worker: &&SimulatedWorker| worker.rank == *rank && self.is_of_epoch(worker);
            match self.workers.iter().find(of_rank) {
                Some(worker) => worker.exit.is_none_or(|(exit, _)| !exit.is_success()),
                None => starts_all,
            }
        });
        if let Some(rank) = has_failed {
            self.truth.fail(Check::ExitStatus, || format!("rank {rank} did not exit with 0"));
        }
    }

    /// Every worker that was started has one end, and it is the true one.
    fn check_ends(&mut self, verdict: &Verdict) {
        let job = &self.launcher.job;
        let epoch = job.epoch();
        let is_open =
            |rank: Rank| self.node_of(rank).is_some_and(|node| verdict.unconfirmed.contains(&node));
        for rank in (0..self.scenario.habits.len() as u32).map(Rank) {
            let ends: Vec<&WorkerEnd> = job.ends().iter().filter(|end| end.rank == rank).collect();
            let workers = self.workers.iter().filter(|it| it.rank == rank && self.is_of_epoch(it));
            let is_true = |end: &WorkerEnd| {
                end.exit == WorkerExit::Lost
                    || end.exit == KILLED
                    || workers
                        .clone()
                        .any(|worker| worker.exit.is_some_and(|(exit, _)| exit == end.exit))
            };
            let has_begun = workers.clone().any(|worker| !self.is_start_failure(worker));
            let why = match ends[..] {
                [] if has_begun && !is_open(rank) => "has no end",
                [end] if !is_true(end) => "did not end so",
                [] | [_] => continue,
                _ => "has several ends",
            };
            let found = format!("rank {rank} of epoch {epoch} {why}: {ends:?}");
            self.truth.fail(Check::EndsOnce, || found);
            return;
        }
    }

    /// Whether this launcher has started the worker in this epoch.
    pub(super) fn is_of_epoch(&self, worker: &SimulatedWorker) -> bool {
        let connection = self.agents[worker.agent].connection;
        worker.epoch == self.launcher.job.epoch()
            && self.connections[connection].launcher == self.launcher.number
    }

    fn is_start_failure(&self, worker: &SimulatedWorker) -> bool {
        !worker.is_alive && worker.exit.is_none() && self.hosts[worker.host].cannot_execute
    }

    /// The cause is the first incident. Incidents compete if they happened before the launcher could
    /// know of the first one, or within the window of `job::cause` and the error of the clocks after
    /// that; failures of workers, whose times are known, compete only within the window.
    fn check_cause(&mut self, verdict: &Verdict) {
        let Some(cause) = &verdict.cause else {
            let status = verdict.status;
            return self.truth.fail(Check::Cause, || format!("status {status:?} has no cause"));
        };
        let window = COMPETITION + self.scenario.delay_max + MS;
        let noticed = self.truth.noticed_at.unwrap_or(self.now());
        let lets_run = self.scenario.policy.failure == OnFailure::LetRun;
        // Without the end of the wait, the job does not know of the first incident, and names another.
        let is_any = lets_run || self.was_cut_short();
        let is_candidate = |incident: &&Incident| {
            (is_any || incident.since <= noticed + window)
                && self.truth.epoch_began_at <= incident.until
        };
        let named = self.truth.incidents.iter().filter(is_candidate);
        let named: Vec<&Incident> = named.filter(|it| self.is_blamed(cause, it)).collect();
        let Some(first) = named.iter().map(|incident| incident.since).min() else {
            let text =
                format!("{} is no incident before {} µs", describe_cause(cause), noticed + window);
            return self.truth.fail(Check::Cause, || text);
        };
        let status = verdict.status.code();
        let is_true = named.iter().any(|incident| status_of(incident.blame) == status);
        if !is_true {
            let text = format!("status {status} {}", describe_cause(cause));
            return self.truth.fail(Check::ExitStatus, || text);
        }
        if let (FailureCause::Worker(_), false) = (cause, lets_run)
            && let Some(earlier) = self.earlier_failure(first.saturating_sub(window))
        {
            let text = format!("ended {}, but {earlier:?} was before", describe_cause(cause));
            self.truth.fail(Check::Cause, || text);
        }
    }

    /// A failure of a worker that its shim noticed before this time, and of which the launcher knows.
    pub(super) fn earlier_failure(&self, before: Micros) -> Option<Blame> {
        let epoch = self.launcher.job.epoch();
        let is_known = |rank: Rank| {
            let mut ends = self.launcher.job.ends().iter();
            ends.any(|end| {
                end.rank == rank && end.exit != WorkerExit::Lost && end.signals_sent.is_empty()
            })
        };
        let was_noticed = |rank: Rank| {
            let mut of_rank =
                self.workers.iter().filter(|it| it.rank == rank && self.is_of_epoch(it));
            of_rank.any(|worker| worker.reaped_at.is_some_and(|at| at < before))
        };
        let mut incidents = self.truth.incidents.iter();
        let found = incidents.find(|incident| match incident.blame {
            // Of an earlier launcher.
            _ if incident.at < self.truth.epoch_began_at => false,
            Blame::Worker { rank, epoch: of, .. } => {
                of == epoch && is_known(rank) && was_noticed(rank)
            }
            _ => false,
        });
        found.map(|incident| incident.blame)
    }

    /// Whether the cause is this incident.
    fn is_blamed(&self, cause: &FailureCause, incident: &Incident) -> bool {
        let epoch = self.launcher.job.epoch();
        match (cause, incident.blame) {
            (FailureCause::Worker(end), Blame::Worker { rank, epoch: of, exit }) => {
                (end.rank, end.exit) == (rank, exit) && epoch == of
            }
            (FailureCause::Worker(end), Blame::Witness { rank, epoch: of, exit }) => {
                let may_be_named = !self.truth.has_evidence
                    || self.truth.gave_up_suspended
                    || self.was_cut_short()
                    || self.scenario.policy.failure == OnFailure::LetRun;
                may_be_named && (end.rank, end.exit) == (rank, exit) && epoch == of
            }
            (
                FailureCause::MissingRanks { ranks, first, .. },
                Blame::Witness { rank, epoch: of, exit },
            ) => {
                let is_it = (first.rank, first.exit) == (rank, exit) && epoch == of;
                let mut ends = self.launcher.job.ends().iter();
                let has_left = ends.any(|end| ranks.contains(&end.rank) && end.exit.is_success());
                is_it && (self.truth.gave_up_suspended || has_left && self.was_cut_short())
            }
            (FailureCause::NotStarted { rank, .. }, Blame::NotStarted(node)) => {
                self.node_of(*rank) == Some(node)
            }
            (FailureCause::Node { node, loss }, Blame::Evicted(evicted)) => {
                *node == evicted && *loss == NodeLoss::Evicted
            }
            (FailureCause::Node { node, loss }, Blame::Node(lost)) => {
                *node == lost && *loss != NodeLoss::Evicted
            }
            (FailureCause::Node { loss, .. }, Blame::AnyNode) => *loss != NodeLoss::Evicted,
            _ => false,
        }
    }

    /// Whether the user requested the end, so that the job did not wait until silent nodes were lost.
    fn was_cut_short(&self) -> bool {
        let is_requested =
            !self.truth.user_signals.is_empty() || !self.truth.node_signals.is_empty();
        let verdict = self.launcher.job.verdict();
        is_requested && verdict.is_some_and(|verdict| !verdict.unconfirmed.is_empty())
    }

    /// After everything has happened: nothing is left, and all of it ended in time.
    pub(super) fn check_end(&mut self) {
        if self.truth.launcher_gone_at.is_none() {
            return self
                .truth
                .fail(Check::Liveness, || "the launcher waits for nothing".to_owned());
        }
        for (index, agent) in self.agents.iter().enumerate() {
            if agent.is_alive || agent.shim.is_alive {
                return self.truth.fail(Check::Liveness, || {
                    format!("agent {index} or its shim waits for nothing")
                });
            }
        }
        for (index, worker) in self.workers.iter().enumerate() {
            let is_left = worker.is_alive && !self.is_unkillable(index);
            if is_left || worker.leftover == LeftoverState::Running {
                let (rank, epoch) = (worker.rank, worker.epoch);
                return self
                    .truth
                    .fail(Check::Liveness, || format!("rank {rank} of epoch {epoch} is left"));
            }
        }
        let gone = self.truth.launcher_gone_at.unwrap_or_default();
        let grace = self.scenario.policy.grace.as_micros() as Micros;
        let keepalive = if self.truth.was_suspended { KEEPALIVE } else { 0 };
        let begin = gone.max(self.truth.disturbed_until) + keepalive;
        let bound = begin + 2 * self.scenario.lease + grace + END_MARGIN;
        let last = self.truth.last_exit_at;
        if bound < last {
            self.truth.fail(Check::Liveness, || {
                format!("the last worker exited at {last} µs, after {bound} µs")
            });
        }
    }
}

/// The status for which an incident is the reason.
fn status_of(blame: Blame) -> u8 {
    match blame {
        Blame::Worker { exit, .. } | Blame::Witness { exit, .. } => exit.shell_status(),
        Blame::NotStarted(_) => Status::NotFound.code(),
        Blame::Node(_) | Blame::AnyNode => Status::LeaseLost.code(),
        Blame::Evicted(_) => Status::Interrupted(15).code(),
    }
}

/// What a verdict says, for counts.
fn ending_of(verdict: &Verdict) -> Ending {
    match (&verdict.cause, verdict.status) {
        (None, Status::Success) => Ending::Success,
        (None, Status::Timeout) => Ending::TimedOut,
        (None, Status::Interrupted(_)) => Ending::Interrupted,
        (None, _) => Ending::Refused,
        (Some(FailureCause::NotStarted { .. }), _) => Ending::NotStarted,
        (Some(FailureCause::Node { loss: NodeLoss::Evicted, .. }), _) => Ending::Evicted,
        (Some(FailureCause::Node { .. }), _) => Ending::NodeLost,
        (Some(_), _) => Ending::WorkerFailed,
    }
}
