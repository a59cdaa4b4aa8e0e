//! The memory that the ranks of one node share: its layout, its flags, its alarm.
//!
//! ```text
//! header | a line per rank | a mailbox per ordered pair | two eager slots per rank
//!        | a staging area per rank | an arena per rank
//! ```
//!
//! Every rank allocates in its own arena only, so there is no lock that a dead rank could hold. The
//! file is sparse: a part costs memory when it is first touched, and buffers give theirs back.
//!
//! A group that is a part of another has a segment inside the other's: all but the arenas, in memory
//! of the first of its ranks. Buffers lie in the same mapping, so they serve both groups.
//!
//! `unsafe` here turns offsets into references to atomics; data moves in `shm_window`.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::base::Rank;
use crate::os::memory::{self, Mapping};
use crate::runtime::error::{Departure, Loss};
use crate::runtime::flag::Flag;

/// Payload that travels beside the flags, without a second meeting.
pub(crate) const EAGER_BYTES: usize = 4096;
/// What one round of a staged operation moves per rank: several fit a second-level cache.
pub(crate) const STAGING_BYTES: usize = 1 << 18;
/// The same where other nodes take part: a round costs meetings of nodes, which are slower than caches.
pub(crate) const STAGING_ACROSS_BYTES: usize = 1 << 20;
/// Ranks of one node.
pub(crate) const LOCAL_WORLD_MAX: usize = 1024;

const MAGIC: u64 = u64::from_le_bytes(*b"remudash");
const VERSION: u32 = 4;
const PAGE: usize = 4096;
/// The header has a page of its own.
const LINES: usize = PAGE;
const ARENA_BYTES_MIN: usize = 1 << 30;
/// All arenas together stay below what a 47-bit address space comfortably holds.
const ARENAS_BYTES_MAX: usize = 1 << 45;
const REASON_WORDS: usize = 32;

/// Why a segment cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SegmentError {
    /// The kernel refused.
    #[error("cannot {action} shared memory: {source}")]
    Os {
        /// What was tried.
        action: &'static str,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// Somebody could shrink it while we read.
    #[error("the segment is not sealed against shrinking")]
    NotSealed,
    /// It is something else, or of another version, or cut.
    #[error("this is not a segment of ours")]
    Foreign,
    /// Too many ranks for one node.
    #[error("{0} ranks on one node; at most {LOCAL_WORLD_MAX} can share memory")]
    TooManyRanks(usize),
}

#[repr(C)]
struct Header {
    magic: AtomicU64,
    version: AtomicU32,
    local_world: AtomicU32,
    arena_bytes: AtomicU64,
    /// Ranks that will not look at this segment any more; counted in parts of another one.
    left: AtomicU32,
    alarm: AlarmCell,
}

#[repr(C)]
struct AlarmCell {
    state: AtomicU32,
    by: AtomicU32,
    lost: AtomicU32,
    lost_how: AtomicU32,
    reason_bytes: AtomicU32,
    reason: [AtomicU64; REASON_WORDS],
}

/// Nobody raised it / somebody is writing it / it can be read.
const QUIET: u32 = 0;
const WRITING: u32 = 1;
const RAISED: u32 = 2;

/// Somebody gave up, and why; the first alarm of an epoch stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alarm {
    /// Who raised it.
    pub(crate) by: Rank,
    /// Whose loss was the reason.
    pub(crate) lost: Option<Loss>,
    /// In words, cut to what fits.
    pub(crate) reason: String,
}

/// What a rank says about the operation that it has come for.
#[repr(C)]
pub(crate) struct Entry {
    fingerprint: [AtomicU64; 3],
    place: AtomicU64,
}

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

/// Flag and entries of one rank. Two entries, used in turn: a rank can be one operation ahead of a
/// peer that still reads, never two.
#[repr(C, align(128))]
pub(crate) struct Line {
    pub(crate) flag: Flag,
    entries: [Entry; 2],
    /// Not 0 once the rank has ended well.
    departed: AtomicU32,
}

