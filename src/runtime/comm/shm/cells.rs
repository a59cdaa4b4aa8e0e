//! Cells in shared memory by which the ranks of a node synchronize: which ranks have arrived, for
//! which operation, where their data lies, which have left, and which have failed.
//!
//! All fields are atomic, and zero is the initial state, because the memory of a new segment is
//! zero. The layout of the segment is in `shm`. `tests/protocol` compiles this file against a model
//! of memory and tries the orders in which ranks can run.

use crate::os::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use crate::os::atomic::{AtomicU32, AtomicU64};
use crate::runtime::comm::core::error::Departure;
use crate::runtime::comm::core::spin::Spin;
use crate::runtime::comm::shm::flag::Flag;

/// Position of a rank's data in the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BufferLocation {
    /// A staged copy of this round's part begins at this offset.
    Staged(usize),
    /// The user's buffer lies in the segment: this round's part begins at this offset, and the
    /// parts of later rounds follow it. If the operation has a part for every rank, the buffer
    /// begins here.
    Direct(usize),
}

impl BufferLocation {
    #[inline]
    pub(crate) fn offset(self) -> usize {
        match self {
            Self::Staged(offset) | Self::Direct(offset) => offset,
        }
    }

    fn encode(self) -> u64 {
        match self {
            Self::Staged(offset) => (offset as u64) << 1,
            Self::Direct(offset) => (offset as u64) << 1 | 1,
        }
    }

    fn decode(word: u64) -> Self {
        let offset = (word >> 1) as usize;
        if word & 1 == 0 { Self::Staged(offset) } else { Self::Direct(offset) }
    }
}

/// Call of a rank: the fingerprint of its operation, and the position of its data.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Entry {
    fingerprint: [AtomicU64; 3],
    location: AtomicU64,
}

impl Entry {
    pub(crate) fn write(&self, fingerprint: [u64; 3], location: BufferLocation) {
        for (cell, word) in self.fingerprint.iter().zip(fingerprint) {
            cell.store(word, Relaxed);
        }
        self.location.store(location.encode(), Relaxed);
    }

    pub(crate) fn read(&self) -> ([u64; 3], BufferLocation) {
        let fingerprint = [0, 1, 2].map(|word: usize| self.fingerprint[word].load(Relaxed));
        (fingerprint, BufferLocation::decode(self.location.load(Relaxed)))
    }
}

/// Flag and entries of one rank. The two entries are used in turn: a rank can be one operation
/// ahead of a peer that still reads, never two.
#[derive(Default)]
#[repr(C, align(128))]
pub(crate) struct RankCell {
    pub(crate) flag: Flag,
    entries: [Entry; 2],
    /// How the rank has left, if it left without an error: a [`Departure`].
    departed: AtomicU32,
    /// Offset of the last record on the rank's board, 0 if there is none.
    pub(crate) board: AtomicU64,
}

impl RankCell {
    /// The entry of the `round`-th synchronization.
    #[inline]
    pub(crate) fn entry(&self, round: u64) -> &Entry {
        &self.entries[(round & 1) as usize]
    }

    /// Marks the rank as taking part in no further operation, and how it left.
    pub(crate) fn set_departure(&self, how: Departure) {
        match how {
            // A failed exchange means that a stronger departure is written already.
            Departure::Left => {
                let _ = self.departed.compare_exchange(0, how as u32, SeqCst, SeqCst);
            }
            Departure::Gone | Departure::Exited => self.departed.store(how as u32, SeqCst),
        }
    }

    /// Returns how the rank has ended, if that is recorded. A reader of this also sees earlier writes
    /// of the rank.
    pub(crate) fn departure(&self) -> Option<Departure> {
        departure_of(self.departed.load(Acquire)).filter(|how| *how != Departure::Gone)
    }
}

/// Barrier of all ranks of the node; `check` is called from time to time and can end it with an error.
/// `cells` are those of all ranks, including `own`; `number` is the number of the barrier. While other
/// ranks are late, `work` is called as long as it returns true.
pub(crate) fn wait_barrier<'l, E>(
    own: &RankCell,
    mut cells: impl Iterator<Item = &'l RankCell>,
    number: u32,
    spin: Spin,
    mut work: impl FnMut() -> Result<bool, E>,
    mut check: impl FnMut() -> Result<(), E>,
) -> Result<(), E> {
    own.flag.raise(number);
    cells.try_for_each(|cell| cell.flag.wait_with_progress(number, spin, &mut work, &mut check))
}

/// Mailbox from one rank to another: counters of posted and of received messages.
#[derive(Default)]
#[repr(C, align(128))]
pub(crate) struct Mailbox {
    pub(crate) posted: Flag,
    entry: Entry,
    pub(crate) received: Flag,
}

impl Mailbox {
    #[inline]
    pub(crate) fn entry(&self) -> &Entry {
        &self.entry
    }
}

fn departure_of(code: u32) -> Option<Departure> {
    let all = [Departure::Gone, Departure::Exited, Departure::Left];
    all.into_iter().find(|how| *how as u32 == code)
}

/// Words of an abort cell.
const ABORT_WORDS: usize = 128;

/// Cell in shared memory for the abort record of a group, as bytes.
#[repr(C)]
pub(crate) struct AbortCell {
    state: AtomicU32,
    bytes: AtomicU32,
    record: [AtomicU64; ABORT_WORDS],
}

/// States of an abort cell: empty / being written / readable.
const EMPTY: u32 = 0;
const WRITING: u32 = 1;
const READABLE: u32 = 2;

impl Default for AbortCell {
    fn default() -> Self {
        let record = std::array::from_fn(|_| AtomicU64::default());
        Self { state: AtomicU32::default(), bytes: AtomicU32::default(), record }
    }
}

impl AbortCell {
    /// Largest record in bytes.
    pub(crate) const BYTES_MAX: usize = ABORT_WORDS * 8;

    /// Stores the record, unless there is one already; what is longer than the cell is cut off.
    pub(crate) fn set(&self, record: &[u8]) {
        if self.state.compare_exchange(EMPTY, WRITING, SeqCst, SeqCst).is_ok() {
            self.write(record);
            self.state.store(READABLE, SeqCst);
        }
    }

    /// Returns the record, if there is one.
    pub(crate) fn get(&self) -> Option<Vec<u8>> {
        (self.state.load(Acquire) == READABLE).then(|| self.read())
    }

    fn write(&self, record: &[u8]) {
        let record = &record[..record.len().min(Self::BYTES_MAX)];
        self.bytes.store(record.len() as u32, Relaxed);
        for (cell, bytes) in self.record.iter().zip(record.chunks(8)) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            cell.store(u64::from_le_bytes(word), Relaxed);
        }
    }

    fn read(&self) -> Vec<u8> {
        let bytes = self.bytes.load(Relaxed) as usize;
        let words = self.record.iter().take(bytes.div_ceil(8));
        words.flat_map(|word| word.load(Relaxed).to_le_bytes()).take(bytes).collect()
    }
}
