//! Table of the workers of this node: which of them are alive, and which of their streams are open.

use std::collections::BTreeSet;
use std::time::Instant;

use crate::base::{Rank, WorkerExit};
use crate::wire::{Stream, WorkerStart};

/// The workers of this node in the order of the start request, which is also that of their indices.
#[derive(Debug, Default)]
pub(super) struct WorkerTable(Vec<WorkerRecord>);

#[derive(Debug)]
struct WorkerRecord {
    rank: Rank,
    /// The pid, once the worker is forked.
    pid: Option<u32>,
    is_alive: bool,
    linger: Linger,
    /// Streams that have not ended.
    streams: BTreeSet<Stream>,
}

/// Whether the processes that a worker leaves behind get time to exit by themselves.
#[derive(Debug)]
pub(super) enum Linger {
    /// No: the worker is running, was signalled, or failed.
    No,
    /// Not yet: the worker exited with 0 by itself, so they may get time.
    Allowed,
    /// Yes, until this instant.
    Until(Instant),
}

impl WorkerTable {
    /// Adds the workers that are about to be started.
    pub(super) fn add(&mut self, starts: &[WorkerStart]) {
        let record = |start: &WorkerStart| WorkerRecord {
            rank: start.rank,
            pid: None,
            is_alive: true,
            linger: Linger::No,
            streams: BTreeSet::new(),
        };
        self.0 = starts.iter().map(record).collect();
    }

    /// Empties the table for another epoch.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether no start of workers was requested in this epoch.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of workers whose start was requested.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Indices of the workers that are alive.
    pub(super) fn live_indices(&self) -> Vec<usize> {
        (0..self.0.len()).filter(|index| self.0[*index].is_alive).collect()
    }

    /// Ranks and pids of the workers that are alive.
    pub(super) fn live(&self) -> Vec<(Rank, u32)> {
        let alive = self.0.iter().filter(|worker| worker.is_alive);
        alive.filter_map(|worker| Some((worker.rank, worker.pid?))).collect()
    }

    /// Returns the rank of a worker.
    pub(super) fn rank(&self, index: usize) -> Rank {
        self.0[index].rank
    }

    /// Returns the pid of a worker, if it was forked.
    pub(super) fn pid(&self, index: usize) -> Option<u32> {
        self.0[index].pid
    }

    /// Returns the state of the time limit for the processes that the worker left behind.
    pub(super) fn linger_mut(&mut self, index: usize) -> &mut Linger {
        &mut self.0[index].linger
    }

    /// Whether any stream of the worker has not ended.
    pub(super) fn is_streaming(&self, index: usize) -> bool {
        !self.0[index].streams.is_empty()
    }

    /// Whether any stream of any worker has not ended.
    pub(super) fn is_any_streaming(&self) -> bool {
        self.0.iter().any(|worker| !worker.streams.is_empty())
    }

    /// Records that a worker was forked, with the descriptors of its streams first among this many;
    /// returns its rank.
    pub(super) fn record_fork(&mut self, index: usize, pid: u32, descriptors: usize) -> Rank {
        let worker = &mut self.0[index];
        worker.pid = Some(pid);
        worker.streams = [Stream::Stdout, Stream::Stderr].into_iter().take(descriptors).collect();
        worker.rank
    }

    /// Records that a worker failed before it executed its program; returns its rank.
    pub(super) fn record_start_failure(&mut self, index: usize) -> Rank {
        self.0[index].is_alive = false;
        self.0[index].rank
    }

    /// Records the exit of a worker that was sent these signals; returns its rank.
    pub(super) fn record_exit(&mut self, index: usize, exit: WorkerExit, sent: &[i32]) -> Rank {
        let worker = &mut self.0[index];
        worker.is_alive = false;
        if exit.is_success() && sent.is_empty() {
            worker.linger = Linger::Allowed;
        }
        worker.rank
    }

    /// Records that a stream has ended; returns the rank of its worker.
    pub(super) fn record_stream_end(&mut self, index: usize, stream: Stream) -> Rank {
        let worker = &mut self.0[index];
        worker.streams.remove(&stream);
        worker.rank
    }
}
