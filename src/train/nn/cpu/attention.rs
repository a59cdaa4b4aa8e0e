//! Causal self-attention of one sequence, forward and backward.

use crate::train::ModelFloat;
use crate::train::nn::cpu::kernels::{causal_softmax, causal_softmax_backward};
use crate::train::nn::cpu::simd_matmul::{Matrix, MatrixMut, multiply};

/// Number of queries processed together; keys after the last of them are never read.
const BLOCK: usize = 64;

/// Sizes of one attention layer for one sequence.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attention {
    /// Number of tokens of the sequence.
    pub(crate) length: usize,
    /// Number of heads of the layer.
    pub(crate) heads: usize,
    /// Number of features of a token, over all heads.
    pub(crate) width: usize,
}

impl Attention {
    fn head_width(self) -> usize {
        self.width / self.heads
    }

    fn scale<F: ModelFloat>(self) -> F {
        F::ONE / F::from_f64(self.head_width() as f64).sqrt()
    }

    /// Blocks of tokens, as (first, count).
    fn blocks(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.length).step_by(BLOCK).map(move |first| (first, BLOCK.min(self.length - first)))
    }

    /// Matrix of the tokens `first..first + count` of head `head`, in a buffer with `parts` · width
    /// features per token (query, key and value are the parts 0, 1 and 2).
    fn head<F>(
        self,
        data: &[F],
        (parts, part): (usize, usize),
        head: usize,
        (first, count): (usize, usize),
    ) -> Matrix<'_, F> {
        let stride = parts * self.width;
        let begin = first * stride + part * self.width + head * self.head_width();
        Matrix::strided(&data[begin..], count, self.head_width(), stride)
    }

    /// Mutable matrix of the same tokens.
    fn head_mut<F>(
        self,
        data: &mut [F],
        (parts, part): (usize, usize),
        head: usize,
        (first, count): (usize, usize),
    ) -> MatrixMut<'_, F> {
        let stride = parts * self.width;
        let begin = first * stride + part * self.width + head * self.head_width();
        MatrixMut::strided(&mut data[begin..], count, self.head_width(), stride)
    }

    /// Forward pass. `qkv` has the shape length × 3 · width, `output` the shape length × width;
    /// `probs` receives the attention probabilities, one matrix of length × length per head.
    pub(crate) fn forward<F: ModelFloat>(self, qkv: &[F], probs: &mut [F], output: &mut [F]) {
        for (head, probs) in probs.chunks_exact_mut(self.length * self.length).enumerate() {
            for (first, count) in self.blocks() {
                let visible = (0, first + count);
                let queries = self.head(qkv, QUERY, head, (first, count));
                let rows = &mut probs[first * self.length..][..count * self.length];
                let scores = MatrixMut::strided(rows, count, visible.1, self.length);
                multiply(scores, queries, self.head(qkv, KEY, head, visible).t());
                causal_softmax(rows, self.length, first, self.scale());
                let probs = Matrix::strided(rows, count, visible.1, self.length);
                let output = self.head_mut(output, WHOLE, head, (first, count));
                multiply(output, probs, self.head(qkv, VALUE, head, visible));
            }
        }
    }

    /// Backward pass: computes the gradient of queries, keys and values from that of the
    /// output. `scratch` has room for the matrix of one head; its content is undefined afterwards.
    pub(crate) fn backward<F: ModelFloat>(
        self,
        qkv: &[F],
        probs: &[F],
        doutput: &[F],
        dqkv: &mut [F],
        scratch: &mut [F],
    ) {
        for (head, probs) in probs.chunks_exact(self.length * self.length).enumerate() {
            for (first, count) in self.blocks() {
                self.queries_backward(qkv, probs, doutput, dqkv, scratch, head, (first, count));
            }
            for (first, count) in self.blocks() {
                self.keys_backward(qkv, probs, doutput, dqkv, scratch, head, (first, count));
            }
        }
    }

    /// Converts rows of `scratch` to the gradient of the scores, and computes the gradient of their
    /// queries.
    #[expect(clippy::too_many_arguments, reason = "the operands of one formula")]
    fn queries_backward<F: ModelFloat>(
        self,
        qkv: &[F],
        probs: &[F],
        doutput: &[F],
        dqkv: &mut [F],
        scratch: &mut [F],
        head: usize,
        (first, count): (usize, usize),
    ) {
        let (begin, len) = (first * self.length, count * self.length);
        let visible = (0, first + count);
        let rows = &mut scratch[begin..][..len];
        let dprobs = MatrixMut::strided(rows, count, visible.1, self.length);
        let doutput = self.head(doutput, WHOLE, head, (first, count));
        multiply(dprobs, doutput, self.head(qkv, VALUE, head, visible).t());
        causal_softmax_backward(rows, &probs[begin..][..len], self.length, self.scale());
        let dscores = Matrix::strided(rows, count, visible.1, self.length);
        let dqueries = self.head_mut(dqkv, QUERY, head, (first, count));
        multiply(dqueries, dscores, self.head(qkv, KEY, head, visible));
    }

    /// Computes the gradient of the keys and values of a block from all queries at or after it.
    #[expect(clippy::too_many_arguments, reason = "the operands of one formula")]
    fn keys_backward<F: ModelFloat>(
        self,
        qkv: &[F],
        probs: &[F],
        doutput: &[F],
        dqkv: &mut [F],
        dscores: &[F],
        head: usize,
        (first, count): (usize, usize),
    ) {
        let later = (first, self.length - first);
        let corner = first * self.length + first;
        let window = |data| Matrix::strided(data, later.1, count, self.length).t();
        let dkeys = self.head_mut(dqkv, KEY, head, (first, count));
        multiply(dkeys, window(&dscores[corner..]), self.head(qkv, QUERY, head, later));
        let dvalues = self.head_mut(dqkv, VALUE, head, (first, count));
        multiply(dvalues, window(&probs[corner..]), self.head(doutput, WHOLE, head, later));
    }
}

/// Layout of a buffer with one part, as (parts, part).
const WHOLE: (usize, usize) = (1, 0);
const QUERY: (usize, usize) = (3, 0);
const KEY: (usize, usize) = (3, 1);
const VALUE: (usize, usize) = (3, 2);
