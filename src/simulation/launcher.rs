//! The simulated launcher: the real job, and around it what the dispatcher does with its events and
//! effects.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::clock::{MS, Micros, SECOND};
use super::draw::Draw;
use super::incidents::Check;
use super::mistakes::Mistake;
use super::network::{Parcel, Way};
use super::processes::SimulatedLauncher;
use super::scenario::{Reach, Scenario};
use super::story::Teller;
use super::words::{describe_event, describe_verdict};
use super::world::{FaultEnd, Happening, Simulation};
use crate::base::{Epoch, NodeRank, Rank, Status};
use crate::job::{Effect, Event, JobState, NodeLoss, OnFailure, Policy};
use crate::launch::node::table::{NodeLimits, NodeTable};
use crate::launch::user::pause::Pause;
use crate::secure::JobKey;
use crate::wire::{self, Prepare, ToAgent};

/// Time limit for the ends of all links after the verdict.
const CLOSE_LIMIT: Micros = 3 * SECOND;
/// Longest wait of the launcher's loop for its disk.
const DISK_WAIT_MAX: Micros = SECOND;

impl SimulatedLauncher {
    /// A launcher that starts now.
    pub(super) fn new(scenario: &Scenario, mistake: Option<Mistake>, now: Instant) -> Self {
        let limits = NodeLimits {
            lease: Duration::from_micros(scenario.lease),
            heartbeat_interval: Duration::from_micros(scenario.heartbeat),
            preflight: Duration::from_micros(scenario.prepare_limit),
        };
        let nodes = (0..).map(NodeRank).zip(&scenario.workers);
        let node_of_rank = nodes
            .flat_map(|(node, workers)| std::iter::repeat_n(node, *workers as usize))
            .collect();
        Self {
            job: JobState::new(policy_of(scenario, mistake), node_of_rank),
            number: 0,
            will_be_replaced: false,
            has_started: false,
            is_alive: true,
            suspensions: 0,
            table: NodeTable::new(scenario.workers.len(), limits, now),
            nodes: Vec::new(),
            events: VecDeque::new(),
            consumed: VecDeque::new(),
            signals: VecDeque::new(),
            readable: VecDeque::new(),
            timer_at: None,
            timeout_at: scenario.timeout,
            reaping_until: None,
            scheduled_wake: Micros::MAX,
            pause: Pause::default(),
            pause_time: 0,
            pause_total: 0,
            stopped_at: None,
            slow_until: 0,
            is_finishing: false,
            evidence_of: Vec::new(),
            has_evidence: false,
        }
    }
}

/// The policy of a job, as a defective launcher would take it.
fn policy_of(scenario: &Scenario, mistake: Option<Mistake>) -> Policy {
    let mut policy = scenario.policy;
    if let (Some(Mistake::JobStartsBelowMin), Some(elastic)) = (mistake, &mut policy.elastic) {
        elastic.min = 1;
    }
    policy
}

impl Simulation {
    /// The launcher starts: it connects to all nodes.
    pub(super) fn begin_launcher(&mut self) {
        for node in (0..self.scenario.workers.len() as u32).map(NodeRank) {
            self.connect(node, Epoch(0));
            if self.scenario.reach == Reach::Dial && self.connects_by_itself(node) {
                let host = self.host_of(node);
                let time = self.random.between(0, 5 * SECOND);
                self.after(time, Happening::HostDials(host));
            }
        }
        self.run_launcher();
    }

    /// The launcher handles everything that it has received, in the order of its loop.
    pub(super) fn run_launcher(&mut self) {
        let is_running = |launcher: &SimulatedLauncher| {
            launcher.is_alive && launcher.suspensions == 0 && !launcher.is_finishing
        };
        while is_running(&self.launcher) && self.truth.violation.is_none() {
            let now = self.now();
            let is_due = |at: Option<Micros>| at.is_some_and(|at| at <= now);
            if let Some(signal) = self.launcher.signals.pop_front() {
                self.truth.user_signals.push(signal);
                self.step_job(Event::Signal(signal));
            } else if is_due(self.launcher.timer_at)
                && !self.launcher.table.was_suspended(self.instant(now))
            {
                self.launcher.timer_at = None;
                self.step_job(Event::Timer);
            } else if is_due(self.timeout_at()) && !self.launcher.job.is_stopping() {
                self.launcher.timeout_at = None;
                self.truth.has_timed_out = true;
                self.step_job(Event::TimedOut);
            } else if is_due(self.pause_at()) {
                self.suspend_launcher();
            } else if self.heartbeat_at() <= now {
                self.on_heartbeat_timer();
            } else if is_due(self.launcher.reaping_until) {
                self.finish_reaping();
            } else if !self.handle_news() {
                break;
            }
            if self.launcher.job.verdict().is_some() {
                self.finish_launcher();
            }
        }
        if is_running(&self.launcher) {
            self.schedule_launcher_wake();
        }
    }

