//! Epochs, the answer of the preflight checks, and the start of the workers.

use std::time::{Duration, Instant};

use super::agent_state::{AgentPhase, AgentState, ShimPhase, Terms};
use super::event::{AgentEffect, PreflightRequest, StartRequest};
use super::group_watch::{GroupCheck, GroupDecision, GroupWatch, WORKERS_CHECKED_MAX};
use super::timers::Timer;
use crate::base::Epoch;
use crate::wire::{FailedStart, FromAgent, Prepare, PreparedNode, Problem, Start, WorkerStartStep};

/// Errors of a message to a process that has exited.
const EPIPE: i32 = 32;
const ECONNRESET: i32 = 104;

impl AgentState {
    /// Begins the next epoch. It is a protocol error if workers of the current epoch are still
    /// running.
    pub(super) fn begin_next_epoch(&mut self, now: Instant) {
        if self.unkillable.take().is_none() {
            self.on_protocol_error(now, "new epoch while workers of the previous one are running");
            return;
        }
        self.begin_epoch(self.epoch.next());
    }

    /// Skips to a later epoch. It is a protocol error if workers of the current epoch were started.
    pub(super) fn skip_to_epoch(&mut self, now: Instant, epoch: Epoch) {
        if !self.workers.is_empty() || epoch <= self.epoch {
            self.on_protocol_error(now, "skipped an epoch that has begun");
            return;
        }
        self.begin_epoch(epoch);
    }

    fn begin_epoch(&mut self, epoch: Epoch) {
        self.epoch = epoch;
        self.workers.clear();
        self.timers.forget_workers();
        self.phase = AgentPhase::Waiting;
        self.push(AgentEffect::BeginEpoch(epoch));
    }

    /// Requests the preflight checks and takes over the launcher's time limits.
    pub(super) fn start_preflight(&mut self, now: Instant, prepare: Prepare) {
        self.phase = AgentPhase::Waiting;
        self.terms = Terms {
            lease: Some(millis(prepare.lease_ms)),
            heartbeat: millis(prepare.heartbeat_ms),
            grace: millis(prepare.grace_ms),
        };
        self.timers.set(now + self.terms.heartbeat, Timer::Heartbeat);
        if self.shim != ShimPhase::Alive {
            // The launcher may have begun this epoch before it received the report in the last one.
            return self.report_shim_failure();
        }
        let (job, node, epoch) = (self.job.clone(), self.node, self.epoch);
        let request = PreflightRequest { job, node, epoch, prepare };
        self.push(AgentEffect::RunPreflight(Box::new(request)));
    }

    /// Handles the result of the preflight checks.
    pub(super) fn on_preflight_done(
        &mut self,
        prepare: Box<Prepare>,
        result: Result<PreparedNode, Vec<Problem>>,
    ) {
        match result {
            Ok(found) => {
                self.phase = AgentPhase::Ready(prepare);
                self.send(FromAgent::Ready(found));
            }
            Err(problems) => {
                self.phase = AgentPhase::Waiting;
                self.send(FromAgent::Refused(problems));
            }
        }
    }

    /// Starts the workers; does nothing unless the preflight checks have passed.
    pub(super) fn start_workers(&mut self, now: Instant, start: Start) {
        let phase = std::mem::replace(&mut self.phase, AgentPhase::Waiting);
        let AgentPhase::Ready(prepare) = phase else {
            self.phase = phase;
            return;
        };
        let Some(roster) = self.roster.take() else {
            self.on_protocol_error(now, "start request without a list of nodes");
            return;
        };
        self.phase = AgentPhase::Started;
        self.workers.add(&start.workers);
        self.group_watch = GroupWatch::for_start(&start, now);
        if let Some(watch) = &self.group_watch {
            self.timers.set(now + watch.interval(), Timer::GroupCheck);
        }
        self.push(AgentEffect::OpenWindow(start.window_bytes));
        if let Some(lease) = self.terms.lease {
            // The shim notices the loss of this agent from the start on, not only after a heartbeat.
            self.ping_shim(lease);
        }
        let (job, epoch) = (self.job.clone(), self.epoch);
        let request = StartRequest { job, epoch, prepare, start, roster };
        self.push(AgentEffect::StartWorkers(Box::new(request)));
    }

    /// Handles a worker that was forked.
    pub(super) fn on_worker_forked(
        &mut self,
        index: usize,
        pid: u32,
        at_us: u64,
        descriptors: usize,
    ) {
        if !matches!(self.phase, AgentPhase::Started) {
            return;
        }
        let rank = self.workers.record_fork(index, pid, descriptors);
        self.push(AgentEffect::AttachWorker { worker: index, epoch: self.epoch });
        self.send(FromAgent::Started { rank, pid, at_us });
    }

