//! The ranks of a group, and their ranks in the job.

use std::sync::Arc;

use crate::base::Rank;
use crate::runtime::comm::core::abort::{AbortReason, AbortRecord, Loss};
use crate::runtime::comm::core::error::Cause;
use crate::runtime::comm::core::error::Departure;
use crate::runtime::schedule::Placement;

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
pub(crate) struct SubgroupRanks {
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

    pub(crate) fn job_ranks(&self, ranks: &[usize]) -> Vec<Rank> {
        ranks.iter().map(|rank| self.job_rank(*rank)).collect()
    }

    /// Position of a rank of the group among the job's ranks of its node.
    pub(crate) fn job_local(&self, rank: usize) -> usize {
        self.job().placement.local_of(self.job_rank(rank).index())
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

    /// Number of the group's ranks on the node of a rank of the job; `None` if that is this node.
    pub(crate) fn ranks_of_other_node(&self, job_rank: Rank) -> Option<u16> {
        let node = self.job().placement.node_of(job_rank.index());
        let is_there =
            |rank: &usize| self.job().placement.node_of(self.job_rank(*rank).index()) == node;
        let ranks = (0..self.placement.world_size()).filter(is_there).count();
        (!is_there(&self.rank)).then_some(ranks as u16)
    }

    /// Position of a rank on this node; `None` if it is on another node.
    pub(crate) fn local_index(&self, rank: usize) -> Option<usize> {
        self.local_ranks().iter().position(|other| *other == rank)
    }

    /// Cause of a failure because a rank of the group was lost.
    pub(crate) fn peer_lost(&self, rank: usize, how: Departure) -> Cause {
        self.job_peer_lost(self.job_rank(rank), how)
    }

    /// Loss of a rank of the job.
    pub(crate) fn job_peer_lost(&self, rank: Rank, how: Departure) -> Cause {
        let host = self.job().placement.host_of(rank.index()).to_owned();
        Cause::PeerLost { rank, host, how }
    }

    /// Converts an abort record to a cause.
    pub(crate) fn abort_cause(&self, record: AbortRecord) -> Cause {
        let by = record.by;
        let cause = match record.reason {
            AbortReason::Lost(Loss { rank, how }) => (rank.index()
                < self.job().placement.world_size())
            .then(|| self.job_peer_lost(rank, how)),
            _ => record.cause_on(self.own_job_rank()),
        };
        cause.unwrap_or_else(|| {
            Cause::Backend(format!("protocol error: invalid record of rank {by}"))
        })
    }
}