    fn timeout_at(&self) -> Option<Micros> {
        self.launcher.timeout_at.map(|at| at + self.launcher.pause_total)
    }

    fn pause_at(&self) -> Option<Micros> {
        self.launcher.pause.stop_at().map(|at| self.micros(at))
    }

    fn heartbeat_at(&self) -> Micros {
        self.micros(self.launcher.table.heartbeat_at())
    }

    fn schedule_launcher_wake(&mut self) {
        let now = self.now();
        let timeout = self.timeout_at().filter(|_| !self.launcher.job.is_stopping());
        let times = [self.launcher.timer_at, timeout, self.pause_at(), self.launcher.reaping_until];
        let wake = times.into_iter().flatten().fold(self.heartbeat_at(), Micros::min);
        let scheduled = self.launcher.scheduled_wake;
        if !(now < scheduled && scheduled <= wake) {
            self.launcher.scheduled_wake = wake;
            self.agenda.add(wake, Happening::LauncherRuns);
        }
    }

    /// Reads one link or handles one event of the queue; false if there is nothing.
    fn handle_news(&mut self) -> bool {
        let launcher = &mut self.launcher;
        let reads = match (launcher.readable.is_empty(), launcher.events.is_empty()) {
            (true, true) => return self.handle_evidence(),
            (false, true) => true,
            (true, false) => false,
            (false, false) => self.random.one_in(2),
        };
        if reads {
            let connection = self.launcher.readable.pop_front().expect("it is not empty");
            self.read_link(connection);
        } else {
            let event = self.launcher.events.pop_front().expect("it is not empty");
            self.on_link_news(event);
        }
        true
    }

    fn handle_evidence(&mut self) -> bool {
        if let Some(output) = self.launcher.consumed.pop_front() {
            self.confirm_output(&output);
            return true;
        }
        if !std::mem::replace(&mut self.launcher.has_evidence, false) {
            return false;
        }
        let ranks = std::mem::take(&mut self.launcher.evidence_of);
        let evidence = self.evidence_about(&ranks);
        self.step_job(Event::Evidence(evidence));
        true
    }

    /// Applies an event to the job and performs the effects.
    pub(super) fn step_job(&mut self, event: Event) {
        let received = event.clone();
        let Some(event) = self.mistake_job_event(event) else { return };
        let was_stopping = self.launcher.job.is_stopping();
        let is_failure = match &event {
            Event::Exited(end) => !end.exit.is_success(),
            Event::NodeLost { .. } | Event::LeaseExpired(_) | Event::NotStarted { .. } => true,
            _ => false,
        };
        self.tell(Teller::Launcher, || describe_event(&event));
        let now = self.instant(self.now());
        let effects = self.launcher.job.step(now, event);
        let is_elastic = self.scenario.policy.elastic.is_some();
        let is_starting = self.launcher.job.is_preparing() && !is_elastic;
        let goes_on = effects.iter().any(|effect| matches!(effect, Effect::Replace(_)))
            || !(self.launcher.job.is_stopping() || is_starting);
        let lets_run = self.scenario.policy.failure == OnFailure::LetRun;
        if is_failure && !was_stopping && (lets_run || !goes_on) {
            let now = self.now();
            self.truth.noticed_at.get_or_insert(now);
        }
        self.check_stop(&received, &effects);
        for effect in effects {
            self.perform_for_job(effect);
        }
    }

    /// What a defective job would take the event for.
    fn mistake_job_event(&self, mut event: Event) -> Option<Event> {
        if let (Some(Mistake::JobNamesLastFailure), Event::Exited(end)) = (self.mistake, &mut event)
        {
            // Later exits seem to be earlier.
            let mirror = self.instant(3_600 * SECOND);
            end.at = self.start + (mirror - end.at);
        }
        let is_loss = matches!(event, Event::NodeLost { .. } | Event::LeaseExpired(_));
        match self.mistake {
            Some(Mistake::LostNodeStaysMember) if is_loss && self.launcher.job.is_preparing() => {
                None
            }
            Some(Mistake::LossOfSpareIsFailure) => Some(self.mistake_spare(event)),
            _ => Some(event),
        }
    }

