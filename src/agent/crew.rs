//! Table of the workers of this node: their processes, their open streams, and the messages to
//! them.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::process::Pid;
use tokio::sync::{Notify, mpsc};

use super::output::{self, Forward, Outbox, StreamEnd};
use super::rank_link::{self, NoteReader, Welcomes};
use super::window::OutputWindow;
use crate::base::{Rank, WorkerExit};
use crate::os::family::Stat;
use crate::os::tasks::Tasks;
use crate::runtime::contract::{self, ToWorker};
use crate::wire::{FailedStart, FromAgent, Stream, WorkerStart, WorkerStartStep};

/// The event that a stream has reached its end.
pub(super) struct StreamEnded {
    /// Index of the worker in the start request.
    pub(super) worker: usize,
    /// Stdout or stderr.
    pub(super) stream: Stream,
    /// Whether all write ends were closed.
    pub(super) end: StreamEnd,
}

/// Callback for the end of a stream.
pub(super) type OnStreamEnd = Arc<dyn Fn(StreamEnded) + Send + Sync>;

/// The workers of this node in the order of the start request, which is also that of their indices.
pub(super) struct WorkerTable {
    workers: Vec<Worker>,
    outbox: Arc<Outbox>,
    /// Limit of the output in transit.
    window: Arc<OutputWindow>,
    on_stream_end: OnStreamEnd,
}

struct Worker {
    rank: Rank,
    /// The pid, once the worker is forked.
    pid: Option<Pid>,
    /// Sender of the frames for its rank socket.
    frames: Option<mpsc::UnboundedSender<Vec<u8>>>,
    is_alive: bool,
    linger: Linger,
    /// Streams that have not ended, each with the notification that cancels the wait for its end.
    streams: BTreeMap<Stream, Arc<Notify>>,
    /// Sender of its standard input; input may arrive before the worker is forked.
    stdin: Option<mpsc::UnboundedSender<Vec<u8>>>,
    /// Receiver of its standard input, until there is a pipe to write to.
    stdin_receiver: Option<mpsc::UnboundedReceiver<Vec<u8>>>,
    /// The kernel's count of OOM kills when the worker was started.
    oom_kills: u64,
}

/// Whether the processes that a worker leaves behind get time to exit by themselves.
pub(super) enum Linger {
    /// No: the worker is running, was signalled, or failed.
    No,
    /// Not yet: the worker exited with 0 by itself, so they may get time.
    Allowed,
    /// Yes, until this instant.
    Until(Instant),
}

impl WorkerTable {
    /// Creates an empty table of workers.
    pub(super) fn new(outbox: Arc<Outbox>, on_stream_end: OnStreamEnd) -> Self {
        let window = Arc::default();
        Self { workers: Vec::new(), outbox, window, on_stream_end }
    }

    /// Switches to the outbox of another epoch.
    pub(super) fn set_outbox(&mut self, outbox: Arc<Outbox>) {
        self.outbox = outbox;
    }

    /// Empties the table for another epoch. Output that is in transit stays in transit.
    pub(super) fn reset(&mut self, outbox: Arc<Outbox>) {
        self.workers.clear();
        self.outbox = outbox;
    }

    /// Adds the workers that are about to be started.
    pub(super) fn add_workers(&mut self, starts: &[WorkerStart]) {
        let oom_kills = oom_kills();
        self.workers = starts.iter().map(|start| Worker::new(start, oom_kills)).collect();
    }

    /// Whether no start of workers was requested in this epoch.
    pub(super) fn is_empty(&self) -> bool {
        self.workers.is_empty()
    }

    /// Indices of the workers that are alive.
    pub(super) fn live_indices(&self) -> Vec<usize> {
        (0..self.workers.len()).filter(|index| self.workers[*index].is_alive).collect()
    }

    /// Pids of the workers that are alive.
    pub(super) fn live_pids(&self) -> impl Iterator<Item = Pid> {
        self.workers.iter().filter(|worker| worker.is_alive).filter_map(|worker| worker.pid)
    }

