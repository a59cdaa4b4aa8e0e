//! The shim dies: its workers have become our children, and we end them in its place.

use std::os::fd::OwnedFd;

use rustix::process::Pid;

use super::alarms::Alarm;
use super::serve::Agent;
use super::shim::{FromShim, ShimHandle};
use crate::base::{WorkerExit, clock};
use crate::os::family::{self, Burial};
use crate::wire::{FromAgent, Leftover};

pub(super) enum ShimState {
    Lives(ShimHandle),
    /// It is dead, and what it left is being killed.
    Buried(Pid, Burial),
    /// Nothing of it is left.
    Gone,
}

pub(super) async fn next_packet(shim: &ShimState) -> Option<(FromShim, Vec<OwnedFd>)> {
    match shim {
        ShimState::Lives(shim) => shim.recv().await,
        ShimState::Buried(..) | ShimState::Gone => std::future::pending().await,
    }
}

impl Agent {
    /// The workers have become our children; they are killed, since nobody else can wait for them.
    pub(super) fn shim_died(&mut self) {
        let ShimState::Lives(shim) = &self.shim else {
            return;
        };
        // Also after its last word: it cannot start the workers of another epoch.
        self.outbox.send(&FromAgent::ShimDied);
        self.shim = ShimState::Buried(shim.pid(), Burial::new(family::KILL_LIMIT, |_| false));
        self.bury();
    }

    /// Looks once; death takes a moment, and meanwhile we go on.
    pub(super) fn bury(&mut self) {
        let ShimState::Buried(shim, burial) = &self.shim else {
            return;
        };
        let shim = *shim;
        let Some(left) = burial.look(|_, _| {}) else {
            self.alarms.set(clock::now() + Burial::PAUSE, Alarm::Bury);
            return;
        };
        self.shim = ShimState::Gone;
        let kill = WorkerExit::Signal { signal: libc::SIGKILL, core: false };
        for index in self.crew.living() {
            self.ended(index, kill, clock::machine_us(), vec![libc::SIGKILL]);
        }
        let undead = left.into_iter().filter(|pid| *pid != shim).filter_map(describe).collect();
        self.undead = Some(undead);
        self.report_if_idle();
    }

    /// Ends the shim and buries it, so that nobody inherits it from us.
    pub(super) fn dismiss_shim(&mut self) {
        if let ShimState::Lives(shim) = std::mem::replace(&mut self.shim, ShimState::Gone) {
            let pid = shim.pid();
            drop(shim);
            family::wait_for(pid);
        }
    }
}

fn describe(pid: Pid) -> Option<Leftover> {
    let name = family::Stat::of(pid)?.name;
    Some(Leftover { pid: pid.as_raw_pid() as u32, name })
}
