//! Ranges of the parameters in the flat buffer.

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

/// Ranges of the parameters of a block, which are adjacent.
pub(super) type BlockRanges = BlockParts<Range<usize>>;

impl BlockRanges {
    /// The range of all parameters of the block.
    pub(super) fn whole(&self) -> Range<usize> {
        self.attention_norm.start..self.down.end
    }

    /// The parameters of the block in the flat buffer.
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

    /// Divides the slice of [`BlockRanges::whole`] into the parameters of the block.
    pub(super) fn split_mut<'a, F>(&self, block: &'a mut [F]) -> BlockParts<&'a mut [F]> {
        let (attention_norm, rest) = block.split_at_mut(self.attention_norm.len());
        let (qkv, rest) = rest.split_at_mut(self.qkv.len());
        let (proj, rest) = rest.split_at_mut(self.proj.len());
        let (mlp_norm, rest) = rest.split_at_mut(self.mlp_norm.len());
        let (up, down) = rest.split_at_mut(self.up.len());
        BlockParts { attention_norm, qkv, proj, mlp_norm, up, down }
    }
}

/// Ranges of the parameters of a GPT in the flat buffer.
#[derive(Clone, Debug)]
pub(super) struct Ranges {
    pub(super) token_embedding: Range<usize>,
    pub(super) position_embedding: Range<usize>,
    pub(super) blocks: Vec<BlockRanges>,
    pub(super) final_norm: Range<usize>,
}
