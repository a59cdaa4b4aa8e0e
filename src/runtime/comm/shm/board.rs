//! Board of a rank: values under keys that only this rank writes, and the other ranks of its node read.
//!
//! The records are a list in the rank's arena, which only grows. A record is overwritten in place; its
//! version is odd meanwhile, so that a reader never takes a value that is half written, even if the writer
//! is killed.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

use crate::base::lock;
use crate::runtime::comm::shm::arena::Arena;
use crate::runtime::comm::shm::error::ArenaFull;

const PAGE: usize = 4096;
/// Words before the value: next record, key (2), words of the value, version, bytes of the value.
const HEAD_WORDS: usize = 6;

/// Record of a board, in shared memory.
struct Record<'a> {
    head: &'a [AtomicU64],
    value: &'a [AtomicU64],
}

impl Record<'_> {
    fn has(&self, key: u128) -> bool {
        self.head[1].load(Relaxed) == key as u64 && self.head[2].load(Relaxed) == (key >> 64) as u64
    }

    fn write(&self, value: &[u8]) {
        let version = self.head[4].load(Relaxed);
        self.head[4].store(version + 1, Relaxed);
        fence(Release);
        self.head[5].store(value.len() as u64, Relaxed);
        for (cell, bytes) in self.value.iter().zip(value.chunks(8)) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            cell.store(u64::from_le_bytes(word), Relaxed);
        }
        self.head[4].store(version + 2, Release);
    }

    /// The value; `None` while it is written.
    fn read(&self) -> Option<Vec<u8>> {
        let version = self.head[4].load(Acquire);
        let bytes = (self.head[5].load(Relaxed) as usize).min(self.value.len() * 8);
        let words = self.value.iter().take(bytes.div_ceil(8));
        let value = words.flat_map(|word| word.load(Relaxed).to_le_bytes()).take(bytes).collect();
        fence(Acquire);
        (version.is_multiple_of(2) && self.head[4].load(Relaxed) == version).then_some(value)
    }
}

impl Arena {
    /// Shows a value on this rank's board, in place of an earlier one with this key.
    pub(crate) fn post(&self, key: u128, value: &[u8]) -> Result<(), ArenaFull> {
        let mut room = lock(&self.board);
        let words = value.len().div_ceil(8);
        if let Some(record) = self.find(self.local, key)
            && words <= record.value.len()
        {
            record.write(value);
            return Ok(());
        }
        let bytes = (HEAD_WORDS + words) * 8;
        if room.len() < bytes {
            *room = self.allocate_range(bytes.next_multiple_of(PAGE))?;
        }
        let start = room.start;
        room.start += bytes;
        let board = &self.segment.rank_cell(self.local).board;
        let head = self.words(start, HEAD_WORDS).expect("the range is in the segment");
        let fields = [board.load(Relaxed), key as u64, (key >> 64) as u64, words as u64];
        for (cell, word) in head.iter().zip(fields) {
            cell.store(word, Relaxed);
        }
        self.record(start).expect("the range is in the segment").write(value);
        board.store(start as u64, Release);
        Ok(())
    }

    /// Value with this key on the board of a rank of this node, if there is one.
    pub(crate) fn posted(&self, local: usize, key: u128) -> Option<Vec<u8>> {
        self.find(local, key)?.read()
    }

    /// The last record with this key.
    fn find(&self, local: usize, key: u128) -> Option<Record<'_>> {
        let mut at = self.segment.rank_cell(local).board.load(Acquire) as usize;
        while at != 0 {
            let record = self.record(at)?;
            if record.has(key) {
                return Some(record);
            }
            at = record.head[0].load(Relaxed) as usize;
        }
        None
    }

    fn record(&self, at: usize) -> Option<Record<'_>> {
        let head = self.words(at, HEAD_WORDS)?;
        let value = self.words(at + HEAD_WORDS * 8, head[3].load(Relaxed) as usize)?;
        Some(Record { head, value })
    }

    /// Words of the segment; `None` if they are not inside.
    fn words(&self, at: usize, count: usize) -> Option<&[AtomicU64]> {
        let mapping = self.segment.mapping();
        let end = count.checked_mul(8).and_then(|bytes| at.checked_add(bytes))?;
        if !at.is_multiple_of(8) || mapping.bytes() < end {
            return None;
        }
        // SAFETY: the words lie in the mapping, which lives as long as the segment; mappings begin at pages, so
        // the words are aligned, and all bits are valid for atomics.
        Some(unsafe {
            let first = mapping.base().cast::<AtomicU64>().as_ptr().add(at / 8);
            std::slice::from_raw_parts(first, count)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::comm::shm::segment::Segment;

    #[test]
    fn board_shows_the_last_value_of_each_key_to_other_ranks() {
        let segment = Segment::attach(Segment::create(2).unwrap()).unwrap();
        let [first, second] = [0, 1].map(|local| Arena::new(&segment, local));
        assert_eq!(second.posted(0, 1), None);
        for value in [&b"short"[..], b"", b"a longer value than before", &[7; 9000]] {
            first.post(1, value).unwrap();
            first.post(1 << 64, b"other").unwrap();
            assert_eq!(second.posted(0, 1).unwrap(), value);
            assert_eq!(second.posted(0, 1 << 64).unwrap(), b"other");
            assert_eq!(second.posted(1, 1), None);
        }
    }

    #[test]
    fn board_never_shows_half_a_value() {
        let segment = Segment::attach(Segment::create(2).unwrap()).unwrap();
        let [first, second] = [0, 1].map(|local| Arena::new(&segment, local));
        std::thread::scope(|scope| {
            scope.spawn(|| (0..20_000).for_each(|step| first.post(9, &[step as u8; 64]).unwrap()));
            for _ in 0..20_000 {
                if let Some(value) = second.posted(0, 9) {
                    assert!(value.iter().all(|byte| *byte == value[0]), "{value:?}");
                }
            }
        });
    }
}
