//! Bundled models and optimizer compared with PyTorch, in single precision.
//!
//! `scripts/gradient_vectors.py` creates the files in `tests/vectors`.
#![cfg(feature = "train")]

use std::fs;
use std::path::Path;

use remuda::runtime::engine::{Model, gradient_of};
use remuda::runtime::optim::{AdamOptions, Optimizer};
use remuda::runtime::{clip_factor, global_norm};
use remuda::train::{Gpt, GptArchitecture, GptConfig, Mlp, Samples, Sequences, Threads};
use serde_json::Value;

/// Largest difference from torch, relative to the largest number of a tensor.
const RELATIVE_ERROR_MAX: f32 = 1e-5;

fn read(name: &str) -> Value {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let text = fs::read_to_string(dir.join(name)).expect("the file is in the repository");
    serde_json::from_str(&text).expect("the file is JSON")
}

fn floats(value: &Value) -> Vec<f32> {
    let numbers = value.as_array().expect("an array").iter();
    numbers.map(|number| number.as_f64().expect("a number") as f32).collect()
}

fn bytes(value: &Value) -> Vec<u8> {
    tokens(value).into_iter().map(|number| number as u8).collect()
}

fn tokens(value: &Value) -> Vec<u32> {
    let numbers = value.as_array().expect("an array").iter();
    numbers.map(|number| number.as_u64().expect("a small number") as u32).collect()
}

fn size(value: &Value) -> usize {
    value.as_u64().expect("a size") as usize
}

fn gpt(architecture: GptArchitecture, case: &Value) -> (Gpt<f32>, Sequences) {
    let config = &case["config"];
    let config = GptConfig {
        architecture,
        vocabulary: size(&config["vocabulary"]),
        block: size(&config["block"]),
        layers: size(&config["layers"]),
        heads: size(&config["heads"]),
        width: size(&config["width"]),
    };
    let batch = Sequences {
        length: config.block,
        inputs: tokens(&case["inputs"]),
        targets: tokens(&case["targets"]),
    };
    (Gpt::new(config, Threads::ONE), batch)
}

fn mlp(case: &Value) -> (Mlp<f32>, Samples<f32>) {
    let sizes: Vec<usize> = case["sizes"].as_array().expect("sizes").iter().map(size).collect();
    let batch = Samples { inputs: floats(&case["inputs"]), classes: bytes(&case["classes"]) };
    (Mlp::new(&sizes, Threads::ONE), batch)
}

/// Compares tensor by tensor.
#[track_caller]
fn check_close<M: Model<f32>>(model: &M, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for parameter in model.parameters() {
        let (found, expected) =
            (&found[parameter.range.clone()], &expected[parameter.range.clone()]);
        let largest = expected.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
        for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
            let error = (found - expected).abs() / largest;
            let name = &parameter.name;
            assert!(error <= RELATIVE_ERROR_MAX, "{name}[{i}]: {found} instead of {expected}");
        }
    }
}

#[track_caller]
fn check_gradients<M: Model<f32>>((mut model, batch): (M, M::Batch), case: &Value) {
    let params = floats(&case["params"]);
    let mut gradients = vec![f32::NAN; params.len()];
    let loss = gradient_of(&mut model, &params, &batch, &mut gradients).expect("a gradient");
    let expected = case["loss"].as_f64().expect("a loss") as f32;
    assert!(
        (loss - expected).abs() <= RELATIVE_ERROR_MAX * expected,
        "{loss} instead of {expected}"
    );
    check_close(&model, &gradients, &floats(&case["gradients"]));
}

#[track_caller]
fn check_adamw<M: Model<f32>>((mut model, batch): (M, M::Batch), case: &Value) {
    let mut params = floats(&case["params"]);
    let mut gradients = vec![f32::NAN; params.len()];
    let optimizer = Optimizer::Adam(AdamOptions {
        betas: [0.9, 0.99],
        weight_decay: 0.1,
        ..Default::default()
    });
    let mut moments = [vec![0.0_f32; params.len()], vec![0.0_f32; params.len()]];
    for number in 1..=5 {
        gradient_of(&mut model, &params, &batch, &mut gradients).expect("a gradient");
        let factor = clip_factor(global_norm(&gradients), 0.5) as f32;
        let whole = optimizer.step(number, 1e-2 / number as f64, factor);
        for parameter in model.parameters() {
            let range = parameter.range.clone();
            let step = if parameter.decays() { whole } else { whole.without_decay() };
            let mut moments: Vec<&mut [f32]> =
                moments.iter_mut().map(|moment| &mut moment[range.clone()]).collect();
            let gradient = &gradients[range.clone()];
            step.update(&mut params[range], &mut moments, gradient);
        }
    }
    check_close(&model, &params, &floats(&case["after"]));
}

#[test]
fn gpt_gradients_match_torch() {
    let case = read("gpt_gradients.json");
    check_gradients(gpt(GptArchitecture::Plain, &case), &case);
}

#[test]
fn gpt2_gradients_match_torch() {
    let case = read("gpt2_gradients.json");
    check_gradients(gpt(GptArchitecture::Gpt2, &case), &case);
}

#[test]
fn mlp_gradients_match_torch() {
    let case = read("mlp_gradients.json");
    check_gradients(mlp(&case), &case);
}

#[test]
fn adamw_steps_on_gpt_match_torch() {
    let case = read("gpt_adamw.json");
    check_adamw(gpt(GptArchitecture::Plain, &case), &case);
}

#[test]
fn adamw_steps_on_mlp_match_torch() {
    let case = read("mlp_adamw.json");
    check_adamw(mlp(&case), &case);
}
