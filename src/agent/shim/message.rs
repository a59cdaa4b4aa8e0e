//! Messages between agent and shim: small packets. Large data is passed in a memfd.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use crate::base::WorkerExit;
use crate::os::process::process_tree::Stat;
use crate::plan::CoreShare;
use crate::wire::{Leftover, WorkerStartStep};

/// Maximum size of a packet.
pub(super) const PACKET_BYTES_MAX: usize = 4 * 1024;

/// Maximum number of leftovers named in one packet; more are killed without being listed.
pub(super) const LEFTOVERS_MAX: usize = 64;

/// Signals after which the exit of a worker is attributed to remuda.
pub const TERMINATION_SIGNALS: [i32; 5] =
    [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGKILL];

/// Agent → shim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToShim {
    /// Fork the workers described in the first descriptor; a second one is their shared memory.
    Spawn,
    /// Hold the descriptors until the shim exits: locks, which are released when agent and shim
    /// have exited.
    Hold,
    /// Signal the process group of every running worker.
    Signal(i32),
    /// Terminate the processes that a worker left behind (SIGTERM). The answer is
    /// [`FromShim::LeftoversSignalled`].
    TerminateLeftovers {
        /// Index of the worker.
        worker: u32,
        /// If set and some process is not waiting for an event, no process is signalled, because it
        /// may be about to exit. The answer is then [`FromShim::Leftovers`].
        unless_busy: bool,
    },
    /// Kill the processes that a worker left behind, until none is left.
    KillLeftovers {
        /// Index of the worker.
        worker: u32,
    },
    /// Kill everything.
    Kill,
    /// Answer with [`FromShim::Pong`]. The next ping follows within the lease; if it does not, the
    /// agent is lost, and the shim kills everything and the agent.
    Ping {
        /// Time without a heartbeat after which the launcher declares the agent lost.
        lease: Duration,
    },
}

/// Shim → agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromShim {
    /// A worker was forked. Descriptors: its stdout, stderr, rank socket, and stdin if it has one.
    Forked {
        /// Index of the worker.
        worker: u32,
        /// Pid of the worker.
        pid: u32,
        /// Time of the fork, on the clock of [`crate::base::clock::machine_us`].
        at_us: u64,
    },
    /// A worker failed before it executed its program; no `Exited` follows.
    Failed {
        /// Index of the worker.
        worker: u32,
        /// The step that failed.
        step: WorkerStartStep,
        /// Error number of the kernel.
        errno: i32,
    },
    /// A worker exited.
    Exited {
        /// Index of the worker.
        worker: u32,
        /// How the worker exited.
        exit: WorkerExit,
        /// Time of the exit, on the clock of [`crate::base::clock::machine_us`].
        at_us: u64,
        /// Signals that were sent to it before its exit.
        signals_sent: Vec<i32>,
    },
    /// A worker that has exited left processes behind.
    Leftovers {
        /// Index of the worker.
        worker: u32,
    },
    /// The processes that a worker left behind were signalled.
    LeftoversSignalled {
        /// Index of the worker.
        worker: u32,
        /// The processes that were signalled; empty if all of them had exited by themselves.
        processes: Vec<Leftover>,
    },
    /// No process is left except these, which cannot be killed.
    Empty {
        /// The processes that still exist after SIGKILL.
        unkillable: Vec<Leftover>,
    },
    /// The answer to [`ToShim::Ping`].
    Pong,
}

/// One worker to be started, with everything resolved.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::agent) struct ShimWorker {
    /// File to execute.
    pub(in crate::agent) path: Vec<u8>,
    /// Program and arguments.
    pub(in crate::agent) argv: Vec<Vec<u8>>,
    /// Its environment, without the numbers of the two descriptors.
    pub(in crate::agent) env: Vec<(Vec<u8>, Vec<u8>)>,
    /// Working directory.
    pub(in crate::agent) cwd: Vec<u8>,
    /// Its rank as text, by which the processes that it leaves behind are recognised.
    pub(in crate::agent) rank: String,
    /// Whether it gets a pipe as standard input.
    pub(in crate::agent) stdin: bool,
    /// Processors and memory to which it is bound.
    pub(in crate::agent) bound: Option<CoreShare>,
}

/// Encodes a packet.
pub(super) fn encode<M: Serialize>(message: &M) -> Vec<u8> {
    let packet = postcard::to_allocvec(message).expect("every message is serialisable");
    assert!(packet.len() <= PACKET_BYTES_MAX, "packets are small by construction");
    packet
}

/// Decodes a packet; both ends are the same build.
pub(super) fn decode<'a, M: Deserialize<'a>>(packet: &'a [u8]) -> M {
    postcard::from_bytes(packet).expect("agent and shim are the same executable")
}

/// Encodes the workers into an anonymous file.
pub(super) fn pack(workers: &[ShimWorker]) -> io::Result<OwnedFd> {
    let bytes = postcard::to_allocvec(workers).expect("every message is serialisable");
    let memory = rustix::fs::memfd_create("remuda-workers", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = File::from(memory);
    file.write_all(&bytes)?;
    file.rewind()?;
    Ok(file.into())
}

/// Decodes the workers.
pub(super) fn unpack(memory: OwnedFd) -> io::Result<Vec<ShimWorker>> {
    let mut bytes = Vec::new();
    File::from(memory).read_to_end(&mut bytes)?;
    Ok(decode(&bytes))
}

/// Describes a process that outlived its worker; `None` if it is gone.
pub(super) fn describe(pid: Pid) -> Option<Leftover> {
    Some(Leftover { pid: pid.as_raw_pid() as u32, name: Stat::of(pid)?.name })
}
