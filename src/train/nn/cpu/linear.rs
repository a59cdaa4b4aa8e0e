//! Gradients of weight matrices, which are sums over all tiles.

use crate::train::ModelFloat;
use crate::train::nn::cpu::simd_matmul::{Matrix, MatrixMut, multiply, multiply_add};
use crate::train::nn::cpu::threads::Threads;

/// Number of elements of a weight gradient that one thread computes at a time, in a block of rows
/// that depends on the shape alone.
const BLOCK_LEN: usize = 128 * 128;

/// Gradient of a weight matrix with `inputs` columns: `weight = Σ over tiles of dyᵀ · x`.
#[derive(Debug)]
pub(crate) struct WeightGradient<'a, F> {
    /// The gradient, of shape outputs × inputs, in row-major order.
    pub(crate) weight: &'a mut [F],
    /// Number of columns of the weight.
    pub(crate) inputs: usize,
    /// For each tile, the gradient of the outputs and the inputs, both with one row per token.
    pub(crate) tiles: Vec<(&'a [F], &'a [F])>,
}

/// Block of rows of a weight gradient.
struct Block<'a, F> {
    rows: &'a mut [F],
    first: usize,
    outputs: usize,
    inputs: usize,
    tiles: &'a [(&'a [F], &'a [F])],
}

/// Computes several weight gradients; threads share the rows.
pub(crate) fn weight_gradients<F: ModelFloat>(
    threads: Threads,
    gradients: &mut [WeightGradient<'_, F>],
) {
    threads.run(gradients.iter_mut().flat_map(blocks), Block::compute);
}

fn blocks<'a, F>(gradient: &'a mut WeightGradient<'_, F>) -> impl Iterator<Item = Block<'a, F>> {
    let WeightGradient { weight, inputs, tiles } = gradient;
    let (inputs, outputs, tiles) = (*inputs, weight.len() / *inputs, tiles.as_slice());
    let height = (BLOCK_LEN / inputs).max(16);
    let rows = weight.chunks_mut(height * inputs).enumerate();
    rows.map(move |(i, rows)| Block { rows, first: i * height, outputs, inputs, tiles })
}

impl<F: ModelFloat> Block<'_, F> {
    fn compute(self) {
        let height = self.rows.len() / self.inputs;
        for (i, (dy, x)) in self.tiles.iter().enumerate() {
            let tokens = x.len() / self.inputs;
            let dy = Matrix::strided(&dy[self.first..], tokens, height, self.outputs).t();
            let x = Matrix::new(x, tokens, self.inputs);
            let rows = MatrixMut::new(self.rows, height, self.inputs);
            match i {
                0 => multiply(rows, dy, x),
                _ => multiply_add(rows, dy, x),
            }
        }
    }
}
