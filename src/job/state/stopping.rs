//! Stopping the workers: request, repeated request, SIGKILL, and giving up.

use std::time::{Duration, Instant};

use crate::base::{NodeRank, Status};
use crate::job::OnTerm;
use crate::job::cause::failure::{LostNode, NodeLoss, Verdict};
use crate::job::event::{Effect, StopReason, Warning};
use crate::job::signal_numbers::SIGTERM;
use crate::job::state::job_state::{JobPhase, JobState, NodeState, StopStage};

pub(crate) const SIGINT: i32 = 2;

/// Time after which an unconfirmed kill is given up and reported.
const KILL_CONFIRM_TIMEOUT: Duration = Duration::from_secs(10);

impl JobState {
    /// Handles a signal that the launcher received.
    pub(crate) fn on_signal(&mut self, now: Instant, signal: i32) -> Vec<Effect> {
        match self.requests.record(now) {
            Some(count) => self.on_request(now, count, signal),
            None => Vec::new(),
        }
    }

    /// Handles a signal that a process of remuda on a node received; it merges signals into
    /// requests as the launcher does.
    pub(crate) fn on_node_signal(
        &mut self,
        now: Instant,
        at: NodeRank,
        signal: i32,
    ) -> Vec<Effect> {
        if signal == SIGTERM && self.has_left(at) {
            return Vec::new();
        }
        if signal == SIGTERM && self.may_leave_without_part(at) {
            return self.await_replacements(now, vec![at]);
        }
        if signal == SIGTERM && self.can_replace_running_node(at) {
            return self.evict(now, at);
        }
        let count = self.node_request_counts.entry(at).or_default();
        *count += 1;
        let count = *count;
        self.on_request(now, count, signal)
    }

    /// Whether the job goes on with another node in the place of this one.
    fn can_replace_running_node(&self, node: NodeRank) -> bool {
        let goes_on = match &self.phase {
            JobPhase::Running | JobPhase::PausedBeforeRestart { .. } => true,
            JobPhase::Stopping { reason, .. } | JobPhase::CollectingEvidence { reason, .. } => {
                matches!(reason, StopReason::Failure | StopReason::Eviction | StopReason::Arrival)
            }
            JobPhase::Preparing | JobPhase::Done(_) => false,
        };
        goes_on
            && node != NodeRank(0)
            && self.request_count == 0
            && self.policy.on_term == OnTerm::EndNode
            && (self.has_enough_without(node) || self.has_restarts_left())
    }

    /// Whether the job goes on without the node already: it is lost, or its number is vacant.
    fn has_left(&self, node: NodeRank) -> bool {
        let is_gone = matches!(self.nodes[node.index()].state, NodeState::Vacant | NodeState::Lost);
        is_gone && self.policy.elastic.is_some() && self.policy.on_term == OnTerm::EndNode
    }

    /// Whether a node may leave on which nothing was started, so that no restart is needed.
    fn may_leave_without_part(&self, node: NodeRank) -> bool {
        self.request_count == 0
            && self.policy.on_term == OnTerm::EndNode
            && self.may_be_replaced(node)
    }

    /// Stops all workers because a node leaves: its workers and the others need each other.
    fn evict(&mut self, now: Instant, node: NodeRank) -> Vec<Effect> {
        if self.nodes[node.index()].state == NodeState::Idle
            && matches!(self.phase, JobPhase::Running)
        {
            // Its workers have exited. Another epoch would need a new link.
            self.nodes[node.index()].state = NodeState::Lost;
            return Vec::new();
        }
        if !self.is_evicted(node) {
            self.failures.nodes.push(LostNode {
                node,
                loss: NodeLoss::Evicted,
                at: now,
                since: now,
            });
        }
        self.stop(now, StopReason::Eviction, SIGTERM)
    }

