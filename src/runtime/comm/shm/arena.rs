//! Memory of the segment that a rank allocates.

use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};

use crate::base::lock;
use crate::runtime::comm::shm::error::ArenaFull;
use crate::runtime::comm::shm::segment::Segment;

const PAGE: usize = 4096;

/// Allocator of a rank's arena, first fit; adjacent free ranges are merged. All groups of a rank
/// share it.
#[derive(Debug)]
pub(crate) struct Arena {
    pub(super) segment: Arc<Segment>,
    /// Index of the rank in the segment.
    pub(super) local: usize,
    /// Memory for further records on the rank's board.
    pub(super) board: Mutex<Range<usize>>,
    pub(super) free: Mutex<Vec<Range<usize>>>,
    /// Bytes of all [`Allocation`]s. Segments of subgroups are left out: most of their pages are never touched.
    used_bytes: AtomicUsize,
    /// The most of them at once.
    peak_bytes: AtomicUsize,
    /// Segments of subgroups of the arena's group.
    subgroups: Mutex<Vec<SubgroupSegment>>,
    /// Whether a subgroup that no longer exists has failed.
    has_failed_subgroup: AtomicBool,
}

/// Segment of a subgroup, as long as its memory is needed.
#[derive(Debug)]
pub(crate) struct SubgroupSegment {
    segment: Arc<Segment>,
    /// Its range, if it is in this rank's arena.
    range: Option<Range<usize>>,
    /// Whether this rank has left it.
    is_left: bool,
}

/// Lease of a subgroup's segment by a rank; its drop counts the rank as having left the subgroup.
#[derive(Debug)]
pub(crate) struct SegmentLease {
    arena: Arc<Arena>,
    segment: Arc<Segment>,
}

impl Drop for SegmentLease {
    fn drop(&mut self) {
        self.segment.leave();
        let mut parts = lock(&self.arena.subgroups);
        for part in parts.iter_mut().filter(|part| Arc::ptr_eq(&part.segment, &self.segment)) {
            part.is_left = true;
        }
        drop(parts);
        self.arena.free_unused_subgroups();
    }
}

/// Range of an arena that is freed when it is dropped.
#[derive(Debug)]
pub(crate) struct Allocation {
    arena: Arc<Arena>,
    range: Range<usize>,
}

impl Arena {
    pub(crate) fn new(segment: &Arc<Segment>, local: usize) -> Arc<Self> {
        let (offset, bytes) = segment.arena(local);
        let free = Mutex::new(std::iter::once(offset..offset + bytes).collect());
        Arc::new(Self {
            segment: segment.clone(),
            local,
            board: Mutex::new(0..0),
            free,
            used_bytes: AtomicUsize::new(0),
            peak_bytes: AtomicUsize::new(0),
            subgroups: Mutex::default(),
            has_failed_subgroup: AtomicBool::new(false),
        })
    }

    /// Allocates memory for the segment of a subgroup, and writes its header.
    pub(crate) fn allocate_subgroup(&self, local_world: usize) -> Result<Range<usize>, ArenaFull> {
        self.free_unused_subgroups();
        let range = self.allocate_range(Segment::subgroup_bytes(local_world))?;
        self.segment.create_subgroup(range.start, local_world);
        Ok(range)
    }

    /// Leases the segment of a subgroup; its memory is freed when all ranks have left it. If there is
    /// no segment, there is no lease, and the memory is freed at once.
    pub(crate) fn lease(
        self: &Arc<Self>,
        segment: Option<&Arc<Segment>>,
        range: Option<Range<usize>>,
    ) -> Option<SegmentLease> {
        let Some(segment) = segment.cloned() else {
            if let Some(range) = range {
                self.zero_and_free(range);
            }
            return None;
        };
        let part = SubgroupSegment { segment: segment.clone(), range, is_left: false };
        lock(&self.subgroups).push(part);
        Some(SegmentLease { arena: self.clone(), segment })
    }

    /// Frees the segments of subgroups that all ranks have left.
    fn free_unused_subgroups(&self) {
        let mut parts = lock(&self.subgroups);
        parts.retain(|part| {
            if part.is_left && part.segment.abort_record().is_some() {
                // A late peer may still access the segment, so its memory is not freed.
                self.has_failed_subgroup.store(true, Relaxed);
                return false;
            }
            let is_unused = part.is_left && (part.range.is_none() || part.segment.is_left_by_all());
            if let Some(range) = part.range.clone().filter(|_| is_unused) {
                self.zero_and_free(range);
            }
            !is_unused
        });
    }

    /// Whether a late peer of a failed group may still write to memory of this arena.
    fn may_be_written(&self) -> bool {
        let parts = lock(&self.subgroups);
        self.has_failed_subgroup.load(Relaxed)
            || self.segment.abort_record().is_some()
            || parts.iter().any(|part| part.segment.abort_record().is_some())
    }

    /// Zeroes a range and frees it.
    fn zero_and_free(&self, range: Range<usize>) {
        let (offset, bytes) = (range.start, range.len());
        let mapping = self.segment.mapping();
        if mapping.discard(offset as u64, bytes as u64).is_err() {
            // SAFETY: the range belonged to this rank alone and there is no reference to it any more.
            unsafe { mapping.base().as_ptr().add(offset).write_bytes(0, bytes) };
        }
        self.add_free_range(range);
    }

    /// Allocates `bytes` zero bytes, at the beginning of a page.
    pub(crate) fn allocate(self: &Arc<Self>, bytes: usize) -> Result<Allocation, ArenaFull> {
        let range = self.allocate_range(bytes)?;
        let used = self.used_bytes.fetch_add(range.len(), Relaxed) + range.len();
        self.peak_bytes.fetch_max(used, Relaxed);
        Ok(Allocation { arena: self.clone(), range })
    }

    /// Allocates a range of at least `bytes`, in whole pages.
    pub(super) fn allocate_range(&self, bytes: usize) -> Result<Range<usize>, ArenaFull> {
        let mut free = lock(&self.free);
        let available = free.iter().map(ExactSizeIterator::len).max().unwrap_or(0);
        let out_of_memory = ArenaFull { bytes, available };
        let len = match bytes.max(1).checked_next_multiple_of(PAGE) {
            Some(len) if len <= available => len,
            _ => return Err(out_of_memory),
        };
        let index = free.iter().position(|range| len <= range.len()).ok_or(out_of_memory)?;
        let start = free[index].start;
        free[index].start += len;
        if free[index].is_empty() {
            free.remove(index);
        }
        Ok(start..start + len)
    }

    /// The most bytes that were allocated at once, without segments of subgroups.
    pub(crate) fn peak_bytes(&self) -> usize {
        self.peak_bytes.load(Relaxed)
    }

    /// Adds a range to the free ones, and merges it with adjacent ones.
    fn add_free_range(&self, range: Range<usize>) {
        let mut free = lock(&self.free);
        let at = free.partition_point(|other| other.start < range.start);
        free.insert(at, range);
        free.dedup_by(|next, previous| {
            let joins = previous.end == next.start;
            if joins {
                previous.end = next.end;
            }
            joins
        });
    }
}

impl Allocation {
    /// Segment that contains the range.
    pub(super) fn segment(&self) -> &Arc<Segment> {
        &self.arena.segment
    }

    /// Offset of the range in the segment, in bytes.
    pub(super) fn offset(&self) -> usize {
        self.range.start
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        self.arena.used_bytes.fetch_sub(self.range.len(), Relaxed);
        // After a failure this memory must not be reused.
        if !self.arena.may_be_written() {
            self.arena.zero_and_free(self.range.clone());
        }
    }
}
