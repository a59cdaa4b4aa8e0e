//! What agent and shim say to each other: small packets; whatever is large travels in a memfd.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};

use crate::base::WorkerExit;
use crate::plan::CoreShare;
use crate::wire::{Leftover, OpenFailure};

/// Largest packet.
pub(super) const PACKET_BYTES_MAX: usize = 4 * 1024;

/// Leftovers named in one packet; more are counted when they are killed, not listed.
pub(super) const LEFTOVERS_MAX: usize = 64;

/// Agent → shim.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::agent) enum ToShim {
    /// Fork the workers described in the first descriptor; a second one is their shared memory.
    Spawn,
    /// Keep the descriptors to the end: claims, which are free when agent and shim are gone.
    Hold,
    /// Signal every live worker's process group.
    Signal(i32),
    /// Ask what a worker that has ended left behind to end (SIGTERM). The answer is
    /// [`FromShim::Swept`].
    Sweep {
        /// Index of the worker.
        worker: u32,
        /// Processes that have work to do may just be ending: then none is signalled, and the answer is
        /// [`FromShim::Leftovers`].
        spares_busy: bool,
    },
    /// Kill what a worker that has ended left behind, until nothing is left.
    KillLeftovers {
        /// Index of the worker.
        worker: u32,
    },
    /// Kill everything.
    Kill,
    /// Answer with [`FromShim::Pong`].
    Ping,
}

/// Shim → agent.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::agent) enum FromShim {
    /// A worker was forked. Descriptors: its stdout, stderr, rank socket, and stdin if it has one.
    Forked {
        /// Index of the worker.
        worker: u32,
        /// Pid of the worker.
        pid: u32,
        /// When, on the clock of [`crate::base::clock::machine_us`].
        at_us: u64,
    },
    /// A worker could not become its program; it will not be `Ended`.
    Failed {
        /// Index of the worker.
        worker: u32,
        /// At which step.
        step: OpenFailure,
        /// Error number of the kernel.
        errno: i32,
    },
    /// A worker ended.
    Ended {
        /// Index of the worker.
        worker: u32,
        /// How the worker exited.
        exit: WorkerExit,
        /// When, on the clock of [`crate::base::clock::machine_us`].
        at_us: u64,
        /// Signals sent to it before.
        sent: Vec<i32>,
    },
    /// A worker that has ended left processes behind.
    Leftovers {
        /// Index of the worker.
        worker: u32,
    },
    /// What a worker left behind was signalled.
    Swept {
        /// Index of the worker.
        worker: u32,
        /// What was signalled; empty if all of it had ended by itself.
        processes: Vec<Leftover>,
    },
    /// No process is left, but for these, which cannot be killed.
    Empty {
        /// What would not die.
        undead: Vec<Leftover>,
    },
    /// The answer to [`ToShim::Ping`].
    Pong,
}

/// One worker, with everything resolved.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::agent) struct ShimWorker {
    /// File to execute.
    pub(in crate::agent) path: Vec<u8>,
    /// Program and arguments.
    pub(in crate::agent) argv: Vec<Vec<u8>>,
    /// Its environment, but for the numbers of the two descriptors.
    pub(in crate::agent) env: Vec<(Vec<u8>, Vec<u8>)>,
    /// Working directory.
    pub(in crate::agent) cwd: Vec<u8>,
    /// Its rank as text: how what it leaves behind is recognised.
    pub(in crate::agent) rank: String,
    /// Whether it gets a pipe as standard input.
    pub(in crate::agent) stdin: bool,
    /// Processors and memory of its own.
    pub(in crate::agent) bound: Option<CoreShare>,
}

/// A packet's bytes.
pub(super) fn encode<M: Serialize>(message: &M) -> Vec<u8> {
    let packet = postcard::to_allocvec(message).expect("every message is serialisable");
    assert!(packet.len() <= PACKET_BYTES_MAX, "packets are small by construction");
    packet
}

/// Reads a packet back; both ends are one build.
pub(super) fn decode<'a, M: Deserialize<'a>>(packet: &'a [u8]) -> M {
    postcard::from_bytes(packet).expect("agent and shim are the same executable")
}

/// Puts the workers into a file that has no name.
pub(super) fn pack(workers: &[ShimWorker]) -> io::Result<OwnedFd> {
    let bytes = postcard::to_allocvec(workers).expect("every message is serialisable");
    let memory = rustix::fs::memfd_create("remuda-workers", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = File::from(memory);
    file.write_all(&bytes)?;
    file.rewind()?;
    Ok(file.into())
}

/// Reads them back.
pub(super) fn unpack(memory: OwnedFd) -> io::Result<Vec<ShimWorker>> {
    let mut bytes = Vec::new();
    File::from(memory).read_to_end(&mut bytes)?;
    Ok(decode(&bytes))
}
