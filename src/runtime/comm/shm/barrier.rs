//! Barriers of the ranks of a node in shared memory, with deadlines.
//!
//! Every rank of the node passes the same barriers in the same order and counts them; a barrier is
//! complete when every counter has reached it. The first barrier of an operation always compares
//! the calls of the ranks.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Instant;

use crate::base::{Rank, clock};
use crate::runtime::comm::core::deadline::{Deadline, EXIT_GRACE};
use crate::runtime::comm::core::error::{Cause, Departure};
use crate::runtime::comm::core::fingerprint::{Fingerprint, compare_calls};
use crate::runtime::comm::core::roster::RankRoster;
use crate::runtime::comm::core::wait_report::WaitReport;
use crate::runtime::comm::shm::cells::{self, BufferLocation};
use crate::runtime::comm::shm::segment::Segment;

/// The ranks of a group on this node, from the view of one of them: barriers and failure checks.
pub(crate) struct LocalNode {
    pub(crate) roster: Arc<RankRoster>,
    pub(crate) segment: Arc<Segment>,
    barriers: u32,
    locations: Vec<BufferLocation>,
    /// Time at which this rank first noticed another one that has dropped its group.
    left_since: Cell<Option<Instant>>,
    /// `None` if all ranks are on this node.
    wait_report: Option<Box<dyn WaitReport>>,
}

impl LocalNode {
    pub(crate) fn new(
        roster: Arc<RankRoster>,
        segment: Arc<Segment>,
        wait_report: Option<Box<dyn WaitReport>>,
    ) -> Self {
        let locations = vec![BufferLocation::Staged(0); roster.local_ranks().len()];
        Self { roster, segment, barriers: 0, locations, left_since: Cell::new(None), wait_report }
    }

    /// Removes the report of a long wait after an operation has succeeded.
    pub(crate) fn end_wait(&self) {
        if let Some(waits) = &self.wait_report {
            waits.clear();
        }
    }

    /// Returns the late ranks at the end of the wait chains: ranks in `waiting_for` may themselves wait
    /// for other ranks.
    pub(crate) fn late_ranks(&self, waiting_for: Vec<Rank>) -> Vec<Rank> {
        match &self.wait_report {
            Some(waits) => waits.trace(&waiting_for),
            None => waiting_for,
        }
    }

    pub(crate) fn local_rank(&self) -> usize {
        self.roster.local_rank()
    }

    /// Begins a round: publishes this rank's call and the location of its data, waits for all ranks,
    /// compares the calls, and returns the locations of all ranks' data.
    pub(crate) fn begin_round(
        &mut self,
        own_call: Fingerprint,
        location: BufferLocation,
        deadline: Deadline,
        work: impl FnMut() -> Result<bool, Cause>,
    ) -> Result<&[BufferLocation], Cause> {
        self.segment
            .rank_cell(self.local_rank())
            .entry(own_call.seq)
            .write(own_call.encode(), location);
        self.barrier(deadline, work)?;
        for local in 0..self.locations.len() {
            let (words, location) = self.segment.rank_cell(local).entry(own_call.seq).read();
            let peer = || self.roster.job_rank(self.roster.local_ranks()[local]);
            compare_calls(own_call, peer, words)
                .map_err(|different| different.count(self.calls(own_call.seq)))?;
            self.locations[local] = location;
        }
        Ok(&self.locations)
    }

    /// Calls of all ranks of the node in a round.
    fn calls(&self, seq: u64) -> impl Iterator<Item = [u64; 3]> {
        let ranks = 0..self.locations.len();
        ranks.map(move |local| self.segment.rank_cell(local).entry(seq).read().0)
    }

    /// Barrier of the ranks of the node. While other ranks are late, this rank continues its transfers
    /// to other nodes with `work`, because the late rank may wait for a rank that waits for this data;
    /// `work` returns whether there is more to do.
    pub(crate) fn barrier(
        &mut self,
        deadline: Deadline,
        work: impl FnMut() -> Result<bool, Cause>,
    ) -> Result<(), Cause> {
        self.barriers = self.barriers.wrapping_add(1);
        let cells = (0..self.roster.local_ranks().len()).map(|local| self.segment.rank_cell(local));
        let check = || self.check(deadline, || self.missing());
        let own = self.segment.rank_cell(self.local_rank());
        cells::wait_barrier(own, cells, self.barriers, deadline.spin, work, check)
    }

    /// Fails if a wait must end: after an abort, after the exit of a rank that is waited for, or after the
    /// deadline.
    pub(crate) fn check(
        &self,
        deadline: Deadline,
        waiting_for: impl Fn() -> Vec<usize>,
    ) -> Result<(), Cause> {
        if let Some(record) = self.segment.abort_record() {
            return Err(self.roster.abort_cause(record));
        }
        // Departed ranks are read before missing ones, so that the last action of a rank before its
        // departure is visible.
        let departed = self.departed_ranks();
        if !departed.is_empty()
            && let missing = waiting_for()
            && let Some((rank, how)) = departed.into_iter().find(|(rank, _)| missing.contains(rank))
            && self.is_reportable(how)
        {
            return Err(self.roster.peer_lost(rank, how));
        }
        if clock::now() < deadline.until {
            if let Some(waits) = &self.wait_report {
                waits.publish(deadline, &|| self.roster.job_ranks(&waiting_for()));
            }
            Ok(())
        } else {
            Err(Cause::Deadline {
                waiting_for: self.roster.job_ranks(&waiting_for()),
                timeout: deadline.until.saturating_duration_since(deadline.since),
            })
        }
    }

    /// Fails if the group was aborted or a rank of this node is gone, of ranks that have all called the operation.
    #[cfg(feature = "nccl")]
    pub(crate) fn check_ranks(&self) -> Result<(), Cause> {
        if let Some(record) = self.segment.abort_record() {
            return Err(self.roster.abort_cause(record));
        }
        let gone = self.departed_ranks().into_iter().find(|(_, how)| *how == Departure::Gone);
        gone.map_or(Ok(()), |(rank, how)| Err(self.roster.peer_lost(rank, how)))
    }

    /// Ranks of this node that have exited or dropped the group without an error.
    fn departed_ranks(&self) -> Vec<(usize, Departure)> {
        let neighbours = self.roster.local_ranks().iter().enumerate();
        neighbours
            .filter_map(|(local, rank)| Some((*rank, self.segment.departure(local)?)))
            .collect()
    }

    /// Whether a departure can be reported: a rank that drops its group as its last action exits a
    /// moment later, and then the exit is reported.
    fn is_reportable(&self, how: Departure) -> bool {
        let since = self.left_since.get().unwrap_or_else(clock::now);
        self.left_since.set(Some(since));
        how != Departure::Left || since + EXIT_GRACE <= clock::now()
    }

    /// Ranks of this node that have not reached the current barrier.
    fn missing(&self) -> Vec<usize> {
        let missing =
            |local: &usize| !self.segment.rank_cell(*local).flag.has_reached(self.barriers);
        let neighbours = self.roster.local_ranks();
        (0..neighbours.len()).filter(missing).map(|local| neighbours[local]).collect()
    }
}