    /// Reports that a worker failed before it executed its program.
    pub(super) fn on_start_failed(&mut self, index: usize, step: WorkerStartStep, errno: i32) {
        let rank = self.workers.record_start_failure(index);
        self.send(FromAgent::StartFailed(FailedStart { rank, step, errno }));
    }

    /// Reports that no worker could be started. If the shim has exited, that is the reason, and its
    /// exit follows.
    pub(super) fn on_spawn_failed(&mut self, step: WorkerStartStep, errno: i32) {
        if matches!(errno, EPIPE | ECONNRESET) {
            return;
        }
        for index in 0..self.workers.len() {
            self.on_start_failed(index, step, errno);
        }
        self.unkillable = Some(Vec::new());
        self.report_if_idle();
    }

    /// Requests a check whether the workers form a group.
    pub(super) fn check_group(&mut self, now: Instant) {
        let Some(watch) = &self.group_watch else { return };
        let pids = self.workers.live().into_iter().map(|(_, pid)| pid);
        let (epoch, port, since_start) = (self.epoch, watch.port(), watch.since_start(now));
        let pids = pids.take(WORKERS_CHECKED_MAX).collect();
        self.push(AgentEffect::CheckGroup { epoch, port, pids, since_start });
    }

    /// Handles the result of such a check; results of earlier epochs are discarded.
    pub(super) fn on_group_checked(&mut self, now: Instant, epoch: Epoch, check: GroupCheck) {
        let is_current = epoch == self.epoch;
        let Some(watch) = self.group_watch.as_mut().filter(|_| is_current) else { return };
        match watch.decide(now, check) {
            GroupDecision::CheckAgain => self.timers.set(now + watch.interval(), Timer::GroupCheck),
            GroupDecision::Fine => self.group_watch = None,
            GroupDecision::Ungrouped => {
                let message = watch.ungrouped();
                self.group_watch = None;
                self.send(message);
            }
        }
    }
}

