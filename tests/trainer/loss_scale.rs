//! Runs whose gradients are not finite: steps that are skipped, and steps that end the run.

use std::fs;

use serde_json::Value;

use super::{SMALL, losses};
use crate::support::scratch::{Scratch, text};

/// Writes a file with a section `fp16`.
fn scratch_with(name: &str, fp16: &str) -> Scratch {
    let scratch = Scratch::new("train", name);
    let file = format!("{{\"train_batch_size\": 4, \"fp16\": {{\"enabled\": true, {fp16}}}}}");
    scratch.write("ds.json", file);
    scratch
}

/// The last record of a metrics file.
fn last_record(scratch: &Scratch, file: &str) -> Value {
    let metrics = fs::read_to_string(scratch.path(file)).expect("metrics");
    serde_json::from_str(metrics.lines().last().expect("a record")).expect("JSON")
}

/// A scale that adapts may come down with more steps; a fixed one does not.
#[test]
fn run_whose_steps_are_all_skipped_warns_or_fails() {
    let line = format!("{SMALL} --eval_every 0 --steps 5 --config ds.json");
    let scratch = scratch_with("all-skipped", "\"initial_scale_power\": 127");
    let ended = scratch.run(&line);
    let shown = text(&ended.stderr);
    let warning = "warning[T014]: all 5 steps were skipped, and the parameters are unchanged: their gradients overflow; \
                   the loss scale is 1.06e37 now\nhelp: each further overflow halves the scale: ";
    assert!(shown.contains(warning), "{shown}");
    assert_eq!(ended.status.code(), Some(0), "{shown}");
    let scratch = scratch_with("all-skipped-static", "\"loss_scale\": 1e38");
    let ended = scratch.run(&format!("{line} --metrics m"));
    let shown = text(&ended.stderr);
    let error = "error[T014]: all 5 steps were skipped, and the parameters are unchanged: their gradients overflow at \
                 loss scale 1.00e38\nhelp: write a smaller `loss_scale` in `fp16` of `--deepspeed_config`";
    assert_eq!(shown.matches(error).count(), 1, "{shown}");
    assert_eq!(ended.status.code(), Some(1), "{shown}");
    assert!(last_record(&scratch, "m")["digest"].is_string(), "the run is complete");
}

/// The first update makes the parameters infinite, and bf16 has no scale that could adapt.
#[test]
fn run_in_bf16_that_no_longer_learns_warns_or_fails() {
    let scratch = Scratch::new("train", "bf16-skipped");
    let line = format!("{SMALL} --eval_every 0 --precision bf16 --lr 1e30 --warmup 0 --metrics m");
    let ended = scratch.run(&format!("{line} --steps 4"));
    let shown = text(&ended.stderr);
    let warning = "warning[T014]: 3 of 4 steps were skipped, the last 3 one after the other: their gradients are not \
                   finite\nhelp: give a smaller `--lr`, and continue from a checkpoint before the first skipped step\n";
    assert!(shown.contains(warning), "{shown}");
    assert_eq!(ended.status.code(), Some(0), "{shown}");
    let progress = text(&ended.stdout);
    assert!(progress.contains("  skipped: the gradient is not finite  "), "{progress}");
    let ended = scratch.run(&format!("{line} --steps 40"));
    let shown = text(&ended.stderr);
    let error = "error[T014]: 10 of 11 steps were skipped, the last 10 one after the other: their gradients are not finite";
    assert_eq!(shown.lines().filter(|line| *line == error).count(), 1, "{shown}");
    assert_eq!(ended.status.code(), Some(1), "{shown}");
    assert_eq!(last_record(&scratch, "m")["skipped"], 10);
}

/// The step that ends a run is in its metrics as well, with all of its numbers.
#[test]
fn step_that_is_not_finite_is_the_last_record() {
    let scratch = Scratch::new("train", "nan");
    let line = "--eval_every 0 --steps 9 --lr 1e30 --warmup 0 --metrics m";
    let ended = scratch.run(&format!("{SMALL} {line}"));
    let shown = text(&ended.stderr);
    let error = "the gradient of step 2 is not finite (norm NaN); give a smaller learning rate";
    let printed = format!("error[T013]: {error}");
    assert_eq!(shown.lines().filter(|line| **line == printed).count(), 1, "{shown}");
    assert_eq!(ended.status.code(), Some(1), "{shown}");
    let last = last_record(&scratch, "m");
    assert_eq!((&last["step"], &last["error"]), (&2.into(), &error.into()));
    assert!(last["loss"].is_f64() && last["grad_norm"].is_null(), "{last}");
    assert!(last["seconds"]["backward"].is_f64() && last["lr"].is_f64(), "{last}");
    assert_eq!(losses(&scratch, "m").len(), 2);
}

#[test]
fn overflow_at_the_lowest_scale_ends_the_run_once() {
    let scratch = scratch_with("lowest-scale", "\"initial_scale_power\": 3, \"min_loss_scale\": 2");
    // The first update makes the parameters infinite.
    let line = "--eval_every 0 --steps 50 --config ds.json --lr 1e30 --warmup 0";
    let ended = scratch.run(&format!("{SMALL} {line}"));
    let shown = text(&ended.stderr);
    let error = "the gradients overflow at loss scale 2: current loss scale already at minimum - cannot decrease scale \
                 anymore; give a smaller learning rate, or compute in bf16";
    // Rank 0 alone prints it; the report of the job repeats its last lines.
    let printed = format!("error[T013]: step 5: {error}");
    assert_eq!(shown.lines().filter(|line| **line == printed).count(), 1, "{shown}");
    assert!(shown.contains("error[R101]: rank 0 "), "{shown}");
    assert_eq!(ended.status.code(), Some(1), "{shown}");
}
