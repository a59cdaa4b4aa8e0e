//! Runs in fp16 whose steps are skipped.

use super::SMALL;
use crate::support::scratch::{Scratch, text};

/// Writes a file with a section `fp16`.
fn scratch_with(name: &str, fp16: &str) -> Scratch {
    let scratch = Scratch::new("train", name);
    let file = format!("{{\"train_batch_size\": 4, \"fp16\": {{\"enabled\": true, {fp16}}}}}");
    scratch.write("ds.json", file);
    scratch
}

#[test]
fn run_whose_steps_are_all_skipped_ends_with_a_warning() {
    let line = format!("{SMALL} --eval_every 0 --steps 5 --config ds.json");
    let scratch = scratch_with("all-skipped", "\"initial_scale_power\": 127");
    let shown = scratch.succeed(&line);
    let warning = "\nwarning: all 5 steps were skipped, and the parameters are unchanged: their gradients overflow; the \
                   loss scale is 1.06e37 now\nhelp: each further overflow halves the scale: ";
    assert!(shown.contains(warning), "{shown}");
    let scratch = scratch_with("all-skipped-static", "\"loss_scale\": 1e38");
    let shown = scratch.succeed(&line);
    let warning = "\nwarning: all 5 steps were skipped, and the parameters are unchanged: their gradients overflow at \
                   loss scale 1.00e38\nhelp: write a smaller `loss_scale` in `fp16` of `--deepspeed_config`";
    assert!(shown.contains(warning), "{shown}");
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
    let printed = format!("remuda train: step 5: {error}");
    assert_eq!(shown.lines().filter(|line| **line == printed).count(), 1, "{shown}");
    assert!(shown.contains("error[R101]: rank 0 "), "{shown}");
    assert_eq!(ended.status.code(), Some(1), "{shown}");
}
