//! The socket between the agent and one worker: the welcome on its way in, notes on their way out.
//! A program that knows nothing of it leaves it alone.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::output::Outbox;
use crate::base::{Epoch, JobId, Rank};
use crate::runtime::contract::{self, FrameReader, NodeRanks, Note, ToWorker, Welcome};
use crate::secure::{JobKey, derive_rank_key};
use crate::transport::{LinkReader, LinkWriter};
use crate::wire::{FromAgent, Prepare, Start, WorkerNote};

const READ_BYTES: usize = 4096;

/// Everything about a job that its workers are told.
pub(super) struct Welcomes {
    job: JobId,
    epoch: Epoch,
    key: JobKey,
    start: Start,
    nodes: Vec<NodeRanks>,
}

impl Welcomes {
    pub(super) fn new(job: JobId, epoch: Epoch, prepare: &Prepare, start: Start) -> Self {
        let mut nodes: Vec<NodeRanks> = start
            .hosts
            .iter()
            .map(|host| NodeRanks { host: host.clone(), ranks: vec![] })
            .collect();
        for (rank, node) in (0..).map(Rank).zip(&start.node_of_rank) {
            if let Some(node) = nodes.get_mut(node.index()) {
                node.ranks.push(rank);
            }
        }
        Self { job, epoch, key: JobKey::from_random(prepare.key), start, nodes }
    }

    /// The first frame of a worker.
    pub(super) fn frame(&self, rank: Rank) -> Vec<u8> {
        let welcome = Welcome {
            job: self.job.clone(),
            epoch: self.epoch,
            rank,
            nodes: self.nodes.clone(),
            key: derive_rank_key(&self.key, self.epoch, rank),
            store: self.start.store,
        };
        contract::encode_frame(&ToWorker::Welcome(Box::new(welcome)))
    }
}

/// Writes frames to a worker until nobody has any more; the first is its welcome.
pub(super) async fn tell(socket: OwnedFd, mut frames: mpsc::UnboundedReceiver<Vec<u8>>) {
    let Ok(writer) = LinkWriter::new(socket) else {
        return;
    };
    while let Some(frame) = frames.recv().await {
        // A worker that closed it does not want to know.
        if writer.write_all(&frame, &[]).await.is_err() {
            return;
        }
    }
}

/// Passes a worker's notes on until it ends. One that writes nonsense is not heard any more.
pub(super) async fn hear(socket: OwnedFd, rank: Rank, outbox: Arc<Outbox>) {
    let Ok(reader) = LinkReader::new(socket) else {
        return;
    };
    let mut frames = FrameReader::from_worker();
    let mut buffer = Vec::with_capacity(READ_BYTES);
    while matches!(reader.read(&mut buffer).await, Ok(length) if 0 < length) {
        frames.push(&buffer);
        buffer.clear();
        loop {
            match frames.next::<Note>() {
                Ok(Some(note)) => {
                    outbox.send_slowly(&FromAgent::Note { rank, note: relay(&note) }).await;
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

/// The contract with workers and the wire are versioned apart.
fn relay(note: &Note) -> WorkerNote {
    match *note {
        Note::Ready => WorkerNote::Ready,
        Note::Step { step, steps, loss, tokens_per_s } => {
            WorkerNote::Step { step, steps, loss, tokens_per_s }
        }
        Note::PeerLost { rank } => WorkerNote::PeerLost(rank),
    }
}
