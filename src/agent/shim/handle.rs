//! Handle of the shim in the agent: forks the shim, and exchanges packets with it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::message::{self, FromShim, PACKET_BYTES_MAX, ShimWorker, ToShim};
use super::run;
use crate::os::files::{async_fd, fds};
use crate::os::process::fork::{self, ForkSide};
use crate::os::process::process_tree;

/// A shim that was forked and has not yet been handed to a runtime.
pub(in crate::agent) struct Shim {
    pid: Pid,
    control: OwnedFd,
}

/// A shim that a runtime waits on. Dropping it makes the shim kill everything and exit.
pub(super) struct ShimHandle {
    pid: Pid,
    control: AsyncFd<OwnedFd>,
}

impl Shim {
    /// Forks the shim. Must be called before this process has threads or a runtime.
    pub(in crate::agent) fn fork() -> io::Result<Self> {
        let (agent_end, shim_end) = fds::packet_pair()?;
        match fork::fork()? {
            ForkSide::Parent(pid) => Ok(Self { pid, control: agent_end }),
            ForkSide::Child => {
                drop(agent_end);
                // A copy of the link in the shim would keep it open after the agent has exited.
                drop(fds::take_stdio());
                fork::exit_now(run::main(shim_end))
            }
        }
    }

    /// Registers the shim's socket with the runtime that is running.
    pub(super) fn watch(self) -> io::Result<ShimHandle> {
        // Only reading waits for readiness: packets to the shim are few and fit its buffer.
        let control = async_fd::register(self.control, Interest::READABLE)?;
        Ok(ShimHandle { pid: self.pid, control })
    }
}

impl ShimHandle {
    /// Returns the pid of the shim.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// Receives the next packet with its descriptors; `None` when the shim has exited.
    pub(super) async fn recv(&self) -> Option<(FromShim, Vec<OwnedFd>)> {
        let mut buffer = [0; PACKET_BYTES_MAX];
        let received =
            self.control.async_io(Interest::READABLE, |fd| fds::recv_packet(fd, &mut buffer));
        match received.await {
            Ok((0, _)) | Err(_) => None,
            Ok((length, fds)) => Some((message::decode(&buffer[..length]), fds)),
        }
    }

    /// Starts the workers.
    pub(super) fn spawn(&self, workers: &[ShimWorker], shared: BorrowedFd<'_>) -> io::Result<()> {
        let packed = message::pack(workers)?;
        let fds = [packed.as_fd(), shared];
        fds::send_packet(self.control.get_ref(), &message::encode(&ToShim::Spawn), &fds)
    }

    /// Makes the shim hold descriptors that the agent holds.
    pub(super) fn hold(&self, descriptors: &[OwnedFd]) {
        for chunk in descriptors.chunks(fds::PACKET_FDS_MAX) {
            let chunk: Vec<_> = chunk.iter().map(AsFd::as_fd).collect();
            // The exit of the shim is detected by [`Self::recv`].
            let _ =
                fds::send_packet(self.control.get_ref(), &message::encode(&ToShim::Hold), &chunk);
        }
    }

    /// Signals the shim itself.
    pub(super) fn signal(&self, signal: i32) {
        process_tree::signal_child(self.pid, signal);
    }

    /// Sends a message. The end of the shim is detected by [`Self::recv`].
    pub(super) fn send(&self, message: &ToShim) {
        let _ = fds::send_packet(self.control.get_ref(), &message::encode(message), &[]);
    }
}
