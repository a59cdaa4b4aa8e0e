//! Training on the emulated device, step by step, against the same on CPUs.

use std::sync::Arc;

use remuda::cuda::device::Device;
use remuda::runtime::engine::{Engine, EngineConfig, Precision, Section, StepOutcome};
use remuda::runtime::optim::{
    AdamOptions, DynamicScaling, LionOptions, LossScaling, LrSchedule, Optimizer, SgdOptions,
};
use remuda::runtime::{Group, RandomStream};
use remuda::train::{
    DeviceGpt, DeviceMlp, Gpt, GptArchitecture, GptConfig, Mlp, Samples, Sequences, Threads,
};

use super::emulated_streams::{EmulatedStreams, Order};
use crate::support::proof::has;
use remuda::runtime::kernel_checks::error_of;

pub(super) const SIZES: [usize; 4] = [12, 24, 16, 5];
pub(super) const STEPS: usize = 4;

/// Micro-batch of a lane in a step.
pub(super) fn samples(step: usize, lane: usize) -> Samples<f32> {
    samples_of(SIZES[0], step, lane)
}

/// The same for a model with another number of inputs.
pub(super) fn samples_of(inputs: usize, step: usize, lane: usize) -> Samples<f32> {
    let mut stream = RandomStream::new(&[8, step as u64, lane as u64]);
    let inputs = (0..inputs * 6).map(|_| stream.normal() as f32).collect();
    Samples { inputs, classes: (0..6).map(|_| stream.below(SIZES[3]) as u8).collect() }
}

pub(super) fn config(
    accumulate: usize,
    optimizer: Optimizer,
    precision: Precision,
) -> EngineConfig {
    EngineConfig {
        accumulate,
        optimizer,
        precision,
        clip: Some(0.5),
        schedule: LrSchedule::Constant { rate: 0.01 },
        ..EngineConfig::default()
    }
}

/// Opens the device of a rank.
pub(super) trait Open: Fn() -> Arc<dyn Device> + Sync {}

impl<F: Fn() -> Arc<dyn Device> + Sync> Open for F {}

/// Outcomes of the steps, and the weights after the last one.
type Trained = (Vec<StepOutcome>, Vec<f32>);

/// A new emulated device.
pub(super) fn emulated(order: Order) -> Arc<dyn Device> {
    Arc::new(EmulatedStreams::new(order))
}

/// Trains the MLP on devices of `ranks` ranks; the result of rank 0, which all ranks have.
fn on_devices(ranks: usize, config: &EngineConfig, open: &dyn Open) -> Trained {
    let trained = Group::on_threads(ranks, |group| {
        let device = open();
        let model = DeviceMlp::new(device.clone(), &SIZES, config.precision.into());
        let mut engine =
            Engine::on_device(group, device, model, config.clone()).expect("an engine");
        let mut step = |step| engine.train_batch(|lane| samples(step, lane)).expect("a step");
        let outcomes = (0..STEPS).map(&mut step).collect::<Vec<_>>();
        Ok((outcomes, engine.gather(Section::Weights).expect("the weights")))
    });
    let trained = trained.expect("all ranks end");
    // As text, because a norm may be NaN.
    let texts: Vec<String> = trained.iter().map(|of_rank| format!("{of_rank:?}")).collect();
    assert!(texts.iter().all(|text| *text == texts[0]), "the ranks differ: {texts:?}");
    trained.into_iter().next().expect("there is a rank")
}

/// Trains the same on a CPU.
fn on_cpu(config: &EngineConfig) -> Trained {
    let trained = Group::on_threads(1, |group| {
        let model = Mlp::new(&SIZES, Threads::ONE);
        let mut engine = Engine::new(group, model, config.clone()).expect("an engine");
        let mut step = |step| engine.train_batch(|lane| samples(step, lane)).expect("a step");
        let outcomes = (0..STEPS).map(&mut step).collect::<Vec<_>>();
        Ok((outcomes, engine.gather(Section::Weights).expect("the weights")))
    });
    trained.expect("it ends").into_iter().next().expect("there is a rank")
}