    /// Ranks of the workers that are alive and stopped by a signal or a debugger.
    pub(super) fn suspended(&self) -> Vec<Rank> {
        let is_suspended = |worker: &&Worker| {
            let stat = worker.pid.filter(|_| worker.is_alive).and_then(Stat::of);
            stat.is_some_and(|stat| stat.is_suspended())
        };
        self.workers.iter().filter(is_suspended).map(|worker| worker.rank).collect()
    }

    /// Indices of all workers.
    pub(super) fn indices(&self) -> std::ops::Range<usize> {
        0..self.workers.len()
    }

    /// Returns the rank of a worker.
    pub(super) fn rank(&self, index: usize) -> Rank {
        self.workers[index].rank
    }

    /// Returns the state of the time limit for the processes that the worker left behind.
    pub(super) fn linger_mut(&mut self, index: usize) -> &mut Linger {
        &mut self.workers[index].linger
    }

    /// Whether any stream of the worker has not ended.
    pub(super) fn is_streaming(&self, index: usize) -> bool {
        !self.workers[index].streams.is_empty()
    }

    /// Allows output to be sent, with at most this many bytes in transit.
    pub(super) fn open_window(&self, bytes_max: u64) {
        self.window.open(bytes_max);
    }

    /// Records that the launcher has consumed output; false if that many bytes were never sent.
    pub(super) fn acknowledge(&self, bytes: u64) -> bool {
        self.window.acknowledge(bytes)
    }

    /// Discards output from now on. It is still read, so that no worker blocks or fails because of
    /// it.
    pub(super) fn discard_output(&self) {
        self.window.close();
    }

    /// Records that a worker was forked. Its descriptors are stdout, stderr, rank socket, and stdin
    /// if it has one.
    pub(super) fn record_fork(
        &mut self,
        index: usize,
        (pid, at_us): (u32, u64),
        fds: Vec<OwnedFd>,
        welcomes: &Welcomes,
        tasks: &mut Tasks,
    ) {
        let mut fds = fds.into_iter();
        let pipes = [fds.next(), fds.next()];
        let worker = &mut self.workers[index];
        let rank = worker.rank;
        let mut note_reader = None;
        if let Some(socket) = fds.next() {
            let (frames, receiver) = mpsc::unbounded_channel();
            let _ = frames.send(welcomes.frame(rank));
            worker.frames = Some(frames);
            if let Ok(copy) = socket.try_clone() {
                tasks.spawn(rank_link::write_frames(copy, receiver));
            }
            note_reader =
                NoteReader::new(socket, rank, Arc::clone(&self.outbox)).ok().map(Arc::new);
        }
        if let Some(reader) = note_reader.clone() {
            tasks.spawn(async move { reader.forward_notes().await });
        }
        for (stream, pipe) in [Stream::Stdout, Stream::Stderr].into_iter().zip(pipes) {
            if let Some(pipe) = pipe {
                self.forward(index, stream, pipe, note_reader.clone(), tasks);
            }
        }
        let worker = &mut self.workers[index];
        worker.pid = Pid::from_raw(pid as i32);
        if let (Some(pipe), Some(pieces)) = (fds.next(), worker.stdin_receiver.take()) {
            tasks.spawn(output::write_stdin(pipe, rank, pieces, Arc::clone(&self.outbox)));
        }
        self.outbox.send(&FromAgent::Started { rank, pid, at_us });
    }