    /// Handles a request to end. First: stop the workers. Second: kill them. Third: exit.
    fn on_request(&mut self, now: Instant, count: u32, signal: i32) -> Vec<Effect> {
        if count <= self.request_count {
            return Vec::new();
        }
        self.request_count = count;
        if let JobPhase::Stopping { reason: reason @ StopReason::Arrival, .. } = &mut self.phase {
            *reason = StopReason::Signal(signal);
        }
        match &self.phase {
            JobPhase::Preparing | JobPhase::PausedBeforeRestart { .. } => {
                self.phase = JobPhase::Done(self.verdict_for(StopReason::Signal(signal)));
                Vec::new()
            }
            JobPhase::Running => self.stop(now, StopReason::Signal(signal), signal),
            // The job is being stopped already, but not at the request of the user.
            JobPhase::Stopping { stage, .. } if self.request_count == 1 => match stage {
                StopStage::Killed { .. } => Vec::new(),
                StopStage::Warned { .. }
                | StopStage::Interrupted { .. }
                | StopStage::Terminated { .. } => {
                    vec![Effect::ReportStopping(StopReason::Signal(signal)), Effect::Signal(signal)]
                }
            },
            JobPhase::Stopping { stage, .. } if self.request_count == 2 => match stage {
                StopStage::Killed { .. } => Vec::new(),
                StopStage::Warned { .. }
                | StopStage::Interrupted { .. }
                | StopStage::Terminated { .. } => self.kill(now),
            },
            // If all workers have exited already, a request only ends the waiting.
            JobPhase::Stopping { reason, .. } | JobPhase::CollectingEvidence { reason, .. } => {
                self.phase = JobPhase::Done(self.verdict_for(*reason));
                Vec::new()
            }
            JobPhase::Done(_) => Vec::new(),
        }
    }

    pub(crate) fn on_timeout(&mut self, now: Instant) -> Vec<Effect> {
        if matches!(self.phase, JobPhase::Preparing | JobPhase::PausedBeforeRestart { .. }) {
            let is_paused = matches!(self.phase, JobPhase::PausedBeforeRestart { .. });
            // No worker hangs: the last failure explains why the job was not over.
            let failed = self.previous_verdict.as_ref().filter(|_| is_paused);
            let verdict =
                failed.map(|before| Verdict { status: Status::Timeout, ..before.clone() });
            let verdict = verdict.unwrap_or_else(|| self.verdict_for(StopReason::Timeout));
            self.phase = JobPhase::Done(verdict);
        }
        self.stop(now, StopReason::Timeout, SIGTERM)
    }

    /// Asks every worker to stop, once; later reasons change nothing.
    pub(crate) fn stop(&mut self, now: Instant, reason: StopReason, signal: i32) -> Vec<Effect> {
        if !matches!(self.phase, JobPhase::Running) {
            return Vec::new();
        }
        let kill_at = now + self.policy.grace;
        let ask = Effect::Signal(signal);
        let (stage, effect) = match self.warning(reason, signal) {
            Some(warning) => {
                (StopStage::Warned { signal, ask_at: now + warning.ahead }, Effect::Warn(warning))
            }
            None if signal == SIGINT => {
                (StopStage::Interrupted { term_at: now + self.policy.grace / 2, kill_at }, ask)
            }
            None => (StopStage::Terminated { kill_at }, ask),
        };
        self.phase = JobPhase::Stopping { reason, stage };
        self.failures.stopped_at = Some(now);
        vec![Effect::ReportStopping(reason), effect]
    }

    /// The warning signal for the workers. There is none after Ctrl-C, where the user expects no
    /// delay, and none after a failure, where the remaining workers could not save state that needs
    /// all of them.
    fn warning(&self, reason: StopReason, signal: i32) -> Option<Warning> {
        match reason {
            StopReason::Failure => None,
            StopReason::Arrival
            | StopReason::Eviction
            | StopReason::Timeout
            | StopReason::Signal(_) => self.policy.warning.filter(|_| signal != SIGINT),
        }
    }

    /// Ends a pause or a wait for evidence whose time has come, or escalates the stop.
    pub(crate) fn on_timer(&mut self, now: Instant) -> Vec<Effect> {
        match self.phase {
            JobPhase::PausedBeforeRestart { until } if until <= now => self.begin_epoch(),
            JobPhase::Preparing => self.start_if_all_ready(now),
            JobPhase::CollectingEvidence { reason, until } if until <= now => {
                self.conclude(now, reason).into_iter().collect()
            }
            _ => self.escalate(now),
        }
    }

