//! The shim process in the agent, until none of its processes is left.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::process::Pid;

use super::handle::{Shim, ShimHandle};
use super::message::{FromShim, ShimWorker, ToShim, describe};
use crate::os::process::process_tree::{self, ChildEnd, Reaper};
use crate::wire::Leftover;

/// Time limit for the exit of the shim. When the agent closes its socket, the shim first kills
/// everything, which has a limit of its own, and then exits.
const END_LIMIT: Duration = process_tree::KILL_LIMIT.saturating_add(Duration::from_secs(1));

/// The shim process. Requests to a shim that has exited do nothing.
pub(in crate::agent) struct ShimProcess(Progress);

enum Progress {
    /// It has not exited.
    Alive(ShimHandle),
    /// It has exited, and the processes that it left are being killed.
    Reaping(Pid, Reaper),
    /// None of its processes is left.
    Gone,
}

impl ShimProcess {
    /// Waits on this shim from now on. Must be called inside a runtime.
    pub(in crate::agent) fn watch(shim: Shim) -> io::Result<Self> {
        Ok(Self(Progress::Alive(shim.watch()?)))
    }

    fn handle(&self) -> Option<&ShimHandle> {
        match &self.0 {
            Progress::Alive(handle) => Some(handle),
            Progress::Reaping(..) | Progress::Gone => None,
        }
    }

    /// Returns the pid of the shim if it has not exited.
    pub(in crate::agent) fn pid(&self) -> Option<Pid> {
        self.handle().map(ShimHandle::pid)
    }

    /// Receives the next message with its descriptors; `None` when the shim has exited. Waits for
    /// ever if that was handled.
    pub(in crate::agent) async fn receive(&self) -> Option<(FromShim, Vec<OwnedFd>)> {
        match self.handle() {
            Some(handle) => handle.recv().await,
            None => std::future::pending().await,
        }
    }

    /// Sends a message.
    pub(in crate::agent) fn send(&self, message: &ToShim) {
        if let Some(handle) = self.handle() {
            handle.send(message);
        }
    }

    /// Signals the shim itself.
    pub(in crate::agent) fn signal(&self, signal: i32) {
        if let Some(handle) = self.handle() {
            handle.signal(signal);
        }
    }

    /// Starts the workers.
    pub(in crate::agent) fn spawn(
        &self,
        workers: &[ShimWorker],
        shared: BorrowedFd<'_>,
    ) -> io::Result<()> {
        self.handle().map_or(Ok(()), |handle| handle.spawn(workers, shared))
    }

    /// Makes the shim hold descriptors that the agent holds; false if it has exited.
    pub(in crate::agent) fn hold(&self, descriptors: &[OwnedFd]) -> bool {
        let handle = self.handle();
        if let Some(handle) = handle {
            handle.hold(descriptors);
        }
        handle.is_some()
    }

    /// After the exit of the shim: kills and reaps once what it left. Returns the processes that
    /// cannot be killed, or `None` if others are left.
    pub(in crate::agent) fn reap_orphans(&mut self) -> Option<Vec<Leftover>> {
        if let Progress::Alive(handle) = &self.0 {
            self.0 =
                Progress::Reaping(handle.pid(), Reaper::new(process_tree::KILL_LIMIT, |_| false));
        }
        let Progress::Reaping(shim, reaper) = &self.0 else {
            return Some(Vec::new());
        };
        let shim = *shim;
        let left = reaper.scan(|_, _| {})?;
        self.0 = Progress::Gone;
        let left = left.into_iter().filter(|pid| *pid != shim);
        Some(left.filter_map(describe).collect())
    }

    /// Makes the shim exit and waits for it, so that no other process inherits it. A stopped shim
    /// is killed with all its descendants.
    pub(in crate::agent) fn stop(&mut self) {
        if let Progress::Alive(handle) = std::mem::replace(&mut self.0, Progress::Gone) {
            let pid = handle.pid();
            drop(handle);
            if process_tree::wait_or_kill(pid, END_LIMIT) == ChildEnd::Killed {
                process_tree::kill_descendants(process_tree::KILL_LIMIT, |_, _| {});
            }
        }
    }
}
