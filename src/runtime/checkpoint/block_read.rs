//! Division of ranges of files into reads of blocks: a block is what a digest covers, and what a thread reads. Pure.

use std::ops::Range;

/// Range of a file, and the memory into which its bytes are read.
#[derive(Debug)]
pub(super) struct FileRead<'a> {
    /// Position of the file in the index.
    pub(super) file: usize,
    /// Position of the first byte.
    pub(super) offset: u64,
    pub(super) out: &'a mut [u8],
}

/// Block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlockPlace {
    pub(super) file: usize,
    pub(super) number: usize,
}

/// Everything that is read from one block.
#[derive(Debug)]
pub(super) struct BlockRead<'a> {
    pub(super) place: BlockPlace,
    /// Parts of the block in the order of the ranges.
    pub(super) parts: Vec<BlockPart<'a>>,
}

/// Part of a block.
#[derive(Debug)]
pub(super) struct BlockPart<'a> {
    /// Position of the first byte in the block.
    pub(super) start: usize,
    pub(super) out: &'a mut [u8],
}

impl BlockPart<'_> {
    pub(super) fn range(&self) -> Range<usize> {
        self.start..self.start + self.out.len()
    }
}

/// Divides ranges of files at the bounds of blocks: one read for each block, in the order of files and blocks.
pub(super) fn divide<'a>(
    ranges: impl IntoIterator<Item = FileRead<'a>>,
    block_bytes: u64,
) -> Vec<BlockRead<'a>> {
    let mut parts: Vec<(BlockPlace, BlockPart<'a>)> = Vec::new();
    for FileRead { file, mut offset, out: mut rest } in ranges {
        while !rest.is_empty() {
            let number = (offset / block_bytes) as usize;
            let start = (offset % block_bytes) as usize;
            let length = rest.len().min(block_bytes as usize - start);
            let (out, later) = rest.split_at_mut(length);
            parts.push((BlockPlace { file, number }, BlockPart { start, out }));
            offset += length as u64;
            rest = later;
        }
    }
    // A stable sort: the parts of a block keep their order.
    parts.sort_by_key(|(place, _)| *place);
    let mut blocks: Vec<BlockRead<'a>> = Vec::new();
    for (place, part) in parts {
        match blocks.last_mut() {
            Some(block) if block.place == place => block.parts.push(part),
            _ => blocks.push(BlockRead { place, parts: vec![part] }),
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_of_a_block_are_one_read() {
        let (mut a, mut b, mut c) = ([0; 5], [0; 2], [0; 0]);
        let ranges = [
            FileRead { file: 1, offset: 6, out: &mut a },
            FileRead { file: 1, offset: 5, out: &mut b },
            FileRead { file: 0, offset: 9, out: &mut c },
        ];
        let read = |block: &BlockRead<'_>| {
            let places = block.parts.iter().map(|part| (part.start, part.out.len()));
            (block.place.file, block.place.number, places.collect::<Vec<_>>())
        };
        let found: Vec<_> = divide(ranges, 8).iter().map(read).collect();
        assert_eq!(found, [(1, 0, vec![(6, 2), (5, 2)]), (1, 1, vec![(0, 3)])]);
    }

    proptest! {
        #[test]
        fn every_byte_is_read_from_its_place(
            ranges in prop::collection::vec((0usize..3, 0u64..60, 0usize..40), 0..8),
            block_bytes in 1u64..30,
        ) {
            // A byte of a file tells its place.
            let byte = |file: usize, at: u64| (file as u64 * 100 + at) as u8;
            let mut memory: Vec<Vec<u8>> = ranges.iter().map(|(_, _, len)| vec![255; *len]).collect();
            let reads = ranges.iter().zip(&mut memory);
            let reads = reads.map(|((file, offset, _), out)| FileRead { file: *file, offset: *offset, out });
            let blocks = divide(reads, block_bytes);
            let is_ordered = blocks.windows(2).all(|pair| pair[0].place < pair[1].place);
            prop_assert!(is_ordered);
            for BlockRead { place, parts } in blocks {
                for part in parts {
                    prop_assert!(part.range().end as u64 <= block_bytes);
                    let first = place.number as u64 * block_bytes + part.start as u64;
                    let places = part.out.iter_mut().zip(first..);
                    places.for_each(|(out, at)| *out = byte(place.file, at));
                }
            }
            for ((file, offset, len), out) in ranges.iter().zip(&memory) {
                let expect: Vec<u8> = (*offset..offset + *len as u64).map(|at| byte(*file, at)).collect();
                prop_assert_eq!(out, &expect);
            }
        }
    }
}