    fn escalate(&mut self, now: Instant) -> Vec<Effect> {
        let JobPhase::Stopping { reason, stage } = &mut self.phase else {
            return Vec::new();
        };
        match *stage {
            StopStage::Warned { signal, ask_at } if ask_at <= now => {
                *stage = StopStage::Terminated { kill_at: now + self.policy.grace };
                vec![Effect::Signal(signal)]
            }
            StopStage::Interrupted { term_at, kill_at } if term_at <= now => {
                *stage = StopStage::Terminated { kill_at };
                vec![Effect::Signal(SIGTERM)]
            }
            StopStage::Terminated { kill_at } if kill_at <= now => self.kill(now),
            StopStage::Killed { give_up_at } if give_up_at <= now => {
                let reason = *reason;
                self.conclude_or_collect_evidence(now, reason).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    pub(crate) fn postpone_deadlines(&mut self, now: Instant, time: Duration) -> Vec<Effect> {
        if let JobPhase::PausedBeforeRestart { until }
        | JobPhase::CollectingEvidence { until, .. } = &mut self.phase
        {
            *until += time;
        }
        if let JobPhase::Stopping { reason, mut stage } = self.phase {
            match &mut stage {
                StopStage::Interrupted { term_at, kill_at } => {
                    *term_at += time;
                    *kill_at += time;
                }
                StopStage::Warned { ask_at: at, .. } | StopStage::Terminated { kill_at: at } => {
                    *at += time;
                }
                // All leases restart.
                StopStage::Killed { give_up_at } => *give_up_at = now + self.confirm_limit(reason),
            }
            self.phase = JobPhase::Stopping { reason, stage };
        }
        Vec::new()
    }

    /// The launcher was suspended, and its workers perhaps not: what it awaits may have arrived and is not read
    /// yet. A silent node has as much longer until its lease expires.
    pub(crate) fn await_longer(&mut self, time: Duration) -> Vec<Effect> {
        if let JobPhase::CollectingEvidence { until: at, .. }
        | JobPhase::Stopping { stage: StopStage::Killed { give_up_at: at }, .. } =
            &mut self.phase
        {
            *at += time;
        }
        Vec::new()
    }

    pub(crate) fn kill(&mut self, now: Instant) -> Vec<Effect> {
        if let JobPhase::Stopping { reason, .. } = self.phase {
            let stage = StopStage::Killed { give_up_at: now + self.confirm_limit(reason) };
            self.phase = JobPhase::Stopping { reason, stage };
        }
        vec![Effect::ReportKilling, Effect::Kill]
    }

    /// How long the confirmation of a kill is awaited. Whether a silent node is lost decides about
    /// cause and restart, except after a request of the user, who need not wait for it.
    fn confirm_limit(&self, reason: StopReason) -> Duration {
        match reason {
            StopReason::Failure | StopReason::Eviction | StopReason::Arrival
                if self.request_count == 0 =>
            {
                self.policy.silence_max.max(KILL_CONFIRM_TIMEOUT)
            }
            StopReason::Failure
            | StopReason::Eviction
            | StopReason::Arrival
            | StopReason::Timeout
            | StopReason::Signal(_) => KILL_CONFIRM_TIMEOUT,
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        match self.phase {
            JobPhase::PausedBeforeRestart { until }
            | JobPhase::CollectingEvidence { until, .. } => Some(until),
            JobPhase::Stopping { stage, .. } => Some(match stage {
                StopStage::Warned { ask_at, .. } => ask_at,
                StopStage::Interrupted { term_at, .. } => term_at,
                StopStage::Terminated { kill_at } => kill_at,
                StopStage::Killed { give_up_at } => give_up_at,
            }),
            JobPhase::Preparing => self.last_call_deadline(),
            JobPhase::Running | JobPhase::Done(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{NodeRank, Rank, Status, WorkerExit, clock};
    use crate::job::cause::evidence::Evidence;
    use crate::job::cause::known_texts::FailureClass;
    use crate::job::testing::{GRACE, SILENCE_MAX, exit, idle, leases_expired, preparing, running};
    use crate::job::{Event, FailureCause, REQUEST_MERGE_INTERVAL};

    #[test]
    fn worker_ignoring_sigterm_is_killed_after_grace() {
        let now = clock::now();
        let mut job = running(1, now);
        job.step(now, exit(0, WorkerExit::Code(1), now, &[]));
        assert_eq!(job.step(now + GRACE / 2, Event::Timer), [Effect::Wake(now + GRACE)]);
        let effects = job.step(now + GRACE, Event::Timer);
        assert_eq!(effects[..2], [Effect::ReportKilling, Effect::Kill]);
    }

    #[test]
    fn sigint_becomes_sigterm_at_half_the_grace() {
        let now = clock::now();
        let mut job = running(1, now);
        let effects = job.step(now, Event::Signal(SIGINT));
        assert_eq!(effects[1..], [Effect::Signal(SIGINT), Effect::Wake(now + GRACE / 2)]);
        let effects = job.step(now + GRACE / 2, Event::Timer);
        assert_eq!(effects, [Effect::Signal(SIGTERM), Effect::Wake(now + GRACE)]);
    }

    #[test]
    fn warning_signal_precedes_sigterm_only() {
        let now = clock::now();
        let warning = Warning { signal: 10, ahead: 2 * GRACE };
        let warned = || {
            let mut job = running(1, now);
            job.policy.warning = Some(warning);
            job
        };
        let mut job = warned();
        let effects = job.step(now, Event::Signal(SIGTERM));
        assert_eq!(effects[1..], [Effect::Warn(warning), Effect::Wake(now + 2 * GRACE)]);
        let effects = job.step(now + 2 * GRACE, Event::Timer);
        assert_eq!(effects, [Effect::Signal(SIGTERM), Effect::Wake(now + 3 * GRACE)]);
        assert_eq!(warned().step(now, Event::TimedOut)[1], Effect::Warn(warning));
        assert_eq!(warned().step(now, Event::Signal(SIGINT))[1], Effect::Signal(SIGINT));
        let effects = warned().step(now, exit(0, WorkerExit::Code(1), now, &[]));
        assert_eq!(effects[2], Effect::Signal(SIGTERM));
        let mut job = warned();
        job.step(now, Event::Signal(SIGTERM));
        let effects = job.step(now + REQUEST_MERGE_INTERVAL, Event::Signal(SIGTERM));
        assert_eq!(effects[..2], [Effect::ReportKilling, Effect::Kill]);
    }

    #[test]
    fn suspended_time_extends_the_grace() {
        let now = clock::now();
        let mut job = running(1, now);
        job.step(now, Event::Signal(SIGINT));
        let (pause, later) = (3 * GRACE, now + 3 * GRACE);
        let effects = job.step(later, Event::Suspended(pause));
        assert_eq!(effects, [Effect::Wake(later + GRACE / 2)]);
        let effects = job.step(later + GRACE / 2, Event::Timer);
        assert_eq!(effects, [Effect::Signal(SIGTERM), Effect::Wake(later + GRACE)]);
        assert_eq!(running(1, now).step(now, Event::Suspended(pause)), []);
    }

    #[test]
    fn second_signal_kills_and_third_exits() {
        let now = clock::now();
        let mut job = running(2, now);
        job.step(now, Event::Signal(SIGINT));
        let effects = job.step(now + REQUEST_MERGE_INTERVAL, Event::Signal(SIGINT));
        assert_eq!(effects[..2], [Effect::ReportKilling, Effect::Kill]);
        job.step(now, idle(0));
        job.step(now + 2 * REQUEST_MERGE_INTERVAL, Event::Signal(SIGINT));
        let verdict = job.verdict().expect("over");
        assert_eq!(verdict.status, Status::Interrupted(SIGINT));
        assert_eq!(verdict.unconfirmed, [NodeRank(1)]);
    }

    #[test]
    fn signal_during_a_stop_is_forwarded_then_kills() {
        let now = clock::now();
        let mut job = running(1, now);
        job.step(now, exit(0, WorkerExit::Code(1), now, &[]));
        let effects = job.step(now, Event::Signal(SIGINT));
        assert_eq!(
            effects[..2],
            [Effect::ReportStopping(StopReason::Signal(SIGINT)), Effect::Signal(SIGINT)]
        );
        let effects = job.step(now + REQUEST_MERGE_INTERVAL, Event::Signal(SIGINT));
        assert_eq!(effects[..2], [Effect::ReportKilling, Effect::Kill]);
    }

    #[test]
    fn simultaneous_signals_to_all_nodes_are_one_request() {
        let now = clock::now();
        let mut job = running(2, now);
        let at = |node| Event::NodeSignal(NodeRank(node), SIGTERM);
        let asked = job.step(now, Event::Signal(SIGTERM));
        assert_eq!(asked[1], Effect::Signal(SIGTERM));
        let is_new = |effects: Vec<Effect>| effects != [Effect::Wake(now + GRACE)];
        assert!(!is_new(job.step(now, Event::Signal(SIGTERM))), "timeout signals twice");
        assert!(!is_new(job.step(now + GRACE / 2, at(0))), "a scheduler signals every node");
        assert!(!is_new(job.step(now + GRACE / 2, at(1))), "a scheduler signals every node");
        assert_eq!(job.step(now + GRACE / 2, at(1))[..2], [Effect::ReportKilling, Effect::Kill]);
    }

    #[test]
    fn timeout_before_the_start_ends_the_job() {
        let mut job = preparing(2);
        job.step(clock::now(), Event::TimedOut);
        assert_eq!(job.verdict().expect("over").status, Status::Timeout);
    }

    #[test]
    fn silent_node_is_awaited_until_it_is_lost() {
        let now = clock::now();
        let mut job = running(2, now);
        // A worker exits because the other node has vanished.
        job.step(now, exit(0, WorkerExit::Code(1), now, &[]));
        job.step(now + GRACE, Event::Timer);
        job.step(now + GRACE, exit(1, WorkerExit::Code(1), now, &[SIGTERM]));
        job.step(now + GRACE, idle(0));
        let later = now + GRACE + KILL_CONFIRM_TIMEOUT;
        assert_eq!(job.step(later, Event::Timer), [Effect::Wake(now + GRACE + SILENCE_MAX)]);
        job.step(later, leases_expired(&[1], later));
        assert_eq!(job.verdict().expect("over").unconfirmed, []);
        let mut job = running(2, now);
        job.step(now, exit(0, WorkerExit::Code(1), now, &[]));
        job.step(now, Event::Signal(SIGINT));
        job.step(now + GRACE, Event::Timer);
        job.step(later, Event::Timer);
        assert!(job.verdict().is_some(), "the user need not wait for it");
    }

    #[test]
    fn rank_is_not_missing_while_others_have_not_ended() {
        let now = clock::now();
        let mut job = running(2, now);
        job.policy.has_evidence = true;
        job.step(now, exit(1, WorkerExit::Code(1), now, &[]));
        job.step(
            now,
            exit(0, WorkerExit::Signal { signal: SIGTERM, core: false }, now, &[SIGTERM]),
        );
        job.step(now, idle(0));
        // The user does not wait until it is known what became of the other node.
        job.step(now, Event::Signal(SIGTERM));
        job.step(now + GRACE, Event::Timer);
        job.step(now + GRACE + KILL_CONFIRM_TIMEOUT, Event::Timer);
        let lost_peer = Evidence::printed(FailureClass::LostPeer, now);
        job.step(now, Event::Evidence([(Rank(1), lost_peer)].into()));
        let verdict = job.verdict().expect("over");
        assert!(
            matches!(&verdict.cause, Some(FailureCause::Worker(end)) if end.rank == Rank(1)),
            "{verdict:?}"
        );
    }

    #[test]
    fn suspension_restarts_the_wait_for_a_silent_node() {
        let now = clock::now();
        let mut job = running(1, now);
        job.step(now, exit(0, WorkerExit::Code(1), now, &[]));
        job.step(now + GRACE, Event::Timer);
        let later = now + 4 * GRACE;
        let effects = job.step(later, Event::Suspended(GRACE));
        assert_eq!(effects, [Effect::Wake(later + SILENCE_MAX)], "its lease restarted");
    }

    #[test]
    fn stalled_launcher_awaits_a_silent_node_for_longer() {
        let now = clock::now();
        let mut job = running(1, now);
        job.step(now, exit(0, WorkerExit::Code(1), now, &[]));
        assert_eq!(
            job.step(now, Event::Stalled(GRACE)),
            [Effect::Wake(now + GRACE)],
            "the grace is the workers' time, which may have run"
        );
        job.step(now + GRACE, Event::Timer);
        let effects = job.step(now + 9 * GRACE, Event::Stalled(8 * GRACE));
        assert_eq!(effects, [Effect::Wake(now + 9 * GRACE + SILENCE_MAX)], "as does its lease");
    }

    #[test]
    fn unkillable_worker_does_not_block_the_end() {
        let now = clock::now();
        let mut job = running(1, now);
        job.step(now, Event::TimedOut);
        job.step(now + GRACE, Event::Timer);
        job.step(now + GRACE + KILL_CONFIRM_TIMEOUT, Event::Timer);
        let verdict = job.verdict().expect("over");
        assert_eq!(verdict.status, Status::Timeout);
        assert_eq!(verdict.unconfirmed, [NodeRank(0)]);
    }
}
