//! What any ranks have saved in any pieces is what any other ranks read.

use std::ops::Range;

use proptest::prelude::*;
use remuda::runtime::Group;
use remuda::runtime::checkpoint::{
    CheckpointReader, CheckpointWriter, LoadChoice, SavedState, TensorPiece, TensorRead,
    WriterOptions, load_checkpoint, verify_checkpoint,
};
use remuda::runtime::{Bf16, F16};

use crate::checkpoint::test_dir::TestDir;
use crate::support::checkpoints::{Valued, valued};

/// A piece: tensor, range, rank.
type Owned = (usize, Range<usize>, usize);

#[derive(Clone, Debug)]
struct Layout {
    shapes: Vec<Vec<usize>>,
    pieces: Vec<Owned>,
    world: usize,
    block_bytes: u64,
    /// Ranges that are read: tensor, range, rank of the reading group.
    reads: Vec<Owned>,
    readers: usize,
    is_started: bool,
}

fn elements(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// Any tensors, cut anywhere, owned by any ranks.
fn layouts() -> impl Strategy<Value = Layout> {
    let shapes = prop::collection::vec(prop::collection::vec(0usize..12, 0..4), 1..6);
    let numbers = prop::collection::vec(any::<usize>(), 120);
    (shapes, numbers, 1usize..5, 1u64..300, 1usize..5, any::<bool>()).prop_map(
        |(shapes, numbers, world, block_bytes, readers, is_started)| {
            let mut numbers = numbers.into_iter().cycle();
            let mut below = move |bound: usize| numbers.next().expect("it is endless") % bound;
            let mut pieces = Vec::new();
            let mut reads = Vec::new();
            for (tensor, shape) in shapes.iter().enumerate() {
                let elements = elements(shape);
                let mut cuts = vec![0, elements];
                cuts.extend((0..below(5)).map(|_| below(elements + 1)));
                cuts.sort_unstable();
                let ranges = cuts.windows(2).map(|pair| pair[0]..pair[1]);
                pieces
                    .extend(ranges.map(|range| (tensor, range, below(world))).collect::<Vec<_>>());
                for _ in 0..4 {
                    let (a, b) = (below(elements + 1), below(elements + 1));
                    reads.push((tensor, a.min(b)..a.max(b), below(readers)));
                }
            }
            Layout { shapes, pieces, world, block_bytes, reads, readers, is_started }
        },
    )
}

fn values_of(layout: &Layout) -> Vec<Valued> {
    let shapes = layout.shapes.iter().enumerate();
    shapes.map(|(at, shape)| valued(format!("t{at}"), shape.clone(), 7)).collect()
}

fn save(layout: &Layout, tensors: &[Valued], dir: &TestDir) {
    let saved = Group::on_threads(layout.world, |group| {
        let block_bytes = Some(layout.block_bytes);
        let options = WriterOptions { block_bytes, ..WriterOptions::default() };
        let mut writer = CheckpointWriter::new(group, &dir.0, options).expect("a new writer");
        let own = layout.pieces.iter().filter(|(_, _, rank)| *rank == group.rank());
        let piece = |(tensor, range, _): &Owned| {
            let (info, values) = &tensors[*tensor];
            TensorPiece::new(info.name.clone(), &info.shape, range.clone(), &values[range.clone()])
        };
        let pieces: Vec<_> = own.map(piece).collect();
        let state = SavedState { step: 7, ..SavedState::default() };
        if layout.is_started {
            writer.start_save(&state, &pieces);
            for outcome in writer.finish() {
                outcome.expect("it is saved");
            }
        } else {
            writer.save(&state, &pieces).expect("it is saved");
        }
        Ok(())
    });
    saved.expect("no rank fails");
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_ranks_read_what_any_ranks_saved(layout in layouts()) {
        let dir = TestDir::new("layout");
        let tensors = values_of(&layout);
        save(&layout, &tensors, &dir);
        prop_assert_eq!(verify_checkpoint(&dir.path("step-00000007"), 2).expect("it opens"), []);
        let read = |group: &Group| {
            let own = layout.reads.iter().filter(|(_, _, rank)| *rank == group.rank());
            let loaded = load_checkpoint(group, &dir.0, LoadChoice::Exact, |reader| {
                let name = |tensor: usize| tensors[tensor].0.name.as_str();
                let mut all: Vec<_> = own
                    .clone()
                    .map(|(tensor, range, _)| (*tensor, range.clone(), vec![0.0; range.len()]))
                    .collect();
                reader.read_all(all.iter_mut().map(|(tensor, range, values)| TensorRead {
                    name: name(*tensor),
                    range: range.clone(),
                    out: values,
                }))?;
                for (tensor, range, values) in &all {
                    let mut alone = vec![0.0; range.len()];
                    reader.read(name(*tensor), range.clone(), &mut alone)?;
                    assert_eq!(bits(&alone), bits(values), "read again, without a check");
                }
                Ok(all)
            });
            Ok(loaded.expect("it is loaded").value)
        };
        for read in Group::on_threads(layout.readers, read).expect("no rank fails") {
            for (tensor, range, values) in read {
                prop_assert_eq!(bits(&values), bits(&tensors[tensor].1[range]));
            }
        }
    }
}

#[test]
fn other_types_keep_their_bytes() {
    let dir = TestDir::new("types");
    let half: Vec<Bf16> = (0..50).map(|i| Bf16::from_f32(i as f32 / 3.0)).collect();
    let ieee: Vec<F16> = (0..50).map(|i| F16::from_f32(i as f32 / 7.0)).collect();
    let integers: Vec<i64> = (0..50).map(|i| i * i - 7).collect();
    let bytes: Vec<u8> = (0..50).collect();
    let group = Group::single().expect("a group");
    let mut writer =
        CheckpointWriter::new(&group, &dir.0, WriterOptions::default()).expect("a writer");
    let pieces = [
        TensorPiece::new("bytes", &[50], 0..50, &bytes),
        TensorPiece::new("half", &[5, 10], 0..50, &half),
        TensorPiece::new("ieee", &[50], 0..50, &ieee),
        TensorPiece::new("integers", &[50], 0..20, &integers[..20]),
        TensorPiece::new("integers", &[50], 20..50, &integers[20..]),
    ];
    writer.save(&SavedState::default(), &pieces).expect("it is saved");
    let reader = CheckpointReader::open(&dir.0).expect("it opens");
    let mut read = vec![0i64; 30];
    reader.read_bytes("integers", 10..40, bytemuck::cast_slice_mut(&mut read)).expect("it is read");
    assert_eq!(read, integers[10..40]);
    let mut read = vec![0u8; 3];
    reader.read_bytes("bytes", 47..50, &mut read).expect("it is read");
    assert_eq!(read, [47, 48, 49]);
    let mut read = vec![0f32; 10];
    reader.read("half", 40..50, &mut read).expect("it is read");
    assert_eq!(read, half[40..].iter().map(|half| half.to_f32()).collect::<Vec<_>>());
    reader.read("ieee", 40..50, &mut read).expect("it is read");
    assert_eq!(read, ieee[40..].iter().map(|half| half.to_f32()).collect::<Vec<_>>());
    let refused = reader.read("integers", 0..10, &mut read).expect_err("it is not a float");
    assert!(refused.to_string().ends_with("`integers` has the type i64 and is not read as f32"));
}

#[test]
fn numbers_of_the_state_keep_their_bits() {
    let dir = TestDir::new("numbers");
    let numbers =
        [0.1, 1.0 / 3.0, f64::MIN_POSITIVE, 1.797e308, 5e-324, 2.225_073_858_507_201e-308];
    let state = SavedState { client: numbers.to_vec().into(), ..SavedState::default() };
    let group = Group::single().expect("a group");
    let mut writer =
        CheckpointWriter::new(&group, &dir.0, WriterOptions::default()).expect("a writer");
    writer.save(&state, &[]).expect("it is saved");
    let reader = CheckpointReader::open(&dir.0).expect("it opens");
    assert_eq!(*reader.state(), state);
    let read = reader.state().client.as_array().expect("a list");
    let read: Vec<u64> = read.iter().map(|n| n.as_f64().expect("a number").to_bits()).collect();
    assert_eq!(read, numbers.map(f64::to_bits));
}
