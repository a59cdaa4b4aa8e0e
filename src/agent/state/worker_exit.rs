//! Messages of the shim: workers start, exit and leave processes behind, until no process of the
//! job is left.

use std::time::{Duration, Instant};

use super::agent_state::AgentState;
use super::event::{AgentEffect, ExitReport};
use super::timers::Timer;
use super::workers::Linger;
use crate::agent::shim::{FromShim, ToShim};
use crate::base::WorkerExit;
use crate::runtime::contract::ToWorker;
use crate::wire::{FromAgent, Leftover, Stream};

/// Time for the processes that a successful worker left behind to exit by themselves: helpers such
/// as Python's resource tracker outlive their parent by milliseconds.
pub(super) const LINGER_TIME: Duration = Duration::from_secs(1);
/// Time limit for such processes that are not waiting for anything: on a busy machine it takes
/// longer.
pub(super) const LINGER_MAX: Duration = Duration::from_secs(5);
/// Interval of the checks of such a process.
pub(super) const LINGER_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Time limit for the end of a stream that another process holds open after its worker exited.
pub(super) const HELD_STREAM_LIMIT: Duration = Duration::from_secs(1);

impl AgentState {
    /// Handles a message of the shim.
    pub(super) fn on_shim_message(&mut self, now: Instant, message: FromShim, descriptors: usize) {
        self.shim_heartbeat.on_message(now, message == FromShim::Pong);
        match message {
            FromShim::Forked { worker, pid, at_us } => {
                self.on_worker_forked(worker as usize, pid, at_us, descriptors);
            }
            FromShim::Failed { worker, step, errno } => {
                self.on_start_failed(worker as usize, step, errno);
            }
            FromShim::Exited { worker, exit, at_us, signals_sent } => {
                self.on_worker_exit(now, worker as usize, ExitFacts { exit, at_us, signals_sent });
            }
            FromShim::Leftovers { worker } => self.on_leftovers(now, worker as usize),
            FromShim::LeftoversSignalled { worker, processes } => {
                self.on_leftovers_signalled(now, worker as usize, processes);
            }
            FromShim::Empty { unkillable } => {
                self.unkillable = Some(unkillable);
                self.report_if_idle();
            }
            FromShim::Pong => {}
        }
    }

    /// Handles the exit of a worker.
    pub(super) fn on_worker_exit(&mut self, now: Instant, worker: usize, end: ExitFacts) {
        let ExitFacts { exit, at_us, signals_sent } = end;
        if self.workers.is_streaming(worker) {
            self.timers.set(now + HELD_STREAM_LIMIT, Timer::HeldStream(worker));
        }
        let rank = self.workers.record_exit(worker, exit, &signals_sent);
        self.push(AgentEffect::DetachWorker(worker));
        self.push(AgentEffect::Broadcast(if exit.is_success() {
            ToWorker::PeerEnded { rank }
        } else {
            ToWorker::PeerGone { rank }
        }));
        if self.launcher.is_some() {
            let epoch = self.epoch;
            let pid = self.workers.pid(worker);
            let report = ExitReport { epoch, worker, rank, pid, exit, at_us, signals_sent };
            self.push(AgentEffect::ReportExit(report));
        }
    }

    /// Gives processes that a successful worker left behind time to exit by themselves; all others
    /// are terminated at once.
    fn on_leftovers(&mut self, now: Instant, index: usize) {
        let at = match self.workers.linger_mut(index) {
            linger @ Linger::Allowed => {
                *linger = Linger::Until(now + LINGER_MAX);
                now + LINGER_TIME
            }
            Linger::Until(end) if now < *end => now + LINGER_CHECK_INTERVAL,
            Linger::No | Linger::Until(_) => return self.terminate_leftovers(index, false),
        };
        self.timers.set(at, Timer::Linger(index));
        if self.workers.is_streaming(index) {
            // Output that they write when they are terminated is read, too.
            self.timers.set(at + HELD_STREAM_LIMIT, Timer::HeldStream(index));
        }
    }

    /// Makes the shim terminate the processes that a worker left behind.
    pub(super) fn terminate_leftovers(&mut self, index: usize, unless_busy: bool) {
        self.send_to_shim(ToShim::TerminateLeftovers { worker: index as u32, unless_busy });
    }

    /// Reports the leftovers that were sent SIGTERM, if there were any.
    fn on_leftovers_signalled(&mut self, now: Instant, index: usize, processes: Vec<Leftover>) {
        if processes.is_empty() {
            return;
        }
        self.timers.set(now + self.terms.grace, Timer::KillLeftovers(index));
        let rank = self.workers.rank(index);
        self.send(FromAgent::Leftovers { rank, processes });
    }

    /// Reports that a stream has ended.
    pub(super) fn on_stream_ended(&mut self, index: usize, stream: Stream, is_held_open: bool) {
        let rank = self.workers.record_stream_end(index, stream);
        self.send(FromAgent::OutputEnd { rank, stream, is_held_open });
        self.report_if_idle();
    }

    /// Sends the last message of the epoch once no process of the job is left here and all its
    /// output was sent.
    pub(super) fn report_if_idle(&mut self) {
        if let (false, Some(unkillable)) = (self.workers.is_any_streaming(), &self.unkillable) {
            self.send(FromAgent::Idle { unkillable: unkillable.clone() });
        }
    }
}

