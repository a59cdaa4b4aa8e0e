//! [`EmulatedRanks`]: the emulated devices of several ranks, which exchange data without their hosts.
//!
//! An operation sends what is in memory when it is the first of its stream, and writes what it receives when all of it
//! is there. A rank for which others wait makes progress although its host does not wait for it, as a device does.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use remuda::cuda::device::{DeviceAddress, DeviceCommunicator, DeviceError, PeerMemory, StreamId};
use remuda::cuda::nccl::{UNIQUE_ID_BYTES, UniqueId};

use super::emulated_streams::EmulatedStreams;
use super::ffi_emulated::{read_memory, write_memory};

/// Number of an operation of a communicator, equal on all ranks.
pub(super) type Sequence = u64;

/// Ranks that are connected, by the identifier of their communicator.
type Connected = HashMap<u64, Arc<Ranks>>;

/// What the ranks of a communicator have in common.
pub(super) struct Ranks {
    state: Mutex<RanksState>,
}

#[derive(Default)]
struct RanksState {
    devices: Vec<Option<EmulatedStreams>>,
    /// What was sent and not received: operation, sender, receiver.
    sent: HashMap<(Sequence, usize, usize), Vec<u8>>,
    /// Ranks whose operations have ended without their peers.
    aborted: BTreeSet<usize>,
}

/// An operation between ranks, in the stream of one of them.
pub(super) struct RankOperation {
    ranks: Arc<Ranks>,
    rank: usize,
    sequence: Sequence,
    kind: Kind,
    was_sent: bool,
}

enum Kind {
    Exchange {
        sends: Vec<PeerMemory>,
        recvs: Vec<PeerMemory>,
    },
    Gather {
        from: DeviceAddress,
        to: DeviceAddress,
        bytes: usize,
    },
    /// Sums of numbers in the order of the last rank to the first, which is not the canonical one. Of the parts of all
    /// ranks, this one keeps its own; with one part, all keep it.
    Sum {
        at: DeviceAddress,
        count: usize,
        parts: usize,
    },
}

/// Whether an operation has ended.
pub(super) enum Progress {
    Ended,
    /// It has sent its data.
    Sent,
    /// It waits for what others send.
    Waits(AwaitedRanks),
    Failed(DeviceError),
}

/// Devices that must send something, in this operation.
pub(super) struct AwaitedRanks {
    pub(super) ranks: Arc<Ranks>,
    pub(super) sequence: Sequence,
    pub(super) devices: Vec<EmulatedStreams>,
}

/// Communicator of a rank.
struct EmulatedRanks {
    ranks: Arc<Ranks>,
    device: EmulatedStreams,
    stream: StreamId,
    /// Number of the communicator.
    number: u64,
    rank: usize,
    world: usize,
    next: Sequence,
}

fn connected() -> MutexGuard<'static, Connected> {
    static CONNECTED: OnceLock<Mutex<Connected>> = OnceLock::new();
    CONNECTED.get_or_init(Mutex::default).lock().expect("no thread panics while it holds the lock")
}

/// A new identifier.
pub(super) fn new_id() -> UniqueId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut id = [0; UNIQUE_ID_BYTES];
    id[..8].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    UniqueId(id)
}

/// Connects a device with those of other ranks.
pub(super) fn connect(
    device: &EmulatedStreams,
    stream: StreamId,
    id: UniqueId,
    (rank, world): (usize, usize),
) -> Box<dyn DeviceCommunicator> {
    let number = u64::from_le_bytes(id.0[..8].try_into().expect("8 bytes"));
    let ranks = connected().entry(number).or_insert_with(|| Arc::new(Ranks::new(world))).clone();
    ranks.lock().devices[rank] = Some(device.clone());
    Box::new(EmulatedRanks { ranks, device: device.clone(), stream, number, rank, world, next: 0 })
}

impl Ranks {
    fn new(world: usize) -> Self {
        let devices = (0..world).map(|_| None).collect();
        Self { state: Mutex::new(RanksState { devices, ..RanksState::default() }) }
    }

    fn lock(&self) -> MutexGuard<'_, RanksState> {
        self.state.lock().expect("no thread panics while it holds the lock")
    }
}

impl RankOperation {
    /// Whether this is operation `sequence` of these ranks, and others may wait for what it sends.
    pub(super) fn is_wanted(&self, ranks: &Arc<Ranks>, sequence: Sequence) -> bool {
        Arc::ptr_eq(&self.ranks, ranks) && self.sequence == sequence && !self.was_sent
    }

    /// Memory that is sent to every peer.
    fn sends(&self, world: usize) -> Vec<PeerMemory> {
        let to_all = |at, bytes| {
            let peers = (0..world).filter(|peer| *peer != self.rank);
            peers.map(|peer| PeerMemory { peer, at, bytes }).collect()
        };
        match &self.kind {
            Kind::Exchange { sends, .. } => sends.clone(),
            Kind::Gather { from, bytes, .. } => to_all(*from, *bytes),
            Kind::Sum { at, count, parts } => to_all(*at, count * parts * size_of::<f32>()),
        }
    }

