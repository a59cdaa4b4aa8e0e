//! Rounds in progress at once, between machines.

use crate::runtime::comm::host::backend::HostBackend;
use crate::runtime::comm::shm::window::Window;
use crate::runtime::dtype::element::Element;

/// Number of rounds in progress at once between machines: one is staged, one in transit, one copied
/// out. Together they use as much memory as a single round does otherwise, so that data in transit is
/// still in a cache when it is needed. A share is staged again three rounds later: all ranks of the
/// node have begun the round before that, and so have read what was in the share.
pub(super) const ROUNDS_IN_FLIGHT: usize = 3;
/// Alignment of the shares of the staging area, in elements; a cache line for every type.
const SHARE_UNIT: usize = 64;

impl HostBackend {
    /// Shares of the staging area, one for each round in progress; a single share if rounds do not
    /// overlap.
    pub(super) fn shares<T: Element>(&self) -> Vec<Window<T>> {
        let staging = self.staging::<T>();
        if !self.inter_node.as_ref().is_some_and(|inter_node| inter_node.net().overlaps()) {
            return vec![staging];
        }
        let len = staging.len() / ROUNDS_IN_FLIGHT / SHARE_UNIT * SHARE_UNIT;
        let share = |number| staging.part(&(number * len..(number + 1) * len));
        (0..ROUNDS_IN_FLIGHT).map(share).collect()
    }

    /// Shares for rounds with a part for every rank; a single share if rounds do not overlap, or if
    /// the parts of all ranks do not fit a share.
    pub(super) fn shares_of_parts<T: Element>(&self) -> Vec<Window<T>> {
        let shares = self.shares::<T>();
        if self.world() <= shares[0].len() { shares } else { vec![self.staging::<T>()] }
    }
}
