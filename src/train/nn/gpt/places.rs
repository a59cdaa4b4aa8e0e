//! [`BlockPlace`]: where the activations of a block are, if some of them are computed again. Pure.

use crate::runtime::engine::RecomputeSegment;

/// Place of the activations of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::train::nn) struct BlockPlace {
    /// Index of the activations; blocks whose activations are computed again share them.
    pub(in crate::train::nn) slot: usize,
    /// Index of the kept input, if the block is the first of a segment that is computed again.
    pub(in crate::train::nn) kept_input: Option<usize>,
}

/// Number of buffers that the blocks use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::train::nn) struct BlockBuffers {
    /// Sets of activations.
    pub(in crate::train::nn) slots: usize,
    /// Number of segments that keep their input.
    pub(in crate::train::nn) kept_inputs: usize,
}

/// Returns the places of blocks whose activations are all kept.
pub(in crate::train::nn) fn kept_places(layers: usize) -> Vec<BlockPlace> {
    (0..layers).map(|slot| BlockPlace { slot, kept_input: None }).collect()
}

/// Returns the places of the blocks; block `l` is pass `l + 1`. Segments that are computed again share their
/// activations; each keeps its input.
pub(in crate::train::nn) fn block_places(
    segments: &[RecomputeSegment],
    layers: usize,
) -> Vec<BlockPlace> {
    let longest = segments.iter().filter(|segment| segment.recomputes);
    let longest = longest.map(|segment| segment.passes.len()).max().unwrap_or(0);
    let mut places = kept_places(layers);
    let (mut own, mut kept) = (longest.., 0..);
    for segment in segments {
        for (at, pass) in segment.passes.clone().enumerate() {
            let layer = pass.checked_sub(1).filter(|layer| *layer < layers);
            let Some(layer) = layer else { continue };
            places[layer] = if segment.recomputes {
                let kept_input = if at == 0 { kept.next() } else { None };
                BlockPlace { slot: at, kept_input }
            } else {
                let slot = own.next().expect("there is no last number");
                BlockPlace { slot, kept_input: None }
            };
        }
    }
    places
}

impl BlockBuffers {
    /// Returns the number of buffers for blocks at these places.
    pub(in crate::train::nn) fn of(places: &[BlockPlace]) -> Self {
        Self {
            slots: places.iter().map(|place| place.slot + 1).max().unwrap_or(0),
            kept_inputs: places.iter().filter(|place| place.kept_input.is_some()).count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Blocks of a segment have different slots, and only segments that are computed again share them.
        #[test]
        fn blocks_share_activations_only_with_recomputed_segments(
            lens in proptest::collection::vec((1usize..4, any::<bool>()), 1..6),
        ) {
            let mut begin = 1;
            let mut segments = vec![RecomputeSegment { passes: 0..1, recomputes: false }];
            for (len, recomputes) in lens {
                segments.push(RecomputeSegment { passes: begin..begin + len, recomputes });
                begin += len;
            }
            segments.push(RecomputeSegment { passes: begin..begin + 1, recomputes: false });
            let places = block_places(&segments, begin - 1);
            let layer_of = |pass: usize| pass.checked_sub(1).filter(|layer| *layer < places.len());
            let recomputes = |layer: usize| {
                let mut all = segments.iter();
                let of_layer = all.find(|segment| segment.passes.contains(&(layer + 1)));
                of_layer.expect("each layer is in a segment").clone()
            };
            for (one, place) in places.iter().enumerate() {
                let segment = recomputes(one);
                let is_first = segment.passes.start == one + 1;
                prop_assert_eq!(place.kept_input.is_some(), segment.recomputes && is_first);
                for (other, another) in places.iter().enumerate().skip(one + 1) {
                    let shares = recomputes(other).recomputes && segment.recomputes;
                    let is_other_segment = recomputes(other) != segment;
                    prop_assert!(place.slot != another.slot || shares && is_other_segment);
                }
            }
            prop_assert!(layer_of(0).is_none());
            let buffers = BlockBuffers::of(&places);
            prop_assert!(places.iter().all(|place| place.slot < buffers.slots));
        }
    }
}
