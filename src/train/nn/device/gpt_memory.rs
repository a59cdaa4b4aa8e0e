//! Memory of a GPT on a device, for batches of one shape.

use crate::cuda::device::{DeviceAddress, DeviceError};
use crate::train::nn::device::attention::{AttentionMethod, DeviceAttention};
use crate::train::nn::device::blocks::ShapeBlocks;
use crate::train::nn::device::norm::{NormRows, norm_partial_sums};
use crate::train::nn::device::operations::partial_sums;
use crate::train::nn::device::product_attention::SequenceShape;
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
    pub(super) losses: DeviceAddress,
    pub(super) gradients: BackwardBuffers,
    pub(super) attention: DeviceAttention,
    pub(super) shape: SequenceShape,
}

/// Activations of a block.
pub(super) struct BlockMemory {
    /// Input: the residual stream, unless it is kept elsewhere.
    input: Option<DeviceRows>,
    pub(super) attention_norm: NormRows,
    pub(super) qkv: DeviceRows,
    /// Output of the attention.
    pub(super) attended: DeviceRows,
    /// Logarithms of the sums of flash attention, f32.
    pub(super) lse: DeviceAddress,
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
    /// A number for each head of each token, f32, of flash attention.
    pub(super) delta: DeviceAddress,
    /// Sums of parts of the rows, f32.
    pub(super) partial: DeviceAddress,
}

/// Takes memory for numbers, if there are some.
fn numbers_or_null(
    blocks: &mut ShapeBlocks<'_>,
    count: usize,
) -> Result<DeviceAddress, DeviceError> {
    if count == 0 { Ok(DeviceAddress::NULL) } else { blocks.numbers(count) }
}

impl BlockMemory {
    /// Takes the memory of a block.
    fn new(
        blocks: &mut ShapeBlocks<'_>,
        width: usize,
        numbers_of_heads: usize,
        has_input: bool,
    ) -> Result<Self, DeviceError> {
        Ok(Self {
            input: has_input.then(|| blocks.rows(width)).transpose()?,
            attention_norm: NormRows::new(blocks, width)?,
            qkv: blocks.rows(3 * width)?,
            attended: blocks.rows(width)?,
            lse: numbers_or_null(blocks, numbers_of_heads)?,
            proj: blocks.rows(width)?,
            middle: blocks.rows(width)?,
            mlp_norm: NormRows::new(blocks, width)?,
            up: blocks.rows(4 * width)?,
            active: blocks.rows(4 * width)?,
            down: blocks.rows(width)?,
        })
    }
}

impl BackwardBuffers {
    /// Takes the memory of the backward pass.
    fn new(
        blocks: &mut ShapeBlocks<'_>,
        width: usize,
        numbers_of_heads: usize,
    ) -> Result<Self, DeviceError> {
        let (wide, narrow) = (blocks.rows(4 * width)?, blocks.rows(width)?);
        let sums = partial_sums(&wide).max(norm_partial_sums(&narrow));
        Ok(Self {
            residual: blocks.rows(width)?,
            narrow,
            qkv: blocks.rows(3 * width)?,
            wide,
            delta: numbers_or_null(blocks, numbers_of_heads)?,
            partial: blocks.numbers(sums)?,
        })
    }
}

impl GptMemory {
    /// Takes the memory for sequences.
    pub(super) fn new(
        mut blocks: ShapeBlocks<'_>,
        config: &GptConfig,
        (method, shape): (AttentionMethod, SequenceShape),
        places: &[BlockPlace],
    ) -> Result<Self, DeviceError> {
        let SequenceShape { batch, length, heads } = shape;
        let (count, has_numbers) = (batch * length, method.has_numbers_of_heads());
        let of_heads = if has_numbers { (count * heads) as usize } else { 0 };
        let (blocks, width) = (&mut blocks, config.width);
        let BlockBuffers { slots, kept_inputs } = BlockBuffers::of(places);
        let has_input = |slot: usize| {
            let mut later = places.iter().skip(1);
            later.any(|place| place.slot == slot && place.kept_input.is_none())
        };
        let is_embedded = |kept: usize| places[0].kept_input == Some(kept);
        Ok(Self {
            tokens: Tokens::new(blocks, (batch, length))?,
            embedded: blocks.rows(width)?,
            blocks: (0..slots)
                .map(|slot| BlockMemory::new(blocks, width, of_heads, has_input(slot)))
                .collect::<Result<_, _>>()?,
            kept_inputs: (0..kept_inputs)
                .map(|kept| (!is_embedded(kept)).then(|| blocks.rows(width)).transpose())
                .collect::<Result<_, _>>()?,
            places: places.to_vec(),
            residual: blocks.rows(width)?,
            final_norm: NormRows::new(blocks, width)?,
            logits: blocks.rows(config.vocabulary)?,
            losses: blocks.numbers(count as usize)?,
            gradients: BackwardBuffers::new(blocks, width, of_heads)?,
            attention: DeviceAttention::new(method, blocks, shape)?,
            shape,
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
