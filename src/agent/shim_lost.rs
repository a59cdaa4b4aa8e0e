//! Failure of the shim: if it is stopped or exits, the agent kills the workers itself.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::alarms::Timer;
use super::launcher::print_line;
use super::serve::Agent;
use super::shim::{FromShim, ShimHandle, ToShim};
use super::shim_heartbeat::ShimAction;
use crate::base::{WorkerExit, clock};
use crate::os::family::{self, ChildEnd, Reaper};
use crate::report::summary::show_duration;
use crate::wire::{FromAgent, Leftover};

/// Interval of checks whether a shim that was asked to kill everything is stopped.
const KILL_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Time limit for the exit of the shim. When the agent closes its socket, the shim first kills
/// everything, which has a limit of its own, and then exits.
const END_LIMIT: Duration = family::KILL_LIMIT.saturating_add(Duration::from_secs(1));

/// State of the shim process.
pub(super) enum ShimState {
    /// It has not exited.
    Alive(ShimHandle),
    /// It has exited, and the processes that it left are being killed.
    Reaping(Pid, Reaper),
    /// None of its processes is left.
    Gone,
}

/// Receives the next message of the shim with its descriptors; `None` when the shim has exited.
pub(super) async fn next_shim_message(shim: &ShimState) -> Option<(FromShim, Vec<OwnedFd>)> {
    match shim {
        ShimState::Alive(shim) => shim.recv().await,
        ShimState::Reaping(..) | ShimState::Gone => std::future::pending().await,
    }
}

impl Agent {
    /// Checks at a heartbeat of the agent whether the shim answers. `late`: the time for which the
    /// agent itself did not run.
    pub(super) fn check_shim_heartbeat(&mut self, now: Instant, late: Duration) {
        let (ShimState::Alive(shim), Some(lease)) = (&self.shim, self.terms.lease) else {
            return;
        };
        match self.shim_heartbeat.tick(now, late, lease, shim.is_suspended()) {
            ShimAction::Wait => {}
            ShimAction::Ping => shim.send(&ToShim::Ping),
            ShimAction::Continue => {
                shim.signal(libc::SIGCONT);
                let lease = show_duration(lease);
                print_line(&format!(
                    "remuda-shim did not answer for {lease} (--lease); sent SIGCONT"
                ));
            }
            ShimAction::Kill => shim.signal(libc::SIGKILL),
        }
    }

    /// Signals the workers. A stopped shim is continued first, since it could not pass the signal
    /// on.
    pub(super) fn signal_workers(&self, signal: i32) {
        let ShimState::Alive(shim) = &self.shim else {
            return;
        };
        if shim.is_suspended() {
            shim.signal(libc::SIGCONT);
        }
        shim.send(&ToShim::Signal(signal));
    }

    /// Kills everything of the job on this node: the shim does it, unless it is stopped.
    pub(super) fn kill_workers(&mut self) {
        self.send_to_shim(&ToShim::Kill);
        self.check_kill();
    }

    /// Kills a shim that is stopped before it has killed everything.
    pub(super) fn check_kill(&mut self) {
        let (ShimState::Alive(shim), None) = (&self.shim, &self.unkillable) else {
            return;
        };
        if family::is_stopped(shim.pid()) {
            self.shim_heartbeat.record_kill();
            shim.signal(libc::SIGKILL);
        } else {
            self.timers.set(clock::now() + KILL_CHECK_INTERVAL, Timer::KillCheck);
        }
    }

    /// Kills the workers after the shim exited: they are the agent's children now, and no other
    /// process can wait for them.
    pub(super) fn on_shim_exit(&mut self) {
        let ShimState::Alive(shim) = &self.shim else {
            return;
        };
        // Also reported after the shim's last message: it cannot start the workers of another
        // epoch.
        let was_killed = self.shim_heartbeat.was_killed();
        let loss = if was_killed { FromAgent::ShimHung } else { FromAgent::ShimExited };
        self.outbox.send(&loss);
        self.shim = ShimState::Reaping(shim.pid(), Reaper::new(family::KILL_LIMIT, |_| false));
        self.reap_orphans();
    }

    /// Kills and reaps once what the shim left, and sets the timer of the next attempt if processes
    /// are left.
    pub(super) fn reap_orphans(&mut self) {
        let ShimState::Reaping(shim, reaper) = &self.shim else {
            return;
        };
        let shim = *shim;
        let Some(left) = reaper.scan(|_, _| {}) else {
            self.timers.set(clock::now() + Reaper::PAUSE, Timer::Reap);
            return;
        };
        self.shim = ShimState::Gone;
        let kill = WorkerExit::Signal { signal: libc::SIGKILL, core: false };
        for index in self.workers.live_indices() {
            self.on_worker_exit(index, kill, clock::machine_us(), vec![libc::SIGKILL]);
        }
        let left = left.into_iter().filter(|pid| *pid != shim);
        self.unkillable = Some(left.filter_map(describe).collect());
        self.report_if_idle();
    }

    /// Makes the shim exit and waits for it, so that no other process inherits it. A stopped shim
    /// is killed with all its descendants.
    pub(super) fn stop_shim(&mut self) {
        if let ShimState::Alive(shim) = std::mem::replace(&mut self.shim, ShimState::Gone) {
            let pid = shim.pid();
            drop(shim);
            if family::wait_or_kill(pid, END_LIMIT) == ChildEnd::Killed {
                family::kill_descendants(family::KILL_LIMIT, |_, _| {});
            }
        }
    }
}

fn describe(pid: Pid) -> Option<Leftover> {
    let name = family::Stat::of(pid)?.name;
    Some(Leftover { pid: pid.as_raw_pid() as u32, name })
}
