//! [`UnitGroups`]: the groups of ranks in which units are gathered and reduced.

use crate::runtime::comm::group::Group;
use crate::runtime::error::Result;
use crate::runtime::parallel::zero::shard_ranges::UnitShards;

/// Groups over which the units of a model are divided.
#[derive(Clone)]
pub(crate) struct UnitGroups {
    /// All ranks.
    pub(crate) all: Group,
    /// `None` if no unit is divided over a part of the ranks.
    hybrid: Option<HybridGroups>,
}

/// The groups of a rank where units are divided over a part of the ranks.
#[derive(Clone)]
pub(crate) struct HybridGroups {
    /// Ranks whose parts are a unit, in the order of the parts.
    pub(crate) shard_group: Group,
    /// Ranks that hold the same part, in the order of its shards.
    pub(crate) copies: Group,
}

impl UnitGroups {
    /// Creates the groups for shard groups of `size` successive ranks. Communicates if that is less than all.
    pub(crate) fn new(all: &Group, size: Option<usize>) -> Result<Self> {
        let world = all.world_size();
        let hybrid = match size.filter(|size| *size < world) {
            Some(size) => {
                let rank = all.rank();
                let shard_group = all.split(rank / size, rank)?.expect("each rank has a color");
                let copies = all.split(rank % size, rank)?.expect("each rank has a color");
                Some(HybridGroups { shard_group, copies })
            }
            None => None,
        };
        Ok(Self { all: all.clone(), hybrid })
    }

    /// The groups of units that are divided over a part of the ranks, if there are some.
    #[cfg(feature = "nccl")]
    pub(crate) fn hybrid(&self) -> Option<&HybridGroups> {
        self.hybrid.as_ref()
    }

    /// The group whose ranks hold the parts of a unit.
    pub(crate) fn of_parts(&self, unit: &UnitShards) -> &Group {
        self.hybrid_of(unit).map_or(&self.all, |hybrid| &hybrid.shard_group)
    }

    /// The groups of a unit that is divided over a part of the ranks.
    pub(crate) fn hybrid_of(&self, unit: &UnitShards) -> Option<&HybridGroups> {
        let is_hybrid = unit.is_hybrid();
        is_hybrid.then(|| self.hybrid.as_ref().expect("a hybrid unit has its groups"))
    }
}
