//! Checkpoints of small models with values that their names, elements and step decide.

use std::path::Path;

use remuda::runtime::Group;
use remuda::runtime::checkpoint::{
    CheckpointWriter, DataPosition, Division, SaveError, SaveReport, SavedState, TensorInfo,
    TensorPiece, WriterOptions, state_tensor,
};
use remuda::runtime::{Dtype, Result};

/// A tensor and its values.
pub(crate) type Valued = (TensorInfo, Vec<f32>);

/// Parameters of a small model, and the moments of each.
pub(crate) fn tensors(step: u64) -> Vec<Valued> {
    let shapes: [(&str, &[usize]); 4] = [
        ("wte.weight", &[13, 8]),
        ("h.0.weight", &[8, 24]),
        ("h.0.bias", &[24]),
        ("ln.weight", &[1]),
    ];
    let named = shapes.iter().flat_map(|(name, shape)| {
        let states = ["exp_avg", "exp_avg_sq"].map(|state| state_tensor(name, state));
        std::iter::once((*name).to_owned()).chain(states).map(|name| (name, shape.to_vec()))
    });
    named.map(|(name, shape)| valued(name, shape, step)).collect()
}

/// A tensor with values that name, element and step decide.
pub(crate) fn valued(name: String, shape: Vec<usize>, step: u64) -> Valued {
    let tensor = TensorInfo { name, dtype: Dtype::F32, shape };
    let seed = tensor
        .name
        .bytes()
        .fold(step as u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
    let value = |element: usize| {
        let bits = (element as u32).wrapping_add(seed).wrapping_mul(0x9e37_79b9);
        f32::from_bits(bits & 0xbfff_ffff)
    };
    let values = (0..tensor.elements()).map(value).collect();
    (tensor, values)
}

/// Pieces of a rank if each rank owns an equal part of every tensor.
pub(crate) fn pieces(tensors: &[Valued], rank: usize, world: usize) -> Vec<TensorPiece<'_>> {
    let cut = |elements: usize, rank: usize| elements * rank / world;
    let piece = |(tensor, values): &'_ Valued| {
        let range = cut(values.len(), rank)..cut(values.len(), rank + 1);
        (tensor.name.clone(), tensor.shape.clone(), range)
    };
    let parts = tensors.iter().map(|valued| (piece(valued), &valued.1));
    parts
        .map(|((name, shape, range), values)| {
            TensorPiece::new(name, &shape, range.clone(), &values[range])
        })
        .collect()
}

pub(crate) fn state(step: u64, world: usize) -> SavedState {
    SavedState {
        step,
        model: "a small model".to_owned(),
        data: Some(DataPosition {
            lanes: 8,
            batch_size: 4,
            seed: 5,
            samples: Some(step * 32),
            fingerprint: None,
        }),
        division: Some(Division {
            sharding: "gradients".to_owned(),
            world_size: world as u64,
            accumulate: 2,
            precision: "bf16".to_owned(),
        }),
        optimizer: "adamw".to_owned(),
        ..SavedState::default()
    }
}

/// Saves checkpoints of these steps with threads as ranks; returns the outcomes of every rank.
pub(crate) fn save_steps(
    ranks: usize,
    dir: &Path,
    steps: &[u64],
    options: impl Fn() -> WriterOptions + Sync,
) -> Vec<Result<Vec<SaveReport>, SaveError>> {
    let saved = Group::on_threads(ranks, |group| {
        let save = || {
            let mut writer = CheckpointWriter::new(group, dir, options())?;
            let mut reports = Vec::new();
            for step in steps {
                let tensors = tensors(*step);
                let pieces = pieces(&tensors, group.rank(), ranks);
                reports.push(writer.save(&state(*step, ranks), &pieces)?);
            }
            Ok(reports)
        };
        Ok(save())
    });
    saved.expect("the group does not fail")
}

/// Saves checkpoints that no other test disturbs; returns the reports of rank 0.
#[track_caller]
pub(crate) fn save_all(ranks: usize, dir: &Path, steps: &[u64]) -> Vec<SaveReport> {
    let options = || WriterOptions { block_bytes: Some(256), ..WriterOptions::default() };
    let mut saved = save_steps(ranks, dir, steps, options);
    saved.swap_remove(0).expect("it is saved")
}
