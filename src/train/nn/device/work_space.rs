//! Work space of the models on a device, as functions of shapes: activations, their gradients, and what the backward
//! pass needs. Pure.
//!
//! Numbers are `f64`, so that the product of any sizes is representable.

use crate::cuda::kernels::{ElementType, RowParts};
use crate::train::nn::device::attention::AttentionMethod;
use crate::train::nn::gpt::{AttentionChoice, GptConfig};

/// Size of an `f32`, and of a token, in bytes.
const NUMBER: f64 = size_of::<f32>() as f64;

/// Rows of activations.
#[derive(Clone, Copy)]
struct RowSizes {
    count: f64,
    element: ElementType,
}

impl RowSizes {
    /// Elements of a row with the padding.
    fn stride(self, width: f64) -> f64 {
        let pack = f64::from(self.element.pack());
        (width / pack).ceil() * pack
    }

    /// Bytes of rows of this width.
    fn bytes(self, width: f64) -> f64 {
        self.count * self.stride(width) * self.element.bytes() as f64
    }

    /// Bytes of the output of a norm, with the statistics of its rows.
    fn norm_bytes(self, width: f64) -> f64 {
        self.bytes(width) + 2.0 * NUMBER * self.count
    }

    /// Sums of parts of the rows for the gradient of a bias of this width.
    fn bias_sums(self, width: f64) -> f64 {
        f64::from(RowParts::of_bias(self.rows()).parts) * self.stride(width)
    }

    /// Sums of parts of the rows for the gradients of a norm.
    fn norm_sums(self, width: f64) -> f64 {
        f64::from(RowParts::of_norm(self.rows()).parts) * 2.0 * width
    }

    /// Number of rows, or the most that a kernel takes.
    fn rows(self) -> u32 {
        self.count.clamp(1.0, f64::from(u32::MAX / 2)) as u32
    }
}

/// Bytes that [`DeviceGpt`](super::gpt::DeviceGpt) allocates for a batch of sequences, if it can compute so. If `recompute` is not 0, the
/// activations of so many blocks are computed again together, and each such group keeps its input.
pub(crate) fn gpt_work_bytes(
    config: &GptConfig,
    (element, attention): (ElementType, AttentionChoice),
    sequences: usize,
    recompute: usize,
) -> f64 {
    let [vocabulary, length, layers, heads, width] =
        [config.vocabulary, config.block, config.layers, config.heads, config.width]
            .map(|size| size as f64);
    let rows = RowSizes { count: sequences as f64 * length, element };
    let (sets, kept_inputs) = match recompute as f64 {
        0.0 => (layers, 0.0),
        group => (layers.min(group), (layers / group).ceil()),
    };
    let method = AttentionMethod::of(config, element, attention);
    let is_flash = method.is_ok_and(AttentionMethod::has_numbers_of_heads);
    let of_heads = if is_flash { NUMBER * rows.count * heads } else { 0.0 };
    // Scores of a head and probabilities.
    let scores =
        if is_flash { 0.0 } else { rows.bytes(length) + NUMBER * rows.count * rows.stride(length) };
    // Attended, the projection, the middle of the residual stream, the output; queries, keys and values; the input and
    // the output of the activation.
    let layers_of_block =
        4.0 * rows.bytes(width) + rows.bytes(3.0 * width) + 2.0 * rows.bytes(4.0 * width);
    let block = 2.0 * rows.norm_bytes(width) + layers_of_block + of_heads;
    // The input of the first block is the embedding.
    let inputs = (sets - 1.0).max(0.0) + (kept_inputs - 1.0).max(0.0);
    let tokens = NUMBER * (4.0 * rows.count + 1.0);
    let ends = 2.0 * rows.bytes(width) + rows.norm_bytes(width) + rows.bytes(vocabulary);
    let losses = NUMBER * rows.count;
    let sums = NUMBER * rows.bias_sums(4.0 * width).max(rows.norm_sums(width));
    let gradients = 2.0 * rows.bytes(width) + rows.bytes(3.0 * width) + rows.bytes(4.0 * width);
    let backward = gradients + of_heads + sums;
    sets * block + inputs * rows.bytes(width) + tokens + ends + losses + backward + scores
}

/// Bytes that [`DeviceMlp`](super::mlp::DeviceMlp) allocates for a batch. `sizes` are its features, from the inputs to
/// the classes.
pub(crate) fn mlp_work_bytes(sizes: &[usize], samples: usize, element: ElementType) -> f64 {
    let rows = RowSizes { count: samples as f64, element };
    let bias = RowSizes { count: 1.0, element };
    let [input, outputs @ ..] = sizes else { return 0.0 };
    let layer = |(index, width): (usize, &usize)| {
        let (width, is_last) = (*width as f64, index + 1 == outputs.len());
        let copies = if is_last { 1.0 } else { 2.0 };
        copies * rows.bytes(width) + bias.bytes(width)
    };
    let layers: f64 = outputs.iter().enumerate().map(layer).sum();
    let sums = outputs.iter().map(|width| rows.bias_sums(*width as f64)).fold(0.0, f64::max);
    rows.bytes(*input as f64) + layers + NUMBER * (2.0 * rows.count + sums)
}
