//! Handlers of the shim's messages: workers start, exit and leave processes behind, until no
//! process of the job is left.

use std::os::fd::OwnedFd;
use std::time::Duration;

use super::alarms::Timer;
use super::crew::Linger;
use super::error_files::WrittenError;
use super::serve::Agent;
use super::shim::{FromShim, ToShim};
use super::starting::AgentPhase;
use crate::base::{WorkerExit, clock};
use crate::wire::{FromAgent, Leftover};

/// Time for the processes that a successful worker left behind to exit by themselves: helpers such
/// as Python's resource tracker outlive their parent by milliseconds.
const LINGER_TIME: Duration = Duration::from_secs(1);
/// Time limit for such processes that are not waiting for anything: on a busy machine it takes
/// longer.
const LINGER_MAX: Duration = Duration::from_secs(5);
/// Interval of the checks of such a process.
const LINGER_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Time limit for the end of a stream that another process holds open after its worker exited.
const HELD_STREAM_LIMIT: Duration = Duration::from_secs(1);

impl Agent {
    /// Handles a message of the shim.
    pub(super) fn on_shim_message(&mut self, message: FromShim, fds: Vec<OwnedFd>) {
        tracing::debug!(?message, "shim");
        self.shim_heartbeat.on_message(clock::now(), message == FromShim::Pong);
        match message {
            FromShim::Forked { worker, pid, at_us } => {
                if let AgentPhase::Started { welcomes, .. } = &self.phase {
                    let index = worker as usize;
                    self.workers.record_fork(index, (pid, at_us), fds, welcomes, &mut self.tasks);
                }
            }
            FromShim::Failed { worker, step, errno } => {
                self.workers.record_start_failure(worker as usize, step, errno);
            }
            FromShim::Exited { worker, exit, at_us, signals_sent: sent } => {
                self.on_worker_exit(worker as usize, exit, at_us, sent);
            }
            FromShim::Leftovers { worker } => self.on_leftovers(worker as usize),
            FromShim::LeftoversSignalled { worker, processes } => {
                self.on_leftovers_signalled(worker as usize, processes);
            }
            FromShim::Empty { unkillable } => {
                self.unkillable = Some(unkillable);
                self.report_if_idle();
            }
            FromShim::Pong => {}
        }
    }

    /// Handles the exit of a worker.
    pub(super) fn on_worker_exit(
        &mut self,
        index: usize,
        exit: WorkerExit,
        at_us: u64,
        sent: Vec<i32>,
    ) {
        if self.workers.is_streaming(index) {
            self.timers.set(clock::now() + HELD_STREAM_LIMIT, Timer::HeldStream(index));
        }
        self.send_error_file(index, exit);
        self.workers.record_exit(index, exit, at_us, sent);
    }

    /// Sends the failure that a worker recorded, before its exit is reported.
    fn send_error_file(&self, index: usize, exit: WorkerExit) {
        let rank = self.workers.rank(index);
        let written = self.error_files.as_ref().and_then(|files| files.take(rank));
        if let Some(WrittenError { bytes, at_us }) = written.filter(|_| !exit.is_success()) {
            self.outbox.send(&FromAgent::ErrorFile { rank, at_us, bytes });
        }
    }

    /// Gives processes that a successful worker left behind time to exit by themselves; all others
    /// are terminated at once.
    fn on_leftovers(&mut self, index: usize) {
        let now = clock::now();
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
    pub(super) fn terminate_leftovers(&self, index: usize, unless_busy: bool) {
        self.send_to_shim(&ToShim::TerminateLeftovers { worker: index as u32, unless_busy });
    }

    /// Reports the leftovers that were sent SIGTERM, if there were any.
    fn on_leftovers_signalled(&mut self, index: usize, processes: Vec<Leftover>) {
        if processes.is_empty() {
            return;
        }
        self.timers.set(clock::now() + self.terms.grace, Timer::KillLeftovers(index));
        let rank = self.workers.rank(index);
        self.outbox.send(&FromAgent::Leftovers { rank, processes });
    }

    /// Sends the last message of the epoch once no process of the job is left here and all its
    /// output was sent.
    pub(super) fn report_if_idle(&mut self) {
        let is_streaming = self.workers.indices().any(|index| self.workers.is_streaming(index));
        if let (false, Some(unkillable)) = (is_streaming, &self.unkillable) {
            self.outbox.send(&FromAgent::Idle { unkillable: unkillable.clone() });
        }
    }
}
