//! Segment of memory that the ranks of one node share, and its layout.
//!
//! ```text
//! header | a cell per rank | a mailbox per ordered pair | two eager slots per rank
//!        | a staging area per rank | an arena per rank
//! ```
//!
//! Every rank allocates in its own arena only, so there is no lock that a killed rank could hold. The
//! file is sparse: a range uses memory only after its first access, and freed buffers return theirs.
//!
//! A subgroup has a segment inside its parent's, without arenas, in memory of the first of its ranks.
//! Buffers lie in the same mapping, so both groups can use them.
//!
//! `unsafe` in this file converts offsets to references to atomics; data is moved by `window`.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crate::os::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use crate::os::atomic::{AtomicU32, AtomicU64};
use crate::os::cpu::memory::{self, Mapping};
use crate::runtime::comm::core::abort::AbortRecord;
use crate::runtime::comm::core::error::Departure;
use crate::runtime::comm::shm::cells::{AbortCell, Mailbox, RankCell};
use crate::runtime::comm::shm::error::{LOCAL_WORLD_MAX, SegmentError, VERSION};

/// Largest payload in bytes that is stored beside the flags and needs one barrier only.
pub(crate) const EAGER_BYTES: usize = 4096;
/// Bytes per rank in one round of a staged operation; several of them fit a second-level cache.
const STAGING_BYTES: usize = 1 << 18;
/// Bytes per rank in one round with other nodes: a round costs exchanges between nodes, which are
/// slower than cache misses.
pub(crate) const STAGING_ACROSS_BYTES: usize = 1 << 20;

/// Bytes that a rank stages at a time, on one node or with other nodes.
pub(crate) const fn staging_bytes(has_others: bool) -> usize {
    if has_others { STAGING_ACROSS_BYTES } else { STAGING_BYTES }
}

/// First word of a segment.
const MAGIC: u64 = u64::from_le_bytes(*b"remudash");
const PAGE: usize = 4096;
/// Offset of the cells: the header has a page of its own.
const CELLS_OFFSET: usize = PAGE;
const ARENA_BYTES_MIN: usize = 1 << 30;
/// Largest total size of all arenas, which fits a 47-bit address space with room to spare.
const ARENAS_BYTES_MAX: usize = 1 << 45;

/// Header of a segment.
#[repr(C)]
struct Header {
    magic: AtomicU64,
    version: AtomicU32,
    local_world: AtomicU32,
    arena_bytes: AtomicU64,
    /// Number of ranks that have left this segment; counted in segments of subgroups only.
    left: AtomicU32,
    abort: AbortCell,
}

/// Offsets of the regions of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SegmentLayout {
    local_world: usize,
    arena_bytes: usize,
}

impl SegmentLayout {
    fn for_ranks(local_world: usize) -> Result<Self, SegmentError> {
        if local_world == 0 || LOCAL_WORLD_MAX < local_world {
            return Err(SegmentError::TooManyRanks(local_world));
        }
        let machine_bytes = memory::machine_bytes() as usize;
        let limit = memory::shared_bytes_limit().map(|bytes| bytes as usize);
        Ok(Self { local_world, arena_bytes: arena_bytes(local_world, machine_bytes, limit) })
    }

    fn write(&self, header: &Header) {
        header.version.store(VERSION, Relaxed);
        header.local_world.store(self.local_world as u32, Relaxed);
        header.arena_bytes.store(self.arena_bytes as u64, Relaxed);
        header.magic.store(MAGIC, Release);
    }

    /// Reads the layout from a header; fails if the file is not a segment of this version.
    fn read(header: &Header) -> Result<Self, SegmentError> {
        if header.magic.load(Acquire) != MAGIC {
            return Err(SegmentError::Foreign);
        }
        let version = header.version.load(Relaxed);
        if version != VERSION {
            return Err(SegmentError::Version(version));
        }
        let local_world = header.local_world.load(Relaxed) as usize;
        let arena_bytes = header.arena_bytes.load(Relaxed) as usize;
        let is_valid =
            (1..=LOCAL_WORLD_MAX).contains(&local_world) && arena_bytes <= ARENAS_BYTES_MAX;
        if is_valid { Ok(Self { local_world, arena_bytes }) } else { Err(SegmentError::Foreign) }
    }

