//! Rounds of operations with a part for every rank: where the parts lie in the windows of a node.
//!
//! A rank publishes its buffer if that lies in the segment, otherwise a staged copy of the round's range of
//! every part. Both can occur in one round, because every location says which of the two it is.

use std::ops::Range;
use std::sync::Arc;

use crate::runtime::comm::core::deadline::Deadline;
use crate::runtime::comm::core::error::Cause;
use crate::runtime::comm::core::operation::OperationCall;
use crate::runtime::comm::host::backend::{HostBackend, peer_window};
use crate::runtime::comm::host::round::Round;
use crate::runtime::comm::host::select::is_eager;
use crate::runtime::comm::shm::cells::BufferLocation;
use crate::runtime::comm::shm::segment::Segment;
use crate::runtime::comm::shm::window::Window;
use crate::runtime::dtype::element::Element;

/// Round of an operation with a part for every rank.
pub(super) struct PartsRound<T> {
    pub(super) round: Round<T>,
    /// Its range in every part.
    pub(super) range: Range<usize>,
    /// Positions of the parts in the window of each rank of the node.
    layouts: Vec<PartsLayout>,
}

/// Positions of the parts of a round in a window.
#[derive(Clone, Copy, Debug)]
struct PartsLayout {
    /// Position of the range in the part of rank 0.
    start: usize,
    /// Distance between the parts of successive ranks.
    stride: usize,
}

impl PartsLayout {
    fn new(location: BufferLocation, range: &Range<usize>, part: usize) -> Self {
        match location {
            BufferLocation::Direct(_) => Self { start: range.start, stride: part },
            BufferLocation::Staged(_) => Self { start: 0, stride: range.len() },
        }
    }
}

impl<T: Element> PartsRound<T> {
    /// Window on the part of `owner` in memory of a rank of the node.
    pub(super) fn part(&self, local: usize, owner: usize) -> Window<T> {
        let PartsLayout { start, stride } = self.layouts[local];
        let at = owner * stride + start;
        self.round.windows[local].part(&(at..at + self.range.len()))
    }

    /// Windows on the part of `owner` in memory of each rank of the node.
    pub(super) fn parts(&self, owner: usize) -> Vec<Window<T>> {
        (0..self.layouts.len()).map(|local| self.part(local, owner)).collect()
    }
}

impl HostBackend {
    /// Begins a round for a range of every part, of which each has `part` elements. The round contains the
    /// rest of the parts if all ranks are on this node and none has staged its data: nothing limits it then.
    pub(super) fn begin_parts<T: Element>(
        &mut self,
        call: OperationCall,
        location: BufferLocation,
        range: Range<usize>,
        part: usize,
        deadline: Deadline,
    ) -> Result<PartsRound<T>, Cause> {
        let (world, is_one_node) = (self.world(), self.inter_node.is_none());
        let read = |segment: &Arc<Segment>, locations: &[BufferLocation]| {
            let is_direct = |location: &BufferLocation| match location {
                BufferLocation::Direct(_) => true,
                BufferLocation::Staged(_) => false,
            };
            let is_rest = is_one_node && locations.iter().all(is_direct);
            let range = if is_rest { range.start..part } else { range };
            let layout = |location: &BufferLocation| PartsLayout::new(*location, &range, part);
            let layouts: Vec<_> = locations.iter().map(layout).collect();
            let windows = locations.iter().zip(&layouts);
            let windows = windows
                .map(|(location, layout)| peer_window(segment, *location, world * layout.stride))
                .collect::<Result<_, Cause>>()?;
            Ok::<_, Cause>((windows, layouts, range))
        };
        let (fingerprint, read) = self.enter_round(call, T::DTYPE, location, deadline, read)?;
        let (windows, layouts, range) = read?;
        let round = Round { fingerprint, windows, len: range.len(), deadline };
        Ok(PartsRound { round, range, layouts })
    }

    /// Whether data of this number of elements is exchanged beside the flags, with one barrier; equal on all
    /// ranks, because it depends only on the call and on the placement.
    #[inline]
    pub(super) fn is_eager<T>(&self, elements: usize) -> bool {
        is_eager(self.roster.placement.nodes(), elements * size_of::<T>())
    }

    /// Memory beside the flags for the data of this rank in the next round.
    #[inline]
    pub(super) fn eager_slot<T: Element>(&self, len: usize) -> Window<T> {
        let offset = self.node.segment.eager_offset(self.node.local_rank(), self.rounds + 1);
        Window::new(&self.node.segment, offset, len)
            .expect("the layout keeps eager slots aligned and inside")
    }
}
