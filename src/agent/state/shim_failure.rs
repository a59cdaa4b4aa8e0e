//! Requests to the shim, and its failure: if it is stopped or exits, the agent kills the workers
//! itself.

use std::time::{Duration, Instant};

use super::agent_state::{AgentState, SIGCONT, SIGKILL, ShimPhase};
use super::event::{AgentEffect, ShimCheck, ShimStatus};
use super::shim_heartbeat::ShimAction;
use super::timers::Timer;
use super::worker_exit::ExitFacts;
use crate::agent::shim::ToShim;
use crate::base::WorkerExit;
use crate::report::text::show_duration;
use crate::wire::{FromAgent, Leftover};

/// Interval of checks whether a shim that was asked to kill everything is stopped.
const KILL_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Pause between two attempts to kill and reap what the shim left: a killed process ends after a
/// moment, once its memory is freed.
const REAP_INTERVAL: Duration = Duration::from_millis(1);

impl AgentState {
    /// Signals the workers. A stopped shim could not pass the signal on, so it is continued first.
    pub(super) fn signal_workers(&mut self, signal: i32) {
        if self.shim == ShimPhase::Alive {
            self.push(AgentEffect::SignalShim(SIGCONT));
            self.push(AgentEffect::SendToShim(ToShim::Signal(signal)));
        }
    }

    /// Kills everything of the job on this node: the shim does it, unless it is stopped.
    pub(super) fn kill_workers(&mut self) {
        self.send_to_shim(ToShim::Kill);
        self.check_kill();
    }

    /// Makes sure that a shim that is stopped before it has killed everything is killed.
    pub(super) fn check_kill(&mut self) {
        if self.is_kill_pending() {
            self.push(AgentEffect::InspectShim(ShimCheck::Kill));
        }
    }

    fn is_kill_pending(&self) -> bool {
        self.shim == ShimPhase::Alive && self.unkillable.is_none()
    }

    /// Requests at a heartbeat of the agent a check whether the shim can answer. `late`: the time
    /// for which the agent itself did not run.
    pub(super) fn inspect_shim(&mut self, late: Duration) {
        if self.shim == ShimPhase::Alive && self.terms.lease.is_some() {
            self.push(AgentEffect::InspectShim(ShimCheck::Heartbeat { late }));
        }
    }

    /// Handles the state of the shim.
    pub(super) fn on_shim_inspected(&mut self, now: Instant, check: ShimCheck, status: ShimStatus) {
        match check {
            ShimCheck::Heartbeat { late } => self.check_shim_heartbeat(now, late, status),
            ShimCheck::Kill if !self.is_kill_pending() => {}
            ShimCheck::Kill => match status {
                ShimStatus::Stopped => {
                    self.shim_heartbeat.record_kill();
                    self.push(AgentEffect::SignalShim(SIGKILL));
                }
                ShimStatus::Running | ShimStatus::Traced => {
                    self.timers.set(now + KILL_CHECK_INTERVAL, Timer::KillCheck);
                }
            },
        }
    }

    fn check_shim_heartbeat(&mut self, now: Instant, late: Duration, status: ShimStatus) {
        let (ShimPhase::Alive, Some(lease)) = (self.shim, self.terms.lease) else {
            return;
        };
        let is_suspended = status != ShimStatus::Running;
        match self.shim_heartbeat.tick(now, late, lease, is_suspended) {
            ShimAction::Wait => {}
            ShimAction::Ping => self.ping_shim(lease),
            ShimAction::Continue => {
                self.push(AgentEffect::SignalShim(SIGCONT));
                let lease = show_duration(lease);
                self.push(AgentEffect::Print(format!(
                    "remuda-shim did not answer for {lease} (--lease); sent SIGCONT"
                )));
            }
            ShimAction::Kill => self.push(AgentEffect::SignalShim(SIGKILL)),
        }
    }

    /// Asks the shim for an answer, and renews the time after which it regards this agent as lost.
    pub(super) fn ping_shim(&mut self, lease: Duration) {
        let lease = lease.max(2 * self.terms.heartbeat);
        self.push(AgentEffect::SendToShim(ToShim::Ping { lease }));
    }

