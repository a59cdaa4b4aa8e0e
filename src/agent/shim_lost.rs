//! Failure of the shim: if it is stopped or exits, the agent kills the workers itself.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::alarms::Timer;
use super::launcher::announce;
use super::serve::Agent;
use super::shim::{FromShim, ShimHandle, ToShim};
use super::shim_heartbeat::ShimAction;
use crate::base::{WorkerExit, clock};
use crate::os::family::{self, ChildEnd, Reaper};
use crate::report::summary::duration;
use crate::wire::{FromAgent, Leftover};

/// Interval of checks whether a shim that was asked to kill everything is stopped.
const KILLING_PAUSE: Duration = Duration::from_millis(100);
/// Time limit for the exit of the shim. When the agent closes its socket, the shim first kills
/// everything, which has a limit of its own, and then exits.
const END_LIMIT: Duration = family::KILL_LIMIT.saturating_add(Duration::from_secs(1));

/// State of the shim process.
pub(super) enum ShimState {
    /// It has not exited.
    Lives(ShimHandle),
    /// It has exited, and the processes that it left are being killed.
    Buried(Pid, Reaper),
    /// None of its processes is left.
    Gone,
}

/// Receives the next message of the shim with its descriptors; `None` when the shim has exited.
pub(super) async fn next_packet(shim: &ShimState) -> Option<(FromShim, Vec<OwnedFd>)> {
    match shim {
        ShimState::Lives(shim) => shim.recv().await,
        ShimState::Buried(..) | ShimState::Gone => std::future::pending().await,
    }
}

impl Agent {
    /// Checks at a heartbeat of the agent whether the shim answers. `late`: the time for which the
    /// agent itself did not run.
    pub(super) fn beat_shim(&mut self, now: Instant, late: Duration) {
        let (ShimState::Lives(shim), Some(lease)) = (&self.shim, self.terms.lease) else {
            return;
        };
        match self.shim_heartbeat.beat(now, late, lease, shim.is_suspended()) {
            ShimAction::Wait => {}
            ShimAction::Ping => shim.send(&ToShim::Ping),
            ShimAction::Continue => {
                shim.signal(libc::SIGCONT);
                let lease = duration(lease);
                announce(&format!(
                    "remuda-shim did not answer for {lease} (--lease); sent SIGCONT"
                ));
            }
            ShimAction::Kill => shim.signal(libc::SIGKILL),
        }
    }

    /// Signals the workers. A stopped shim is continued first, since it could not pass the signal
    /// on.
    pub(super) fn signal_workers(&self, signal: i32) {
        let ShimState::Lives(shim) = &self.shim else {
            return;
        };
        if shim.is_suspended() {
            shim.signal(libc::SIGCONT);
        }
        shim.send(&ToShim::Signal(signal));
    }

    /// Kills everything of the job on this node: the shim does it, unless it is stopped.
    pub(super) fn kill_workers(&mut self) {
        self.tell_shim(&ToShim::Kill);
        self.watch_kill();
    }

    /// Kills a shim that is stopped before it has killed everything.
    pub(super) fn watch_kill(&mut self) {
        let (ShimState::Lives(shim), None) = (&self.shim, &self.undead) else {
            return;
        };
        if family::is_stopped(shim.pid()) {
            self.shim_heartbeat.killed();
            shim.signal(libc::SIGKILL);
        } else {
            self.alarms.set(clock::now() + KILLING_PAUSE, Timer::Killing);
        }
    }

    /// Kills the workers after the shim exited: they are the agent's children now, and no other
    /// process can wait for them.
    pub(super) fn shim_died(&mut self) {
        let ShimState::Lives(shim) = &self.shim else {
            return;
        };
        // Also reported after the shim's last message: it cannot start the workers of another
        // epoch.
        let was_killed = self.shim_heartbeat.was_killed();
        let loss = if was_killed { FromAgent::ShimFrozen } else { FromAgent::ShimDied };
        self.outbox.send(&loss);
        self.shim = ShimState::Buried(shim.pid(), Reaper::new(family::KILL_LIMIT, |_| false));
        self.bury();
    }

    /// Kills and reaps once what the shim left, and sets the timer of the next attempt if processes
    /// are left.
    pub(super) fn bury(&mut self) {
        let ShimState::Buried(shim, reaper) = &self.shim else {
            return;
        };
        let shim = *shim;
        let Some(left) = reaper.look(|_, _| {}) else {
            self.alarms.set(clock::now() + Reaper::PAUSE, Timer::Bury);
            return;
        };
        self.shim = ShimState::Gone;
        let kill = WorkerExit::Signal { signal: libc::SIGKILL, core: false };
        for index in self.crew.living() {
            self.ended(index, kill, clock::machine_us(), vec![libc::SIGKILL]);
        }
        let left = left.into_iter().filter(|pid| *pid != shim);
        self.undead = Some(left.filter_map(describe).collect());
        self.report_if_idle();
    }

    /// Makes the shim exit and waits for it, so that no other process inherits it. A stopped shim
    /// is killed with all its descendants.
    pub(super) fn dismiss_shim(&mut self) {
        if let ShimState::Lives(shim) = std::mem::replace(&mut self.shim, ShimState::Gone) {
            let pid = shim.pid();
            drop(shim);
            if family::end_child(pid, END_LIMIT) == ChildEnd::Killed {
                family::kill_descendants(family::KILL_LIMIT, |_, _| {});
            }
        }
    }
}

fn describe(pid: Pid) -> Option<Leftover> {
    let name = family::Stat::of(pid)?.name;
    Some(Leftover { pid: pid.as_raw_pid() as u32, name })
}
