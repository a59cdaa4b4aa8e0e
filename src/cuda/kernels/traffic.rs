//! [`KernelTraffic`]: bytes that a launch reads and writes, as functions of shapes. Pure.
//!
//! A byte counts once as read and once as written, however often a launch touches it: what it reads again, or has
//! written before it reads it, is in a cache or in a register. So the number is what a kernel that is limited by memory has
//! to move, and divided by its time it can be compared with the bandwidth of a copy. The emulated device of the tests
//! counts the same bytes.
//!
//! Bytes of a step of GPT-2 with 124 M parameters in bf16, of 64 sequences of 1024 tokens, where A is an activation: tokens ·
//! features · 2 bytes, 100.7 MB. The test of this file holds each row to 5 %.
//!
//! | kernel | bytes | because |
//! |---|---|---|
//! | `embed` | A + 2 bytes for each feature of a different token | tokens that occur again are in a cache: 2 A is the most |
//! | `norm_forward` | 2 A | |
//! | `residual_norm_forward` | 4 A | the sum is written, and read back from a cache |
//! | `norm_backward` | 4 A | with the gradient of the skip connection |
//! | `activation_forward`, `activation_backward` | 8 A, 12 A | four times as wide |
//! | `bias_backward` | A · width / features | 9 A for the four biases of a layer |
//! | `attention_delta` | 2 A | |
//! | `attention_forward` | 4 A | |
//! | `attention_backward_kv`, `attention_backward_q` | 6 A, 5 A | |
//! | `classifier` | 2 · tokens · words · 2 bytes | the second reading is from a cache |
//! | `embed_backward_positions` | A | |
//! | `embed_backward_tokens` | A + 8 bytes for each feature of a different token | the gradient of the table is f32, and is added to |
//! | `block_squares` | 4 bytes of a parameter | |
//! | `adam` | 30 bytes of a parameter | f32: parameter, two means, gradient; bf16: copy |

use crate::cuda::kernels::launch::{AttentionShape, RowParts};
use crate::cuda::kernels::program::ElementType;

/// Bytes of `f32` and `u32`.
const WORD: u64 = 4;
/// Bytes of `f64` and `u64`.
const DOUBLE: u64 = 8;
/// Bytes that an optimizer reads of the decision on a step: factor, and whether the gradient is finite.
const DECISION: u64 = 2 * WORD;

/// Different bytes that a launch reads from memory, and that it writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelTraffic {
    /// Bytes that are read before the launch has written them.
    pub read: u64,
    /// Bytes that are written.
    pub written: u64,
}

/// Rows of features, as activations have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowShape {
    /// Number of rows.
    pub rows: u32,
    /// Elements of a row.
    pub width: u32,
    /// Type of the elements.
    pub element: ElementType,
}

/// Tokens of a batch, as the kernels of embeddings have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenShape {
    /// Sequences.
    pub batch: u32,
    /// Tokens of a sequence.
    pub length: u32,
    /// Different tokens.
    pub different: u32,
    /// Features of a token.
    pub width: u32,
    /// Type of the features.
    pub element: ElementType,
}

impl RowShape {
    fn elements(self) -> u64 {
        u64::from(self.rows) * u64::from(self.width)
    }

    fn bytes(self) -> u64 {
        self.elements() * self.element.bytes() as u64
    }

    /// Elements of the packs that the tokens of sequences of this width see, and all with the padding.
    fn causal_elements(self) -> (u64, u64) {
        let Self { rows, width, element } = self;
        let padded = |count: u32| u64::from(count.next_multiple_of(element.pack()));
        let sequences = u64::from(rows / width);
        (sequences * (1..=width).map(padded).sum::<u64>(), u64::from(rows) * padded(width))
    }

    fn bytes_of_row(self) -> u64 {
        u64::from(self.width) * self.element.bytes() as u64
    }
}

impl TokenShape {
    fn tokens(self) -> u64 {
        u64::from(self.batch) * u64::from(self.length)
    }

    /// Bytes of the features of some rows, in the type of the model.
    fn bytes(self, rows: u64) -> u64 {
        rows * u64::from(self.width) * self.element.bytes() as u64
    }

    /// The same in f32.
    fn floats(self, rows: u32) -> u64 {
        u64::from(rows) * u64::from(self.width) * WORD
    }
}

impl KernelTraffic {
    /// Returns bytes read and written together.
    pub fn bytes(self) -> u64 {
        self.read + self.written
    }

    /// `activation_forward`.
    pub fn activation_forward(shape: RowShape) -> Self {
        Self { read: shape.bytes(), written: shape.bytes() }
    }

    /// `activation_backward`.
    pub fn activation_backward(shape: RowShape) -> Self {
        Self { read: 2 * shape.bytes(), written: shape.bytes() }
    }

