//! Command lines of `remuda train`: an unusable one is refused before any worker starts and leaves no
//! files; runs resume from checkpoints.
//!
//! `tests/trainer/refused.expected` contains every refused line with its screen and exit status;
//! `UPDATE_EXPECTED=1 cargo test --test program trainer::` rewrites it.

use std::fs;

use crate::support::expected::check_expected;
use crate::support::scratch::{Scratch, text};

/// Options of a GPT that trains within milliseconds.
const SMALL: &str = "--num_gpus 2 --layers 1 --heads 2 --width 8 --block 8 --batch_size 2";

/// Replaces the values that depend on this machine: the memory, and the samples that fit into it.
fn without_this_machine(screen: &str) -> String {
    let mut shown = String::new();
    for line in screen.split_inclusive('\n') {
        let parts = [(" of memory, ", " are available"), ("help: use at most `--batch_size ", "`")];
        let part = parts.into_iter().find_map(|(before, after)| {
            let (head, rest) = line.split_once(before)?;
            let (value, tail) = rest.split_once(after)?;
            assert!(value.starts_with(|c: char| c.is_ascii_digit() && c != '0'), "{line}");
            Some(format!("{head}{before}[…]{after}{tail}"))
        });
        shown += part.as_deref().unwrap_or(line);
    }
    shown
}

#[test]
fn train_refuses_unusable_lines_before_the_start() {
    let scratch = Scratch::new("train", "refused");
    scratch.write("empty", "");
    scratch.write("short", "A SHORT TEXT, not enough");
    scratch.write("text", "the quick brown fox jumps over the lazy dog. ".repeat(40));
    scratch.write("hosts", "a slots=2\nb slots=3\n");
    fs::create_dir(scratch.path("directory")).expect("a new directory");
    scratch.succeed(&format!("{SMALL} --steps 2 --data text --checkpoint_dir kept"));
    let kept = "kept/step-00000002.safetensors";
    let whole = fs::read(scratch.path(kept)).expect("a checkpoint");
    let mut flipped = whole.clone();
    *flipped.last_mut().expect("not empty") ^= 1;
    scratch.write("flipped.safetensors", flipped);
    scratch.write("cut.safetensors", &whole[..whole.len() / 2]);
    scratch.write("foreign.safetensors", b"\x02\0\0\0\0\0\0\0{}");
    fs::remove_dir_all(scratch.path("runs")).expect("a record of the run");
    let found = scratch.screens(
        &[
            "--data none",
            "--data text none short",
            "--data=directory",
            "--data /dev/zero",
            "--data empty",
            "--data text empty",
            "--data short",
            "--data text --block 200",
            "--block 40000",
            "--width 100 --heads 8",
            "--heads 7",
            "--model mlp --data text",
            "--width 18446744073709551615 --heads 2",
            "--num_gpus 2 --batch_size 999999999",
            "--num_gpus 3 --width 999999996",
            "--num_gpus 1 --layers 999999999",
            "--num_gpus 2 --model mlp --width 999999999 --batch_size 7",
            "--num_gpus 2 --model mlp --batch_size 18446744073709551615",
            "--launcher local --hostfile hosts --batch_size 999999999",
            "--save_every 3",
            "--keep 2",
            "--checkpoint_every 10",
            "--checkpoint_dir text",
            "--checkpoint_dir text/below",
            "--metrics directory",
            "--metrics none/metrics.jsonl",
            "--plot none/loss.svg",
            "--resume none",
            "--resume directory",
            "--resume text",
            "--resume flipped.safetensors",
            "--resume cut.safetensors",
            "--resume foreign.safetensors",
            "--resume kept --data text --width 16",
            "--resume kept --data text --model mlp",
            "--resume kept --layers 3 --width 16 --heads 2",
            "--resume kept",
            "--resume kept --data short text",
            "--resume kept --data text --steps 2",
            "--resume kept --data text --steps 1",
        ],
        without_this_machine,
    );
    assert!(!scratch.path("runs").exists(), "a refused line must not leave a record");
    check_expected("tests/trainer/refused.expected".as_ref(), &found);
}

/// Losses of a metrics file, by step.
fn losses(scratch: &Scratch, file: &str) -> Vec<String> {
    let metrics = fs::read_to_string(scratch.path(file)).expect("it was written");
    let loss = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        format!("{} {}", line["step"], line["loss"])
    };
    metrics.lines().map(loss).collect()
}

