//! A process of OpenSSH: our child, tied to our life, in a session of its own.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::fault::{Fault, FaultKind};
use crate::base::{WorkerExit, clock};
use crate::os::{family, fork, signals, watch};

/// A process that was asked to end ends within this time, or is killed.
const END_LIMIT: Duration = Duration::from_millis(500);

/// See the module. Dropping it asks the process to end without waiting; [`end_processes`] waits.
pub(super) struct SshProcess {
    pid: Pid,
    /// Readable when the process has ended.
    ended: AsyncFd<OwnedFd>,
}

impl SshProcess {
    /// Starts it; must be called inside a runtime, from the thread that lives as long as we do.
    pub(super) fn start(command: &mut Command) -> Result<Self, Fault> {
        let mut child = fork::tied_to_us(command).spawn().map_err(|error| {
            let words = match error.kind() {
                io::ErrorKind::NotFound => "there is no `ssh` in PATH".to_owned(),
                _ => format!("cannot start `ssh`: {error}"),
            };
            Fault::new(FaultKind::NoSsh, words)
        })?;
        let pid = Pid::from_child(&child);
        let ended = rustix::process::pidfd_open(pid, PidfdFlags::empty())
            .map_err(io::Error::from)
            .and_then(|pidfd| watch::watch(pidfd, Interest::READABLE));
        match ended {
            Ok(ended) => Ok(Self { pid, ended }),
            Err(error) => {
                let _ = child.kill();
                Err(Fault::new(FaultKind::NoSsh, format!("cannot watch `ssh`: {error}")))
            }
        }
    }

    /// Returns when it has ended.
    pub(super) async fn end(&self) {
        let _ = self.ended.readable().await;
    }

    /// Waits for its end and buries it; `None` if somebody else did.
    pub(super) async fn wait(&self) -> Option<WorkerExit> {
        self.end().await;
        family::reap_one(self.pid)
    }

    /// Signals it, unless it has been buried.
    pub(super) fn signal(&self, signal: i32) {
        signals::send_to_held(self.ended.get_ref(), signal);
    }
}

impl Drop for SshProcess {
    fn drop(&mut self) {
        self.signal(libc::SIGTERM);
        // One that is stopped acts on it once it is continued.
        self.signal(libc::SIGCONT);
        if family::reap_one(self.pid).is_some() || has_ended(self.ended.get_ref()) {
            return;
        }
        if let Ok(process) = self.ended.get_ref().try_clone() {
            let mut dropped = dropped();
            dropped.retain(|(_, process)| !has_ended(process));
            dropped.push((self.pid, process));
        }
    }
}

/// Processes that were asked to end and had not ended then.
static DROPPED: Mutex<Vec<(Pid, OwnedFd)>> = Mutex::new(Vec::new());

fn dropped() -> MutexGuard<'static, Vec<(Pid, OwnedFd)>> {
    DROPPED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for the end of every process that was dropped, and kills those that do not end: they may be
/// stopped by a signal. For the end of a launcher, when its runtime is gone.
pub fn end_processes() {
    let dropped = std::mem::take(&mut *dropped());
    let deadline = clock::now() + END_LIMIT;
    for (pid, process) in &dropped {
        wait_for_end(process, deadline);
        if !has_ended(process) {
            signals::send_to_held(process, libc::SIGKILL);
        }
        family::reap_one(*pid);
    }
    let deadline = clock::now() + END_LIMIT;
    for (pid, process) in &dropped {
        wait_for_end(process, deadline);
        family::reap_one(*pid);
    }
}

/// Whether a process has ended, also if another part of this one has waited for it.
fn has_ended(process: &OwnedFd) -> bool {
    wait_for_end(process, clock::now())
}

/// Whether a process has ended by then.
fn wait_for_end(process: &OwnedFd, deadline: Instant) -> bool {
    let left = deadline.saturating_duration_since(clock::now());
    let Ok(left) = Timespec::try_from(left) else { return false };
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    matches!(rustix::io::retry_on_intr(|| poll(&mut polled, Some(&left))), Ok(1..))
}