    /// `bias_activation` with an output of its own, or in place.
    pub fn bias_activation(shape: RowShape, is_in_place: bool) -> Self {
        let written = shape.bytes() * if is_in_place { 1 } else { 2 };
        Self { read: shape.bytes() + shape.bytes_of_row(), written }
    }

    /// `classifier`, where the width is that with the padding.
    pub fn classifier(shape: RowShape) -> Self {
        let losses = u64::from(shape.rows) * WORD;
        Self { read: shape.bytes() + losses + WORD, written: shape.bytes() + losses }
    }

    /// `narrow_all`.
    pub fn narrow_all(shape: RowShape) -> Self {
        Self { read: shape.elements() * WORD, written: shape.bytes() }
    }

    /// `widen_all`.
    pub fn widen_all(shape: RowShape) -> Self {
        Self { read: shape.bytes(), written: shape.elements() * WORD }
    }

    /// `embed`.
    pub fn embed(shape: TokenShape) -> Self {
        let tables = shape.bytes(u64::from(shape.different) + u64::from(shape.length));
        Self { read: shape.tokens() * WORD + tables, written: shape.bytes(shape.tokens()) }
    }

    /// `embed_backward_positions`.
    pub fn embed_backward_positions(shape: TokenShape) -> Self {
        Self { read: shape.bytes(shape.tokens()), written: shape.floats(shape.length) }
    }

    /// `embed_backward_tokens`.
    pub fn embed_backward_tokens(shape: TokenShape) -> Self {
        let different = u64::from(shape.different);
        // The order of the rows, the first row of each token and the end, and the tokens of those rows.
        let indices = (shape.tokens() + different + 1 + different) * WORD;
        let table = shape.floats(shape.different);
        Self { read: shape.bytes(shape.tokens()) + indices + table, written: table }
    }

    /// `bias_backward`.
    pub fn bias_backward(shape: RowShape) -> Self {
        let parts = u64::from(RowParts::of_bias(shape.rows).parts);
        Self { read: shape.bytes(), written: parts * u64::from(shape.width) * WORD }
    }

    /// `fold` of so many parts.
    pub fn fold(parts: u32, columns: u32) -> Self {
        let written = u64::from(columns) * WORD;
        Self { read: u64::from(parts) * written, written }
    }

    /// `add_older` of so many numbers.
    pub fn add_older(count: u64) -> Self {
        Self { read: 2 * count * WORD, written: count * WORD }
    }

    /// `divide_all` of so many numbers.
    pub fn divide_all(count: u64) -> Self {
        Self { read: count * WORD, written: count * WORD }
    }

    /// `norm_forward`, with a bias.
    pub fn norm_forward(shape: RowShape) -> Self {
        let statistics = 2 * u64::from(shape.rows) * WORD;
        let read = shape.bytes() + 2 * shape.bytes_of_row();
        Self { read, written: shape.bytes() + statistics }
    }

    /// `residual_norm_forward`, with a bias.
    pub fn residual_norm_forward(shape: RowShape) -> Self {
        let norm = Self::norm_forward(shape);
        Self { read: norm.read + shape.bytes(), written: norm.written + shape.bytes() }
    }

    /// `norm_backward`, with the gradient of a skip connection.
    pub fn norm_backward(shape: RowShape) -> Self {
        let statistics = 2 * u64::from(shape.rows) * WORD;
        let parts = u64::from(RowParts::of_norm(shape.rows).parts);
        Self {
            read: 3 * shape.bytes() + shape.bytes_of_row() + statistics,
            written: shape.bytes() + parts * 2 * u64::from(shape.width) * WORD,
        }
    }

    /// `causal_softmax` of as many rows as there are tokens, whose width is the length of a sequence.
    pub fn causal_softmax(shape: RowShape) -> Self {
        let (seen, all) = shape.causal_elements();
        Self { read: seen * WORD, written: all * shape.element.bytes() as u64 }
    }

    /// `causal_softmax_backward` of the same.
    pub fn causal_softmax_backward(shape: RowShape) -> Self {
        let (seen, _) = shape.causal_elements();
        let bytes = seen * shape.element.bytes() as u64;
        Self { read: seen * WORD + bytes, written: bytes }
    }

    /// `block_squares` of so many numbers.
    pub fn block_squares(count: u64) -> Self {
        Self { read: count * WORD, written: count.div_ceil(1024) * DOUBLE }
    }

    /// `fold_squares` of so many sums.
    pub fn fold_squares(count: u64) -> Self {
        Self { read: count * DOUBLE, written: count.div_ceil(32) * DOUBLE }
    }

    /// `adam` of so many parameters, whose weight decay has so many ranges.
    pub fn adam(count: u64, ranges: u64, element: ElementType) -> Self {
        let numbers = 6 * WORD;
        let of_all = Self::optimizer(count, 2, ranges, element);
        Self { read: of_all.read + numbers, ..of_all }
    }

