//! What ranks of a node say to each other in shared memory: who has come, for what, where its
//! numbers lie, who has left, who gave up.
//!
//! Everything is atomic, and zeros are a good beginning: the memory of a segment is nothing else at
//! first. Where it lies is `shm`'s business. `tests/protocol` compiles this file against a model of
//! memory and tries the orders in which ranks can run.

use crate::base::Rank;
use crate::os::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use crate::os::atomic::{AtomicU32, AtomicU64};
use crate::runtime::error::{Departure, Loss};
use crate::runtime::flag::{Flag, Spin};

/// Of the reason of an alarm.
const REASON_WORDS: usize = 32;

/// Where a rank's numbers lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A copy of this round's part, at this offset.
    Staged(usize),
    /// This round's part, at this offset, and everything that follows, where it is used.
    Direct(usize),
}

impl Place {
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

/// What a rank says about the operation that it has come for.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Entry {
    fingerprint: [AtomicU64; 3],
    place: AtomicU64,
}

impl Entry {
    pub(crate) fn write(&self, fingerprint: [u64; 3], place: Place) {
        for (cell, word) in self.fingerprint.iter().zip(fingerprint) {
            cell.store(word, Relaxed);
        }
        self.place.store(place.encode(), Relaxed);
    }

    pub(crate) fn read(&self) -> ([u64; 3], Place) {
        let fingerprint = [0, 1, 2].map(|word: usize| self.fingerprint[word].load(Relaxed));
        (fingerprint, Place::decode(self.place.load(Relaxed)))
    }
}

/// Flag and entries of one rank. Two entries, used in turn: a rank can be one operation ahead of a
/// peer that still reads, never two.
#[derive(Default)]
#[repr(C, align(128))]
pub(crate) struct Line {
    pub(crate) flag: Flag,
    entries: [Entry; 2],
    /// How the rank has ended, if it has ended well: a [`Departure`].
    departed: AtomicU32,
}

impl Line {
    /// The entry of the `round`-th meeting.
    pub(crate) fn entry(&self, round: u64) -> &Entry {
        &self.entries[(round & 1) as usize]
    }

    /// Says that the rank takes part in nothing more, and how it ended.
    pub(crate) fn depart(&self, how: Departure) {
        match how {
            // Where it cannot be written, more has been said.
            Departure::Left => {
                let _ = self.departed.compare_exchange(0, how as u32, SeqCst, SeqCst);
            }
            Departure::Gone | Departure::Exited => self.departed.store(how as u32, SeqCst),
        }
    }

    /// Returns how the rank has ended, if it has reported it. A reader of this also sees its earlier writes.
    pub(crate) fn departure(&self) -> Option<Departure> {
        departure_of(self.departed.load(Acquire)).filter(|how| *how != Departure::Gone)
    }
}

/// Barrier of all ranks of the node; `check` is called from time to time and can end it with an error.
/// `lines` are those of all ranks, including `own`. While other ranks are late, `work` is called as long
/// as it returns that there is more.
pub(crate) fn meet<'l, E>(
    own: &Line,
    mut lines: impl Iterator<Item = &'l Line>,
    meeting: u32,
    spin: Spin,
    mut work: impl FnMut() -> Result<bool, E>,
    mut check: impl FnMut() -> Result<(), E>,
) -> Result<(), E> {
    own.flag.raise(meeting);
    lines.try_for_each(|line| line.flag.wait_working(meeting, spin, &mut work, &mut check))
}

/// The way from one rank to another: what was posted, what was taken.
#[derive(Default)]
#[repr(C, align(128))]
pub(crate) struct Mailbox {
    pub(crate) posted: Flag,
    entry: Entry,
    pub(crate) taken: Flag,
}

impl Mailbox {
    pub(crate) fn entry(&self) -> &Entry {
        &self.entry
    }
}

fn departure_of(code: u32) -> Option<Departure> {
    let all = [Departure::Gone, Departure::Exited, Departure::Left];
    all.into_iter().find(|how| *how as u32 == code)
}

/// Abort of a group with its reason; the first alarm of an epoch is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alarm {
    /// Who raised it.
    pub(crate) by: Rank,
    /// Whose loss was the reason.
    pub(crate) lost: Option<Loss>,
    /// In words, cut to what fits.
    pub(crate) reason: String,
}

/// Where an alarm is raised.
#[derive(Default)]
#[repr(C)]
pub(crate) struct AlarmCell {
    state: AtomicU32,
    by: AtomicU32,
    lost: AtomicU32,
    lost_how: AtomicU32,
    reason_bytes: AtomicU32,
    reason: [AtomicU64; REASON_WORDS],
}

/// States of an alarm: not raised / being written / readable.
const QUIET: u32 = 0;
const WRITING: u32 = 1;
const RAISED: u32 = 2;

impl AlarmCell {
    /// Raises the alarm, unless it was already raised.
    pub(crate) fn raise(&self, alarm: &Alarm) {
        if self.state.compare_exchange(QUIET, WRITING, SeqCst, SeqCst).is_ok() {
            self.write(alarm);
            self.state.store(RAISED, SeqCst);
        }
    }

    /// The alarm, if one was raised.
    pub(crate) fn look(&self) -> Option<Alarm> {
        (self.state.load(Acquire) == RAISED).then(|| self.read())
    }

    fn write(&self, alarm: &Alarm) {
        self.by.store(alarm.by.0, Relaxed);
        self.lost.store(alarm.lost.map_or(u32::MAX, |loss| loss.rank.0), Relaxed);
        let how = alarm.lost.map_or(Departure::Gone, |loss| loss.how);
        self.lost_how.store(how as u32, Relaxed);
        let text = alarm.reason.as_bytes();
        let text = &text[..text.len().min(REASON_WORDS * 8)];
        self.reason_bytes.store(text.len() as u32, Relaxed);
        for (cell, bytes) in self.reason.iter().zip(text.chunks(8)) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            cell.store(u64::from_le_bytes(word), Relaxed);
        }
    }

    fn read(&self) -> Alarm {
        let bytes = self.reason_bytes.load(Relaxed) as usize;
        let words = self.reason.iter().take(bytes.div_ceil(8));
        let text: Vec<u8> =
            words.flat_map(|word| word.load(Relaxed).to_le_bytes()).take(bytes).collect();
        let lost = self.lost.load(Relaxed);
        let how = departure_of(self.lost_how.load(Relaxed)).unwrap_or(Departure::Gone);
        Alarm {
            by: Rank(self.by.load(Relaxed)),
            lost: (lost != u32::MAX).then_some(Loss { rank: Rank(lost), how }),
            reason: String::from_utf8_lossy(&text).into_owned(),
        }
    }
}
