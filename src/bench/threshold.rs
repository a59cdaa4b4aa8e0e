//! Regression threshold: checks whether results are correct and fast enough. Pure.

use super::row::{PairRow, Row};
use super::table::show_bytes_short;

/// Reason why results fail the check.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Shortfall {
    /// Results contain wrong values.
    #[error("{wrong} values are wrong, the first at size {size}, type {dtype}")]
    Wrong {
        /// Number of wrong values.
        wrong: u64,
        /// First size that has some.
        size: String,
        /// Type of that size.
        dtype: String,
    },
    /// The bus bandwidth of every size is below the threshold.
    #[error(
        "bus bandwidth is at most {best_gbs:.2} GB/s (at {size}), below --threshold {threshold_gbs}"
    )]
    Slow {
        /// Largest bus bandwidth of all sizes.
        best_gbs: f64,
        /// Size that has it.
        size: String,
        /// The threshold.
        threshold_gbs: f64,
    },
    /// The bandwidth of a pair is below the threshold.
    #[error(
        "bandwidth between {left} and {right} is {gbs:.2} GB/s, below --threshold {threshold_gbs} ({count} of {pairs} pairs are below)"
    )]
    SlowPair {
        /// One side of the slowest pair.
        left: String,
        /// The other side.
        right: String,
        /// Bandwidth of the slowest pair.
        gbs: f64,
        /// The threshold.
        threshold_gbs: f64,
        /// Number of pairs below it.
        count: usize,
        /// Number of measured pairs.
        pairs: usize,
    },
}

/// Shows a size with its unit: `64 B`, `1M`.
fn show_size(bytes: u64) -> String {
    let text = show_bytes_short(bytes);
    if text.ends_with(|c: char| c.is_ascii_digit()) { format!("{text} B") } else { text }
}

/// Checks that no value is wrong.
pub fn check_wrong(rows: &[Row]) -> Result<(), Shortfall> {
    let wrong: u64 = rows.iter().filter_map(|row| row.wrong).sum();
    let first = rows.iter().find(|row| row.wrong.is_some_and(|wrong| 0 < wrong));
    first.map_or(Ok(()), |row| {
        let size = show_size(row.bytes);
        Err(Shortfall::Wrong { wrong, size, dtype: row.dtype.clone() })
    })
}

/// Checks that the largest bus bandwidth of all sizes, and that of every pair, reach the threshold.
pub fn check_threshold(
    rows: &[Row],
    pairs: &[PairRow],
    threshold_gbs: Option<f64>,
) -> Result<(), Shortfall> {
    let Some(threshold_gbs) = threshold_gbs else { return Ok(()) };
    let best = rows.iter().max_by(|left, right| left.busbw_gbs.total_cmp(&right.busbw_gbs));
    if let Some(best) = best.filter(|best| best.busbw_gbs < threshold_gbs) {
        let (best_gbs, size) = (best.busbw_gbs, show_size(best.bytes));
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
    fn threshold_error_shows_bandwidth_and_limit() {
        let row = |bytes, busbw_gbs| Row { busbw_gbs, ..Row::for_test(bytes, 1.0) };
        let rows = [row(8, 0.1), row(1 << 20, 3.0), row(2 << 20, 2.0)];
        assert_eq!(check_threshold(&rows, &[], None), Ok(()));
        assert_eq!(check_threshold(&rows, &[], Some(3.0)), Ok(()));
        let slow = check_threshold(&rows, &[], Some(5.0)).expect_err("below the threshold");
        let expect = "bus bandwidth is at most 3.00 GB/s (at 1M), below --threshold 5";
        assert_eq!(slow.to_string(), expect);
        let slow = check_threshold(&rows[..1], &[], Some(5.0)).expect_err("below the threshold");
        let expect = "bus bandwidth is at most 0.10 GB/s (at 8 B), below --threshold 5";
        assert_eq!(slow.to_string(), expect);
        let pairs = [pair("n1", "n2", 4.0), pair("n1", "n3", 0.5), pair("n2", "n3", 0.9)];
        let slow = check_threshold(&[], &pairs, Some(1.0)).expect_err("below the threshold");
        assert_eq!(
            slow.to_string(),
            "bandwidth between n1 and n3 is 0.50 GB/s, below --threshold 1 (2 of 3 pairs are below)"
        );
    }

    #[test]
    fn wrong_values_fail_the_check() {
        let row = |bytes, wrong| Row { wrong: Some(wrong), ..Row::for_test(bytes, 1.0) };
        assert_eq!(check_wrong(&[row(8, 0)]), Ok(()));
        let wrong = check_wrong(&[row(8, 0), row(1024, 2), row(2048, 3)]);
        let text = wrong.expect_err("some are wrong").to_string();
        assert_eq!(text, "5 values are wrong, the first at size 1K, type f32");
    }
}
