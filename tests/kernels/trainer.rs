//! The bundled trainer on a device: its steps, evaluations, checkpoints and sample, beside those on a processor.

use std::cell::Cell;
use std::fs;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use remuda::runtime::Group;
use remuda::runtime::engine::{EngineConfig, Precision};
use remuda::runtime::optim::{AdamOptions, LrSchedule, Optimizer};
use remuda::train::{
    AttentionChoice, CheckpointOptions, GptArchitecture, GptOptions, MlpOptions, ModelOptions,
    RunEnd, Threads, TrainEvent, TrainOptions, TrainOutcome, train, train_on,
};

use super::emulated_streams::Order;
use super::saved::Dir;
use super::training::{Open, emulated};
use crate::support::proof::has;

const STEPS: u64 = 4;

pub(super) fn options(model: ModelOptions, precision: Precision) -> TrainOptions {
    TrainOptions {
        model,
        batch_size: NonZeroUsize::new(3).expect("a number"),
        engine: EngineConfig {
            accumulate: 2,
            optimizer: Optimizer::Adam(AdamOptions::default()),
            schedule: LrSchedule::Constant { rate: 0.01 },
            clip: Some(1.0),
            precision,
            seed: 5,
            ..EngineConfig::default()
        },
        steps: STEPS,
        seed: 5,
        threads: Threads::ONE,
        eval_every: Some(2),
        checkpoint: None,
        resume: None,
        may_start_fresh: false,
        start: None,
        metrics: None,
        plot: None,
        scalars: Vec::new(),
    }
}

pub(super) fn mlp() -> ModelOptions {
    ModelOptions::Mlp(MlpOptions { inputs: 24, layers: 2, width: 40, classes: 5 })
}

/// A GPT on a text of one page, with so many heads.
fn gpt(text: PathBuf, heads: usize) -> ModelOptions {
    ModelOptions::Gpt(GptOptions {
        architecture: GptArchitecture::Gpt2,
        block: 16,
        layers: 1,
        heads,
        attention: AttentionChoice::Auto,
        width: 64,
        data: vec![text],
        vocabulary: None,
    })
}

/// What a run has reported.
struct Report {
    outcome: TrainOutcome,
    /// Losses of all steps, then those of the held-out part.
    losses: Vec<f64>,
    has_sample: bool,
}

fn report(run: impl FnOnce(&Group, &mut dyn FnMut(&TrainEvent)) -> TrainOutcome) -> Report {
    let group = Group::single().expect("a group of one rank");
    let (mut losses, mut held_out, mut has_sample) = (Vec::new(), Vec::new(), false);
    let outcome = run(&group, &mut |event| match event {
        TrainEvent::Stepped(step) => {
            losses.push(f64::from(step.outcome.loss));
            held_out.extend(step.val_loss);
        }
        TrainEvent::Sampled(text) => has_sample = !text.is_empty(),
        _ => {}
    });
    losses.extend(held_out);
    losses.extend(outcome.summary.val_loss);
    Report { outcome, losses, has_sample }
}

fn on_device(options: &TrainOptions, open: &dyn Open) -> Report {
    report(|group, on_event| {
        train_on(group, open(), options, &|| false, on_event).expect("the run succeeds")
    })
}

/// Compares a run on a device with the same on a processor.
#[track_caller]
fn check_run(options: &TrainOptions, limit: f64, open: &dyn Open) -> Report {
    let expected = report(|group, on_event| {
        train(group, options, &|| false, on_event).expect("the run succeeds")
    });
    let found = on_device(options, open);
    assert_eq!(found.losses.len(), STEPS as usize + 3, "steps, two evaluations, the last one");
    for (found, expected) in found.losses.iter().zip(&expected.losses) {
        assert!((found - expected).abs() < limit * expected, "{found} instead of {expected}");
    }
    assert_eq!(found.has_sample, expected.has_sample);
    found
}

/// Checks that a run is stopped after the step that is in progress when the stop is known, and that it can go on.
fn check_stop(whole: &TrainOptions, digest: &str, dir: &Dir, open: &dyn Open) {
    let checkpoint = CheckpointOptions { dir: dir.0.join("stopped"), every: None, keep: None };
    let options = TrainOptions { eval_every: None, checkpoint: Some(checkpoint), ..whole.clone() };
    let asked = Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        asked.get() == 2
    };
    let mut steps = Vec::new();
    let stopped = report(|group, on_event| {
        let mut on_event = |event: &TrainEvent| {
            if let TrainEvent::Stepped(step) = event {
                steps.push(step.outcome.step);
            }
            on_event(event);
        };
        train_on(group, open(), &options, &stop, &mut on_event).expect("the run is stopped")
    });
    let summary = &stopped.outcome.summary;
    assert_eq!((summary.end, summary.step), (RunEnd::Stopped, 3));
    assert_eq!(steps, [1, 2, 3], "every step is reported");
    let rest = TrainOptions { resume: summary.checkpoint.clone(), ..whole.clone() };
    assert_eq!(on_device(&rest, open).outcome.digest, digest);
}

/// Checks whole runs: an MLP that is interrupted, and a GPT that writes a sample.
pub(super) fn check(open: &dyn Open) {
    let whole = options(mlp(), Precision::F32);
    let found = check_run(&whole, 1e-4, open);
    let dir = Dir::new("device-trainer");
    let checkpoint = CheckpointOptions { dir: dir.0.join("run"), every: None, keep: None };
    let half = TrainOptions { steps: STEPS / 2, checkpoint: Some(checkpoint), ..whole.clone() };
    let saved = on_device(&half, open).outcome.summary.checkpoint.expect("it is saved");
    let rest = TrainOptions { resume: Some(saved), ..whole.clone() };
    assert_eq!(on_device(&rest, open).outcome.digest, found.outcome.digest);

    check_stop(&whole, &found.outcome.digest, &dir, open);

    let text = dir.0.join("text");
    let words = (0..600).map(|word| ["a ", "bc ", "def\n", "g, "][word * word % 7 % 4]);
    fs::write(&text, words.collect::<String>()).expect("the text is written");
    // The heads of the default model are too narrow for a kernel, and its type too wide.
    check_run(&options(gpt(text.clone(), 2), Precision::F32), 1e-4, open);
    let found = check_run(&options(gpt(text, 1), Precision::Bf16), 0.02, open);
    assert!(found.has_sample && found.losses[STEPS as usize - 1] < found.losses[0]);
}

#[test]
fn trainer_on_a_device_does_what_it_does_on_a_processor() {
    if has("compiler", "trainer_on_a_device_does_what_it_does_on_a_processor") {
        check(&|| emulated(Order::Late));
    }
}
