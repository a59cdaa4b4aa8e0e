//! Whether results are good enough to begin a job. Pure.

use super::document::{PairRow, Row};
use super::table::show_bytes_short;

/// What is not good enough, in words.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Shortfall {
    /// Numbers came out that cannot be right.
    #[error("{wrong} numbers are wrong, the first of them at {size} of {dtype}")]
    Wrong {
        /// Number of wrong values.
        wrong: u64,
        /// The first size that has some.
        size: String,
        /// And its type.
        dtype: String,
    },
    /// Too slow at every size.
    #[error("bus bandwidth is {best_gbs:.2} GB/s at best ({size}), {threshold_gbs} are asked for")]
    Slow {
        /// The best of all sizes.
        best_gbs: f64,
        /// At this one.
        size: String,
        /// What was asked for.
        threshold_gbs: f64,
    },
    /// Too slow between two places.
    #[error(
        "between {left} and {right} there are {gbs:.2} GB/s, {threshold_gbs} are asked for ({count} of {pairs} pairs are below)"
    )]
    SlowPair {
        /// One of the slowest pair.
        left: String,
        /// The other node of the pair.
        right: String,
        /// Between them.
        gbs: f64,
        /// What was asked for.
        threshold_gbs: f64,
        /// Pairs below it.
        count: usize,
        /// Pairs that were measured.
        pairs: usize,
    },
}

/// Numbers must be right.
pub fn check_wrong(rows: &[Row]) -> Result<(), Shortfall> {
    let wrong: u64 = rows.iter().filter_map(|row| row.wrong).sum();
    let first = rows.iter().find(|row| row.wrong.is_some_and(|wrong| 0 < wrong));
    first.map_or(Ok(()), |row| {
        let size = show_bytes_short(row.bytes);
        Err(Shortfall::Wrong { wrong, size, dtype: row.dtype.clone() })
    })
}

/// The best size must reach the threshold, and every pair.
pub fn check_rows(
    rows: &[Row],
    pairs: &[PairRow],
    threshold_gbs: Option<f64>,
) -> Result<(), Shortfall> {
    let Some(threshold_gbs) = threshold_gbs else { return Ok(()) };
    let best = rows.iter().max_by(|left, right| left.busbw_gbs.total_cmp(&right.busbw_gbs));
    if let Some(best) = best.filter(|best| best.busbw_gbs < threshold_gbs) {
        let (best_gbs, size) = (best.busbw_gbs, show_bytes_short(best.bytes));
        return Err(Shortfall::Slow { best_gbs, size, threshold_gbs });
    }
    let below: Vec<_> = pairs.iter().filter(|pair| pair.busbw_gbs < threshold_gbs).collect();
    let slowest = below.iter().min_by(|left, right| left.busbw_gbs.total_cmp(&right.busbw_gbs));
    slowest.map_or(Ok(()), |slowest| {
        Err(Shortfall::SlowPair {
            left: slowest.left.clone(),
            right: slowest.right.clone(),
            gbs: slowest.busbw_gbs,
            threshold_gbs,
            count: below.len(),
            pairs: pairs.len(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(left: &str, right: &str, busbw_gbs: f64) -> PairRow {
        let (left, right) = (left.to_owned(), right.to_owned());
        PairRow { left, right, bytes: 8, time_us: 1.0, busbw_gbs, iterations: None }
    }

    #[test]
    fn a_gate_says_what_is_missing() {
        let row = |bytes, busbw_gbs| Row { busbw_gbs, ..Row::for_test(bytes, 1.0) };
        let rows = [row(8, 0.1), row(1 << 20, 3.0), row(2 << 20, 2.0)];
        assert_eq!(check_rows(&rows, &[], None), Ok(()));
        assert_eq!(check_rows(&rows, &[], Some(3.0)), Ok(()));
        let slow = check_rows(&rows, &[], Some(5.0)).expect_err("it is too slow");
        assert_eq!(slow.to_string(), "bus bandwidth is 3.00 GB/s at best (1M), 5 are asked for");
        let pairs = [pair("n1", "n2", 4.0), pair("n1", "n3", 0.5), pair("n2", "n3", 0.9)];
        let slow = check_rows(&[], &pairs, Some(1.0)).expect_err("it is too slow");
        assert_eq!(
            slow.to_string(),
            "between n1 and n3 there are 0.50 GB/s, 1 are asked for (2 of 3 pairs are below)"
        );
    }

    #[test]
    fn wrong_numbers_are_never_good_enough() {
        let row = |bytes, wrong| Row { wrong: Some(wrong), ..Row::for_test(bytes, 1.0) };
        assert_eq!(check_wrong(&[row(8, 0)]), Ok(()));
        let wrong = check_wrong(&[row(8, 0), row(1024, 2), row(2048, 3)]);
        let text = wrong.expect_err("some are wrong").to_string();
        assert_eq!(text, "5 numbers are wrong, the first of them at 1K of f32");
    }
}
