//! Norms of flat buffers, computed over fixed blocks so that their bits do not depend on shards or
//! threads.

use crate::runtime::dtype::element::GradientElement;
use crate::runtime::schedule::tree::split;

/// Number of elements of a block.
pub(crate) const NORM_BLOCK: usize = 1024;
/// Number of independent sums in a block, so that the compiler can vectorize them.
const COLUMNS: usize = 8;

/// Returns the sum of squares in f64. The squares of a block are summed in eight columns; columns and
/// blocks are summed in the order of the canonical tree.
pub fn sum_of_squares<T: GradientElement>(flat: &[T]) -> f64 {
    fold_block_sums(&block_sums(flat))
}

/// Returns the sums of squares of the blocks of a slice that begins with a block.
pub(crate) fn block_sums<T: GradientElement>(flat: &[T]) -> Vec<f64> {
    flat.chunks(NORM_BLOCK).map(block_sum).collect()
}

/// Adds the sums of blocks in the order of the canonical tree.
pub(crate) fn fold_block_sums(sums: &[f64]) -> f64 {
    tree_sum(sums)
}

/// Returns the Euclidean norm.
pub fn global_norm<T: GradientElement>(flat: &[T]) -> f64 {
    sum_of_squares(flat).sqrt()
}

/// Scales the gradient down to the norm `norm_max` if its norm is larger, as torch does; returns the norm
/// before scaling.
pub fn clip_grad_norm<T: GradientElement>(flat: &mut [T], norm_max: f64) -> f64 {
    let norm = global_norm(flat);
    let factor = norm_max / (norm + 1e-6);
    if factor < 1.0 {
        let factor = T::from_f64(factor);
        for value in flat {
            *value = value.times(factor);
        }
    }
    norm
}

fn block_sum<T: GradientElement>(block: &[T]) -> f64 {
    let mut columns = [0.0; COLUMNS];
    let rows = block.chunks_exact(COLUMNS);
    for (column, value) in columns.iter_mut().zip(rows.remainder()) {
        *column = value.to_f64() * value.to_f64();
    }
    for row in rows {
        for (column, value) in columns.iter_mut().zip(row) {
            *column += value.to_f64() * value.to_f64();
        }
    }
    tree_sum(&columns)
}

fn tree_sum(values: &[f64]) -> f64 {
    match values {
        [] => 0.0,
        [value] => *value,
        _ => {
            let (left, right) = values.split_at(split(values.len()));
            tree_sum(left) + tree_sum(right)
        }
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "these results are exact")]
mod tests {
    use super::*;

    #[test]
    fn global_norm_matches_the_definition() {
        assert_eq!(global_norm(&[3.0f32, 4.0]), 5.0);
        assert_eq!(sum_of_squares::<f64>(&[]), 0.0);
        let ones = vec![1.0f32; 3 * NORM_BLOCK + 17];
        assert_eq!(sum_of_squares(&ones), ones.len() as f64);
    }

    #[test]
    fn clip_grad_norm_never_lengthens() {
        let mut gradient = [3.0f64, 4.0];
        assert_eq!(clip_grad_norm(&mut gradient, 10.0), 5.0);
        assert_eq!(gradient, [3.0, 4.0]);
        assert_eq!(clip_grad_norm(&mut gradient, 1.0), 5.0);
        assert!((global_norm(&gradient) - 1.0).abs() < 1e-6);
    }
}
