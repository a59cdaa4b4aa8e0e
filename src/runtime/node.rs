//! Barriers of the ranks of a node in shared memory, with deadlines.
//!
//! Every rank of the node passes the same barriers in the same order and counts them; a barrier is
//! complete when every counter has reached it. The first barrier of an operation always compares
//! the calls of the ranks.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::{Rank, clock};
use crate::runtime::cells::{self, AbortRecord, BufferPlace};
use crate::runtime::error::{Cause, Departure, Fingerprint, Loss};
use crate::runtime::flag::Spin;
use crate::runtime::net::SharedStore;
use crate::runtime::schedule::Placement;
use crate::runtime::shm::Segment;
use crate::runtime::waits::Waits;

/// This rank and the other ranks of a group.
#[derive(Clone, Debug)]
pub(crate) struct RankRoster {
    pub(crate) rank: usize,
    pub(crate) placement: Placement,
    /// Ranks in the job, for a group that was split from another.
    part: Option<Part>,
}

/// Ranks of the job that form a group.
#[derive(Clone, Debug)]
struct Part {
    job: Arc<RankRoster>,
    /// Rank in the job of each rank of the group.
    members: Vec<usize>,
}

impl RankRoster {
    /// Roster of a group of all ranks of a job.
    pub(crate) fn of_job(rank: usize, placement: Placement) -> Self {
        Self { rank, placement, part: None }
    }

    /// Roster of a group of some ranks of `parent`, in this order; this process is at position `rank`.
    pub(crate) fn part_of(parent: &Arc<Self>, rank: usize, members: &[usize]) -> Self {
        let job = parent.part.as_ref().map_or(parent, |part| &part.job).clone();
        let placement = parent.placement.part(members);
        let members = members.iter().map(|member| parent.name(*member).index()).collect();
        Self { rank, placement, part: Some(Part { job, members }) }
    }

    /// Rank in the job of a rank of the group, for messages.
    pub(crate) fn name(&self, rank: usize) -> Rank {
        Rank(self.part.as_ref().map_or(rank, |part| part.members[rank]) as u32)
    }

    /// Rank of this process in the job, for messages.
    pub(crate) fn own_name(&self) -> Rank {
        self.name(self.rank)
    }

    fn names(&self, ranks: &[usize]) -> Vec<Rank> {
        ranks.iter().map(|rank| self.name(*rank)).collect()
    }