/// The way from one rank to another: what was posted, what was taken.
#[repr(C, align(128))]
pub(crate) struct Mailbox {
    pub(crate) posted: Flag,
    entry: Entry,
    pub(crate) taken: Flag,
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

impl Line {
    /// The entry of the `round`-th meeting.
    pub(crate) fn entry(&self, round: u64) -> &Entry {
        &self.entries[(round & 1) as usize]
    }
}

impl Mailbox {
    pub(crate) fn entry(&self) -> &Entry {
        &self.entry
    }
}

/// Where the parts of a segment begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    local_world: usize,
    arena_bytes: usize,
}

impl Plan {
    fn for_ranks(local_world: usize) -> Result<Self, SegmentError> {
        if local_world == 0 || LOCAL_WORLD_MAX < local_world {
            return Err(SegmentError::TooManyRanks(local_world));
        }
        // Ranks may hold unequal shares, but together never more than the machine has.
        let share = 2 * memory::machine_bytes() as usize / local_world;
        let arena_bytes = share.max(ARENA_BYTES_MIN).min(ARENAS_BYTES_MAX / local_world);
        Ok(Self { local_world, arena_bytes: arena_bytes.next_multiple_of(PAGE) })
    }

    fn write(&self, header: &Header) {
        header.version.store(VERSION, Relaxed);
        header.local_world.store(self.local_world as u32, Relaxed);
        header.arena_bytes.store(self.arena_bytes as u64, Relaxed);
        header.magic.store(MAGIC, Release);
    }

    /// `None` unless the header is one of ours.
    fn read(header: &Header) -> Option<Self> {
        let known = header.magic.load(Acquire) == MAGIC && header.version.load(Relaxed) == VERSION;
        let local_world = header.local_world.load(Relaxed) as usize;
        let arena_bytes = header.arena_bytes.load(Relaxed) as usize;
        let sane = (1..=LOCAL_WORLD_MAX).contains(&local_world) && arena_bytes <= ARENAS_BYTES_MAX;
        (known && sane).then_some(Self { local_world, arena_bytes })
    }

    fn mailboxes(&self) -> usize {
        LINES + self.local_world * size_of::<Line>()
    }

    fn eager(&self) -> usize {
        let mailboxes = self.local_world * self.local_world * size_of::<Mailbox>();
        (self.mailboxes() + mailboxes).next_multiple_of(PAGE)
    }

    fn staging(&self) -> usize {
        self.eager() + self.local_world * 2 * EAGER_BYTES
    }

    fn arenas(&self) -> usize {
        self.staging() + self.local_world * STAGING_ACROSS_BYTES
    }

    fn bytes(&self) -> usize {
        self.arenas() + self.local_world * self.arena_bytes
    }
}

/// A mapped segment, or a part of one.
#[derive(Debug)]
pub(crate) struct Segment {
    mapping: Arc<Mapping>,
    /// Where it begins in the mapping.
    start: usize,
    plan: Plan,
    outer: Option<Outer>,
}

/// The segment of which this one is a part.
#[derive(Debug)]
struct Outer {
    segment: Arc<Segment>,
    /// Which line of the outer segment belongs to each of our ranks.
    locals: Vec<usize>,
}

impl Segment {
    /// Makes the file for `local_world` ranks and writes its header.
    pub(crate) fn create(local_world: usize) -> Result<OwnedFd, SegmentError> {
        let os = |action| move |source| SegmentError::Os { action, source };
        let plan = Plan::for_ranks(local_world)?;
        let fd = memory::create_shared("remuda", plan.bytes() as u64).map_err(os("create"))?;
        let mapping = Mapping::new(fd.try_clone().map_err(os("duplicate"))?).map_err(os("map"))?;
        plan.write(header(&mapping, 0));
        Ok(fd)
    }

    /// Bytes of a part for `local_world` ranks.
    pub(crate) fn part_bytes(local_world: usize) -> usize {
        Plan { local_world, arena_bytes: 0 }.bytes()
    }

    /// Writes the header of a part for `local_world` ranks into zeros.
    pub(crate) fn create_part(&self, start: usize, local_world: usize) {
        Plan { local_world, arena_bytes: 0 }.write(header(&self.mapping, start));
    }

