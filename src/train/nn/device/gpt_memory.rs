//! Memory of a GPT on a device, for batches of one shape.

use crate::cuda::device::{Device, DeviceError, DeviceMemory, StreamId};
use crate::cuda::kernels::{AttentionShape, ElementType};
use crate::train::nn::device::attention::DeviceAttention;
use crate::train::nn::device::norm::{NormRows, norm_partial_sums};
use crate::train::nn::device::operations::partial_sums;
use crate::train::nn::device::rows::DeviceRows;
use crate::train::nn::device::tokens::Tokens;
use crate::train::nn::gpt::GptConfig;
use crate::train::nn::gpt::places::{BlockBuffers, BlockPlace};

/// Activations, and buffers of the backward pass.
pub(super) struct GptMemory {
    pub(super) tokens: Tokens,
    /// Begin of the residual stream.
    pub(super) embedded: DeviceRows,
    /// Activations by slot; blocks whose activations are computed again share them.
    blocks: Vec<BlockMemory>,
    places: Vec<BlockPlace>,
    /// Inputs of the segments whose activations are computed again; that of the first block is `embedded`.
    kept_inputs: Vec<Option<DeviceRows>>,
    /// End of the residual stream.
    pub(super) residual: DeviceRows,
    pub(super) final_norm: NormRows,
    /// Logits; their gradients, once the loss is computed.
    pub(super) logits: DeviceRows,
    /// Loss of each token, f32.
    pub(super) losses: Box<dyn DeviceMemory>,
    pub(super) gradients: BackwardBuffers,
    pub(super) attention: DeviceAttention,
}

/// Activations of a block.
pub(super) struct BlockMemory {
    /// Input: the residual stream, unless it is kept elsewhere.
    input: Option<DeviceRows>,
    pub(super) attention_norm: NormRows,
    pub(super) qkv: DeviceRows,
    /// Output of the attention.
    pub(super) attended: DeviceRows,
    /// Logarithms of the sums of the attention, f32.
    pub(super) lse: Box<dyn DeviceMemory>,
    pub(super) proj: DeviceRows,
    /// The residual stream after the attention.
    pub(super) middle: DeviceRows,
    pub(super) mlp_norm: NormRows,
    /// Input of the activation.
    pub(super) up: DeviceRows,
    /// Output of the activation.
    pub(super) active: DeviceRows,
    pub(super) down: DeviceRows,
}

/// Buffers of the backward pass, which all blocks use.
pub(super) struct BackwardBuffers {
    /// Gradient of the residual stream.
    pub(super) residual: DeviceRows,
    /// Gradients of a norm's output, or of the attention's.
    pub(super) narrow: DeviceRows,
    pub(super) qkv: DeviceRows,
    pub(super) wide: DeviceRows,
    /// A number for each head of each token, f32.
    pub(super) delta: Box<dyn DeviceMemory>,
    /// Sums of parts of the rows, f32.
    pub(super) partial: Box<dyn DeviceMemory>,
}

impl GptMemory {
    /// Allocates the memory for the sequences of `attention`.
    pub(super) fn new(
        device: &dyn Device,
        stream: StreamId,
        config: &GptConfig,
        attention: DeviceAttention,
        places: &[BlockPlace],
    ) -> Result<Self, DeviceError> {
        let AttentionShape { batch, length, heads, .. } = attention.shape;
        let (count, element) = (batch * length, ElementType::Half(attention.half));
        let rows = |width: usize| DeviceRows::zeros(device, stream, (count, width as u32), element);
        let numbers = |count: usize| device.alloc(count * size_of::<f32>());
        let width = config.width;
        let norm = || NormRows::new(device, rows(width)?);
        let heads_of_all = (count * heads) as usize;
        let BlockBuffers { slots, kept_inputs } = BlockBuffers::of(places);
        let has_input = |slot: usize| {
            let mut later = places.iter().skip(1);
            later.any(|place| place.slot == slot && place.kept_input.is_none())
        };
        let is_embedded = |kept: usize| places[0].kept_input == Some(kept);
        let kept_input = |kept: usize| (!is_embedded(kept)).then(|| rows(width)).transpose();
        let block = |slot: usize| {
            Ok(BlockMemory {
                input: has_input(slot).then(|| rows(width)).transpose()?,
                attention_norm: norm()?,
                qkv: rows(3 * width)?,
                attended: rows(width)?,
                lse: numbers(heads_of_all)?,
                proj: rows(width)?,
                middle: rows(width)?,
                mlp_norm: norm()?,
                up: rows(4 * width)?,
                active: rows(4 * width)?,
                down: rows(width)?,
            })
        };
        let (wide, narrow) = (rows(4 * width)?, rows(width)?);
        let sums = partial_sums(&wide).max(norm_partial_sums(&narrow));
        Ok(Self {
            tokens: Tokens::new(device, (batch, length))?,
            embedded: rows(width)?,
            blocks: (0..slots).map(block).collect::<Result<_, _>>()?,
            kept_inputs: (0..kept_inputs).map(kept_input).collect::<Result<_, _>>()?,
            places: places.to_vec(),
            residual: rows(width)?,
            final_norm: norm()?,
            logits: rows(config.vocabulary)?,
            losses: numbers(count as usize)?,
            gradients: BackwardBuffers {
                residual: rows(width)?,
                narrow,
                qkv: rows(3 * width)?,
                wide,
                delta: numbers(heads_of_all)?,
                partial: numbers(sums)?,
            },
            attention,
        })
    }

    /// Activations of a block.
    pub(super) fn block(&self, layer: usize) -> &BlockMemory {
        &self.blocks[self.places[layer].slot]
    }

    /// Input of a block.
    pub(super) fn input(&self, layer: usize) -> &DeviceRows {
        if layer == 0 {
            return &self.embedded;
        }
        let of_block = match self.places[layer].kept_input {
            Some(kept) => &self.kept_inputs[kept],
            None => &self.block(layer).input,
        };
        of_block.as_ref().expect("the input of a block is kept")
    }

    /// Whether the input of a block is kept until its activations are computed again.
    pub(super) fn keeps_input(&self, layer: usize) -> bool {
        self.places[layer].kept_input.is_some()
    }
}
