//! Ranges of the parameters in their units.

use std::ops::Range;

/// Parameters of a layer, their gradients, or their ranges.
#[derive(Clone, Debug)]
pub(in crate::train::nn) struct LayerParts<T> {
    pub(in crate::train::nn) weight: T,
    /// `None` if the layers have no biases.
    pub(in crate::train::nn) bias: Option<T>,
}

/// Parameters of a block, their gradients, or their ranges.
#[derive(Clone, Debug)]
pub(in crate::train::nn) struct BlockParts<T> {
    pub(in crate::train::nn) attention_norm: LayerParts<T>,
    pub(in crate::train::nn) qkv: LayerParts<T>,
    pub(in crate::train::nn) proj: LayerParts<T>,
    pub(in crate::train::nn) mlp_norm: LayerParts<T>,
    pub(in crate::train::nn) up: LayerParts<T>,
    pub(in crate::train::nn) down: LayerParts<T>,
}

/// Ranges of the parameters of a block in its unit, of which they are all.
pub(in crate::train::nn) type BlockRanges = BlockParts<Range<usize>>;

impl BlockRanges {
    /// The parameters of the block, from the elements of its unit.
    pub(in crate::train::nn) fn view<'a, F>(&self, params: &'a [F]) -> BlockParts<&'a [F]> {
        self.map(|range| &params[range.clone()])
    }

    /// Divides the elements of the unit into the parameters of the block.
    pub(in crate::train::nn) fn split_mut<'a, F>(
        &self,
        block: &'a mut [F],
    ) -> BlockParts<&'a mut [F]> {
        // The ranges are adjacent, in the order of the parts.
        let mut rest = block;
        self.map(|range| {
            let (part, after) = std::mem::take(&mut rest).split_at_mut(range.len());
            rest = after;
            part
        })
    }

    /// The same for every range, in the order of the unit.
    pub(in crate::train::nn) fn map<'a, T>(
        &'a self,
        mut part: impl FnMut(&'a Range<usize>) -> T,
    ) -> BlockParts<T> {
        let mut layer = |ranges: &'a LayerParts<Range<usize>>| LayerParts {
            weight: part(&ranges.weight),
            bias: ranges.bias.as_ref().map(&mut part),
        };
        BlockParts {
            attention_norm: layer(&self.attention_norm),
            qkv: layer(&self.qkv),
            proj: layer(&self.proj),
            mlp_norm: layer(&self.mlp_norm),
            up: layer(&self.up),
            down: layer(&self.down),
        }
    }
}

/// Ranges of the parameters of a GPT.
#[derive(Clone, Debug)]
pub(in crate::train::nn) struct Ranges {
    /// In the unit of the embeddings.
    pub(in crate::train::nn) token_embedding: Range<usize>,
    /// In the unit of the embeddings.
    pub(in crate::train::nn) position_embedding: Range<usize>,
    /// In the unit of each block.
    pub(in crate::train::nn) blocks: Vec<BlockRanges>,
}