    /// `sgd` with momentum.
    pub fn sgd(count: u64, ranges: u64, element: ElementType) -> Self {
        let of_all = Self::optimizer(count, 1, ranges, element);
        // The number of steps, of which the first one has no momentum.
        Self { read: of_all.read + DOUBLE, ..of_all }
    }

    /// `lion`.
    pub fn lion(count: u64, ranges: u64, element: ElementType) -> Self {
        Self::optimizer(count, 1, ranges, element)
    }

    /// Parameters with so many states each; models of 16 bits have a copy.
    fn optimizer(count: u64, states: u64, ranges: u64, element: ElementType) -> Self {
        let copy = if element == ElementType::F32 { 0 } else { element.bytes() as u64 };
        Self {
            read: count * (2 + states) * WORD + ranges * DOUBLE + DECISION,
            written: count * ((1 + states) * WORD + copy),
        }
    }
}

impl AttentionShape {
    /// Bytes of the features of all tokens: of the queries, for example.
    fn bytes(self) -> u64 {
        u64::from(self.rows()) * u64::from(self.width.features()) * 2
    }

    /// Bytes of a number for each query.
    fn statistics(self) -> u64 {
        u64::from(self.rows()) * WORD
    }

    /// Returns the bytes of `attention_forward`.
    pub fn forward_traffic(self) -> KernelTraffic {
        KernelTraffic { read: 3 * self.bytes(), written: self.bytes() + self.statistics() }
    }

    /// Returns the bytes of `attention_delta`.
    pub fn delta_traffic(self) -> KernelTraffic {
        KernelTraffic { read: 2 * self.bytes(), written: self.statistics() }
    }

    /// Returns the bytes of `attention_backward_kv`.
    pub fn backward_kv_traffic(self) -> KernelTraffic {
        KernelTraffic { read: self.backward_inputs(), written: 2 * self.bytes() }
    }

    /// Returns the bytes of `attention_backward_q`.
    pub fn backward_q_traffic(self) -> KernelTraffic {
        KernelTraffic { read: self.backward_inputs(), written: self.bytes() }
    }

    /// Queries, keys, values and the gradient of the output; two statistics.
    fn backward_inputs(self) -> u64 {
        4 * self.bytes() + 2 * self.statistics()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::kernels::program::{HalfType, HeadWidth};

    const BF16: ElementType = ElementType::Half(HalfType::Bf16);
    const PARAMETERS: u64 = 124_475_904;

    #[track_caller]
    fn check(found: KernelTraffic, expected: f64) {
        let ratio = found.bytes() as f64 / expected;
        assert!((ratio - 1.0).abs() < 0.05, "{found:?} is {ratio:.3} of {expected:.3e} bytes");
    }

    #[test]
    fn traffic_of_gpt2_is_that_of_the_table() {
        let rows = |width| RowShape { rows: 65_536, width, element: BF16 };
        let tokens = |different| TokenShape {
            batch: 64,
            length: 1024,
            different,
            width: 768,
            element: BF16,
        };
        let activation = rows(768).bytes() as f64;
        let features = |bytes: f64, different: f64| bytes * 768.0 * different;
        check(KernelTraffic::embed(tokens(65_536)), 2.0 * activation);
        check(KernelTraffic::embed(tokens(9000)), activation + features(2.0, 9000.0));
        check(KernelTraffic::norm_forward(rows(768)), 2.0 * activation);
        check(KernelTraffic::residual_norm_forward(rows(768)), 4.0 * activation);
        check(KernelTraffic::norm_backward(rows(768)), 4.0 * activation);
        check(KernelTraffic::activation_forward(rows(3072)), 8.0 * activation);
        check(KernelTraffic::activation_backward(rows(3072)), 12.0 * activation);
        let biases = [2304, 768, 3072, 768].map(|width| KernelTraffic::bias_backward(rows(width)));
        let read = biases.map(|bias| bias.read).iter().sum();
        let written = biases.map(|bias| bias.written).iter().sum();
        check(KernelTraffic { read, written }, 9.0 * activation);
        check(KernelTraffic::classifier(rows(50_304)), 13.2e9);
        check(KernelTraffic::embed_backward_positions(tokens(9000)), activation);
        let gradient = KernelTraffic::embed_backward_tokens(tokens(9000));
        check(gradient, activation + features(8.0, 9000.0));
        check(KernelTraffic::block_squares(PARAMETERS), 498e6);
        check(KernelTraffic::adam(PARAMETERS, 50, BF16), 30.0 * PARAMETERS as f64);
        let layer = AttentionShape { batch: 64, length: 1024, heads: 12, width: HeadWidth::W64 };
        check(layer.delta_traffic(), 2.0 * activation);
        check(layer.forward_traffic(), 4.0 * activation);
        check(layer.backward_kv_traffic(), 6.0 * activation);
        check(layer.backward_q_traffic(), 5.0 * activation);
    }
}