    /// Advances as far as possible, as the first operation of its stream.
    pub(super) fn advance(&mut self) -> Progress {
        let ranks = self.ranks.clone();
        let mut state = ranks.lock();
        if state.aborted.contains(&self.rank) {
            return Progress::Failed(DeviceError::Failed {
                operation: "an exchange".to_owned(),
                problem: "it was aborted".to_owned(),
            });
        }
        let world = state.devices.len();
        if !self.was_sent {
            self.was_sent = true;
            for PeerMemory { peer, at, bytes } in self.sends(world) {
                let key = (self.sequence, self.rank, peer);
                state.sent.entry(key).or_default().extend(read_memory(at, bytes));
            }
            return Progress::Sent;
        }
        let mut peers: Vec<usize> = match &self.kind {
            Kind::Exchange { recvs, .. } => recvs.iter().map(|memory| memory.peer).collect(),
            Kind::Gather { .. } | Kind::Sum { .. } => {
                (0..world).filter(|peer| *peer != self.rank).collect()
            }
        };
        peers.dedup();
        let has = |peer: &usize| state.sent.contains_key(&(self.sequence, *peer, self.rank));
        let missing = peers.iter().filter(|peer| !has(peer));
        let devices: Vec<_> = missing.filter_map(|peer| state.devices[*peer].clone()).collect();
        if !peers.iter().all(has) {
            let (ranks, sequence) = (ranks.clone(), self.sequence);
            return Progress::Waits(AwaitedRanks { ranks, sequence, devices });
        }
        let take = |state: &mut RanksState, peer| {
            state.sent.remove(&(self.sequence, peer, self.rank)).unwrap_or_default()
        };
        let received: Vec<Vec<u8>> = (0..world).map(|peer| take(&mut state, peer)).collect();
        drop(state);
        self.receive(&received);
        Progress::Ended
    }

    /// Writes what every rank has sent.
    fn receive(&self, received: &[Vec<u8>]) {
        match &self.kind {
            Kind::Exchange { recvs, .. } => {
                let mut taken = vec![0; received.len()];
                for PeerMemory { peer, at, bytes } in recvs {
                    let first = taken[*peer];
                    taken[*peer] += bytes;
                    write_memory(*at, &received[*peer][first..taken[*peer]]);
                }
                let lens: Vec<usize> = received.iter().map(Vec::len).collect();
                assert_eq!(taken, lens, "all that was sent is received");
            }
            Kind::Gather { from, to, bytes } => {
                let own = read_memory(*from, *bytes);
                for (rank, part) in received.iter().enumerate() {
                    let part = if rank == self.rank { &own } else { part };
                    assert_eq!(part.len(), *bytes, "parts are equally long");
                    write_memory(to.offset(rank * bytes), part);
                }
            }
            Kind::Sum { at, count, parts } => {
                let own = read_memory(*at, count * parts * size_of::<f32>());
                let first = if *parts == 1 { 0 } else { self.rank * count * size_of::<f32>() };
                let numbers = |rank: usize| -> Vec<f32> {
                    let all = if rank == self.rank { &own } else { &received[rank] };
                    let part = all[first..][..count * size_of::<f32>()].chunks_exact(4);
                    part.map(bytemuck::pod_read_unaligned).collect()
                };
                let mut sums = numbers(received.len() - 1);
                for rank in (0..received.len() - 1).rev() {
                    sums.iter_mut().zip(numbers(rank)).for_each(|(sum, number)| *sum += number);
                }
                write_memory(at.offset(first), bytemuck::cast_slice(&sums));
            }
        }
    }
}

impl Kind {
    /// Memory of this rank: addresses and bytes.
    fn used(&self, world: usize) -> Vec<(DeviceAddress, usize)> {
        match self {
            Self::Exchange { sends, recvs } => {
                sends.iter().chain(recvs).map(|memory| (memory.at, memory.bytes)).collect()
            }
            Self::Gather { from, to, bytes } => vec![(*from, *bytes), (*to, bytes * world)],
            Self::Sum { at, count, parts } => vec![(*at, count * parts * size_of::<f32>())],
        }
    }
}

impl EmulatedRanks {
    fn submit(&mut self, kind: Kind) -> Result<(), DeviceError> {
        self.device.note_exchange(self.number, &kind.used(self.world));
        let sequence = self.next;
        self.next += 1;
        let (ranks, rank) = (self.ranks.clone(), self.rank);
        let operation = RankOperation { ranks, rank, sequence, kind, was_sent: false };
        self.device.submit_between_ranks(self.stream, operation)
    }
}

impl DeviceCommunicator for EmulatedRanks {
    fn exchange(&mut self, sends: &[PeerMemory], recvs: &[PeerMemory]) -> Result<(), DeviceError> {
        let (sends, recvs) = (sends.to_vec(), recvs.to_vec());
        self.submit(Kind::Exchange { sends, recvs })
    }

    fn all_gather(
        &mut self,
        from: DeviceAddress,
        to: DeviceAddress,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        self.submit(Kind::Gather { from, to, bytes })
    }

    fn all_reduce(&mut self, at: DeviceAddress, count: usize) -> Result<(), DeviceError> {
        self.submit(Kind::Sum { at, count, parts: 1 })
    }

    fn reduce_scatter(&mut self, at: DeviceAddress, count: usize) -> Result<(), DeviceError> {
        self.submit(Kind::Sum { at, count, parts: self.world })
    }

    fn register(&mut self, at: DeviceAddress, bytes: usize) -> Result<(), DeviceError> {
        self.device.register(self.number, at, bytes);
        Ok(())
    }

    fn release(&mut self, at: DeviceAddress) {
        self.device.release(self.number, Some(at));
    }

    fn is_submitted(&self) -> Result<bool, DeviceError> {
        Ok(true)
    }

    fn abort(&mut self) {
        self.device.release(self.number, None);
        self.ranks.lock().aborted.insert(self.rank);
    }
}

impl Drop for EmulatedRanks {
    fn drop(&mut self) {
        self.device.finish(self.stream.0 as usize);
        self.device.release(self.number, None);
    }
}
