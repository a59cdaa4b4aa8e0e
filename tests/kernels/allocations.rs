//! Memory of a device is allocated before the third step, whatever is evaluated between steps: a driver waits until the
//! device is idle when it allocates or releases memory.

use std::sync::Arc;

use remuda::cuda::device::Device;
use remuda::runtime::Group;
use remuda::runtime::engine::{
    DeviceModel, Engine, EngineConfig, Offload, Precision, Sharding, StatePlace,
};
use remuda::train::{DeviceGpt, DeviceMlp, GptArchitecture, GptConfig, Samples, Sequences};

use super::emulated_streams::{EmulatedStreams, Order};
use super::stages::{NewDevice, WIDE, staged};
use super::training::samples_of;
use crate::support::proof::has;

/// Steps until all memory was allocated.
const FIRST: usize = 2;
const STEPS: usize = 2;

/// Allocations and releases of memory of rank 0 in every step, with the evaluations that follow it: of a batch like those
/// of the training, of a smaller one, and again of one like them.
fn changes_of_steps<M: DeviceModel>(
    ranks: usize,
    config: &EngineConfig,
    new: NewDevice,
    (model, batch): (
        impl Fn(Arc<dyn Device>) -> M + Sync,
        impl Fn(usize, Evaluated) -> M::Batch + Sync,
    ),
) -> Vec<usize> {
    let of_ranks = Group::on_threads(ranks, |group| {
        let device = Arc::new(new(Order::Early));
        let model = model(device.clone());
        let mut engine =
            Engine::on_device(group, device.clone(), model, config.clone()).expect("an engine");
        let mut changes = Vec::new();
        for step in 0..FIRST + STEPS {
            let before = device.memory_changes();
            engine.submit_batch(|lane| batch(lane, Evaluated::Whole)).expect("a step");
            if 0 < step {
                engine.outcome().expect("a step");
                for size in [Evaluated::Whole, Evaluated::Part, Evaluated::Whole] {
                    engine.eval(&batch(step, size)).expect("an evaluation");
                }
            }
            changes.push(device.memory_changes() - before);
        }
        Ok(changes)
    });
    of_ranks.expect("all ranks end").swap_remove(0)
}

/// Size of a batch.
#[derive(Clone, Copy)]
enum Evaluated {
    /// That of the training.
    Whole,
    /// A smaller one.
    Part,
}

fn samples(lane: usize, size: Evaluated) -> Samples<f32> {
    let mut samples = samples_of(WIDE[0], 0, lane);
    if let Evaluated::Part = size {
        samples.classes.truncate(4);
        samples.inputs.truncate(4 * WIDE[0]);
    }
    samples
}

#[track_caller]
fn check(changes: &[usize], ranks: usize, config: &EngineConfig) {
    assert!(0 < changes[0], "the first step allocates memory");
    let are_kept = changes[FIRST..].iter().all(|changes| *changes == 0);
    assert!(are_kept, "changes of steps {changes:?}: {ranks} ranks, {config:?}");
}

#[test]
fn memory_is_kept_from_step_to_step() {
    if !has("compiler", "memory_is_kept_from_step_to_step") {
        return;
    }
    let in_files = || Offload {
        optimizer: StatePlace::Files(std::env::temp_dir()),
        parameters: Some(std::env::temp_dir()),
    };
    let settings: [&dyn Fn(&mut EngineConfig); 4] = [
        &|_| (),
        &|config| config.no_sync = true,
        &|config| config.offload.optimizer = StatePlace::Host,
        &|config| config.offload = in_files(),
    ];
    let model = |device| DeviceMlp::new(device, &WIDE, Precision::Bf16.into());
    for new in [EmulatedStreams::new as NewDevice, EmulatedStreams::connected] {
        for (sharding, ranks) in
            Sharding::ALL.into_iter().flat_map(|stage| [(stage, 1), (stage, 2), (stage, 4)])
        {
            for adjust in settings {
                let mut config = staged(sharding, 4 / ranks, Precision::Bf16);
                adjust(&mut config);
                if config.offload.parameters.is_some() && !sharding.divides_parameters() {
                    continue;
                }
                let changes = changes_of_steps(ranks, &config, new, (model, samples));
                check(&changes, ranks, &config);
            }
        }
    }
}

const GPT: GptConfig = GptConfig {
    architecture: GptArchitecture::Gpt2,
    vocabulary: 29,
    block: 8,
    layers: 3,
    heads: 1,
    width: 64,
};

fn sequences(lane: usize, size: Evaluated) -> Sequences {
    let sequences = match size {
        Evaluated::Whole => 2,
        Evaluated::Part => 1,
    };
    let count = sequences * GPT.block;
    let tokens = |first: usize| (first..first + count).map(|at| ((at + lane) % 29) as u32);
    Sequences { length: GPT.block, inputs: tokens(0).collect(), targets: tokens(1).collect() }
}

fn new_gpt(device: Arc<dyn Device>) -> DeviceGpt {
    DeviceGpt::new(device, GPT, Precision::Bf16.into()).expect("heads of 64 features")
}

/// A GPT, whose blocks share memory when activations are computed again.
#[test]
fn memory_of_a_gpt_is_kept_from_step_to_step() {
    if !has("compiler", "memory_of_a_gpt_is_kept_from_step_to_step") {
        return;
    }
    for (sharding, ranks, recompute) in
        [(Sharding::None, 1, 0), (Sharding::None, 1, 2), (Sharding::Parameters, 2, 1)]
    {
        let mut config = staged(sharding, 2 / ranks, Precision::Bf16);
        config.plan.recompute = recompute;
        let changes =
            changes_of_steps(ranks, &config, EmulatedStreams::connected, (new_gpt, sequences));
        check(&changes, ranks, &config);
    }
}

/// Losses of evaluations between two steps, and the digest after them.
fn evaluated(sizes: &[Evaluated]) -> (Vec<f32>, String) {
    let trained = Group::on_threads(1, |group| {
        let device: Arc<dyn Device> = Arc::new(EmulatedStreams::new(Order::Late));
        let config = staged(Sharding::None, 1, Precision::Bf16);
        let mut engine =
            Engine::on_device(group, device.clone(), new_gpt(device), config).expect("an engine");
        let step = |lane| sequences(lane, Evaluated::Whole);
        engine.train_batch(step).expect("a step");
        let mut eval = |size| engine.eval(&sequences(5, size)).expect("an evaluation");
        let losses = sizes.iter().map(|size| eval(*size)).collect();
        engine.train_batch(step).expect("a step");
        Ok((losses, engine.digest().expect("the digest")))
    });
    trained.expect("it ends").swap_remove(0)
}

/// Batches of both sizes use the same memory.
#[test]
fn evaluations_of_another_size_change_no_bit() {
    if !has("compiler", "evaluations_of_another_size_change_no_bit") {
        return;
    }
    let (part, expected) = evaluated(&[Evaluated::Part]);
    let (whole, without_part) = evaluated(&[Evaluated::Whole]);
    let (losses, digest) = evaluated(&[Evaluated::Whole, Evaluated::Part, Evaluated::Whole]);
    assert_eq!((&digest, &digest), (&expected, &without_part));
    assert_eq!(losses, [whole[0], part[0], whole[0]]);
}