/// How a worker ended.
pub(super) struct ExitFacts {
    pub(super) exit: WorkerExit,
    /// Time of the exit on the agent's clock.
    pub(super) at_us: u64,
    /// Signals that it was sent before.
    pub(super) signals_sent: Vec<i32>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::state::testing::{GRACE, TestAgent};
    use crate::base::{Rank, clock};

    const STEP: Duration = Duration::from_millis(1);

    fn left(agent: &mut TestAgent) -> Vec<AgentEffect> {
        agent.hear(FromShim::Leftovers { worker: 0 })
    }

    fn terminated(unless_busy: bool) -> [AgentEffect; 1] {
        [AgentEffect::SendToShim(ToShim::TerminateLeftovers { worker: 0, unless_busy })]
    }

    #[test]
    fn exit_is_reported_and_passed_on_to_the_other_workers() {
        let mut agent = TestAgent::started(clock::now(), 2);
        let exit = WorkerExit::Code(3);
        let (epoch, worker, rank) = (agent.state.epoch, 1, Rank(1));
        let report = |worker, rank, exit| {
            let signals_sent = Vec::new();
            AgentEffect::ReportExit(ExitReport {
                epoch,
                worker,
                rank,
                pid: Some(100 + rank.0),
                exit,
                at_us: 0,
                signals_sent,
            })
        };
        assert_eq!(
            agent.exit(1, exit),
            [
                AgentEffect::DetachWorker(1),
                AgentEffect::Broadcast(ToWorker::PeerGone { rank }),
                report(worker, rank, exit),
            ]
        );
        let effects = agent.exit(0, WorkerExit::Code(0));
        let ended = ToWorker::PeerEnded { rank: Rank(0) };
        assert_eq!(effects[1], AgentEffect::Broadcast(ended));
    }

    #[test]
    fn idle_waits_for_the_end_of_all_streams() {
        let mut agent = TestAgent::started(clock::now(), 1);
        agent.exit(0, WorkerExit::Code(0));
        let idle = agent.sent(FromAgent::Idle { unkillable: Vec::new() });
        assert_eq!(agent.hear(FromShim::Empty { unkillable: Vec::new() }), []);
        let ended = agent.end_streams(0);
        assert_eq!(ended.iter().filter(|effect| **effect == idle).count(), 1);
        assert_eq!(ended.last(), Some(&idle));
    }

    #[test]
    fn stream_held_open_is_cancelled_after_its_limit() {
        let mut agent = TestAgent::started(clock::now(), 1);
        agent.exit(0, WorkerExit::Code(1));
        assert_eq!(agent.pass(HELD_STREAM_LIMIT.saturating_sub(STEP)), []);
        assert_eq!(agent.pass(STEP), [AgentEffect::CancelStreams(0)]);
    }

    #[test]
    fn leftovers_of_a_failed_worker_are_terminated_then_killed() {
        let mut agent = TestAgent::started(clock::now(), 1);
        agent.end_streams(0);
        agent.exit(0, WorkerExit::Code(1));
        assert_eq!(left(&mut agent), terminated(false));
        let processes = vec![Leftover { pid: 7, name: "helper".to_owned() }];
        let signalled = FromShim::LeftoversSignalled { worker: 0, processes: processes.clone() };
        let report = FromAgent::Leftovers { rank: Rank(0), processes };
        assert_eq!(agent.hear(signalled), [agent.sent(report)]);
        assert_eq!(agent.pass(GRACE.saturating_sub(STEP)), []);
        let kill = AgentEffect::SendToShim(ToShim::KillLeftovers { worker: 0 });
        assert_eq!(agent.pass(STEP), [kill]);
    }

    #[test]
    fn leftovers_that_exited_by_themselves_are_not_reported() {
        let mut agent = TestAgent::started(clock::now(), 1);
        agent.end_streams(0);
        agent.exit(0, WorkerExit::Code(1));
        let none = FromShim::LeftoversSignalled { worker: 0, processes: Vec::new() };
        assert_eq!(agent.hear(none), []);
        assert_eq!(agent.pass(GRACE), []);
    }

    #[test]
    fn leftovers_of_a_successful_worker_get_time() {
        let mut agent = TestAgent::started(clock::now(), 1);
        agent.end_streams(0);
        agent.exit(0, WorkerExit::Code(0));
        let since = agent.now;
        assert_eq!(left(&mut agent), []);
        assert_eq!(agent.pass(LINGER_TIME.saturating_sub(STEP)), []);
        assert_eq!(agent.pass(STEP), terminated(true));
        // As long as they are busy, the shim answers that they are still there.
        while agent.now < since + LINGER_MAX {
            assert_eq!(left(&mut agent), []);
            assert_eq!(agent.pass(LINGER_CHECK_INTERVAL), terminated(true));
        }
        assert_eq!(left(&mut agent), terminated(false), "the limit has passed");
    }

    #[test]
    fn leftovers_of_a_signalled_worker_get_no_time() {
        let mut agent = TestAgent::started(clock::now(), 1);
        let (exit, signals_sent) = (WorkerExit::Code(0), vec![15]);
        agent.hear(FromShim::Exited { worker: 0, exit, at_us: 0, signals_sent });
        agent.end_streams(0);
        assert_eq!(left(&mut agent), terminated(false));
    }
}
