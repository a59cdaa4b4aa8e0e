//! Gradients of the bundled models: compared with finite differences in double precision, and between
//! different numbers of threads.
#![cfg(feature = "train")]

use std::num::NonZeroUsize;

use remuda::runtime::RandomStream;
use remuda::runtime::engine::{Model, gradient_of, loss_of};
use remuda::train::{Gpt, GptArchitecture, GptConfig, Mlp, Samples, Sequences, Threads};

/// Largest difference between finite differences and backward, relative to the largest gradient of a
/// tensor.
const RELATIVE_ERROR_MAX: f64 = 1e-6;
/// Largest number of elements of a tensor that are perturbed.
const PROBES_MAX: usize = 24;

/// The derivative of the loss by one parameter, from four points: the error is of fourth order.
fn slope<M: Model<f64>>(model: &mut M, params: &mut [f64], batch: &M::Batch, i: usize) -> f64 {
    const STEP: f64 = 2e-4;
    let center = params[i];
    let mut at = |offset: f64| {
        params[i] = center + offset * STEP;
        let loss = loss_of(model, params, batch).expect("passes name their units");
        params[i] = center;
        loss
    };
    (8.0 * (at(1.0) - at(-1.0)) - (at(2.0) - at(-2.0))) / (12.0 * STEP)
}

/// Compares every tensor's gradient with finite differences, at parameters drawn around the initial
/// ones so that gains differ from one and no layer is nearly linear.
#[track_caller]
fn check<M: Model<f64>>(mut model: M, batch: &M::Batch) {
    let mut stream = RandomStream::new(&[11]);
    let mut params: Vec<f64> = model.parameters().init(3);
    for p in &mut params {
        *p += 0.3 * stream.normal();
    }
    let mut gradients = vec![f64::NAN; params.len()];
    let loss = gradient_of(&mut model, &params, batch, &mut gradients).expect("as above");
    let again = loss_of(&mut model, &params, batch).expect("as above");
    assert_eq!(loss.to_bits(), again.to_bits());
    for parameter in &model.parameters().clone() {
        let (name, found) = (&parameter.name, &gradients[parameter.range.clone()]);
        let largest = found.iter().fold(0.0_f64, |largest, g| largest.max(g.abs()));
        assert!(0.0 < largest && largest.is_finite(), "{name} has no gradient");
        for probe in 0..found.len().min(PROBES_MAX) {
            let i = probe * found.len() / found.len().min(PROBES_MAX);
            let expected = slope(&mut model, &mut params, batch, parameter.range.start + i);
            let error = (found[i] - expected).abs() / largest;
            assert!(error <= RELATIVE_ERROR_MAX, "{name}[{i}]: {} instead of {expected}", found[i]);
        }
    }
}

fn plain(vocabulary: usize, block: usize, layers: usize, heads: usize, width: usize) -> GptConfig {
    let architecture = GptArchitecture::Plain;
    GptConfig { architecture, vocabulary, block, layers, heads, width }
}

fn sequences(config: GptConfig, length: usize, count: usize) -> Sequences {
    let mut stream = RandomStream::new(&[5, length as u64]);
    let mut draw = || (0..length * count).map(|_| stream.below(config.vocabulary) as u32).collect();
    Sequences { length, inputs: draw(), targets: draw() }
}

fn samples(features: usize, classes: usize, count: usize) -> Samples<f64> {
    let mut stream = RandomStream::new(&[6]);
    let inputs = (0..features * count).map(|_| stream.normal()).collect();
    Samples { inputs, classes: (0..count).map(|_| stream.below(classes) as u8).collect() }
}

fn threads(count: usize) -> Threads {
    Threads::new(NonZeroUsize::new(count).expect("at least one"))
}

#[test]
fn gpt_gradients_with_one_block() {
    let config = plain(7, 6, 1, 2, 8);
    check(Gpt::new(config, Threads::ONE), &sequences(config, 6, 3));
}

#[test]
fn gpt_gradients_with_several_blocks() {
    let config = plain(17, 20, 3, 3, 24);
    check(Gpt::new(config, Threads::ONE), &sequences(config, 20, 5));
}

#[test]
fn gpt2_gradients_with_several_blocks() {
    let config = GptConfig { architecture: GptArchitecture::Gpt2, ..plain(17, 20, 3, 3, 24) };
    check(Gpt::new(config, Threads::ONE), &sequences(config, 20, 5));
}

#[test]
fn gpt_gradients_of_short_sequences() {
    let config = plain(5, 9, 2, 1, 4);
    let mut model = Gpt::<f64>::new(config, Threads::ONE);
    let params: Vec<f64> = model.parameters().init(1);
    let mut gradients = vec![f64::NAN; params.len()];
    gradient_of(&mut model, &params, &sequences(config, 4, 2), &mut gradients).expect("as above");
    let positions = model.parameters().get("wpe.weight").expect("a GPT has positions");
    let (seen, unseen) = gradients[positions.range.clone()].split_at(4 * 4);
    assert!(seen.iter().all(|&g| g != 0.0) && unseen.iter().all(|&g| g == 0.0));
}

/// More tokens than attention processes at once: several blocks of queries and of keys.
#[test]
fn gpt_gradients_of_long_sequences() {
    let config = plain(11, 150, 1, 2, 6);
    check(Gpt::new(config, Threads::ONE), &sequences(config, 150, 2));
}

#[test]
fn mlp_gradients_with_two_hidden_layers() {
    check(Mlp::new(&[9, 13, 11, 5], Threads::ONE), &samples(9, 5, 7));
}

/// More features than a thread processes at once.
#[test]
fn mlp_gradients_with_wide_layers() {
    check(Mlp::new(&[20, 150, 131, 3], Threads::ONE), &samples(20, 3, 4));
}

/// Bits of loss and gradients.
fn bits<M: Model<f64>>(mut model: M, batch: &M::Batch) -> Vec<u64> {
    let params: Vec<f64> = model.parameters().init(3);
    let mut gradients = vec![f64::NAN; params.len()];
    let loss = gradient_of(&mut model, &params, batch, &mut gradients).expect("as above");
    gradients.iter().chain([&loss]).map(|x| x.to_bits()).collect()
}

#[test]
fn thread_count_changes_no_bit_of_the_gradients() {
    let config = plain(65, 32, 2, 2, 64);
    let tokens = sequences(config, 32, 13);
    let gpt = |count| bits(Gpt::new(config, threads(count)), &tokens);
    let config2 = GptConfig { architecture: GptArchitecture::Gpt2, ..config };
    let gpt2 = |count| bits(Gpt::new(config2, threads(count)), &tokens);
    let images = samples(100, 10, 33);
    let mlp = |count| bits(Mlp::new(&[100, 300, 300, 10], threads(count)), &images);
    for count in [2, 3, 5] {
        assert_eq!(gpt(1), gpt(count), "{count} threads");
        assert_eq!(gpt2(1), gpt2(count), "{count} threads");
        assert_eq!(mlp(1), mlp(count), "{count} threads");
    }
}