    /// Roster of the whole job.
    fn job(&self) -> &Self {
        self.part.as_ref().map_or(self, |part| &part.job)
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
    pub(crate) fn neighbours(&self) -> &[usize] {
        self.placement.ranks_of(self.node())
    }

    /// Position of a rank on this node; `None` if it is on another node.
    pub(crate) fn neighbour(&self, rank: usize) -> Option<usize> {
        self.neighbours().iter().position(|other| *other == rank)
    }

    /// Cause of a failure because a rank of the group was lost.
    pub(crate) fn lost(&self, rank: usize, how: Departure) -> Cause {
        self.job_lost(self.name(rank), how)
    }

    fn job_lost(&self, rank: Rank, how: Departure) -> Cause {
        let host = self.job().placement.host_of(rank.index()).to_owned();
        Cause::PeerLost { rank, host, how }
    }

    /// Converts an abort record to a cause.
    pub(crate) fn cause(&self, record: AbortRecord) -> Cause {
        match record.lost {
            Some(Loss { rank, how }) if rank.index() < self.job().placement.world_size() => {
                self.job_lost(rank, how)
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
const LEFT_PATIENCE: Duration = Duration::from_millis(500);

/// The ranks of a group on this node, from the view of one of them: barriers and failure checks.
pub(crate) struct LocalNode {
    pub(crate) roster: Arc<RankRoster>,
    pub(crate) segment: Arc<Segment>,
    meetings: u32,
    places: Vec<BufferPlace>,
    /// Time at which this rank first noticed another one that has dropped its group.
    left_since: Cell<Option<Instant>>,
    /// Reporter of long waits to other nodes.
    waits: Option<Waits>,
}

impl LocalNode {
    pub(crate) fn new(
        roster: Arc<RankRoster>,
        segment: Arc<Segment>,
        store: Option<SharedStore>,
    ) -> Self {
        let locations = vec![BufferPlace::Staged(0); roster.neighbours().len()];
        let wait_reporter = store.map(|store| Waits::new(roster.own_name(), store));
        Self {
            roster,
            segment,
            meetings: 0,
            places: locations,
            left_since: Cell::new(None),
            waits: wait_reporter,
        }
    }

    /// Removes the report of a long wait after an operation has succeeded.
    pub(crate) fn end_wait(&self) {
        if let Some(waits) = &self.waits {
            waits.end();
        }
    }

    /// Returns the late ranks at the end of the wait chains: ranks in `waiting_for` may themselves wait
    /// for other ranks.
    pub(crate) fn trace(&self, waiting_for: Vec<Rank>) -> Vec<Rank> {
        match &self.waits {
            Some(waits) => waits.trace(&waiting_for),
            None => waiting_for,
        }
    }

    pub(crate) fn me(&self) -> usize {
        self.roster.local_rank()
    }

    /// Begins a round: publishes this rank's call and the location of its data, waits for all ranks,
    /// compares the calls, and returns the locations of all ranks' data.
    pub(crate) fn enter(
        &mut self,
        ours: Fingerprint,
        location: BufferPlace,
        deadline: Deadline,
        work: impl FnMut() -> Result<bool, Cause>,
    ) -> Result<&[BufferPlace], Cause> {
        self.segment.line(self.me()).entry(ours.seq).write(ours.encode(), location);
        self.meet(deadline, work)?;
        for local in 0..self.places.len() {
            let (words, location) = self.segment.line(local).entry(ours.seq).read();
            if words != ours.encode() {
                let peer = self.roster.neighbours()[local];
                return Err(mismatch(ours, self.roster.name(peer), words));
            }
            self.places[local] = location;
        }
        Ok(&self.places)
    }

    /// Barrier of the ranks of the node. While other ranks are late, this rank continues its transfers
    /// to other nodes with `work`, because the late rank may wait for a rank that waits for this data;
    /// `work` returns whether there is more to do.
    pub(crate) fn meet(
        &mut self,
        deadline: Deadline,
        work: impl FnMut() -> Result<bool, Cause>,
    ) -> Result<(), Cause> {
        self.meetings = self.meetings.wrapping_add(1);
        let cells = (0..self.roster.neighbours().len()).map(|local| self.segment.line(local));
        let check = || self.check(deadline, || self.missing());
        let own = self.segment.line(self.me());
        cells::meet(own, cells, self.meetings, deadline.spin, work, check)
    }

    /// Fails if a wait must end: after an abort, after the exit of a rank that is waited for, or after the
    /// deadline.
    pub(crate) fn check(
        &self,
        deadline: Deadline,
        waiting_for: impl Fn() -> Vec<usize>,
    ) -> Result<(), Cause> {
        if let Some(record) = self.segment.alarm() {
            return Err(self.roster.cause(record));
        }
        // Departed ranks are read before missing ones, so that the last action of a rank before its
        // departure is visible.
        let departed = self.left();
        if !departed.is_empty()
            && let missing = waiting_for()
            && let Some((rank, how)) = departed.into_iter().find(|(rank, _)| missing.contains(rank))
            && self.is_said(how)
        {
            return Err(self.roster.lost(rank, how));
        }
        if clock::now() < deadline.until {
            if let Some(waits) = &self.waits {
                waits.tell(deadline, || self.roster.names(&waiting_for()));
            }
            Ok(())
        } else {
            Err(Cause::Deadline { waiting_for: self.roster.names(&waiting_for()) })
        }
    }

    /// Ranks of this node that have exited or dropped the group without an error.
    fn left(&self) -> Vec<(usize, Departure)> {
        let neighbours = self.roster.neighbours().iter().enumerate();
        neighbours
            .filter_map(|(local, rank)| Some((*rank, self.segment.departure(local)?)))
            .collect()
    }

    /// Whether a departure can be reported: a rank that drops its group as its last action exits a
    /// moment later, and then the exit is reported.
    fn is_said(&self, how: Departure) -> bool {
        let since = self.left_since.get().unwrap_or_else(clock::now);
        self.left_since.set(Some(since));
        how != Departure::Left || since + LEFT_PATIENCE <= clock::now()
    }

    /// Ranks of this node that have not reached the current barrier.
    fn missing(&self) -> Vec<usize> {
        let missing = |local: &usize| !self.segment.line(*local).flag.has_reached(self.meetings);
        let neighbours = self.roster.neighbours();
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