    /// Kills the workers after the shim exited: they are the agent's children now, and no other
    /// process can wait for them.
    pub(super) fn on_shim_exit(&mut self) {
        if self.shim != ShimPhase::Alive {
            return;
        }
        // Also reported after the shim's last message: it cannot start the workers of another
        // epoch.
        self.report_shim_failure();
        self.shim = ShimPhase::Reaping;
        self.push(AgentEffect::ReapOrphans);
    }

    /// Reports that no worker can be started here.
    pub(super) fn report_shim_failure(&mut self) {
        let was_killed = self.shim_heartbeat.was_killed();
        self.send(if was_killed { FromAgent::ShimHung } else { FromAgent::ShimExited });
    }

    /// Sets the timer of the next attempt to kill what the shim left.
    pub(super) fn on_orphans_left(&mut self, now: Instant) {
        self.timers.set(now + REAP_INTERVAL, Timer::Reap);
    }

    /// Reports the exits of all workers that the shim left.
    pub(super) fn on_orphans_reaped(
        &mut self,
        now: Instant,
        at_us: u64,
        unkillable: Vec<Leftover>,
    ) {
        self.shim = ShimPhase::Gone;
        let exit = WorkerExit::Signal { signal: SIGKILL, core: false };
        for index in self.workers.live_indices() {
            let end = ExitFacts { exit, at_us, signals_sent: vec![SIGKILL] };
            self.on_worker_exit(now, index, end);
        }
        // The shim may have reported before it exited that nothing was left.
        if self.unkillable.is_none() {
            self.unkillable = Some(unkillable);
            self.report_if_idle();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::shim::FromShim;
    use crate::agent::state::event::{AgentEvent, ExitReport};
    use crate::agent::state::testing::{HEARTBEAT, LEASE, TestAgent, prepare};
    use crate::base::{Rank, Status, clock};
    use crate::runtime::contract::ToWorker;
    use crate::wire::ToAgent;

    /// Time passes under a launcher that sends heartbeats.
    fn pass_with_launcher(agent: &mut TestAgent, time: Duration) -> Vec<AgentEffect> {
        let (end, mut found) = (agent.now + time, Vec::new());
        while agent.now < end {
            agent.say(ToAgent::Consumed(0));
            found.extend(agent.pass(HEARTBEAT.min(end - agent.now)));
        }
        found.retain(|effect| !matches!(effect, AgentEffect::AcknowledgeOutput(_)));
        found
    }

    #[test]
    fn exit_of_the_shim_kills_its_workers() {
        let mut agent = TestAgent::started(clock::now(), 2);
        agent.exit(0, WorkerExit::Code(0));
        agent.end_streams(0);
        agent.end_streams(1);
        let effects = agent.step(AgentEvent::ShimExited);
        assert_eq!(effects, [agent.sent(FromAgent::ShimExited), AgentEffect::ReapOrphans]);
        assert_eq!(agent.step(AgentEvent::OrphansLeft), []);
        assert_eq!(agent.pass(REAP_INTERVAL), [AgentEffect::ReapOrphans]);
        let unkillable = vec![Leftover { pid: 9, name: "stuck".to_owned() }];
        let reaped = AgentEvent::OrphansReaped { at_us: 5, unkillable: unkillable.clone() };
        let exit = WorkerExit::Signal { signal: SIGKILL, core: false };
        let rank = Rank(1);
        let expected = [
            AgentEffect::DetachWorker(1),
            AgentEffect::Broadcast(ToWorker::PeerGone { rank }),
            AgentEffect::ReportExit(ExitReport {
                epoch: agent.state.epoch,
                worker: 1,
                rank,
                pid: Some(101),
                exit,
                at_us: 5,
                signals_sent: vec![SIGKILL],
            }),
            agent.sent(FromAgent::Idle { unkillable }),
        ];
        assert_eq!(agent.step(reaped), expected);
        assert_eq!(agent.say(ToAgent::Kill), [], "there is no shim");
        assert_eq!(agent.say(ToAgent::Signal(15)), [], "there is no shim");
        agent.step(AgentEvent::LinkEnded);
        assert_eq!(agent.state.exit_status(), Some(Status::Success));
    }

    #[test]
    fn exit_of_an_idle_shim_is_no_second_end_of_the_epoch() {
        let mut agent = TestAgent::started(clock::now(), 1);
        agent.exit(0, WorkerExit::Code(0));
        agent.end_streams(0);
        agent.hear(FromShim::Empty { unkillable: Vec::new() });
        agent.step(AgentEvent::ShimExited);
        assert_eq!(agent.step(AgentEvent::OrphansReaped { at_us: 5, unkillable: Vec::new() }), []);
    }

    #[test]
    fn exited_shim_is_reported_again_in_the_next_epoch() {
        let mut agent = TestAgent::started(clock::now(), 1);
        agent.exit(0, WorkerExit::Code(1));
        agent.end_streams(0);
        agent.hear(FromShim::Empty { unkillable: Vec::new() });
        agent.step(AgentEvent::ShimExited);
        // The launcher has not read that when it begins the next epoch, and discards it then.
        agent.say(ToAgent::NextEpoch);
        let effects = agent.say(ToAgent::Prepare(Box::new(prepare())));
        assert_eq!(effects, [agent.sent(FromAgent::ShimExited)]);
    }

    #[test]
    fn stopped_shim_is_continued_then_killed() {
        let mut agent = TestAgent::started(clock::now(), 1);
        agent.shim_status = ShimStatus::Stopped;
        let effects = pass_with_launcher(&mut agent, LEASE + 2 * HEARTBEAT);
        let line = "remuda-shim did not answer for 30 s (--lease); sent SIGCONT";
        assert_eq!(
            effects,
            [AgentEffect::SignalShim(SIGCONT), AgentEffect::Print(line.to_owned())]
        );
        let effects = pass_with_launcher(&mut agent, HEARTBEAT);
        assert_eq!(effects, [AgentEffect::SignalShim(SIGKILL)], "it was stopped again at once");
        let effects = agent.step(AgentEvent::ShimExited);
        assert_eq!(effects[0], agent.sent(FromAgent::ShimHung));
    }

    #[test]
    fn running_shim_is_never_signalled() {
        let mut agent = TestAgent::started(clock::now(), 1);
        assert_eq!(pass_with_launcher(&mut agent, 10 * LEASE), []);
    }

    #[test]
    fn shim_that_is_stopped_before_it_has_killed_is_killed() {
        let mut agent = TestAgent::started(clock::now(), 1);
        let kill = agent.say(ToAgent::Kill);
        assert_eq!(kill, [AgentEffect::SendToShim(ToShim::Kill)]);
        assert_eq!(agent.pass(KILL_CHECK_INTERVAL), [], "it runs");
        agent.shim_status = ShimStatus::Traced;
        assert_eq!(agent.pass(KILL_CHECK_INTERVAL), [], "a debugger stops it for moments");
        agent.shim_status = ShimStatus::Stopped;
        assert_eq!(agent.pass(KILL_CHECK_INTERVAL), [AgentEffect::SignalShim(SIGKILL)]);
        let effects = agent.step(AgentEvent::ShimExited);
        assert_eq!(effects[0], agent.sent(FromAgent::ShimHung));
    }

    #[test]
    fn stopped_shim_that_has_killed_everything_is_left_alone() {
        let mut agent = TestAgent::started(clock::now(), 1);
        agent.say(ToAgent::Kill);
        agent.hear(FromShim::Empty { unkillable: Vec::new() });
        agent.shim_status = ShimStatus::Stopped;
        assert_eq!(agent.pass(KILL_CHECK_INTERVAL), []);
    }

    #[test]
    fn exit_of_the_shim_without_workers_is_reported() {
        let mut agent = TestAgent::ready(clock::now());
        agent.step(AgentEvent::ShimExited);
        let reaped = AgentEvent::OrphansReaped { at_us: 0, unkillable: Vec::new() };
        let idle = FromAgent::Idle { unkillable: Vec::new() };
        assert_eq!(agent.step(reaped), [agent.sent(idle)]);
        assert_eq!(agent.state.exit_status(), None, "the launcher decides");
    }
}
