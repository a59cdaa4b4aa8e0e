//! Barriers of the ranks of a node in shared memory, with deadlines.
//!
//! Every rank of the node passes the same barriers in the same order and counts them; a barrier is
//! complete when every counter has reached it. The first barrier of an operation always compares
//! the calls of the ranks.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::{Rank, clock};
use crate::runtime::cells::{self, AbortRecord, BufferLocation};
use crate::runtime::error::{Cause, Departure, Fingerprint, Loss};
use crate::runtime::flag::Spin;
use crate::runtime::net::SharedStore;
use crate::runtime::schedule::Placement;
use crate::runtime::shm::Segment;
use crate::runtime::waits::WaitReporter;

/// This rank and the other ranks of a group.
#[derive(Clone, Debug)]
pub(crate) struct RankRoster {
    pub(crate) rank: usize,
    pub(crate) placement: Placement,
    /// Ranks in the job, for a group that was split from another.
    subgroup: Option<SubgroupRanks>,
}

/// Ranks of the job that form a group.
#[derive(Clone, Debug)]
struct SubgroupRanks {
    job: Arc<RankRoster>,
    /// Rank in the job of each rank of the group.
    members: Vec<usize>,
}

impl RankRoster {
    /// Roster of a group of all ranks of a job.
    pub(crate) fn of_job(rank: usize, placement: Placement) -> Self {
        Self { rank, placement, subgroup: None }
    }

    /// Roster of a group of some ranks of `parent`, in this order; this process is at position `rank`.
    pub(crate) fn of_subgroup(parent: &Arc<Self>, rank: usize, members: &[usize]) -> Self {
        let job = parent.subgroup.as_ref().map_or(parent, |part| &part.job).clone();
        let placement = parent.placement.part(members);
        let members = members.iter().map(|member| parent.job_rank(*member).index()).collect();
        Self { rank, placement, subgroup: Some(SubgroupRanks { job, members }) }
    }

    /// Rank in the job of a rank of the group, for messages.
    pub(crate) fn job_rank(&self, rank: usize) -> Rank {
        Rank(self.subgroup.as_ref().map_or(rank, |part| part.members[rank]) as u32)
    }

    /// Rank of this process in the job, for messages.
    pub(crate) fn own_job_rank(&self) -> Rank {
        self.job_rank(self.rank)
    }

    fn job_ranks(&self, ranks: &[usize]) -> Vec<Rank> {
        ranks.iter().map(|rank| self.job_rank(*rank)).collect()
    }

    /// Roster of the whole job.
    fn job(&self) -> &Self {
        self.subgroup.as_ref().map_or(self, |part| &part.job)
    }

    /// Node of this rank.
    pub(crate) fn node(&self) -> usize {
        self.placement.node_of(self.rank)
    }

    /// Position of this rank among the group's ranks of its node.
    pub(crate) fn local_rank(&self) -> usize {
        self.placement.local_of(self.rank)
    }

    /// Ranks of this node, including this one, in the order of their cells in the segment.
    pub(crate) fn local_ranks(&self) -> &[usize] {
        self.placement.ranks_of(self.node())
    }

    /// Position of a rank on this node; `None` if it is on another node.
    pub(crate) fn local_index(&self, rank: usize) -> Option<usize> {
        self.local_ranks().iter().position(|other| *other == rank)
    }

    /// Cause of a failure because a rank of the group was lost.
    pub(crate) fn peer_lost(&self, rank: usize, how: Departure) -> Cause {
        self.job_peer_lost(self.job_rank(rank), how)
    }

    fn job_peer_lost(&self, rank: Rank, how: Departure) -> Cause {
        let host = self.job().placement.host_of(rank.index()).to_owned();
        Cause::PeerLost { rank, host, how }
    }

    /// Converts an abort record to a cause.
    pub(crate) fn abort_cause(&self, record: AbortRecord) -> Cause {
        match record.lost {
            Some(Loss { rank, how }) if rank.index() < self.job().placement.world_size() => {
                self.job_peer_lost(rank, how)
            }
            _ => Cause::Aborted { by: record.by, reason: record.reason },
        }
    }
}

/// Deadline of an operation, and how it waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    /// Start of the operation.
    pub(crate) since: Instant,
    /// Time by which the operation must be complete.
    pub(crate) until: Instant,
    /// Polls before a waiting thread sleeps.
    pub(crate) spin: Spin,
}

/// Time for which a rank that has dropped its group is not reported: if it exits within it, the exit
/// is reported as the cause instead.
const EXIT_GRACE: Duration = Duration::from_millis(500);

/// The ranks of a group on this node, from the view of one of them: barriers and failure checks.
pub(crate) struct LocalNode {
    pub(crate) roster: Arc<RankRoster>,
    pub(crate) segment: Arc<Segment>,
    barriers: u32,
    locations: Vec<BufferLocation>,
    /// Time at which this rank first noticed another one that has dropped its group.
    left_since: Cell<Option<Instant>>,
    /// Reporter of long waits to other nodes.
    wait_reporter: Option<WaitReporter>,
}

impl LocalNode {
    pub(crate) fn new(
        roster: Arc<RankRoster>,
        segment: Arc<Segment>,
        store: Option<SharedStore>,
    ) -> Self {
        let locations = vec![BufferLocation::Staged(0); roster.local_ranks().len()];
        let wait_reporter = store.map(|store| WaitReporter::new(roster.own_job_rank(), store));
        Self { roster, segment, barriers: 0, locations, left_since: Cell::new(None), wait_reporter }
    }

    /// Removes the report of a long wait after an operation has succeeded.
    pub(crate) fn end_wait(&self) {
        if let Some(waits) = &self.wait_reporter {
            waits.clear();
        }
    }

    /// Returns the late ranks at the end of the wait chains: ranks in `waiting_for` may themselves wait
    /// for other ranks.
    pub(crate) fn late_ranks(&self, waiting_for: Vec<Rank>) -> Vec<Rank> {
        match &self.wait_reporter {
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
        ours: Fingerprint,
        location: BufferLocation,
        deadline: Deadline,
        work: impl FnMut() -> Result<bool, Cause>,
    ) -> Result<&[BufferLocation], Cause> {
        self.segment.rank_cell(self.local_rank()).entry(ours.seq).write(ours.encode(), location);
        self.barrier(deadline, work)?;
        for local in 0..self.locations.len() {
            let (words, location) = self.segment.rank_cell(local).entry(ours.seq).read();
            if words != ours.encode() {
                let peer = self.roster.local_ranks()[local];
                return Err(mismatch(ours, self.roster.job_rank(peer), words));
            }
            self.locations[local] = location;
        }
        Ok(&self.locations)
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
            if let Some(waits) = &self.wait_reporter {
                waits.publish(deadline, || self.roster.job_ranks(&waiting_for()));
            }
            Ok(())
        } else {
            Err(Cause::Deadline {
                waiting_for: self.roster.job_ranks(&waiting_for()),
                timeout: deadline.until.saturating_duration_since(deadline.since),
            })
        }
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

/// Cause of a failure because a peer has made a different call; `words` is its encoded fingerprint.
pub(crate) fn mismatch(ours: Fingerprint, peer: Rank, words: [u64; 3]) -> Cause {
    match Fingerprint::decode(words) {
        Some(theirs) => Cause::Mismatch { ours, peer, theirs },
        None => Cause::Backend(format!("protocol error: invalid fingerprint from rank {peer}")),
    }
}