    fn mailboxes(&self) -> usize {
        CELLS_OFFSET + self.local_world * size_of::<RankCell>()
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

/// Bytes of the arena of each rank of a node. `limit`: the largest segment that a process may map, of
/// which half is left for what else it maps.
fn arena_bytes(local_world: usize, machine_bytes: usize, limit: Option<usize>) -> usize {
    // Ranks may use unequal amounts; all together they never use more than the machine has.
    let share = (2 * machine_bytes / local_world).max(ARENA_BYTES_MIN);
    let bytes_max = limit.map_or(ARENAS_BYTES_MAX, |limit| ARENAS_BYTES_MAX.min(limit / 2));
    let bytes = share.min(bytes_max / local_world);
    bytes - bytes % PAGE
}

/// Mapped segment of a group, or of a subgroup.
#[derive(Debug)]
pub(crate) struct Segment {
    mapping: Arc<Mapping>,
    /// Offset of the segment in the mapping.
    start: usize,
    layout: SegmentLayout,
    parent: Option<ParentSegment>,
}

/// Segment of the parent group.
#[derive(Debug)]
struct ParentSegment {
    segment: Arc<Segment>,
    /// Index of the cell of each rank in the parent's segment.
    cells: Vec<usize>,
}

impl Segment {
    /// Creates the file for `local_world` ranks and writes its header.
    pub(crate) fn create(local_world: usize) -> Result<OwnedFd, SegmentError> {
        let os = |action| move |source| SegmentError::Os { action, source };
        let layout = SegmentLayout::for_ranks(local_world)?;
        let fd = memory::create_shared("remuda", layout.bytes() as u64).map_err(os("create"))?;
        // The process that starts the workers maps no more than the header.
        let copy = fd.try_clone().map_err(os("duplicate"))?;
        let mapping = Mapping::of_first(copy, PAGE).map_err(os("map"))?;
        layout.write(header(&mapping, 0));
        Ok(fd)
    }

    /// Size in bytes of the segment of a subgroup with `local_world` ranks on this node.
    pub(crate) fn subgroup_bytes(local_world: usize) -> usize {
        SegmentLayout { local_world, arena_bytes: 0 }.bytes()
    }

    /// Writes the header of a subgroup's segment, whose memory is zero.
    pub(crate) fn create_subgroup(&self, start: usize, local_world: usize) {
        SegmentLayout { local_world, arena_bytes: 0 }.write(header(&self.mapping, start));
    }

    /// Opens the segment of a subgroup at offset `start` of `parent`, for the ranks with these cells
    /// in `parent`. `None` if there is no such segment.
    pub(crate) fn open_subgroup(
        parent: &Arc<Self>,
        start: usize,
        cells: Vec<usize>,
    ) -> Option<Arc<Self>> {
        let layout = SegmentLayout { local_world: cells.len(), arena_bytes: 0 };
        let mapping = parent.mapping.clone();
        let end = start.checked_add(layout.bytes())?;
        if !start.is_multiple_of(PAGE) || mapping.bytes() < end {
            return None;
        }
        let is_written =
            SegmentLayout::read(header(&mapping, start)).is_ok_and(|written| written == layout);
        let parent = Some(ParentSegment { segment: parent.clone(), cells });
        is_written.then(|| Arc::new(Self { mapping, start, layout, parent }))
    }

    /// Counts a rank that has left this subgroup.
    pub(crate) fn leave(&self) {
        self.header().left.fetch_add(1, SeqCst);
    }

    /// Whether all ranks of this node have left this subgroup.
    pub(crate) fn is_left_by_all(&self) -> bool {
        self.header().left.load(SeqCst) as usize == self.layout.local_world
    }

    /// Maps a segment that another process created.
    pub(crate) fn attach(fd: OwnedFd) -> Result<Arc<Self>, SegmentError> {
        let os = |action| move |source| SegmentError::Os { action, source };
        if !memory::is_sealed_against_shrinking(fd.as_fd()).map_err(os("inspect"))? {
            return Err(SegmentError::NotSealed);
        }
        let mapping = Mapping::new(fd).map_err(os("map"))?;
        if mapping.bytes() < PAGE {
            return Err(SegmentError::Foreign);
        }
        let layout = SegmentLayout::read(header(&mapping, 0))?;
        if layout.bytes() != mapping.bytes() {
            return Err(SegmentError::Foreign);
        }
        Ok(Arc::new(Self { mapping: Arc::new(mapping), start: 0, layout, parent: None }))
    }

    #[inline]
    fn header(&self) -> &Header {
        header(&self.mapping, self.start)
    }

    /// Number of ranks of the job on this node, in the group or not.
    pub(crate) fn node_world(&self) -> usize {
        self.parent.as_ref().map_or(self.layout.local_world, |parent| parent.segment.node_world())
    }

    #[inline]
    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Offset of memory in the segment; `None` if it lies elsewhere.
    pub(crate) fn offset_of<T>(&self, memory: &Range<*const T>) -> Option<usize> {
        let start = (memory.start as usize).checked_sub(self.mapping.base().as_ptr() as usize)?;
        let bytes = memory.end as usize - memory.start as usize;
        (start + bytes <= self.mapping.bytes()).then_some(start)
    }

    /// Number of ranks of the group on this node.
    #[inline]
    pub(crate) fn local_world(&self) -> usize {
        self.layout.local_world
    }

    /// Cell of a rank of this node.
    #[inline]
    pub(crate) fn rank_cell(&self, local: usize) -> &RankCell {
        assert!(local < self.layout.local_world, "a segment has a cell for each rank");
        let offset = self.start + CELLS_OFFSET + local * size_of::<RankCell>();
        // SAFETY: the layout keeps cells inside the mapping, aligned to their size, and apart from
        // all other regions; a cell consists of atomics, for which all bits are valid.
        unsafe { self.mapping.base().add(offset).cast().as_ref() }
    }

    /// Mailbox from one rank of this node to another.
    pub(crate) fn mailbox(&self, from: usize, to: usize) -> &Mailbox {
        assert!(
            from.max(to) < self.layout.local_world,
            "a segment has a mailbox for each pair of ranks"
        );
        let index = from * self.layout.local_world + to;
        let offset = self.start + self.layout.mailboxes() + index * size_of::<Mailbox>();
        // SAFETY: as for the cell of a rank.
        unsafe { self.mapping.base().add(offset).cast().as_ref() }
    }

    /// Offset of a rank's eager payload of a round.
    #[inline]
    pub(crate) fn eager_offset(&self, local: usize, round: u64) -> usize {
        self.start + self.layout.eager() + (2 * local + (round & 1) as usize) * EAGER_BYTES
    }

    /// Offset of a rank's staging area.
    pub(crate) fn staging_offset(&self, local: usize) -> usize {
        self.start + self.layout.staging() + local * STAGING_ACROSS_BYTES
    }

    /// Offset and size of a rank's arena.
    pub(crate) fn arena(&self, local: usize) -> (usize, usize) {
        (self.layout.arenas() + local * self.layout.arena_bytes, self.layout.arena_bytes)
    }

    /// Reports to all ranks of this node that the group was aborted, and wakes them.
    pub(crate) fn set_abort(&self, record: &AbortRecord) {
        self.header().abort.set(&record.encode());
        self.wake_all();
    }

    fn wake_all(&self) {
        // A rank that sleeps on another flag wakes by itself and checks for an abort.
        for local in 0..self.local_world() {
            self.rank_cell(local).flag.wake();
        }
    }

    /// Reports to all ranks of this node how a rank has ended, and wakes them.
    pub(crate) fn set_departure(&self, local: usize, how: Departure) {
        self.rank_cell(local).set_departure(how);
        self.wake_all();
    }

    /// Returns how a rank has ended, if it ended without an error. A reader of this also sees earlier
    /// writes of the rank.
    pub(crate) fn departure(&self, local: usize) -> Option<Departure> {
        match &self.parent {
            Some(ParentSegment { segment, cells: locals }) => segment.departure(locals[local]),
            None => self.rank_cell(local).departure(),
        }
    }

    /// Abort record of this group or of one of its parents, if there is one.
    pub(crate) fn abort_record(&self) -> Option<AbortRecord> {
        let own = self.header().abort.get().and_then(|bytes| AbortRecord::decode(&bytes));
        own.or_else(|| self.parent.as_ref()?.segment.abort_record())
    }
}

#[inline]
fn header(mapping: &Mapping, start: usize) -> &Header {
    let is_inside = start.is_multiple_of(PAGE) && start + size_of::<Header>() <= mapping.bytes();
    assert!(is_inside, "a segment contains its header");
    // SAFETY: the position is page aligned and has room for a header; a header consists of atomics,
    // for which all bits are valid.
    unsafe { mapping.base().add(start).cast().as_ref() }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::base::Rank;
    use crate::runtime::comm::core::error::Cause;
    use crate::runtime::comm::core::operation::Operation;
    use crate::runtime::comm::core::spin::Spin;

    fn segment(ranks: usize) -> Arc<Segment> {
        Segment::attach(Segment::create(ranks).unwrap()).unwrap()
    }

    #[test]
    fn flag_wakes_a_sleeper_and_wraps() {
        let (segment, start) = (segment(1), u32::MAX - 1);
        let flag = &segment.rank_cell(0).flag;
        flag.raise(start);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let never_fails = || Ok::<(), ()>(());
                flag.wait(1, Spin { pauses: 0, yields: 0 }, never_fails)
            });
            for step in 1..4 {
                flag.raise(start.wrapping_add(step));
            }
            assert_eq!(waiter.join().unwrap(), Ok(()));
        });
    }

    #[test]
    fn flag_wait_ends_when_the_check_fails() {
        let segment = segment(1);
        let flag = &segment.rank_cell(0).flag;
        assert_eq!(flag.wait(1, Spin::BRIEF, || Err("aborted")), Err("aborted"));
        assert_eq!(flag.wait(0, Spin::BRIEF, || Err("not called")), Ok(()));
    }

    #[test]
    fn segment_regions_do_not_overlap() {
        for local_world in [1, 2, 9, 64, 1000] {
            let layout = SegmentLayout::for_ranks(local_world).unwrap();
            assert!(size_of::<Header>() <= CELLS_OFFSET);
            assert!(CELLS_OFFSET < layout.mailboxes() && layout.mailboxes() < layout.eager());
            assert!(layout.eager() < layout.staging() && layout.staging() < layout.arenas());
            assert!(layout.bytes() < 1 << 46, "{local_world} ranks need {} bytes", layout.bytes());
        }
    }

    #[test]
    fn arenas_leave_half_of_a_limited_address_space() {
        let check = |ranks, limit, expect: usize| {
            assert_eq!(arena_bytes(ranks, 64 << 30, limit), expect, "{ranks} ranks of {limit:?}");
        };
        check(1, None, 128 << 30);
        check(1024, None, 1 << 30);
        check(2, Some(1 << 50), 64 << 30);
        check(2, Some(4 << 30), 1 << 30);
        check(8, Some(4 << 30), 1 << 28);
        check(3, Some(4 << 30), 715_825_152);
    }

    #[test]
    fn segment_error_keeps_the_number_of_the_kernel() {
        let source = std::io::Error::from_raw_os_error(12);
        let error = SegmentError::Os { action: "map", source };
        assert_eq!(std::io::Error::from(error).raw_os_error(), Some(12));
        let error = Segment::create(LOCAL_WORLD_MAX + 1).expect_err("too many ranks");
        assert!(std::io::Error::from(error).raw_os_error().is_some());
    }

    #[test]
    fn segment_rejects_files_that_are_no_segments() {
        let fd = memory::create_shared("zeros", 1 << 16).unwrap();
        assert!(matches!(Segment::attach(fd), Err(SegmentError::Foreign)));
        let unsealed = rustix::fs::memfd_create("u", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert!(matches!(Segment::attach(unsealed), Err(SegmentError::NotSealed)));
        let fd = Segment::create(1).unwrap();
        let mapping = Mapping::new(fd.try_clone().unwrap()).unwrap();
        header(&mapping, 0).version.store(VERSION - 1, Relaxed);
        assert!(matches!(Segment::attach(fd), Err(SegmentError::Version(_))));
    }

    #[test]
    fn segment_keeps_the_first_abort_record() {
        let segment = segment(2);
        assert_eq!(segment.abort_record(), None);
        let first = AbortRecord::lost(Rank(1), Rank(0), Departure::Exited);
        segment.set_abort(&first);
        segment.set_abort(&AbortRecord::said(Rank(0), &"x".repeat(1000)));
        assert_eq!(segment.abort_record(), Some(first));
    }

    #[test]
    fn segment_has_room_for_the_longest_abort_record() {
        let waiting_for = (0..10_000).map(|rank| Rank(u32::MAX - rank)).collect();
        let late = Cause::Deadline { waiting_for, timeout: Duration::MAX };
        for record in [
            AbortRecord::of_failure(Rank(u32::MAX), Operation::Barrier, &late),
            AbortRecord::said(Rank(u32::MAX), &"ö".repeat(10_000)),
        ] {
            let segment = segment(1);
            segment.set_abort(&record);
            assert_eq!(segment.abort_record(), Some(record));
        }
    }

    #[test]
    fn segment_is_unmapped_with_its_last_handle() {
        let fd = Segment::create(1).unwrap();
        let inode = rustix::fs::fstat(&fd).unwrap().st_ino;
        let is_mapped = || {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            maps.lines().any(|line| line.split_whitespace().nth(4) == Some(&inode.to_string()))
        };
        let segment = Segment::attach(fd).unwrap();
        assert!(is_mapped());
        drop(segment);
        assert!(!is_mapped());
    }
}
