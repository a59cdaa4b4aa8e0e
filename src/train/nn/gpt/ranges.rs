//! Ranges of the parameters in their units.

use std::ops::Range;

/// Parameters of a layer, their gradients, or their ranges.
#[derive(Clone, Debug)]
pub(super) struct LayerParts<T> {
    pub(super) weight: T,
    /// `None` if the layers have no biases.
    pub(super) bias: Option<T>,
}

/// Parameters of a block, their gradients, or their ranges.
#[derive(Clone, Debug)]
pub(super) struct BlockParts<T> {
    pub(super) attention_norm: LayerParts<T>,
    pub(super) qkv: LayerParts<T>,
    pub(super) proj: LayerParts<T>,
    pub(super) mlp_norm: LayerParts<T>,
    pub(super) up: LayerParts<T>,
    pub(super) down: LayerParts<T>,
}

/// Ranges of the parameters of a block in its unit, of which they are all.
pub(super) type BlockRanges = BlockParts<Range<usize>>;

impl BlockRanges {
    /// The parameters of the block, from the elements of its unit.
    pub(super) fn view<'a, F>(&self, params: &'a [F]) -> BlockParts<&'a [F]> {
        self.map(|range| &params[range.clone()])
    }

    /// Divides the elements of the unit into the parameters of the block.
    pub(super) fn split_mut<'a, F>(&self, block: &'a mut [F]) -> BlockParts<&'a mut [F]> {
        // The ranges are adjacent, in the order of the parts.
        let mut rest = block;
        self.map(|range| {
            let (part, after) = std::mem::take(&mut rest).split_at_mut(range.len());
            rest = after;
            part
        })
    }

    /// The same for every range, in the order of the unit.
    fn map<'a, T>(&'a self, mut part: impl FnMut(&'a Range<usize>) -> T) -> BlockParts<T> {
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
pub(super) struct Ranges {
    /// In the unit of the embeddings.
    pub(super) token_embedding: Range<usize>,
    /// In the unit of the embeddings.
    pub(super) position_embedding: Range<usize>,
    /// In the unit of each block.
    pub(super) blocks: Vec<BlockRanges>,
}
