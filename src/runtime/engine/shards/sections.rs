//! [`OwnSections`]: the part of every unit that a rank updates, and what saving, restoring, norms and weight decay
//! make of it. A rank in host memory and one on a device differ in where the numbers are.

use std::borrow::Cow;
use std::ops::Range;

use crate::runtime::comm::group::Group;
use crate::runtime::engine::error::EngineError;
use crate::runtime::engine::parameters::{Parameter, ParameterTable};
use crate::runtime::engine::state::{NeededRange, ReadState, ReplicaState, Section, StatePiece};
use crate::runtime::flat::norm::fold_block_sums;
use crate::runtime::optim::DecayRange;
use crate::runtime::parallel::zero::shard_ranges::{NORM_BLOCK, ShardLayout};
use crate::runtime::parallel::zero::stage::Sharding;

/// How the units of a model are divided over the ranks of a group.
#[derive(Clone)]
pub(crate) struct OwnedParts {
    pub(crate) group: Group,
    pub(crate) layout: ShardLayout,
    pub(crate) sharding: Sharding,
}

impl OwnedParts {
    /// Part of a unit that this rank updates.
    pub(crate) fn own_range(&self, unit: usize) -> Range<usize> {
        let shards = &self.layout.units()[unit];
        if self.sharding.divides_optimizer() {
            shards.owned(self.group.rank())
        } else {
            0..shards.len
        }
    }

    fn units(&self) -> Range<usize> {
        0..self.layout.units().len()
    }

    /// Whether ranks have different parts of the gradient, so that its norm needs the sums of all of them.
    #[cfg(feature = "nccl")]
    pub(crate) fn are_divided(&self) -> bool {
        self.sharding.divides_optimizer() && 1 < self.group.world_size()
    }

    /// Sum of the squares of the mean gradient, from the sums of the blocks of this rank's part of every unit.
    /// Communicates.
    pub(crate) fn sum_of_squares(
        &self,
        of_units: impl IntoIterator<Item = Vec<f64>>,
    ) -> Result<f64, EngineError> {
        let mut own = Vec::new();
        for (unit, sums) in of_units.into_iter().enumerate() {
            let begin = own.len();
            own.extend(sums);
            if self.sharding.divides_optimizer() {
                // Parts of all ranks are equally long.
                own.resize(begin + self.layout.units()[unit].shard_len / NORM_BLOCK, 0.0);
            }
        }
        if !self.sharding.divides_optimizer() {
            return Ok(fold_block_sums(&own));
        }
        let mut all = vec![0.0; own.len() * self.group.world_size()];
        self.group.all_gather(&own, &mut all)?;
        let sums: Vec<f64> = self.layout.block_order().into_iter().map(|at| all[at]).collect();
        Ok(fold_block_sums(&sums))
    }

    /// Ranges of this rank's part of a unit by weight decay, counted from the begin of the part.
    pub(crate) fn decay_ranges(&self, table: &ParameterTable, unit: usize) -> Vec<DecayRange> {
        let own = self.own_range(unit);
        let base = table.units()[unit].range.start;
        let range_of = |parameter: &Parameter| {
            let at = |element: usize| (element - base).clamp(own.start, own.end) - own.start;
            let range = at(parameter.range.start)..at(parameter.range.end);
            DecayRange { range, decays: parameter.decays() }
        };
        let ranges = table.of_unit(unit).iter().map(range_of);
        ranges.filter(|part| !part.range.is_empty()).collect()
    }
}

/// Rank that keeps the sections of its part of every unit.
pub(crate) trait OwnSections: ReplicaState {
    /// Division of the units.
    fn parts(&self) -> &OwnedParts;

    /// Elements of a section of a unit; the range counts from the begin of this rank's part.
    fn read(
        &self,
        unit: usize,
        section: Section,
        range: Range<usize>,
    ) -> Result<Cow<'_, [f32]>, EngineError>;

    /// Replaces a section of this rank's part of a unit.
    fn write(&mut self, unit: usize, section: Section, values: &[f32]) -> Result<(), EngineError>;

