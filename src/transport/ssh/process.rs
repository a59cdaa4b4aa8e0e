//! A process of OpenSSH: our child, tied to our life, in a session of its own.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Command;

use rustix::process::{Pid, PidfdFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::fault::{Fault, FaultKind};
use crate::base::WorkerExit;
use crate::os::{family, fork, signals, watch};

/// See the module. Dropping it ends the process without waiting.
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
        family::reap_one(self.pid);
    }
}
