//! The socket between the agent and one worker: it carries the welcome to the worker, and notes
//! from it. A program that does not use the protocol ignores the socket.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::mpsc;

use super::notes::NoteThrottle;
use super::state::StartRequest;
use super::uplink::EpochUplink;
use crate::base::Note;
use crate::base::{Epoch, JobId, Rank, clock};
use crate::os::tasks::sleep_until;
use crate::runtime::contract::{self, FrameReader, NodeRanks, ToWorker, Welcome};
use crate::secure::{JobKey, derive_rank_key};
use crate::transport::{LinkReader, LinkWriter};
use crate::wire::FromAgent;

/// Size of one read.
const READ_BYTES: usize = 4096;
/// Number of reads that empty a socket of the default size.
const READS_MAX: usize = 64;
/// Pause in reading from a worker that has filled the read buffer.
const FLOOD_PAUSE: Duration = Duration::from_millis(1);

/// The data of a job that its workers receive in the welcome.
pub(super) struct Welcomes {
    job: JobId,
    epoch: Epoch,
    key: JobKey,
    store: Option<SocketAddr>,
    nodes: Vec<NodeRanks>,
}

impl Welcomes {
    /// Creates the welcomes of an epoch. Ranks are counted through the nodes.
    pub(super) fn new(request: &StartRequest) -> Self {
        let StartRequest { job, epoch, prepare, start, roster } = request;
        let mut ranks = (0..).map(Rank);
        let nodes = roster.nodes.iter().map(|(host, workers)| NodeRanks {
            host: host.clone(),
            ranks: ranks.by_ref().take(*workers as usize).collect(),
        });
        let nodes = nodes.collect();
        Self {
            job: job.clone(),
            epoch: *epoch,
            key: prepare.key.clone(),
            store: start.store,
            nodes,
        }
    }

    /// Returns the first frame for a worker.
    pub(super) fn frame(&self, rank: Rank) -> Vec<u8> {
        let welcome = Welcome {
            job: self.job.clone(),
            epoch: self.epoch,
            rank,
            nodes: self.nodes.clone(),
            key: derive_rank_key(&self.key, self.epoch, rank),
            store: self.store,
        };
        contract::encode_frame(&ToWorker::Welcome(Box::new(welcome)))
    }
}

/// Writes frames to a worker until all senders are dropped; the first frame is its welcome.
pub(super) async fn write_frames(socket: OwnedFd, mut frames: mpsc::UnboundedReceiver<Vec<u8>>) {
    let Ok(writer) = LinkWriter::new(socket) else {
        return;
    };
    while let Some(frame) = frames.recv().await {
        // The worker has closed its end and does not use the protocol.
        if writer.write_all(&frame, &[]).await.is_err() {
            return;
        }
    }
}

/// Reader of the notes of one worker. Two kinds of tasks read: the task that waits for notes, and
/// tasks that are about to send output. So a note that was written before a line of output is sent
/// before that line.
pub(super) struct NoteReader {
    rank: Rank,
    reader: LinkReader,
    state: Mutex<NoteState>,
    uplink: EpochUplink,
}

/// Parser and throttle of the notes.
struct NoteState {
    frames: FrameReader,
    throttle: NoteThrottle,
    /// Set after an invalid frame: notes of this worker are no longer read.
    has_failed: bool,
}

impl NoteReader {
    /// Creates the reader of a worker's notes. Must be called inside a runtime.
    pub(super) fn new(socket: OwnedFd, rank: Rank, uplink: EpochUplink) -> io::Result<Self> {
        let (frames, throttle) = (FrameReader::from_worker(), NoteThrottle::default());
        let state = Mutex::new(NoteState { frames, throttle, has_failed: false });
        Ok(Self { rank, reader: LinkReader::new(socket)?, state, uplink })
    }

    /// Forwards notes until the worker exits.
    pub(super) async fn forward_notes(&self) {
        let mut buffer = Vec::with_capacity(READ_BYTES);
        loop {
            let newest_at = self.lock_state().throttle.newest_at(clock::now());
            let read = tokio::select! {
                read = self.reader.read(&mut buffer) => read,
                () = sleep_until(newest_at) => {
                    self.send_notes(self.take_newest()).await;
                    continue;
                }
            };
            // What was read is parsed before another task can continue reading.
            self.send_notes(self.parse_notes(&buffer)).await;
            if !matches!(read, Ok(1..)) || self.lock_state().has_failed {
                return self.send_notes(self.take_newest()).await;
            }
            if buffer.len() == READ_BYTES {
                // A worker that sends too many notes waits; other workers do not.
                tokio::time::sleep(FLOOD_PAUSE).await;
            }
            buffer.clear();
        }
    }

    /// Forwards all notes that were written until now, including the newest step and phase.
    pub(super) async fn catch_up(&self) {
        let mut buffer = Vec::with_capacity(READ_BYTES);
        // A worker that writes without end is not read without end.
        for _ in 0..READS_MAX {
            buffer.clear();
            // The end of the socket, and errors, are handled by `forward_notes`.
            let _ = self.reader.try_read(&mut buffer);
            self.send_notes(self.parse_notes(&buffer)).await;
            if buffer.len() < READ_BYTES {
                break;
            }
        }
        self.send_notes(self.take_newest()).await;
    }

    /// Parses bytes that were read, and returns the notes to forward at once.
    fn parse_notes(&self, bytes: &[u8]) -> Vec<Note> {
        let mut state = self.lock_state();
        let NoteState { frames, throttle, has_failed } = &mut *state;
        let mut urgent = Vec::new();
        if *has_failed || bytes.is_empty() {
            return urgent;
        }
        frames.push(bytes);
        loop {
            match frames.next::<Note>() {
                Ok(Some(note)) => urgent.extend(throttle.push(&note)),
                Ok(None) => return urgent,
                Err(_) => {
                    *has_failed = true;
                    return urgent;
                }
            }
        }
    }

    fn take_newest(&self) -> Vec<Note> {
        self.lock_state().throttle.take_newest(clock::now())
    }

    async fn send_notes(&self, notes: Vec<Note>) {
        for note in notes {
            self.uplink.send_and_wait(&FromAgent::Note { rank: self.rank, note }).await;
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, NoteState> {
        self.state.lock().expect("no thread panics while it holds the lock")
    }
}