    fn forward(
        &mut self,
        index: usize,
        stream: Stream,
        pipe: OwnedFd,
        note_reader: Option<Arc<NoteReader>>,
        tasks: &mut Tasks,
    ) {
        let cancel = Arc::new(Notify::new());
        let worker = &mut self.workers[index];
        worker.streams.insert(stream, Arc::clone(&cancel));
        let (outbox, window) = (Arc::clone(&self.outbox), Arc::clone(&self.window));
        let forward = Forward { rank: worker.rank, stream, outbox, window, note_reader, cancel };
        let on_end = Arc::clone(&self.on_stream_end);
        tasks.spawn(async move {
            // A read error counts as the end of the stream.
            let end = forward.run(pipe).await.unwrap_or(StreamEnd::Closed);
            on_end(StreamEnded { worker: index, stream, end });
        });
    }

    /// Reports that a worker failed before it executed its program.
    pub(super) fn record_start_failure(&mut self, index: usize, step: WorkerStartStep, errno: i32) {
        self.workers[index].is_alive = false;
        let rank = self.workers[index].rank;
        self.outbox.send(&FromAgent::StartFailed(FailedStart { rank, step, errno }));
    }

    /// Records and reports the exit of a worker; `sent` are the signals that it was sent.
    pub(super) fn record_exit(
        &mut self,
        index: usize,
        exit: WorkerExit,
        at_us: u64,
        sent: Vec<i32>,
    ) {
        let worker = &mut self.workers[index];
        worker.is_alive = false;
        if exit.is_success() && sent.is_empty() {
            worker.linger = Linger::Allowed;
        }
        worker.stdin = None;
        worker.frames = None;
        let (rank, before) = (worker.rank, worker.oom_kills);
        let message = if exit.is_success() {
            ToWorker::PeerEnded { rank }
        } else {
            ToWorker::PeerGone { rank }
        };
        self.broadcast(&message);
        let oom_kills = match exit {
            WorkerExit::Signal { signal: libc::SIGKILL, .. } => oom_kills().saturating_sub(before),
            _ => 0,
        };
        self.outbox.send(&FromAgent::Exited { rank, exit, at_us, signals_sent: sent, oom_kills });
    }

    /// Sends a message to every worker that is alive. Operations that need a worker that has exited
    /// then fail at once instead of at their deadline.
    pub(super) fn broadcast(&self, message: &ToWorker) {
        let frame = contract::encode_frame(message);
        for frames in self.workers.iter().filter_map(|worker| worker.frames.as_ref()) {
            let _ = frames.send(frame.clone());
        }
    }

    /// Records and reports that a stream has ended.
    pub(super) fn record_stream_end(&mut self, ended: &StreamEnded) {
        let worker = &mut self.workers[ended.worker];
        worker.streams.remove(&ended.stream);
        let (rank, is_held_open) = (worker.rank, ended.end == StreamEnd::HeldOpen);
        let end = FromAgent::OutputEnd { rank, stream: ended.stream, is_held_open };
        self.outbox.send(&end);
    }

    /// Stops waiting for the end of streams that other processes hold open after the worker's exit.
    pub(super) fn cancel_streams(&self, index: usize) {
        for stream in self.workers[index].streams.values() {
            stream.notify_one();
        }
    }

    /// Queues standard input for a worker; empty bytes mean the end of the input.
    pub(super) fn send_stdin(&mut self, rank: Rank, bytes: Vec<u8>) {
        let Some(worker) = self.workers.iter_mut().find(|worker| worker.rank == rank) else {
            return;
        };
        if bytes.is_empty() {
            worker.stdin = None;
        } else if let Some(stdin) = &worker.stdin {
            let _ = stdin.send(bytes);
        }
    }
}

impl Worker {
    fn new(start: &WorkerStart, oom_kills: u64) -> Self {
        let (stdin, pieces) = mpsc::unbounded_channel();
        Self {
            rank: start.rank,
            pid: None,
            frames: None,
            is_alive: true,
            linger: Linger::No,
            streams: BTreeMap::new(),
            stdin: Some(stdin),
            stdin_receiver: Some(pieces),
            oom_kills,
        }
    }
}

/// Number of processes that the kernel's OOM killer has killed since this machine started.
fn oom_kills() -> u64 {
    let text = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}
