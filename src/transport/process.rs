//! A program that a transport uses, such as `ssh`: a child of the launcher that the kernel ends when the
//! launcher exits, in a session of its own.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Command;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::fault::{Fault, FaultKind};
use crate::base::{WorkerExit, clock, lock};
use crate::os::files::async_fd;
use crate::os::process::{fork, process_tree, signals};

/// Time after which a process that was sent SIGTERM is killed.
const END_LIMIT: Duration = Duration::from_millis(500);

/// A running process of a transport. Dropping it sends SIGTERM without waiting; [`end_processes`] waits.
pub(in crate::transport) struct HelperProcess {
    pid: Pid,
    /// Pidfd that is readable when the process has ended.
    pidfd: AsyncFd<OwnedFd>,
}

impl HelperProcess {
    /// Starts the process. Must be called inside a runtime, from a thread that lives as long as the
    /// launcher.
    pub(in crate::transport) fn start(command: &mut Command) -> Result<Self, Fault> {
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = fork::terminate_with_parent(command).spawn().map_err(|error| {
            let words = match error.kind() {
                io::ErrorKind::NotFound => format!("there is no `{program}` in PATH"),
                _ => format!("cannot start `{program}`: {error}"),
            };
            Fault::new(FaultKind::NoProgram, words)
        })?;
        let pid = Pid::from_child(&child);
        let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty())
            .map_err(io::Error::from)
            .and_then(|pidfd| async_fd::register(pidfd, Interest::READABLE));
        match pidfd {
            Ok(pidfd) => Ok(Self { pid, pidfd }),
            Err(error) => {
                let _ = child.kill();
                Err(Fault::new(FaultKind::NoProgram, format!("cannot watch `{program}`: {error}")))
            }
        }
    }

    /// Returns when the process has ended.
    pub(in crate::transport) async fn wait_for_exit(&self) {
        let _ = self.pidfd.readable().await;
    }

    /// Waits until the process has ended and reaps it; `None` if it was reaped elsewhere.
    pub(in crate::transport) async fn wait(&self) -> Option<WorkerExit> {
        self.wait_for_exit().await;
        process_tree::reap_one(self.pid)
    }

    /// Signals the process, unless it has been reaped.
    pub(in crate::transport) fn signal(&self, signal: i32) {
        signals::send_to_pidfd(self.pidfd.get_ref(), signal);
    }
}

impl Drop for HelperProcess {
    fn drop(&mut self) {
        self.signal(libc::SIGTERM);
        // A stopped process acts on the signal once it is continued.
        self.signal(libc::SIGCONT);
        if process_tree::reap_one(self.pid).is_some() || has_ended(self.pidfd.get_ref()) {
            return;
        }
        if let Ok(process) = self.pidfd.get_ref().try_clone() {
            let mut dropped = dropped();
            dropped.retain(|(_, process)| !has_ended(process));
            dropped.push((self.pid, process));
        }
    }
}

/// Processes that were sent SIGTERM and had not ended at that time.
static DROPPED: Mutex<Vec<(Pid, OwnedFd)>> = Mutex::new(Vec::new());

fn dropped() -> MutexGuard<'static, Vec<(Pid, OwnedFd)>> {
    lock(&DROPPED)
}

/// Waits until every dropped process has ended, and kills those that do not end in time: they may
/// be stopped by a signal. Called when the launcher ends and its runtime is gone.
pub fn end_processes() {
    let dropped = std::mem::take(&mut *dropped());
    let deadline = clock::now() + END_LIMIT;
    for (pid, process) in &dropped {
        wait_for_end(process, deadline);
        if !has_ended(process) {
            signals::send_to_pidfd(process, libc::SIGKILL);
        }
        process_tree::reap_one(*pid);
    }
    let deadline = clock::now() + END_LIMIT;
    for (pid, process) in &dropped {
        wait_for_end(process, deadline);
        process_tree::reap_one(*pid);
    }
}

/// Whether a process has ended, also if another part of the launcher has reaped it.
fn has_ended(process: &OwnedFd) -> bool {
    wait_for_end(process, clock::now())
}

/// Waits until the process has ended, at most until the deadline; returns whether it has.
fn wait_for_end(process: &OwnedFd, deadline: Instant) -> bool {
    let left = deadline.saturating_duration_since(clock::now());
    let Ok(left) = Timespec::try_from(left) else { return false };
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    matches!(rustix::io::retry_on_intr(|| poll(&mut polled, Some(&left))), Ok(1..))
}