    /// The section is not used for a while.
    fn release(&self, unit: usize);

    /// Lets all ranks have the weights that each has replaced in its part. Communicates.
    fn publish(&mut self) -> Result<(), EngineError>;
}

/// Writes initial values of the weights.
pub(crate) fn init_weights(rank: &mut impl OwnSections, seed: u64) -> Result<(), EngineError> {
    let mut values = Vec::new();
    for unit in rank.parts().units() {
        values.resize(rank.parts().layout.units()[unit].len, 0.0);
        rank.table().init_unit(unit, seed, &mut values);
        let own = rank.parts().own_range(unit);
        rank.write(unit, Section::Weights, &values[own])?;
    }
    rank.publish()
}

/// Pieces of the state that a rank saves.
pub(crate) fn state_pieces<R: OwnSections>(rank: &R) -> Result<Vec<StatePiece<'_>>, EngineError> {
    let (parts, table) = (rank.parts(), rank.table());
    let mut pieces = Vec::new();
    for section in rank.sections() {
        for (unit, shards) in parts.layout.units().iter().enumerate() {
            let begin = parts.own_range(unit).start;
            let base = table.units()[unit].range.start;
            for (parameter, range) in table.in_range(unit, &shards.owned(parts.group.rank())) {
                let at = parameter.range.start - base + range.start - begin;
                let values = rank.read(unit, section, at..at + range.len())?;
                pieces.push(StatePiece { parameter, section, range, values });
            }
        }
    }
    Ok(pieces)
}

/// Ranges that [`restore`] reads on a rank, in its order.
pub(crate) fn needed_ranges<R: OwnSections>(rank: &R) -> Vec<NeededRange<'_>> {
    let of_section = |section| {
        let of_unit = move |unit| {
            let own = rank.parts().own_range(unit);
            let parts = rank.table().in_range(unit, &own).into_iter();
            parts.map(move |(parameter, range)| (parameter, section, range))
        };
        rank.parts().units().flat_map(of_unit)
    };
    rank.sections().into_iter().flat_map(of_section).collect()
}

/// Replaces the state. Communicates, also if reading fails on this rank.
pub(crate) fn restore<R: OwnSections, E>(
    rank: &mut R,
    read: &mut ReadState<'_, E>,
) -> Result<Result<(), E>, EngineError> {
    let outcome = restore_own(rank, read)?;
    rank.publish()?;
    Ok(outcome)
}

fn restore_own<R: OwnSections, E>(
    rank: &mut R,
    read: &mut ReadState<'_, E>,
) -> Result<Result<(), E>, EngineError> {
    let mut values = Vec::new();
    for section in rank.sections() {
        for unit in rank.parts().units() {
            let own = rank.parts().own_range(unit);
            values.resize(own.len(), 0.0);
            let base = rank.table().units()[unit].range.start;
            for (parameter, range) in rank.table().in_range(unit, &own) {
                let at = parameter.range.start - base + range.start - own.start;
                let target = &mut values[at..at + range.len()];
                if let Err(error) = read(parameter, section, range, target) {
                    return Ok(Err(error));
                }
            }
            rank.write(unit, section, &values)?;
            rank.release(unit);
        }
    }
    Ok(Ok(()))
}

/// Returns a section of a unit, of all ranks. Communicates.
pub(crate) fn gather_section(
    rank: &impl OwnSections,
    unit: usize,
    section: Section,
) -> Result<Vec<f32>, EngineError> {
    let parts = rank.parts();
    let len = parts.own_range(unit).len();
    let mut padded = rank.read(unit, section, 0..len)?.into_owned();
    rank.release(unit);
    if !parts.sharding.divides_optimizer() {
        return Ok(padded);
    }
    let shards = &parts.layout.units()[unit];
    padded.resize(shards.shard_len, 0.0);
    let mut all = vec![0.0; shards.padded_len()];
    parts.group.all_gather(&padded, &mut all)?;
    Ok(shards.in_order(all))
}