    /// The loss of a node without a part in the epoch, taken for that of one with a part.
    fn mistake_spare(&self, event: Event) -> Event {
        match (event, self.node_of(Rank(0))) {
            (Event::NodeLost { node, loss, since }, Some(first))
                if !self.launcher.job.is_member(node) =>
            {
                Event::NodeLost { node: first, loss, since }
            }
            (event, _) => event,
        }
    }

    fn perform_for_job(&mut self, effect: Effect) {
        match effect {
            Effect::Start => self.start_epoch(),
            Effect::Signal(signal) => self.send_to_all(&ToAgent::Signal(signal)),
            Effect::Warn(warning) => self.send_to_all(&ToAgent::Signal(warning.signal)),
            Effect::Kill => self.send_to_all(&ToAgent::Kill),
            Effect::Wake(at) => self.launcher.timer_at = Some(self.micros(at)),
            Effect::ShowOnly(_) => {}
            Effect::ReportStopping(reason) => {
                self.tell(Teller::Launcher, || format!("stops the job: {reason:?}"));
            }
            Effect::ReportKilling => {
                self.tell(Teller::Launcher, || "kills all workers".to_owned());
            }
            Effect::CollectEvidence(ranks) => {
                self.launcher.evidence_of = ranks;
                let slow = self.launcher.slow_until.saturating_sub(self.now());
                let time = slow + self.random.between(100, 50 * MS);
                self.after(time, Happening::EvidenceIsFound);
            }
            Effect::PauseBeforeRestart { verdict, next, pause } => {
                if self.mistake == Some(Mistake::ArrivalIsCharged) && verdict.cause.is_none() {
                    self.launcher.job.epochs.charge_free_restart();
                }
                self.check_epoch(&verdict);
                self.truth.restarts += 1;
                self.tell(Teller::Launcher, || {
                    format!(
                        "restarts as epoch {next} after {pause:?}: {}",
                        describe_verdict(&verdict)
                    )
                });
                self.truth.previous = Some(verdict);
                self.wait_for_disk();
            }
            Effect::BeginEpoch(disconnected) => self.prepare_epoch(disconnected),
            Effect::Replace(lost) => self.await_replacements(&lost),
            Effect::SkipToEpoch(epoch) => self.skip_to_epoch(epoch),
        }
    }

    /// What workers reported about their failures has been found.
    pub(super) fn find_evidence(&mut self) {
        self.launcher.has_evidence = true;
        self.run_launcher();
    }

    /// A slow disk blocks the loop for a moment.
    pub(super) fn wait_for_disk(&mut self) {
        let wait = self.launcher.slow_until.saturating_sub(self.now()).min(DISK_WAIT_MAX);
        if 0 < wait {
            self.launcher.suspensions += 1;
            self.resume_launcher_after(wait);
        }
    }

    /// The suspension of the launcher that runs now ends after a time.
    pub(super) fn resume_launcher_after(&mut self, time: Micros) {
        let number = self.launcher.number;
        self.after(time, Happening::FaultEnds(FaultEnd::LauncherResumes { number }));
    }

    /// A suspension of a launcher ends, which another launcher may have replaced.
    pub(super) fn resume_launcher(&mut self, number: u32) {
        if number != self.launcher.number {
            return;
        }
        self.truth.gave_up_suspended |= self.launcher.job.is_stopping();
        self.launcher.suspensions = self.launcher.suspensions.saturating_sub(1);
        self.run_launcher();
    }

    pub(super) fn send_to_all(&mut self, message: &ToAgent) {
        for node in (0..self.launcher.nodes.len() as u32).map(NodeRank) {
            self.send_to(node, message);
        }
    }

    /// Sends a message to a node, now or once there is a link.
    pub(super) fn send_to(&mut self, node: NodeRank, message: &ToAgent) {
        let place = &mut self.launcher.nodes[node.index()];
        let frame = wire::encode(place.epoch, message);
        match place.connection {
            Some(connection) => self.send(connection, Way::ToNode, Parcel::Bytes(frame)),
            None => place.queue.push(frame),
        }
    }

    /// Asks a node whether it can start.
    pub(super) fn send_prepare(&mut self, node: NodeRank) {
        let ms = |time: Micros| (time / MS) as u32;
        let prepare = Prepare {
            cwd: b"/".to_vec(),
            program: b"train".to_vec(),
            script: None,
            fds: 8,
            listen: None,
            key: JobKey::from_random([7; 32]),
            rank_limit: self.scenario.habits.len() as u32,
            lease_ms: ms(self.scenario.lease),
            heartbeat_ms: ms(self.scenario.heartbeat),
            grace_ms: self.scenario.policy.grace.as_millis() as u32,
            cores: None,
            venv_script: None,
            gpu_locks: None,
            files: Vec::new(),
            spans_machines: false,
            package: None,
        };
        let now = self.instant(self.now());
        self.launcher.table.on_asked(node, now);
        self.send_to(node, &ToAgent::Prepare(Box::new(prepare)));
    }

