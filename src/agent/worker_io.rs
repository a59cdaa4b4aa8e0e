//! The agent's ends of the pipes and sockets of its workers.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use tokio::sync::{Notify, mpsc};

use super::flow_control::OutputWindow;
use super::output::{self, Forward, StreamEnd};
use super::rank_link::{self, NoteReader, Welcomes};
use super::state::AgentEvent;
use super::uplink::EpochUplink;
use crate::base::Rank;
use crate::inventory::{has_gpu, oom_kills, open_log_at_end, read_xids, xid_concerns};
use crate::os::tasks::Tasks;
use crate::runtime::contract::{self, ToWorker};
use crate::wire::{Stream, WorkerStart};

/// Callback for the end of a stream.
type OnStreamEnd = Arc<dyn Fn(AgentEvent) + Send + Sync>;

/// The channels of all workers of an epoch, by index.
pub(super) struct WorkerChannels {
    workers: Vec<WorkerChannel>,
    /// Limit of the output in transit.
    window: Arc<OutputWindow>,
    on_stream_end: OnStreamEnd,
    gpu_errors: Option<GpuErrors>,
}

/// Errors of GPUs in the kernel's log since workers were started.
struct GpuErrors {
    log: File,
    found: Vec<String>,
}

/// The channels of one worker.
struct WorkerChannel {
    rank: Rank,
    /// Sender of the frames for its rank socket: the welcome, and at most one for each other worker.
    frames: Option<mpsc::UnboundedSender<Vec<u8>>>,
    /// Notifications that cancel the wait for the end of a stream.
    cancels: Vec<Arc<Notify>>,
    /// Sender of its standard input; input may arrive before the worker is forked. The launcher sends no
    /// more than its limit of unread bytes.
    stdin: Option<mpsc::UnboundedSender<Vec<u8>>>,
    /// Receiver of its standard input, until there is a pipe to write to.
    stdin_receiver: Option<mpsc::UnboundedReceiver<Vec<u8>>>,
    /// The kernel's count of OOM kills when the worker was started.
    oom_kills: u64,
}

impl WorkerChannels {
    /// Creates an empty table.
    pub(super) fn new(on_stream_end: impl Fn(AgentEvent) + Send + Sync + 'static) -> Self {
        let on_stream_end = Arc::new(on_stream_end);
        Self { workers: Vec::new(), window: Arc::default(), on_stream_end, gpu_errors: None }
    }

    /// Empties the table for another epoch. Output that is in transit stays in transit.
    pub(super) fn clear(&mut self) {
        self.workers.clear();
    }

    /// Adds the workers that are about to be started.
    pub(super) fn add(&mut self, starts: &[WorkerStart]) {
        let oom_kills = oom_kills();
        let log = if has_gpu(Path::new("/dev")) { open_log_at_end() } else { None };
        self.gpu_errors = log.map(|log| GpuErrors { log, found: Vec::new() });
        self.workers = starts.iter().map(|start| WorkerChannel::new(start, oom_kills)).collect();
    }

    /// Number of workers of the epoch.
    pub(super) fn len(&self) -> usize {
        self.workers.len()
    }

    /// Limit of the output in transit.
    pub(super) fn window(&self) -> &OutputWindow {
        &self.window
    }

    /// Connects a worker that was forked. Its descriptors are stdout, stderr, rank socket, and
    /// stdin if it has one.
    pub(super) fn attach(
        &mut self,
        index: usize,
        fds: Vec<OwnedFd>,
        (uplink, welcomes): (EpochUplink, &Welcomes),
        tasks: &mut Tasks,
    ) {
        let mut fds = fds.into_iter();
        let pipes = [fds.next(), fds.next()];
        let worker = &mut self.workers[index];
        let rank = worker.rank;
        let mut note_reader = None;
        if let Some(socket) = fds.next() {
            // Holds the welcome, and at most one frame for each other worker.
            let (frames, receiver) = mpsc::unbounded_channel();
            let _ = frames.send(welcomes.frame(rank));
            worker.frames = Some(frames);
            if let Ok(copy) = socket.try_clone() {
                tasks.spawn(rank_link::write_frames(copy, receiver));
            }
            note_reader = NoteReader::new(socket, rank, uplink.clone()).ok().map(Arc::new);
        }
        if let Some(reader) = note_reader.clone() {
            tasks.spawn(async move { reader.forward_notes().await });
        }
        if let (Some(pipe), Some(pieces)) = (fds.next(), worker.stdin_receiver.take()) {
            tasks.spawn(output::write_stdin(pipe, rank, pieces, uplink.clone()));
        }
        for (stream, pipe) in [Stream::Stdout, Stream::Stderr].into_iter().zip(pipes) {
            if let Some(pipe) = pipe {
                let (uplink, window) = (uplink.clone(), Arc::clone(&self.window));
                let (note_reader, cancel) = (note_reader.clone(), Arc::default());
                let forward = Forward { rank, stream, uplink, window, note_reader, cancel };
                self.forward(index, forward, pipe, tasks);
            }
        }
    }

    fn forward(&mut self, index: usize, forward: Forward, pipe: OwnedFd, tasks: &mut Tasks) {
        self.workers[index].cancels.push(Arc::clone(&forward.cancel));
        let on_end = Arc::clone(&self.on_stream_end);
        tasks.spawn(async move {
            // A read error counts as the end of the stream.
            let end = forward.run(pipe).await.unwrap_or(StreamEnd::Closed);
            let is_held_open = end == StreamEnd::HeldOpen;
            on_end(AgentEvent::StreamEnded { worker: index, stream: forward.stream, is_held_open });
        });
    }

    /// Closes the standard input and the socket of a worker that has exited.
    pub(super) fn detach(&mut self, index: usize) {
        let worker = &mut self.workers[index];
        worker.stdin = None;
        worker.frames = None;
    }

    /// Returns the number of processes that the OOM killer has killed since the start of a worker.
    pub(super) fn oom_kills(&self, index: usize) -> u64 {
        oom_kills().saturating_sub(self.workers[index].oom_kills)
    }

    /// Returns the errors of GPUs since the workers were started that concern a worker with this pid.
    pub(super) fn xids(&mut self, pid: u32) -> Vec<String> {
        let Some(GpuErrors { log, found }) = &mut self.gpu_errors else { return Vec::new() };
        found.extend(read_xids(log));
        found.iter().filter(|line| xid_concerns(line, pid)).cloned().collect()
    }

    /// Sends a message to every worker that is alive.
    pub(super) fn broadcast(&self, message: &ToWorker) {
        let frame = contract::encode_frame(message);
        for frames in self.workers.iter().filter_map(|worker| worker.frames.as_ref()) {
            let _ = frames.send(frame.clone());
        }
    }

    /// Stops waiting for the end of streams that other processes hold open after the worker's exit.
    pub(super) fn cancel_streams(&self, index: usize) {
        for cancel in &self.workers[index].cancels {
            cancel.notify_one();
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

impl WorkerChannel {
    fn new(start: &WorkerStart, oom_kills: u64) -> Self {
        // The launcher stops reading its input before the worker has much that it did not read.
        let (stdin, pieces) = mpsc::unbounded_channel();
        Self {
            rank: start.rank,
            frames: None,
            cancels: Vec::new(),
            stdin: Some(stdin),
            stdin_receiver: Some(pieces),
            oom_kills,
        }
    }
}
