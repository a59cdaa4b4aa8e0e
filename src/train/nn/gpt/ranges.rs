//! Ranges of the parameters in their units.

use std::ops::Range;

/// Parameters of a block, their gradients, or their ranges.
#[derive(Clone, Debug)]
pub(super) struct BlockParts<T> {
    pub(super) attention_norm: T,
    pub(super) qkv: T,
    pub(super) proj: T,
    pub(super) mlp_norm: T,
    pub(super) up: T,
    pub(super) down: T,
}

/// Ranges of the parameters of a block in its unit, of which they are all.
pub(super) type BlockRanges = BlockParts<Range<usize>>;

impl BlockRanges {
    /// The parameters of the block, from the elements of its unit.
    pub(super) fn view<'a, F>(&self, params: &'a [F]) -> BlockParts<&'a [F]> {
        BlockParts {
            attention_norm: &params[self.attention_norm.clone()],
            qkv: &params[self.qkv.clone()],
            proj: &params[self.proj.clone()],
            mlp_norm: &params[self.mlp_norm.clone()],
            up: &params[self.up.clone()],
            down: &params[self.down.clone()],
        }
    }

    /// Divides the elements of the unit into the parameters of the block.
    pub(super) fn split_mut<'a, F>(&self, block: &'a mut [F]) -> BlockParts<&'a mut [F]> {
        let (attention_norm, rest) = block.split_at_mut(self.attention_norm.len());
        let (qkv, rest) = rest.split_at_mut(self.qkv.len());
        let (proj, rest) = rest.split_at_mut(self.proj.len());
        let (mlp_norm, rest) = rest.split_at_mut(self.mlp_norm.len());
        let (up, down) = rest.split_at_mut(self.up.len());
        BlockParts { attention_norm, qkv, proj, mlp_norm, up, down }
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