    /// A part of `outer` that begins at `start`, for the ranks that have these lines there. `None`
    /// when there is no such part.
    pub(crate) fn part_of(
        outer: &Arc<Self>,
        start: usize,
        locals: Vec<usize>,
    ) -> Option<Arc<Self>> {
        let plan = Plan { local_world: locals.len(), arena_bytes: 0 };
        let mapping = outer.mapping.clone();
        let end = start.checked_add(plan.bytes())?;
        if !start.is_multiple_of(PAGE) || mapping.bytes() < end {
            return None;
        }
        let is_written = Plan::read(header(&mapping, start)) == Some(plan);
        let outer = Some(Outer { segment: outer.clone(), locals });
        is_written.then(|| Arc::new(Self { mapping, start, plan, outer }))
    }

    /// Says that one rank will not look at this part any more; whether all have said so.
    pub(crate) fn leave(&self) {
        self.header().left.fetch_add(1, SeqCst);
    }

    /// Whether nobody looks at this part any more.
    pub(crate) fn is_left_by_all(&self) -> bool {
        self.header().left.load(SeqCst) as usize == self.plan.local_world
    }

    /// Maps a segment that somebody else made.
    pub(crate) fn attach(fd: OwnedFd) -> Result<Arc<Self>, SegmentError> {
        let os = |action| move |source| SegmentError::Os { action, source };
        if !memory::is_sealed_against_shrinking(fd.as_fd()).map_err(os("inspect"))? {
            return Err(SegmentError::NotSealed);
        }
        let mapping = Mapping::new(fd).map_err(os("map"))?;
        if mapping.bytes() < PAGE {
            return Err(SegmentError::Foreign);
        }
        let plan = Plan::read(header(&mapping, 0)).ok_or(SegmentError::Foreign)?;
        if plan.bytes() != mapping.bytes() {
            return Err(SegmentError::Foreign);
        }
        Ok(Arc::new(Self { mapping: Arc::new(mapping), start: 0, plan, outer: None }))
    }

    fn header(&self) -> &Header {
        header(&self.mapping, self.start)
    }

    /// Ranks of the job on this node, whether they belong to the group or not.
    pub(crate) fn node_world(&self) -> usize {
        self.outer.as_ref().map_or(self.plan.local_world, |outer| outer.segment.node_world())
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Where in the segment memory of ours lies, if it does.
    pub(crate) fn offset_of<T>(&self, memory: &Range<*const T>) -> Option<usize> {
        let start = (memory.start as usize).checked_sub(self.mapping.base().as_ptr() as usize)?;
        let bytes = memory.end as usize - memory.start as usize;
        (start + bytes <= self.mapping.bytes()).then_some(start)
    }

    pub(crate) fn local_world(&self) -> usize {
        self.plan.local_world
    }

    /// The line of a rank of this node.
    pub(crate) fn line(&self, local: usize) -> &Line {
        assert!(local < self.plan.local_world, "there is a line per rank");
        let offset = self.start + LINES + local * size_of::<Line>();
        // SAFETY: the layout keeps lines inside the mapping, aligned to their size, and apart from
        // everything else; a line consists of atomics, for which all bits are valid.
        unsafe { self.mapping.base().add(offset).cast().as_ref() }
    }

    /// The mailbox from one rank of this node to another.
    pub(crate) fn mailbox(&self, from: usize, to: usize) -> &Mailbox {
        assert!(from.max(to) < self.plan.local_world, "there is a mailbox per pair of ranks");
        let index = from * self.plan.local_world + to;
        let offset = self.start + self.plan.mailboxes() + index * size_of::<Mailbox>();
        // SAFETY: as for lines.
        unsafe { self.mapping.base().add(offset).cast().as_ref() }
    }

    /// Where a rank's eager payload of a round lies.
    pub(crate) fn eager_offset(&self, local: usize, round: u64) -> usize {
        self.start + self.plan.eager() + (2 * local + (round & 1) as usize) * EAGER_BYTES
    }

    /// Where a rank stages what lies outside the segment.
    pub(crate) fn staging_offset(&self, local: usize) -> usize {
        self.start + self.plan.staging() + local * STAGING_ACROSS_BYTES
    }

    /// Where a rank allocates: offset and size.
    pub(crate) fn arena(&self, local: usize) -> (usize, usize) {
        (self.plan.arenas() + local * self.plan.arena_bytes, self.plan.arena_bytes)
    }

    /// Says to everybody on this node that the group is of no use any more, and wakes them.
    pub(crate) fn raise_alarm(&self, alarm: &Alarm) {
        let cell = &self.header().alarm;
        if cell.state.compare_exchange(QUIET, WRITING, SeqCst, SeqCst).is_ok() {
            cell.write(alarm);
            cell.state.store(RAISED, SeqCst);
        }
        self.wake_all();
    }

    fn wake_all(&self) {
        // Whoever sleeps elsewhere looks up soon by itself.
        for local in 0..self.local_world() {
            self.line(local).flag.wake();
        }
    }

    /// Says to everybody on this node that a rank has ended well, and wakes them.
    pub(crate) fn depart(&self, local: usize) {
        self.line(local).departed.store(1, SeqCst);
        self.wake_all();
    }

    /// Whether a rank has ended well. What it did before is seen by whoever sees this.
    pub(crate) fn has_departed(&self, local: usize) -> bool {
        match &self.outer {
            Some(Outer { segment, locals }) => segment.has_departed(locals[local]),
            None => self.line(local).departed.load(Acquire) != 0,
        }
    }

    /// The alarm, if one was raised here or in a segment of which this is a part.
    pub(crate) fn alarm(&self) -> Option<Alarm> {
        let cell = &self.header().alarm;
        let own = (cell.state.load(Acquire) == RAISED).then(|| cell.read());
        own.or_else(|| self.outer.as_ref()?.segment.alarm())
    }
}

impl AlarmCell {
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
        let text: Vec<u8> = self
            .reason
            .iter()
            .flat_map(|word| word.load(Relaxed).to_le_bytes())
            .take(bytes)
            .collect();
        let lost = self.lost.load(Relaxed);
        let how = match self.lost_how.load(Relaxed) {
            how if how == Departure::Exited as u32 => Departure::Exited,
            _ => Departure::Gone,
        };
        Alarm {
            by: Rank(self.by.load(Relaxed)),
            lost: (lost != u32::MAX).then_some(Loss { rank: Rank(lost), how }),
            reason: String::from_utf8_lossy(&text).into_owned(),
        }
    }
}