fn widened(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

/// Compares a training on a device with that on a CPU.
#[track_caller]
fn check(config: &EngineConfig, limit: f64, open: &dyn Open) {
    let (expected, weights) = on_cpu(config);
    let (found, on_device) = on_devices(1, config, open);
    for (found, expected) in found.iter().zip(&expected) {
        let errors = [
            (f64::from(found.loss) - f64::from(expected.loss)) / f64::from(expected.loss),
            (found.norm - expected.norm) / expected.norm,
        ];
        let is_close = errors.iter().all(|error| error.abs() < limit);
        assert!(is_close, "{:?}: {found:?} instead of {expected:?}", config.optimizer);
        assert_eq!(found.is_applied, expected.is_applied);
        assert_eq!((found.step, found.loss_scale), (expected.step, expected.loss_scale));
    }
    let error = error_of(&widened(&on_device), &widened(&weights));
    assert!(error < limit, "{:?}: error of the weights {error:.1e}", config.optimizer);
}

pub(super) fn adam() -> Optimizer {
    Optimizer::Adam(AdamOptions::default())
}

/// Checks every optimizer in f32, and bf16.
pub(super) fn check_optimizers(open: &dyn Open) {
    let momentum = SgdOptions { momentum: 0.9, nesterov: true, ..SgdOptions::default() };
    for optimizer in [
        adam(),
        Optimizer::Sgd(SgdOptions::default()),
        Optimizer::Sgd(momentum),
        Optimizer::Lion(LionOptions::default()),
    ] {
        check(&config(3, optimizer, Precision::F32), 1e-5, open);
    }
    check(&config(2, adam(), Precision::Bf16), 2e-2, open);
    // The scale grows. If that of the device were another one, so would be its norms.
    let scaling = DynamicScaling { initial_power: 8, window: 1, ..DynamicScaling::default() };
    let loss_scaling = LossScaling::Dynamic(scaling);
    check(&EngineConfig { loss_scaling, ..config(2, adam(), Precision::F16) }, 1e-2, open);
}

/// Checks that overflows are skipped, on one rank and on two.
pub(super) fn check_overflows([first, second]: [&dyn Open; 2]) {
    let scaling = DynamicScaling { initial_power: 22, window: 2, ..DynamicScaling::default() };
    let config = EngineConfig {
        loss_scaling: LossScaling::Dynamic(scaling),
        ..config(1, adam(), Precision::F16)
    };
    let (outcomes, _) = on_devices(1, &config, first);
    assert!(!outcomes[0].is_applied && outcomes[STEPS - 1].loss_scale < outcomes[0].loss_scale);
    let (again, _) = on_devices(2, &config, second);
    assert_eq!(again[0].is_applied, outcomes[0].is_applied);
}

/// Checks that the same lanes give the same bits on one, two and four ranks, and again on one.
pub(super) fn check_lanes(open: [&dyn Open; 4]) {
    for precision in [Precision::F32, Precision::Bf16] {
        let train = |ranks, accumulate, open| {
            on_devices(ranks, &config(accumulate, adam(), precision), open)
        };
        let expected = train(1, 4, open[0]);
        assert_eq!(train(2, 2, open[1]), expected);
        assert_eq!(train(4, 1, open[2]), expected);
        assert_eq!(train(1, 4, open[3]), expected);
    }
}

/// Checks that a GPT learns as on a CPU: in f32 up to the order of sums.
pub(super) fn check_gpts(open: &dyn Open) {
    check_gpt(Precision::Bf16, 0.01, open);
    check_gpt(Precision::F32, 1e-5, open);
}

fn check_gpt(precision: Precision, limit: f64, open: &dyn Open) {
    let architecture = GptArchitecture::Gpt2;
    let gpt = GptConfig { architecture, vocabulary: 29, block: 24, layers: 1, heads: 1, width: 64 };
    let batch = |_| {
        let tokens: Vec<u32> = (0..25).map(|at| at * at % 29).collect();
        Sequences { length: 24, inputs: tokens[..24].to_vec(), targets: tokens[1..].to_vec() }
    };
    let config = config(1, adam(), precision);
    let losses = |step: &mut dyn FnMut() -> StepOutcome| -> Vec<f64> {
        (0..STEPS).map(|_| f64::from(step().loss)).collect()
    };
    let trained = Group::on_threads(1, |group| {
        let device = open();
        let model = DeviceGpt::new(device.clone(), gpt, precision.into()).expect("heads of 64");
        let mut on_device =
            Engine::on_device(group, device, model, config.clone()).expect("an engine");
        let host = Gpt::new(gpt, Threads::ONE);
        let mut on_cpu = Engine::new(group, host, config.clone()).expect("an engine");
        let found = losses(&mut || on_device.train_batch(batch).expect("a step"));
        Ok((found, losses(&mut || on_cpu.train_batch(batch).expect("a step"))))
    });
    let (found, expected) = trained.expect("it ends").remove(0);
    assert!(found[STEPS - 1] < 0.8 * found[0], "it learns: {found:?}");
    for (found, expected) in found.iter().zip(&expected) {
        assert!((found - expected).abs() < limit * expected, "{found} instead of {expected}");
    }
}

#[test]
fn training_on_a_device_equals_that_on_a_cpu() {
    if has("compiler", "training_on_a_device_equals_that_on_a_cpu") {
        check_optimizers(&|| emulated(Order::Random(3)));
    }
}

#[test]
fn overflows_on_a_device_are_skipped() {
    if has("compiler", "overflows_on_a_device_are_skipped") {
        check_overflows([&|| emulated(Order::Late), &|| emulated(Order::Early)]);
    }
}

#[test]
fn ranks_and_micro_batches_of_devices_change_no_bit() {
    if has("compiler", "ranks_and_micro_batches_of_devices_change_no_bit") {
        check_lanes([
            &|| emulated(Order::Early),
            &|| emulated(Order::Late),
            &|| emulated(Order::Random(1)),
            &|| emulated(Order::Random(2)),
        ]);
    }
}

#[test]
fn gpt_learns_on_a_device_as_on_a_cpu() {
    if has("compiler", "gpt_learns_on_a_device_as_on_a_cpu") {
        check_gpts(&|| emulated(Order::Late));
    }
}
