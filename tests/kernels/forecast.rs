//! Memory of a training on the emulated device, beside its forecast.

use std::sync::{Arc, Mutex};

use remuda::cuda::device::Device;
use remuda::runtime::Group;
use remuda::runtime::engine::{DeviceModel, Engine, Precision, Sharding};
use remuda::train::{
    DeviceGpt, DeviceMlp, GptArchitecture, GptConfig, GptOptions, ModelOptions, Sequences,
    TrainOptions, WorkerMemory,
};

use super::emulated_streams::{EmulatedStreams, Order};
use super::stages::Faulty;
use super::trainer::{mlp, options};
use super::training::samples_of;
use crate::support::proof::has;
use remuda::cuda::kernels::HalfType;

const VOCABULARY: usize = 29;

fn gpt(block: usize, layers: usize, heads: usize) -> GptConfig {
    let architecture = GptArchitecture::Gpt2;
    GptConfig { architecture, vocabulary: VOCABULARY, block, layers, heads, width: 64 * heads }
}

/// Options of a training of a GPT with these sizes.
fn gpt_options(sizes: GptConfig) -> TrainOptions {
    let GptConfig { architecture, block, layers, heads, width, .. } = sizes;
    let data = Vec::new();
    let gpt = GptOptions { architecture, block, layers, heads, width, data, vocabulary: None };
    options(ModelOptions::Gpt(gpt), Precision::Bf16)
}

/// Most bytes of the device of rank 0 in two steps.
fn peak<M: DeviceModel>(
    ranks: usize,
    options: &TrainOptions,
    (model, batch): (impl Fn(Arc<dyn Device>) -> M + Sync, impl Fn(usize) -> M::Batch + Sync),
) -> f64 {
    let bytes: Arc<Mutex<[usize; 2]>> = Arc::default();
    let trained = Group::on_threads(ranks, |group| {
        let (own, elsewhere) = (bytes.clone(), Arc::default());
        let bytes = if group.rank() == 0 { own } else { elsewhere };
        let inner = EmulatedStreams::new(Order::Early);
        let device: Arc<dyn Device> = Arc::new(Faulty::counting(inner, bytes));
        let config = options.engine.clone();
        let mut engine =
            Engine::on_device(group, device.clone(), model(device), config).expect("an engine");
        for _ in 0..2 {
            engine.train_batch(&batch).expect("a step");
        }
        Ok(())
    });
    trained.expect("all ranks end");
    let [_, most] = *bytes.lock().expect("no thread panics");
    most as f64
}

/// Compares the peak with the forecast, without the memory of a library that the emulated device does not have.
#[track_caller]
fn check(ranks: usize, options: &TrainOptions, peak: f64) {
    let forecast = WorkerMemory::forecast_on_device(options, VOCABULARY, ranks);
    let forecast = WorkerMemory { products: 0.0, ..forecast }.total();
    let error = (peak - forecast).abs() / forecast;
    assert!(error < 0.05, "{peak} instead of {forecast}: {ranks} ranks, {:?}", options.engine);
}

fn check_gpt(sizes: GptConfig, ranks: usize, adjust: impl Fn(&mut TrainOptions)) {
    let mut options = gpt_options(sizes);
    adjust(&mut options);
    let sequences = options.batch_size.get();
    let batch = |lane: usize| {
        let count = sequences * sizes.block;
        let tokens = |first: usize| -> Vec<u32> {
            (first..first + count).map(|at| ((at + lane) % VOCABULARY) as u32).collect()
        };
        Sequences { length: sizes.block, inputs: tokens(0), targets: tokens(1) }
    };
    let model =
        |device| DeviceGpt::new(device, sizes, HalfType::Bf16).expect("heads of 64 features");
    check(ranks, &options, peak(ranks, &options, (model, batch)));
}

#[test]
fn memory_of_a_gpt_on_a_device_is_as_forecast() {
    if !has("compiler", "memory_of_a_gpt_on_a_device_is_as_forecast") {
        return;
    }
    for recompute in 0..=4 {
        // The activations are most of the memory.
        check_gpt(gpt(48, 3, 1), 1, |options| {
            options.engine.plan.recompute = recompute;
            options.batch_size = 6.try_into().expect("a number");
        });
    }
    check_gpt(gpt(9, 1, 2), 1, |_| ());
    for sharding in [Sharding::None, Sharding::Gradients, Sharding::Parameters] {
        check_gpt(gpt(16, 3, 1), 2, |options| {
            options.engine.sharding = sharding;
            options.engine.plan.recompute = 2;
        });
    }
}

#[test]
fn memory_of_an_mlp_on_a_device_is_as_forecast() {
    if !has("compiler", "memory_of_an_mlp_on_a_device_is_as_forecast") {
        return;
    }
    for precision in [Precision::F32, Precision::Bf16] {
        let mut options = options(mlp(), precision);
        options.batch_size = 6.try_into().expect("a number");
        let sizes = [24, 40, 40, 5];
        let model = |device| DeviceMlp::new(device, &sizes, precision.into());
        let peak = peak(1, &options, (model, |lane| samples_of(sizes[0], 0, lane)));
        check(1, &options, peak);
    }
}