#[test]
fn resumed_run_reads_sizes_from_the_checkpoint() {
    let scratch = Scratch::new("train", "resume");
    scratch.write("text", "the quick brown fox jumps over the lazy dog. ".repeat(40));
    let rates = "--lr 1e-3 --min_lr 1e-3 --warmup 0 --batch_size 2 --num_gpus 2 --data text";
    scratch.succeed(&format!("{SMALL} {rates} --steps 8 --metrics whole"));
    let first = format!("{SMALL} {rates} --steps 4 --metrics parts --checkpoint_dir kept");
    scratch.succeed(&first);
    let shown = scratch.succeed(&format!("{rates} --steps 8 --metrics parts --resume kept"));
    assert!(shown.contains("resuming after step 4 from"), "{shown}");
    assert_eq!(losses(&scratch, "parts"), losses(&scratch, "whole"));

    scratch.succeed("--model mlp --layers 1 --width 8 --steps 2 --seed 5 --checkpoint_dir mlp");
    let shown = scratch.succeed("--resume mlp --steps 3");
    assert!(shown.starts_with("mlp of 1 layer of width 8,"), "{shown}");
}

/// A resumed run uses the same samples per step, also with fewer workers.
#[test]
fn resumed_run_keeps_batch_size_seed_and_lanes() {
    let scratch = Scratch::new("train", "samples");
    scratch.write("text", "the quick brown fox jumps over the lazy dog. ".repeat(40));
    let sizes = "--layers 1 --heads 2 --width 8 --block 8 --data text --warmup 0 --min_lr 1e-3";
    let begun = format!("{sizes} --num_gpus 4 --batch_size 3 --seed 5");
    scratch.succeed(&format!("{begun} --steps 6 --metrics whole"));
    scratch.succeed(&format!("{begun} --steps 3 --metrics two --checkpoint_dir kept"));
    let rest = "--data text --warmup 0 --min_lr 1e-3 --steps 6 --metrics two --resume kept";
    let shown = scratch.succeed(&format!("{rest} --num_gpus 2"));
    assert!(shown.contains("6 steps of 2 workers × 2 micro-batches × 3\n"), "{shown}");
    assert!(
        shown.contains("resuming after step 3 from `kept/step-00000003.safetensors`\n"),
        "{shown}"
    );
    assert_eq!(losses(&scratch, "two"), losses(&scratch, "whole"));
    let shown = scratch.succeed(&format!("{rest} --num_gpus 3 --batch_size 2"));
    let otherwise = "resuming after step 3 from `kept/step-00000003.safetensors`; steps so far: \
                     4 micro-batches of 3 samples a step, seed 5; following steps: 3 micro-batches of \
                     2 samples a step, seed 5\n";
    assert!(shown.contains(otherwise), "{shown}");
}

#[test]
fn directory_of_another_run_is_refused_unchanged() {
    let scratch = Scratch::new("train", "in-use");
    let first = format!("{SMALL} --steps 2 --checkpoint_dir kept");
    scratch.succeed(&first);
    let file = scratch.path("kept/step-00000002.safetensors");
    let kept = fs::read(&file).expect("a checkpoint");
    let refused = scratch.run(&format!("{SMALL} --steps 3 --checkpoint_dir kept"));
    let stderr = text(&refused.stderr);
    let expected = "\
error[T008]: `kept` contains checkpoints of another run, up to `step-00000002.safetensors`
 --> command line:1:62
  |
1 | remuda train ... 8 --batch_size 2 --steps 3 --checkpoint_dir kept
  |                                                              ^^^^ in use
  |
help: to continue that run: `--resume kept`; otherwise use another `--checkpoint_dir`
";
    assert_eq!((&*stderr, refused.status.code()), (expected, Some(78)));
    assert_eq!(fs::read(&file).expect("it is there"), kept);
    scratch.succeed("--num_gpus 2 --steps 3 --checkpoint_dir kept --resume kept");
    scratch.succeed(&format!("{SMALL} --steps 3 --checkpoint_dir other"));
}

/// The same line works for the first start and for later ones.
#[test]
fn resume_auto_starts_or_continues() {
    let scratch = Scratch::new("train", "auto");
    let line = |steps| format!("{SMALL} --steps {steps} --checkpoint_dir kept --resume auto");
    let shown = scratch.succeed(&line(2));
    assert!(!shown.contains("resuming"), "{shown}");
    let shown = scratch.succeed(&line(4));
    assert!(shown.contains("resuming after step 2 from"), "{shown}");
    let refused = scratch.run(&format!("{SMALL} --steps 2 --resume auto"));
    let stderr = text(&refused.stderr);
    assert!(stderr.contains("--checkpoint_dir"), "{stderr}");
    assert_eq!(refused.status.code(), Some(2), "{stderr}");
}

