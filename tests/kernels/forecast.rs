//! Memory of a training on the emulated device, beside its forecast.

use std::sync::{Arc, Mutex};

use remuda::cuda::device::Device;
use remuda::runtime::Group;
use remuda::runtime::engine::{DeviceModel, Engine, Precision, Sharding};
use remuda::train::{
    AttentionChoice, DeviceGpt, DeviceMlp, GptArchitecture, GptConfig, GptOptions, ModelOptions,
    Sequences, TrainOptions, WorkerMemory,
};

use super::emulated_streams::{EmulatedStreams, Order};
use super::stages::Faulty;
use super::trainer::{mlp, options};
use super::training::samples_of;
use crate::support::proof::has;

const VOCABULARY: usize = 29;

fn gpt(block: usize, layers: usize, heads: usize) -> GptConfig {
    let architecture = GptArchitecture::Gpt2;
    GptConfig { architecture, vocabulary: VOCABULARY, block, layers, heads, width: 64 * heads }
}

/// Options of a training of a GPT with these sizes.
fn gpt_options(sizes: GptConfig) -> TrainOptions {
    let GptConfig { architecture, block, layers, heads, width, .. } = sizes;
    let data = Vec::new();
    let gpt = GptOptions {
        architecture,
        block,
        layers,
        heads,
        attention: AttentionChoice::Auto,
        width,
        data,
        vocabulary: None,
    };
    options(ModelOptions::Gpt(gpt), Precision::Bf16)
}

/// Most bytes of rank 0 on its device in two steps: of the model, and of all.
struct Peaks {
    model: usize,
    all: usize,
}

fn peaks<M: DeviceModel>(
    ranks: usize,
    options: &TrainOptions,
    (model, batch): (impl Fn(Arc<dyn Device>) -> M + Sync, impl Fn(usize) -> M::Batch + Sync),
) -> Peaks {
    let trained = Group::on_threads(ranks, |group| {
        let [of_model, all]: [Arc<Mutex<[usize; 2]>>; 2] = Default::default();
        let inner = Arc::new(EmulatedStreams::connected(Order::Early));
        let device: Arc<dyn Device> = Arc::new(Faulty::counting(inner, all.clone()));
        let model = model(Arc::new(Faulty::counting(device.clone(), of_model.clone())));
        let config = options.engine.clone();
        let mut engine = Engine::on_device(group, device, model, config).expect("an engine");
        for _ in 0..2 {
            engine.train_batch(&batch).expect("a step");
        }
        let [model, all] = [of_model, all].map(|bytes| bytes.lock().expect("no thread panics")[1]);
        Ok(Peaks { model, all })
    });
    trained.expect("all ranks end").swap_remove(0)
}

/// Compares the peaks with the forecast, without the memory of a library that the emulated device does not have.
#[track_caller]
fn check(ranks: usize, options: &TrainOptions, peaks: &Peaks) {
    let forecast = WorkerMemory::forecast_on_device(options, VOCABULARY, ranks);
    let all = WorkerMemory { products: 0.0, ..forecast }.total();
    for (peak, forecast) in [(peaks.model, forecast.activations), (peaks.all, all)] {
        let error = (peak as f64 - forecast).abs() / forecast;
        assert!(error < 0.05, "{peak} instead of {forecast}: {ranks} ranks, {:?}", options.engine);
    }
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
    let ModelOptions::Gpt(gpt) = &options.model else { unreachable!("it is a GPT") };
    let model = |device| {
        let model = DeviceGpt::new(device, sizes, options.engine.precision.into());
        let model = model.expect("heads of 64 features").with_attention(gpt.attention);
        model.expect("it can be computed so")
    };
    check(ranks, &options, &peaks(ranks, &options, (model, batch)));
}

#[test]
fn memory_of_a_gpt_on_a_device_is_as_forecast() {
    if !has("compiler", "memory_of_a_gpt_on_a_device_is_as_forecast") {
        return;
    }
    for recompute in 0..=4 {
        check_gpt(gpt(16, 3, 1), 1, |options| {
            options.engine.plan.recompute = recompute;
            options.engine.accumulate = 1;
        });
    }
    check_gpt(gpt(9, 1, 2), 1, |_| ());
    check_gpt(gpt(21, 2, 2), 1, |options| options.engine.precision = Precision::F32);
    check_gpt(gpt(21, 2, 2), 1, |options| {
        if let ModelOptions::Gpt(gpt) = &mut options.model {
            gpt.attention = AttentionChoice::Products;
        }
    });
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
        let peaks = peaks(1, &options, (model, |lane| samples_of(sizes[0], 0, lane)));
        check(1, &options, &peaks);
    }
}
