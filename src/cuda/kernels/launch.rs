//! [`KernelLaunch`]: grid, block and shared memory of the kernels, as functions of shapes.
//!
//! Nothing depends on the device, so the order of all sums, and with it every bit, depends on shapes alone.

use crate::cuda::kernels::program::{ElementType, HeadWidth};

/// Lanes of a warp.
const WARP: u32 = 32;
/// Threads of a block of elementwise kernels, and of kernels with a warp for each row.
const THREADS: u32 = 256;
/// Most blocks of elementwise kernels: more than any device runs at once. A thread continues with further
/// elements when it has finished its own.
const BLOCKS_MAX: u64 = 4096;
/// Most threads of a block.
const THREADS_MAX: u32 = 1024;
/// Most parts into which rows are divided for sums of columns: two blocks for each multiprocessor of large devices.
const PARTS_MAX: u32 = 256;
/// Warps of a block in the kernels of `fold.cu`, of `norm_backward`, and of attention.
const FOLD_WARPS: u32 = 8;
const NORM_WARPS: u32 = 4;
const FLASH_WARPS: u32 = 4;
/// Elements of a gradient whose squares a block of `block_squares` sums.
const SQUARES_BLOCK: u64 = 16 * 1024;

/// Size of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelLaunch {
    /// Blocks: x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block, in one dimension.
    pub threads: u32,
    /// Bytes of shared memory of a block. Above 48 KiB, the attribute of the function must allow it.
    pub shared_bytes: u32,
}

/// Division of rows into parts of equal size; the last one may be shorter. The parts are summed apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowParts {
    /// Number of parts.
    pub parts: u32,
    /// Rows of a part.
    pub rows_of_part: u32,
}

/// Shape of an attention layer; batch · heads is at most 65,535, the limit of a grid in y.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Sequences.
    pub batch: u32,
    /// Tokens of a sequence.
    pub length: u32,
    /// Attention heads of a token.
    pub heads: u32,
    /// Features of a head.
    pub width: HeadWidth,
}

impl RowParts {
    /// Divides rows into at most 256 parts, each a multiple of `warps` rows.
    fn of(rows: u32, warps: u32) -> Self {
        let rows_of_part = rows.div_ceil(PARTS_MAX).next_multiple_of(warps);
        Self { parts: rows.div_ceil(rows_of_part), rows_of_part }
    }

    /// Returns the parts of `norm_backward`.
    pub fn of_norm(rows: u32) -> Self {
        Self::of(rows, NORM_WARPS)
    }

    /// Returns the parts of `bias_backward`.
    pub fn of_bias(rows: u32) -> Self {
        Self::of(rows, FOLD_WARPS)
    }
}

impl KernelLaunch {
    fn new(grid: [u32; 2], threads: u32, shared_bytes: u32) -> Self {
        Self { grid: [grid[0], grid[1], 1], threads, shared_bytes }
    }

    /// A kernel of one thread: `prepare_adam`, `update_loss_scale`.
    pub fn one_thread() -> Self {
        Self::new([1, 1], 1, 0)
    }

    /// A kernel whose threads each have a pack of the elements: activations, conversions, `add_older`,
    /// `divide_all`, `embed` (rows · width elements), `embed_backward_positions` (length · width), and the optimizers, whose packs are
    /// those of the type in which the model computes.
    pub fn elementwise(elements: u64, element: ElementType) -> Self {
        let packs = elements.div_ceil(u64::from(element.pack()));
        let blocks = packs.div_ceil(u64::from(THREADS)).clamp(1, BLOCKS_MAX);
        Self::new([blocks as u32, 1], THREADS, 0)
    }

    /// `embed_backward_tokens`, where `runs` is the number of different tokens.
    pub fn embed_backward_tokens(runs: u32, width: u32, element: ElementType) -> Self {
        Self::new([runs, width.div_ceil(WARP * element.pack())], WARP, 0)
    }

    /// A kernel whose warps each have a row: `norm_forward`, `residual_norm_forward`, and `attention_delta`,
    /// whose rows are the heads of all tokens.
    pub fn warp_for_each_row(rows: u32) -> Self {
        Self::new([rows.div_ceil(THREADS / WARP), 1], THREADS, 0)
    }

    /// `norm_backward`, with the parts [`RowParts::of_norm`].
    pub fn norm_backward(rows: u32, width: u32) -> Self {
        let shared_bytes = NORM_WARPS * 2 * width * 4;
        Self::new([RowParts::of_norm(rows).parts, 1], NORM_WARPS * WARP, shared_bytes)
    }

    /// `bias_backward`, with the parts [`RowParts::of_bias`].
    pub fn bias_backward(rows: u32, width: u32, element: ElementType) -> Self {
        let columns = WARP * element.pack();
        let grid = [width.div_ceil(columns), RowParts::of_bias(rows).parts];
        Self::new(grid, FOLD_WARPS * WARP, FOLD_WARPS * columns * 4)
    }

    /// `fold`.
    pub fn fold(columns: u32) -> Self {
        Self::new([columns.div_ceil(WARP), 1], FOLD_WARPS * WARP, FOLD_WARPS * WARP * 4)
    }

    /// `classifier`, where `stride` is the number of columns with the padding.
    pub fn classifier(rows: u32, stride: u32, element: ElementType) -> Self {
        let packs = stride.div_ceil(element.pack());
        let threads = packs.next_multiple_of(WARP).min(THREADS_MAX);
        Self::new([rows, 1], threads, WARP * 8)
    }