/// The damaged byte is in the header, which is checked like the tensors.
#[test]
fn resume_auto_skips_a_damaged_checkpoint() {
    let scratch = Scratch::new("train", "damaged");
    let line = |steps| format!("{SMALL} --steps {steps} --checkpoint_dir kept --resume auto");
    scratch.succeed(&line(2));
    let early = "kept/step-00000002.safetensors";
    let late = "kept/step-00000004.safetensors";
    let whole = fs::read(scratch.path(early)).expect("a checkpoint");
    scratch.succeed(&line(4));
    let mut flipped = fs::read(scratch.path(late)).expect("a checkpoint");
    let step = b"\\\"step\\\":4";
    let at = flipped.windows(step.len()).position(|bytes| bytes == step).expect("it has a step");
    flipped[at + step.len() - 1] ^= 1;
    scratch.write(late, &flipped);
    let shown = scratch.succeed(&line(6));
    let damaged = "warning: `kept/step-00000004.safetensors` is not a checkpoint of `remuda train`: \
                   checksum mismatch: it was changed after it was saved";
    assert!(shown.contains(damaged), "{shown}");
    assert!(shown.contains("resuming after step 2 from"), "{shown}");
    // Without a valid checkpoint the run does not start from the beginning.
    fs::remove_dir_all(scratch.path("kept")).expect("a checkpoint");
    fs::create_dir(scratch.path("kept")).expect("a new directory");
    scratch.write(early, &whole[..whole.len() - 1]);
    let refused = scratch.run(&line(4));
    assert_eq!(refused.status.code(), Some(65), "{}", text(&refused.stderr));
    // `--resume DIR` uses only the newest checkpoint.
    scratch.write(early, &whole);
    scratch.write(late, &flipped);
    let refused = scratch.run(&format!("{SMALL} --steps 6 --checkpoint_dir kept --resume kept"));
    assert_eq!(refused.status.code(), Some(65), "{}", text(&refused.stderr));
}

/// The same for `remuda train` as a worker of another command, as in pods.
#[test]
fn workers_refuse_the_directory_of_another_run() {
    let scratch = Scratch::new("run", "in-use");
    let train = |more: &str| {
        let own = env!("CARGO_BIN_EXE_remuda");
        let options = SMALL.replace("--num_gpus 2", "");
        format!("--num_gpus 2 --no_python --no_local_rank {own} train {options} {more}")
    };
    let kept = "--checkpoint_dir kept";
    scratch.succeed(&train(&format!("--steps 2 {kept} --resume auto")));
    let check = |more: &str, expected: &str| {
        let refused = scratch.run(&train(more));
        let stderr = text(&refused.stderr);
        assert!(stderr.contains(expected), "{stderr}");
        assert_eq!(refused.status.code(), Some(78), "{stderr}");
    };
    let of_another = "error[T008]: `kept` contains checkpoints of another run, up to";
    check(&format!("--steps 3 {kept}"), of_another);
    let directory = fs::File::open(scratch.path("kept")).expect("it is there");
    let lock = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    rustix::fs::flock(&directory, lock).expect("no other process holds the lock");
    let in_use = "error[T008]: another run is saving its checkpoints in `kept`";
    check(&format!("--steps 3 {kept} --resume auto"), in_use);
    drop(directory);
    let shown = scratch.succeed(&train(&format!("--steps 3 {kept} --resume auto")));
    assert!(shown.contains("resuming after step 2 from"), "{shown}");
}

#[test]
fn restart_that_would_lose_steps_is_a_warning() {
    #[track_caller]
    fn check(scratch: &Scratch, options: &str, expected: &str) {
        let steps = if options.contains("--steps") { "" } else { "--steps 2" };
        let line = format!("{SMALL} {steps} --max_restarts 1 {options}");
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        let shown = text(&scratch.run(&line).stderr);
        let warnings: String = shown
            .split_inclusive('\n')
            .take_while(|line| !line.starts_with("    Launch"))
            .collect();
        assert_eq!(warnings, expected, "{shown}");
    }
    let scratch = Scratch::new("train", "restarts");
    check(
        &scratch,
        "",
        "warning: without --checkpoint_dir a restart begins again at step 1\n\
         help: with `--checkpoint_dir DIR --save_every STEPS` a restart loses at most STEPS steps\n",
    );
    check(
        &scratch,
        "--checkpoint_dir kept",
        "warning: without --save_every a restart begins again at step 1\n\
         help: with `--save_every STEPS` a restart loses at most STEPS steps\n",
    );
    check(
        &scratch,
        "--checkpoint_dir kept --resume kept --steps 3",
        "warning: without --save_every a restart begins again at `kept`\n\
         help: with `--save_every STEPS` a restart loses at most STEPS steps\n",
    );
    check(&scratch, "--checkpoint_dir other --save_every 1", "");
    check(&scratch, "--quiet", "");
}

/// A line is written at the first step, at each evaluation, and at the end.
#[test]
fn pipe_receives_lines_without_progress_bars() {
    let scratch = Scratch::new("train", "lines");
    let shown = scratch.succeed(&format!("{SMALL} --steps 40 --eval_every 20"));
    let steps: Vec<&str> = shown.lines().filter(|line| line.starts_with("step ")).collect();
    let begins = ["step  1/40  loss ", "step 20/40  loss ", "step 40/40  loss "];
    assert_eq!(steps.len(), 3, "{shown}");
    for (line, begin) in steps.iter().zip(begins) {
        assert!(line.starts_with(begin), "{line}");
    }
    assert!(shown.contains("\nsample of the model:\n") && shown.contains("\ndone after step 40: "));
}