    fn on_heartbeat_timer(&mut self) {
        let now = self.instant(self.now());
        if let Some(suspended) = self.launcher.table.on_heartbeat_timer(now) {
            self.step_job(Event::Stalled(suspended));
        }
        self.send_heartbeats();
        self.refuse_late_nodes();
        self.end_join_time();
        let mut expired = self.launcher.table.silence(now).expired;
        if self.mistake == Some(Mistake::LauncherIgnoresLease) {
            expired.clear();
        }
        expired.retain(|lost| self.mark_node_lost(lost.node, NodeLoss::LeaseExpired).is_some());
        if !expired.is_empty() {
            self.step_job(Event::LeaseExpired(expired));
        }
    }

    pub(super) fn send_heartbeats(&mut self) {
        for node in self.launcher.table.all() {
            self.send_heartbeat(node);
        }
    }

    pub(super) fn send_heartbeat(&mut self, node: NodeRank) {
        if self.launcher.table.is_connected(node) {
            let at_us = self.launcher_clock_us();
            self.send_to(node, &ToAgent::Heartbeat { at_us });
        }
    }

    /// The launcher's own clock, as it counts for the estimates of other clocks.
    pub(super) fn launcher_clock_us(&self) -> u64 {
        self.now() + 500 * SECOND
    }

    /// Gives up nodes whose checks exceed the time limit.
    fn refuse_late_nodes(&mut self) {
        let now = self.instant(self.now());
        for node in self.launcher.table.overdue(now) {
            self.truth.refusals += 1;
            if let Some(connection) = self.launcher.nodes[node.index()].connection {
                self.close_by_launcher(connection);
            }
            self.refuse(node);
        }
    }

    /// The launcher suspends itself, after its workers.
    fn suspend_launcher(&mut self) {
        let time = self.launcher.pause_time;
        self.launcher.suspensions += 1;
        self.launcher.pause_total += time;
        self.tell(Teller::Launcher, || "suspends itself".to_owned());
        let stopped_at = self.now();
        self.launcher.stopped_at = Some(stopped_at);
        self.after(time, Happening::FaultEnds(FaultEnd::JobResumes));
    }

    /// The launcher is continued after such a suspension.
    pub(super) fn resume_job(&mut self) {
        let now = self.now();
        // Another launcher may have taken its place, which was not suspended with the job.
        let Some(stopped_at) = self.launcher.stopped_at.take() else { return };
        self.launcher.suspensions = self.launcher.suspensions.saturating_sub(1);
        self.delay_incidents(stopped_at);
        if !self.launcher.is_alive {
            return;
        }
        let (suspended, resumed_at) = (Duration::from_micros(now - stopped_at), self.instant(now));
        self.launcher.pause.on_resumed(suspended);
        self.launcher.table.on_resumed(resumed_at, suspended);
        self.send_to_all(&ToAgent::Resume);
        self.step_job(Event::Suspended(suspended));
        self.run_launcher();
    }

    /// The job has a verdict: the launcher says so to all nodes and waits for the ends of the links.
    fn finish_launcher(&mut self) {
        self.launcher.is_finishing = true;
        let mut verdict = self.launcher.job.verdict().expect("it has one").clone();
        if self.mistake == Some(Mistake::RefusalIsSuccess) && verdict.status == Status::Config {
            verdict.status = Status::Success;
        }
        self.tell(Teller::Launcher, || format!("ends the job: {}", describe_verdict(&verdict)));
        self.send_to_all(&ToAgent::Bye);
        let limit = if verdict.unconfirmed.is_empty() { CLOSE_LIMIT } else { 0 };
        let time = self.random.between(limit / 100, limit);
        self.check_verdict(&verdict);
        self.truth.verdict = Some(verdict);
        self.after(time, Happening::LauncherExits);
    }

    /// The launcher's process is gone; its links end, unless its machine has lost power.
    pub(super) fn exit_launcher(&mut self) {
        if !std::mem::replace(&mut self.launcher.is_alive, false) {
            return;
        }
        self.truth.launcher_gone_at = Some(self.now());
        self.tell(Teller::Launcher, || "exits".to_owned());
        for connection in 0..self.connections.len() {
            self.close_by_launcher(connection);
        }
    }

    /// Notes a message that no real agent may send.
    pub(super) fn fail_protocol(&mut self, node: NodeRank, why: &str) {
        self.truth.fail(Check::Protocol, || format!("node {node}: {why}"));
    }
}