fn header(mapping: &Mapping, start: usize) -> &Header {
    let inside = start.is_multiple_of(PAGE) && start + size_of::<Header>() <= mapping.bytes();
    assert!(inside, "a segment holds its header");
    // SAFETY: the place is page aligned and holds a header's bytes; a header consists of atomics, for
    // which all bits are valid.
    unsafe { mapping.base().add(start).cast().as_ref() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_do_not_overlap() {
        for local_world in [1, 2, 9, 64, 1000] {
            let plan = Plan::for_ranks(local_world).unwrap();
            assert!(size_of::<Header>() <= LINES);
            assert!(LINES < plan.mailboxes() && plan.mailboxes() < plan.eager());
            assert!(plan.eager() < plan.staging() && plan.staging() < plan.arenas());
            assert!(plan.bytes() < 1 << 46, "{local_world} ranks need {} bytes", plan.bytes());
        }
    }

    #[test]
    fn a_foreign_file_is_refused() {
        let fd = memory::create_shared("foreign", 1 << 16).unwrap();
        assert!(matches!(Segment::attach(fd), Err(SegmentError::Foreign)));
        let unsealed = rustix::fs::memfd_create("u", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert!(matches!(Segment::attach(unsealed), Err(SegmentError::NotSealed)));
    }

    #[test]
    fn the_first_alarm_stays() {
        let segment = Segment::attach(Segment::create(2).unwrap()).unwrap();
        assert_eq!(segment.alarm(), None);
        let lost = Some(Loss { rank: Rank(0), how: Departure::Exited });
        let first = Alarm { by: Rank(1), lost, reason: "rank 0 is gone".into() };
        segment.raise_alarm(&first);
        segment.raise_alarm(&Alarm { by: Rank(0), lost: None, reason: "x".repeat(1000) });
        assert_eq!(segment.alarm(), Some(first));
    }

    #[test]
    fn a_segment_is_freed_with_its_last_holder() {
        let fd = Segment::create(1).unwrap();
        let inode = rustix::fs::fstat(&fd).unwrap().st_ino;
        let listed = || {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            maps.lines().any(|line| line.split_whitespace().nth(4) == Some(&inode.to_string()))
        };
        let segment = Segment::attach(fd).unwrap();
        assert!(listed());
        drop(segment);
        assert!(!listed());
    }
}
