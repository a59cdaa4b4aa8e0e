//! [`EvenBatches`]: batches of an evaluation, as many on every rank, whose results count each row once.

use crate::runtime::comm::core::error::CollectiveError;
use crate::runtime::comm::group::Group;
use crate::runtime::dtype::element::Element;

/// Plan of an evaluation over `rows` rows: in round `r`, rank `k` evaluates batch `r·world + k` of the
/// sequence of rows.
///
/// Every rank has the same number of batches, all of the same size, so that collectives of a model match.
/// The last round is filled with the first rows; [`Self::gather`] drops their results. Batches and results
/// are those of accelerate with `even_batches` and `gather_for_metrics`.
///
/// ```
/// # use remuda::runtime::{Error, EvenBatches, Group};
/// let sums = Group::on_threads(2, |group| {
///     let batches = EvenBatches::new(7, 3, group.world_size());
///     let mut sum = 0.0;
///     for round in 0..batches.rounds() {
///         let results: Vec<f32> = batches.rows(round, group.rank()).map(|row| row as f32).collect();
///         sum += batches.gather(group, round, &results)?.iter().sum::<f32>();
///     }
///     Ok(sum)
/// })?;
/// assert_eq!(sums, [21.0, 21.0]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvenBatches {
    rows: usize,
    batch: usize,
    world: usize,
}

impl EvenBatches {
    /// Creates the plan for batches of `batch` rows on `world` ranks.
    ///
    /// # Panics
    /// If `batch` or `world` is 0.
    pub fn new(rows: usize, batch: usize, world: usize) -> Self {
        assert!(0 < batch && 0 < world, "a batch has rows, and a group has ranks");
        Self { rows, batch, world }
    }

    /// Returns the number of batches of every rank.
    pub fn rounds(&self) -> usize {
        self.rows.div_ceil(self.per_round())
    }

    /// Iterates over the rows of a rank's batch in a round; after the last row, the first ones follow.
    pub fn rows(&self, round: usize, rank: usize) -> impl Iterator<Item = usize> + use<> {
        let first = round * self.per_round() + rank * self.batch;
        let rows = self.rows;
        (first..first + self.batch).map(move |position| position % rows)
    }

    /// Returns how many rows of a round count: those after them have been added to fill it.
    pub fn counted(&self, round: usize) -> usize {
        self.rows.saturating_sub(round * self.per_round()).min(self.per_round())
    }

    /// Returns the results of all rows of a round, in the order of the rows and without those that were
    /// added. `results` are those of this rank's batch, equally many for each row.
    ///
    /// # Errors
    /// If the operation fails, or the ranks give different numbers of results.
    pub fn gather<T: Element>(
        &self,
        group: &Group,
        round: usize,
        results: &[T],
    ) -> Result<Vec<T>, CollectiveError> {
        let mut gathered = vec![T::zeroed(); results.len() * self.world];
        group.all_gather(results, &mut gathered)?;
        gathered.truncate(self.counted(round) * (results.len() / self.batch));
        Ok(gathered)
    }

    /// Rows of all ranks in a round.
    fn per_round(&self) -> usize {
        self.batch * self.world
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batches of accelerate 1.15, and how many of the last round's rows it keeps.
    #[test]
    fn batches_match_accelerate() {
        #[track_caller]
        fn check(plan: EvenBatches, expect: &[&[&[usize]]], counted: usize) {
            for (rank, batches) in expect.iter().enumerate() {
                let rounds = (0..plan.rounds()).map(|round| plan.rows(round, rank).collect());
                assert_eq!(rounds.collect::<Vec<Vec<usize>>>(), *batches, "rank {rank}");
            }
            assert_eq!(plan.counted(plan.rounds() - 1), counted);
        }
        check(
            EvenBatches::new(10, 3, 2),
            &[&[&[0, 1, 2], &[6, 7, 8]], &[&[3, 4, 5], &[9, 0, 1]]],
            4,
        );
        let seven: [&[&[usize]]; 3] =
            [&[&[0, 1], &[6, 0]], &[&[2, 3], &[1, 2]], &[&[4, 5], &[3, 4]]];
        check(EvenBatches::new(7, 2, 3), &seven, 1);
        let two: [&[&[usize]]; 4] = [&[&[0, 1, 0]], &[&[1, 0, 1]], &[&[0, 1, 0]], &[&[1, 0, 1]]];
        check(EvenBatches::new(2, 3, 4), &two, 2);
    }

    #[test]
    fn counted_rows_are_the_plain_sequence() {
        for (rows, batch, world) in
            (0..26).flat_map(|n| (1..6).flat_map(move |b| (1..6).map(move |w| (n, b, w))))
        {
            let plan = EvenBatches::new(rows, batch, world);
            let mut seen: Vec<usize> = Vec::new();
            for round in 0..plan.rounds() {
                let ranks = (0..world).flat_map(|rank| plan.rows(round, rank));
                let gathered: Vec<usize> = ranks.collect();
                assert_eq!(gathered.len(), batch * world, "{plan:?}");
                assert!(0 < plan.counted(round), "{plan:?}");
                seen.extend_from_slice(&gathered[..plan.counted(round)]);
            }
            assert_eq!(seen, (0..rows).collect::<Vec<_>>(), "{plan:?}");
            assert_eq!(plan.counted(plan.rounds()), 0, "{plan:?}");
        }
    }

    /// Two results for each row.
    #[test]
    fn gathered_results_are_those_of_every_row() {
        let plan = EvenBatches::new(7, 2, 3);
        let gathered = Group::on_threads(3, |group| {
            let mut all = Vec::new();
            for round in 0..plan.rounds() {
                let rows = plan.rows(round, group.rank());
                let results: Vec<i64> = rows.flat_map(|row| [row as i64, -(row as i64)]).collect();
                all.extend(plan.gather(group, round, &results)?);
            }
            Ok(all)
        });
        let expect: Vec<i64> = (0..7).flat_map(|row| [row, -row]).collect();
        assert_eq!(gathered.expect("all ranks succeed"), vec![expect; 3]);
    }
}