fn millis(ms: u32) -> Duration {
    Duration::from_millis(u64::from(ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::shim::FromShim;
    use crate::agent::state::event::AgentEvent;
    use crate::agent::state::testing::{HEARTBEAT, LEASE, TestAgent, prepare, start};
    use crate::base::{Rank, Status, WorkerExit, clock};
    use crate::wire::{NodeRoster, ToAgent};

    const EMPTY: FromShim = FromShim::Empty { unkillable: Vec::new() };

    #[track_caller]
    fn check_protocol_error(agent: &mut TestAgent, message: ToAgent, why: &str) {
        let effects = agent.say(message);
        let text = format!("protocol error from the launcher: {why}; stopping the workers");
        assert!(effects.contains(&AgentEffect::Print(text)), "{effects:?}");
        agent.hear(EMPTY);
        assert_eq!(agent.state.exit_status(), Some(Status::Protocol));
    }

    #[test]
    fn checks_take_over_the_terms_of_the_launcher() {
        let mut agent = TestAgent::new(clock::now());
        let effects = agent.say(ToAgent::Prepare(Box::new(prepare())));
        let [AgentEffect::RunPreflight(request)] = &effects[..] else { panic!("{effects:?}") };
        assert_eq!((request.epoch, &request.prepare), (Epoch(0), &prepare()));
        assert!(!agent.pass(LEASE).contains(&AgentEffect::CloseLink));
        assert!(agent.pass(HEARTBEAT).contains(&AgentEffect::CloseLink), "also during the checks");
    }

    #[test]
    fn workers_are_started_only_after_passed_checks() {
        let mut agent = TestAgent::new(clock::now());
        assert_eq!(agent.say(ToAgent::Start(start(1))), []);
        agent.say(ToAgent::Prepare(Box::new(prepare())));
        assert_eq!(agent.say(ToAgent::Start(start(1))), []);
        let problems = vec![Problem::new(Status::NoInput, "no script")];
        let (prepare, result) = (Box::new(prepare()), Err(problems.clone()));
        let refused = agent.step(AgentEvent::PreflightDone { prepare, result });
        assert_eq!(refused, [agent.sent(FromAgent::Refused(problems))]);
        assert_eq!(agent.say(ToAgent::Start(start(1))), []);
        agent.pass_preflight();
        agent.start(1);
        assert_eq!(agent.say(ToAgent::Start(start(1))), [], "once");
    }

    #[test]
    fn start_needs_a_list_of_nodes() {
        let start = ToAgent::Start(start(1));
        let why = "start request without a list of nodes";
        check_protocol_error(&mut TestAgent::ready(clock::now()), start, why);
        let mut agent = TestAgent::ready(clock::now());
        agent.say(ToAgent::Roster(vec![0xff; 3]));
        assert_eq!(agent.state.exit_status(), Some(Status::Protocol), "a malformed list");
    }

    #[test]
    fn next_epoch_begins_after_all_processes_exited() {
        let mut agent = TestAgent::started(clock::now(), 1);
        agent.exit(0, WorkerExit::Code(1));
        agent.end_streams(0);
        let unkillable = Vec::new();
        assert_eq!(agent.hear(EMPTY), [agent.sent(FromAgent::Idle { unkillable })]);
        assert_eq!(agent.say(ToAgent::NextEpoch), [AgentEffect::BeginEpoch(Epoch(1))]);
        assert_eq!(agent.pass(HEARTBEAT), [], "timers of the workers are gone");
        agent.say(ToAgent::Prepare(Box::new(prepare())));
        agent.pass_preflight();
        agent.start(1);
        let why = "new epoch while workers of the previous one are running";
        check_protocol_error(&mut agent, ToAgent::NextEpoch, why);
    }

    #[test]
    fn epoch_can_be_skipped_only_before_its_start() {
        let mut agent = TestAgent::ready(clock::now());
        let skip = |epoch| ToAgent::SkipToEpoch(Epoch(epoch));
        assert_eq!(agent.say(skip(3)), [AgentEffect::BeginEpoch(Epoch(3))]);
        assert_eq!(agent.say(ToAgent::Start(start(1))), [], "the checks were for epoch 0");
        let why = "skipped an epoch that has begun";
        check_protocol_error(&mut agent, skip(3), why);
        check_protocol_error(&mut TestAgent::started(clock::now(), 1), skip(1), why);
    }

    #[test]
    fn failed_request_to_the_shim_fails_all_workers() {
        let mut agent = TestAgent::ready(clock::now());
        agent.say(ToAgent::Roster(NodeRoster { nodes: vec![("n0".to_owned(), 2)] }.pack()));
        agent.say(ToAgent::Start(start(2)));
        let step = WorkerStartStep::SharedMemory;
        let effects = agent.step(AgentEvent::SpawnFailed { step, errno: 24 });
        let failed =
            |rank| FromAgent::StartFailed(FailedStart { rank: Rank(rank), step, errno: 24 });
        let idle = FromAgent::Idle { unkillable: Vec::new() };
        assert_eq!(effects, [failed(0), failed(1), idle].map(|message| agent.sent(message)));
    }

    #[test]
    fn request_to_an_exited_shim_is_no_failed_start() {
        let mut agent = TestAgent::started(clock::now(), 1);
        let step = WorkerStartStep::Fork;
        assert_eq!(agent.step(AgentEvent::SpawnFailed { step, errno: EPIPE }), []);
        let effects = agent.step(AgentEvent::ShimExited);
        assert_eq!(effects[0], agent.sent(FromAgent::ShimExited));
    }

    #[test]
    fn suspended_workers_are_searched_among_the_living() {
        let mut agent = TestAgent::started(clock::now(), 2);
        agent.exit(0, WorkerExit::Code(0));
        let found = agent.say(ToAgent::ReportSuspended);
        assert_eq!(found, [AgentEffect::FindSuspended(vec![(Rank(1), 101)])]);
        let ranks = vec![Rank(1)];
        let sent = agent.step(AgentEvent::SuspendedFound(ranks.clone()));
        assert_eq!(sent, [agent.sent(FromAgent::Suspended(ranks))]);
    }

    #[test]
    fn group_is_checked_until_decided_in_its_epoch() {
        let mut agent = TestAgent::ready(clock::now());
        agent.say(ToAgent::Roster(NodeRoster { nodes: vec![("n0".to_owned(), 2)] }.pack()));
        let mut start = Start { group_limit_ms: 3_000, ..start(2) };
        let variables = ["RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=n0", "MASTER_PORT=29500"];
        start.workers[0].env = variables
            .map(|text| text.split_once('=').expect("NAME=VALUE"))
            .map(|(name, value)| (name.into(), value.into()))
            .to_vec();
        agent.say(ToAgent::Start(start));
        let check = GroupCheck { workers: 2, with_torch: 2, has_socket: false };
        for _ in 0..4 {
            let effects = agent.pass(Duration::from_secs(1));
            let [AgentEffect::CheckGroup { epoch, port: 29500, .. }] = effects[..] else {
                panic!("{effects:?}")
            };
            let late = AgentEvent::GroupChecked { epoch: epoch.next(), check };
            assert_eq!(agent.step(late), [], "of another epoch");
            let effects = agent.step(AgentEvent::GroupChecked { epoch, check });
            if !effects.is_empty() {
                let (master, seconds) = ("n0:29500".to_owned(), 3);
                assert_eq!(effects, [agent.sent(FromAgent::Ungrouped { master, seconds })]);
                assert_eq!(agent.pass(LEASE / 4), []);
                return;
            }
        }
        panic!("nothing was reported");
    }
}