    /// `block_squares`, which writes a sum for each 1024 elements.
    pub fn block_squares(elements: u64) -> Self {
        Self::new([elements.div_ceil(SQUARES_BLOCK).max(1) as u32, 1], THREADS, 0)
    }

    /// `fold_squares`, which writes a sum for each 32 sums.
    pub fn fold_squares(sums: u32) -> Self {
        Self::warp_for_each_row(sums.div_ceil(WARP))
    }

    /// `decide_step` over so many sums. Above 150,000 it has no room: `fold_squares` makes them fewer.
    pub fn decide_step(sums: u32) -> Self {
        let groups = sums.div_ceil(WARP);
        Self::new([1, 1], THREADS_MAX, (groups + groups.div_ceil(WARP)) * 8)
    }
}

impl AttentionShape {
    /// Returns the number of rows of a head, over all heads of all tokens.
    pub fn rows(self) -> u32 {
        self.batch * self.length * self.heads
    }

    /// `attention_forward`.
    pub fn forward(self) -> KernelLaunch {
        let rows = match self.width {
            HeadWidth::W64 => 128,
            HeadWidth::W128 => 64,
        };
        self.launch(rows, self.row_bytes() * (rows + 4 * 64))
    }

    /// `attention_backward_kv`.
    pub fn backward_kv(self) -> KernelLaunch {
        let step = match self.width {
            HeadWidth::W64 => 64,
            HeadWidth::W128 => 32,
        };
        self.launch(64, self.row_bytes() * (2 * 64 + 4 * step) + 4 * step * 4)
    }

    /// `attention_backward_q`.
    pub fn backward_q(self) -> KernelLaunch {
        self.launch(64, self.row_bytes() * (2 * 64 + 4 * 64))
    }

    fn row_bytes(self) -> u32 {
        self.width.features() * 2
    }

    /// Blocks for tiles of `rows` tokens, of all heads.
    fn launch(self, rows: u32, shared_bytes: u32) -> KernelLaunch {
        let grid = [self.length.div_ceil(rows), self.batch * self.heads];
        KernelLaunch::new(grid, FLASH_WARPS * WARP, shared_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::kernels::program::HalfType;

    const BF16: ElementType = ElementType::Half(HalfType::Bf16);

    fn launch(grid: [u32; 2], threads: u32, shared_bytes: u32) -> KernelLaunch {
        KernelLaunch::new(grid, threads, shared_bytes)
    }

    #[test]
    fn elementwise_launches_have_a_thread_for_each_pack() {
        assert_eq!(KernelLaunch::elementwise(1, BF16), launch([1, 1], 256, 0));
        assert_eq!(KernelLaunch::elementwise(2048, BF16), launch([1, 1], 256, 0));
        assert_eq!(KernelLaunch::elementwise(2049, BF16), launch([2, 1], 256, 0));
        assert_eq!(KernelLaunch::elementwise(2048, ElementType::F32), launch([2, 1], 256, 0));
        assert_eq!(KernelLaunch::elementwise(1 << 40, BF16), launch([4096, 1], 256, 0));
    }

    #[test]
    fn parts_cover_all_rows() {
        for rows in (1..2000).chain([65_535, 65_536, 65_537]) {
            for RowParts { parts, rows_of_part } in
                [RowParts::of_norm(rows), RowParts::of_bias(rows)]
            {
                assert!(parts <= PARTS_MAX && rows <= parts * rows_of_part, "{rows} rows");
                assert!((parts - 1) * rows_of_part < rows, "{rows} rows: the last part is empty");
            }
        }
    }

    #[test]
    fn sums_of_gpt2_fit_the_shared_memory_without_an_attribute() {
        let norm = KernelLaunch::norm_backward(65_536, 768);
        assert_eq!(norm, launch([256, 1], 128, 24 * 1024));
        assert_eq!(KernelLaunch::bias_backward(65_536, 2304, BF16), launch([9, 256], 256, 8192));
        let blocks = 124_475_904 / 1024;
        assert_eq!(KernelLaunch::fold_squares(blocks), launch([475, 1], 256, 0));
        let sums = blocks.div_ceil(WARP);
        assert_eq!(sums, 3799);
        assert_eq!(KernelLaunch::decide_step(sums), launch([1, 1], 1024, 984));
    }

    #[test]
    fn classifier_has_whole_warps() {
        assert_eq!(KernelLaunch::classifier(7, 8, BF16).threads, 32);
        assert_eq!(KernelLaunch::classifier(7, 264, BF16).threads, 64);
        assert_eq!(KernelLaunch::classifier(65_536, 50_304, BF16), launch([65_536, 1], 1024, 256));
    }

    #[test]
    fn attention_of_gpt2_has_tiles_for_all_heads() {
        let gpt2 = AttentionShape { batch: 64, length: 1024, heads: 12, width: HeadWidth::W64 };
        assert_eq!(gpt2.forward(), launch([8, 768], 128, 48 * 1024));
        assert_eq!(gpt2.backward_kv(), launch([16, 768], 128, 49 * 1024));
        assert_eq!(gpt2.backward_q(), launch([16, 768], 128, 48 * 1024));
        let wide = AttentionShape { length: 65, width: HeadWidth::W128, ..gpt2 };
        assert_eq!(wide.forward().grid[0], 2);
        let most = [wide.forward(), wide.backward_kv(), wide.backward_q()];
        assert!(most.iter().all(|launch| launch.shared_bytes <= 100 * 1024), "{most:?}");
    }
}
