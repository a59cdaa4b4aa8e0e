//! The training engine: stages, world sizes, placements, precisions and limits change no bit of a run with
//! the same lanes.
#![cfg(feature = "train")]

use std::num::NonZeroUsize;
use std::thread;

use remuda::runtime::{Group, RandomStream};
use remuda::runtime::engine::{EngineConfig, PlanOptions, Precision, Sharding};
use remuda::runtime::optim::{Adam, DynamicScale, LossScaling, LrSchedule, Optimizer};
use remuda::train::{
    GptOptions, MlpOptions, ModelOptions, Threads, TrainOptions, train,
};

use crate::support::proof::{Random, proof_cases};

const STEPS: u64 = 4;

/// A way to run the lanes of a step.
#[derive(Clone, Debug)]
struct Split {
    /// Ranks of every node.
    nodes: Vec<usize>,
    accumulate: usize,
    sharding: Sharding,
    plan: PlanOptions,
    persistent_len_max: usize,
}

fn ways(world: usize, accumulate: usize, sharding: Sharding) -> Split {
    let plan = PlanOptions { prefetch: 0, reduce_max: 0, recompute: 0 };
    Split { nodes: vec![world], accumulate, sharding, plan, persistent_len_max: 0 }
}

/// A GPT with units of 48 blocks of the norm.
fn gpt() -> ModelOptions {
    ModelOptions::Gpt(GptOptions { block: 8, layers: 3, heads: 2, width: 64, data: Vec::new() })
}

fn mlp() -> ModelOptions {
    ModelOptions::Mlp(MlpOptions { inputs: 50, layers: 2, width: 130, classes: 7 })
}

fn options(model: &ModelOptions, precision: Precision, split: &Split) -> TrainOptions {
    let loss_scaling = match precision {
        Precision::F16 => LossScaling::Dynamic(DynamicScale {
            initial_power: 24,
            window: 2,
            hysteresis: 1,
            ..DynamicScale::default()
        }),
        Precision::F32 | Precision::Bf16 => LossScaling::None,
    };
    TrainOptions {
        model: model.clone(),
        batch_size: NonZeroUsize::new(2).expect("2 is not 0"),
        engine: EngineConfig {
            accumulate: split.accumulate,
            sharding: split.sharding,
            optimizer: Optimizer::Adam(Adam { beta2: 0.99, weight_decay: 0.1, ..Adam::default() }),
            schedule: LrSchedule::WarmupHalfCosine { rate: 1e-2, rate_min: 1e-3, warmup: 2, steps: STEPS },
            clip: Some(0.25),
            precision,
            loss_scaling,
            gradient_rounding: None,
            persistent_len_max: split.persistent_len_max,
            plan: split.plan,
            seed: 7,
        },
        steps: STEPS,
        seed: 7,
        threads: Threads::ONE,
        eval_every: Some(3),
        checkpoint: None,
        resume: None,
        start: None,
        metrics: None,
        plot: None,
        may_start_fresh: false,
    }
}

/// Digest of parameters and moments, and the bits of the last loss.
fn outcome(model: &ModelOptions, precision: Precision, split: &Split) -> (String, Option<u32>) {
    let options = options(model, precision, split);
    let groups = Group::threads_on(&split.nodes).expect("a group on threads");
    let outcomes: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = groups
            .into_iter()
            .map(|group| {
                let options = &options;
                scope.spawn(move || train(&group, options, &|| false, &mut |_| ()))
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
    });
    let found: Vec<_> = outcomes
        .into_iter()
        .map(|outcome| outcome.unwrap_or_else(|error| panic!("{split:?}: {error}")))
        .map(|outcome| (outcome.digest, outcome.summary.loss.map(f32::to_bits)))
        .collect();
    assert!(found.iter().all(|other| *other == found[0]), "ranks disagree: {split:?}");
    found[0].clone()
}

/// Compares every stage with one rank that computes all lanes.
#[track_caller]
fn check(model: &ModelOptions, precision: Precision, world: usize, accumulate: usize) {
    let alone = ways(1, world * accumulate, Sharding::None);
    let expected = outcome(model, precision, &alone);
    for sharding in Sharding::ALL {
        let split = ways(world, accumulate, sharding);
        assert_eq!(outcome(model, precision, &split), expected, "{split:?}, {precision:?}");
    }
}

#[test]
fn stages_change_no_bit() {
    for (world, accumulate) in [(1, 12), (2, 6), (3, 4), (4, 3), (6, 2)] {
        check(&gpt(), Precision::F32, world, accumulate);
    }
    for (world, accumulate) in [(2, 1), (3, 1), (4, 2), (8, 3)] {
        check(&mlp(), Precision::F32, world, accumulate);
    }
}

#[test]
fn stages_change_no_bit_in_16_bit_types() {
    for precision in [Precision::Bf16, Precision::F16] {
        check(&gpt(), precision, 2, 2);
        check(&mlp(), precision, 3, 2);
    }
}

/// Draws a number from a list.
fn pick<T: Copy>(stream: &mut RandomStream, values: &[T]) -> T {
    values[stream.below(values.len())]
}

fn draw(stream: &mut RandomStream, lanes: usize) -> Split {
    let worlds: Vec<usize> = [1, 2, 3, 4, 6, 8].into_iter().filter(|world| lanes % world == 0).collect();
    let world = pick(stream, &worlds);
    let mut nodes = Vec::new();
    while nodes.iter().sum::<usize>() < world {
        nodes.push(1 + stream.below(world - nodes.iter().sum::<usize>()));
    }
    Split {
        nodes,
        accumulate: lanes / world,
        sharding: pick(stream, &Sharding::ALL),
        plan: PlanOptions {
            prefetch: pick(stream, &[0, 3000, 60_000, usize::MAX]),
            reduce_max: pick(stream, &[0, 50_000, usize::MAX]),
            recompute: stream.below(3),
        },
        persistent_len_max: pick(stream, &[0, 100, 10_000, usize::MAX]),
    }
}

/// Random numbers of ranks, placements, stages and limits; the number of cases and the seed are those of
/// `scripts/prove`.
#[test]
fn prove_same_bits() {
    let mut random = Random::from_seed();
    for case in 0..proof_cases(6) {
        let mut stream = RandomStream::new(&[random.below(usize::MAX) as u64]);
        let model = if stream.below(2) == 0 { gpt() } else { mlp() };
        let precision = pick(&mut stream, &[Precision::F32, Precision::Bf16, Precision::F16]);
        let lanes = pick(&mut stream, &[12, 24]);
        let (one, other) = (draw(&mut stream, lanes), draw(&mut stream, lanes));
        let expected = outcome(&model, precision, &one);
        let found = outcome(&model, precision, &other);
        assert_eq!(found, expected, "case {case}: {precision:?}, {one:?} against {other:?}");
    }
}
