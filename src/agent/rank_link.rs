//! The socket between the agent and one worker: the welcome on its way in, notes on their way out.
//! A program that knows nothing of it leaves it alone.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::notes::Sieve;
use super::output::Outbox;
use crate::base::{Epoch, JobId, Rank, clock};
use crate::runtime::contract::{
    self, ContractError, FrameReader, NodeRanks, Note, ToWorker, Welcome,
};
use crate::secure::{JobKey, derive_rank_key};
use crate::transport::{LinkReader, LinkWriter};
use crate::wire::{FromAgent, Prepare, Start, WorkerNote};

const READ_BYTES: usize = 4096;
/// How long we look away from a worker that has written so much at once.
const FLOOD_PAUSE: Duration = Duration::from_millis(1);

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
        Self { job, epoch, key: prepare.key.clone(), start, nodes }
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
    let (mut frames, mut sieve) = (FrameReader::from_worker(), Sieve::default());
    let mut buffer = Vec::with_capacity(READ_BYTES);
    loop {
        let read = tokio::select! {
            read = reader.read(&mut buffer) => read,
            () = sleep_until(sieve.step_at(clock::now())) => {
                pass_on(sieve.take_step(clock::now()), rank, &outbox).await;
                continue;
            }
        };
        let understood = matches!(read, Ok(1..)) && {
            frames.push(&buffer);
            sift(&mut frames, &mut sieve, rank, &outbox).await.is_ok()
        };
        if !understood {
            return pass_on(sieve.take_step(clock::now()), rank, &outbox).await;
        }
        if buffer.len() == READ_BYTES {
            // Whoever floods us waits, not everybody else.
            tokio::time::sleep(FLOOD_PAUSE).await;
        }
        buffer.clear();
    }
}

async fn sift(
    frames: &mut FrameReader,
    sieve: &mut Sieve,
    rank: Rank,
    outbox: &Outbox,
) -> Result<(), ContractError> {
    while let Some(note) = frames.next::<Note>()? {
        pass_on(sieve.push(&note), rank, outbox).await;
    }
    Ok(())
}

async fn pass_on(note: Option<WorkerNote>, rank: Rank, outbox: &Outbox) {
    if let Some(note) = note {
        outbox.send_slowly(&FromAgent::Note { rank, note }).await;
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
