//! Command lines of `remuda train`: an unusable one is refused before any worker starts and leaves no
//! files; runs resume from checkpoints.
//!
//! `tests/trainer/refused.expected` contains every refused line with its screen and exit status;
//! `UPDATE_EXPECTED=1 cargo test --test program trainer::` rewrites it.

use std::fs;

use crate::support::expected::check_expected;
use crate::support::scratch::{Scratch, text};
use crate::support::shards;

mod config_file;
mod loss_scale;
mod resume;

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

/// Writes 4,000 tokens below 100, each followed by the next one of a cycle.
fn write_shard(scratch: &Scratch, name: &str) {
    shards::write_shard(&scratch.path(name), (0..4000).map(|at| at % 100));
}

#[test]
fn train_learns_tokens_of_shards() {
    let scratch = Scratch::new("train", "shards");
    write_shard(&scratch, "a.bin");
    let line = format!("{SMALL} --data a.bin --metrics m --checkpoint_dir kept");
    let screen = scratch.succeed(&format!("{line} --steps 60 --lr 0.01 --warmup 5"));
    let title = "gpt of 1 layer, 2 heads, width 8, block 8; 4000 tokens, vocabulary 128";
    assert!(screen.contains(title), "{screen}");
    let metrics = fs::read_to_string(scratch.path("m")).expect("metrics");
    let loss = |line: &str| {
        let record: serde_json::Value = serde_json::from_str(line).expect("JSON");
        record["loss"].as_f64()
    };
    let losses: Vec<f64> = metrics.lines().filter_map(loss).collect();
    assert!(losses[59] < losses[0] - 0.5, "{losses:?}");
    let resumed = format!("{SMALL} --data a.bin --resume kept --steps 61");
    assert!(scratch.succeed(&resumed).contains("step 61/61"));
}

#[test]
fn memory_forecast_is_close_to_the_peak() {
    let scratch = Scratch::new("train", "memory");
    // Tokens of shards: no text is sampled at the end.
    write_shard(&scratch, "shard.bin");
    let sizes = "--data shard.bin --layers 5 --width 256 --block 32 --batch_size 4";
    for case in [
        "--stage 0",
        "--stage 1",
        "--stage 2",
        "--stage 3",
        "--stage 3 --precision bf16",
        "--accumulate 4",
        "--stage 2 --accumulate 4",
        "--stage 3 --accumulate 4 --no_sync",
        "--activation_checkpointing",
        "--checkpoint_dir kept-0",
        "--checkpoint_dir kept-3 --save_every 1 --stage 3",
        "--checkpoint_dir kept-bf16 --save_every 1 --stage 2 --precision bf16",
        "--num_gpus 4 --checkpoint_dir kept-groups --save_every 1 --stage 3 --shard_group 2",
        "--resume kept-0 --steps 4",
        "--resume kept-0 --steps 4 --precision bf16",
        "--resume kept-bf16 --steps 4 --stage 3",
    ] {
        let ranks = if case.contains("--num_gpus") { "" } else { "--num_gpus 2" };
        let steps = if case.contains("--steps") { "" } else { "--steps 2" };
        scratch.succeed(&format!("{sizes} {steps} {ranks} {case} --metrics m"));
        let metrics = fs::read_to_string(scratch.path("m")).expect("metrics");
        let last: serde_json::Value =
            serde_json::from_str(metrics.lines().last().expect("a line")).expect("JSON");
        let bytes = |name: &str| last[name].as_f64().expect("the system tells it");
        let ratio = bytes("memory_peak") / bytes("memory_forecast");
        assert!((0.9..=1.1).contains(&ratio), "{case}: {ratio:.3}, {last}");
        assert!(bytes("memory_peak") < bytes("memory_resident"), "{case}: {last}");
    }
}

#[test]
fn dry_run_shows_the_memory_of_every_stage() {
    let scratch = Scratch::new("train", "dry_memory");
    let line = "--num_gpus 4 --model mlp --layers 6 --stage 1 --precision bf16 --dry-run";
    let screen = scratch.succeed(line);
    let table: Vec<&str> = screen.lines().take_while(|line| !line.is_empty()).collect();
    let expected = [
        "memory of a worker    stage 0  *stage 1   stage 2   stage 3",
        "parameters           11.6 MiB  11.6 MiB  11.6 MiB   2.9 MiB",
        "gradients            23.2 MiB  23.2 MiB   5.8 MiB   5.8 MiB",
        "optimizer state      69.4 MiB  17.4 MiB  17.4 MiB  17.4 MiB",
        "units in use          4.0 MiB   4.0 MiB  12.0 MiB  16.1 MiB",
        "activations           6.3 MiB   6.3 MiB   6.3 MiB   6.3 MiB",
        "program               2.0 MiB   2.0 MiB   2.0 MiB   2.0 MiB",
        "total               116.4 MiB  64.5 MiB  55.1 MiB  50.4 MiB",
    ];
    assert_eq!(table, expected);
    let program = "every worker runs the bundled trainer: mlp of 6 layers of width 1024; 1000 steps of 4 workers × 1 \
                   micro-batch × 64; stage 1, bf16; AdamW, betas 0.9, 0.99, eps 1e-8, weight decay 0.1; --json shows the \
                   command";
    assert_eq!(screen.lines().filter(|line| *line == program).count(), 1, "{screen}");
    assert!(!screen.contains("train-worker"), "{screen}");
    let document = scratch.succeed(&format!("{line} --json"));
    assert!(document.contains("\"train-worker\""), "{document}");
    // What every worker copies: its part of weights and moments, in f32.
    let saved = scratch.succeed(&format!("{line} --checkpoint_dir kept"));
    let row = "copy for a checkpoint   17.4 MiB  17.4 MiB  17.4 MiB  17.4 MiB";
    assert!(saved.contains(row), "{saved}");
}

/// Configurations of DeepSpeed, of which only `ds.json` can be used.
fn write_configurations(scratch: &Scratch) {
    scratch.write(
        "ds.json",
        "{\"train_batch_size\": 8, \"optimizer\": {\"type\": \"Adam\", \
        \"params\": {\"lr\": 0.01}}}",
    );
    scratch
        .write("wrong.json", "{\"train_batch_size\": 7,\n \"zero_optimisation\": {}, \"fp16\": 1}");
    scratch.write(
        "files.json",
        "{\"train_batch_size\": 8, \"zero_optimization\": {\"stage\": 3, \
        \"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"text/x\"}}}",
    );
    scratch.write(
        "mistyped.json",
        "{\"train_batch_size\": 8, \"zero_optimization\": {\"stage\": 2,\n  \
        \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"directory/nmve\"}}}",
    );
    scratch.write(
        "stage.json",
        "{\"train_batch_size\": 8, \"gradient_accumulation_steps\": 1, \
        \"zero_optimization\": {\"stage\": 1}, \"fp16\": {\"enabled\": true}}",
    );
    scratch.write(
        "groups.json",
        "{\"train_batch_size\": 8, \"zero_optimization\": {\"stage\": 3, \
        \"zero_hpz_partition_size\": 4}}",
    );
    scratch.write(
        "segments.json",
        "{\"train_batch_size\": 8,\n \"activation_checkpointing\": {\"number_checkpoints\": 2}}",
    );
    scratch.write(
        "kept.yaml",
        "distributed_type: FSDP\nuse_cpu: true\nfsdp_config:\n  \
        fsdp_activation_checkpointing: false\n",
    );
    scratch.write(
        "hybrid.yaml",
        "distributed_type: FSDP\nuse_cpu: true\nfsdp_config:\n  \
        fsdp_sharding_strategy: HYBRID_SHARD\n",
    );
    scratch.write(
        "sgd.json",
        "{\"train_batch_size\": 8, \"optimizer\": {\"type\": \"SGD\", \
        \"params\": {\"lr\": 0.01, \"momentum\": 0.9}}}",
    );
    scratch.write(
        "monitor.json",
        "{\"train_batch_size\": 8, \"csv_monitor\": {\"enabled\": true, \"output_path\": \"text\"}}",
    );
}

/// Lines that are refused before anything starts.
const REFUSED: &[&str] = &[
    "--data none",
    "--data text none short",
    "--data=directory",
    "--data /dev/zero",
    "--data empty",
    "--data text empty",
    "--data short",
    "--data shard.bin text",
    "--data shard.bin --block 500",
    "--data shard.bin --vocabulary 50",
    "--data text --vocabulary 50",
    "--num_gpus 2 --lanes 3",
    "-H n1:1,n2:1,n3:1,n4:1 --lanes 6",
    "-H n1:1,n2:1,n3:1,n4:1 --lanes 6 --min_nodes 4",
    "--num_gpus 2 --lanes 4 --accumulate 3",
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
    "--bf16",
    "--zero_stage 3",
    "--deepspeed",
    "--checkpoint_dir text",
    "--checkpoint_dir text/below",
    "--metrics directory",
    "--metrics none/metrics.jsonl",
    "--plot none/loss.svg",
    "--tensorboard text",
    "--num_gpus 2 --deepspeed_config monitor.json",
    "--resume none",
    "--resume directory",
    "--resume text",
    "--resume flipped.safetensors",
    "--resume cut.safetensors",
    "--resume foreign.safetensors",
    "--resume truncated",
    "--resume missing",
    "--resume index/step-00000003",
    "--resume latest",
    "--resume kept --data text --width 16",
    "--resume kept --data text --model mlp",
    "--resume kept --layers 3 --width 16 --heads 2",
    "--resume kept",
    "--resume kept --data short text",
    "--resume kept --data text --steps 2",
    "--resume kept --data text --steps 1",
    "--resume kept --data text --steps 4 --deepspeed_config sgd.json",
    "--resume twice/step-00000001 --checkpoint_dir twice --data text --steps 4",
    "--num_gpus 2 --deepspeed_config none.json",
    "--num_gpus 2 --deepspeed_config wrong.json",
    "--num_gpus 3 --deepspeed_config ds.json",
    "--num_gpus 2 --deepspeed_config ds.json --lr 0.02",
    "--num_gpus 2 --deepspeed_config stage.json --batch_size 2",
    "--num_gpus 2 --deepspeed_config stage.json --stage 3",
    "--num_gpus 2 --deepspeed_config stage.json --precision bf16",
    "--num_gpus 2 --deepspeed_config stage.json --lanes 8",
    "--num_gpus 2 --deepspeed_config ds.json --warmup 5",
    "--num_gpus 2 --deepspeed_config ds.json --min_lr 0",
    "--num_gpus 2 --deepspeed_config sgd.json --beta2 0.9",
    "--num_gpus 2 --deepspeed_config sgd.json --batch_size 3",
    "--num_gpus 2 --deepspeed_config sgd.json --decay_steps 5",
    "--num_gpus 2 --deepspeed_config segments.json --activation_checkpointing",
    "--num_gpus 4 --deepspeed_config groups.json --shard_group 2",
    "--num_gpus 2 --config kept.yaml --activation_checkpointing",
    "--num_gpus 2 --config files.json",
    "--num_gpus 2 --config mistyped.json",
    "--num_gpus 2 --config groups.json",
    "--launcher local --hostfile hosts --config hybrid.yaml",
    "--num_gpus 6 --stage 3 --shard_group 4",
    "--num_gpus 4 --stage 3 --shard_group 1",
    "--num_gpus 4 --stage 2 --shard_group 2",
    "--num_gpus 6 --stage 3 --shard_group 2 --accumulate 3",
    "--device cuda",
    "--device gpu",
    "--device cuda --accelerator cpu",
    "--device cuda --reduce_order ring",
    "--device cuda --deterministic --reduce_order any",
    "--reduce_order any",
    "--device cpu --reduce_order any",
    "--attention flash",
    "--device cuda -H n1:2 --model mlp --attention products",
    "--attention tensor",
    "--device cpu --accelerator cuda",
    "--device cuda -H n1:2 --attention flash",
    "--device cuda -H n1:2 --precision bf16 --attention flash",
    "--device cuda -H n1:2 --precision bf16 --width 36 --heads 3",
];

/// Directories with three checkpoints, of which only the first one is undamaged. That a byte of the second one was changed
/// is found only by reading it.
fn write_damaged(scratch: &Scratch) {
    for dir in ["truncated", "missing", "index", "latest"] {
        let line = format!("--steps 3 --save_every 1 --data text --checkpoint_dir {dir}");
        scratch.succeed(&format!("{SMALL} {line}"));
        let second = scratch.path(&format!("{dir}/step-00000002/rank-00000.safetensors"));
        let mut bytes = fs::read(&second).expect("a checkpoint");
        *bytes.last_mut().expect("not empty") ^= 1;
        fs::write(&second, bytes).expect("it is written");
        let third = scratch.path(&format!("{dir}/step-00000003/rank-00000.safetensors"));
        let whole = fs::read(&third).expect("a checkpoint");
        fs::write(&third, &whole[..100]).expect("it is written");
    }
    fs::remove_file(scratch.path("missing/step-00000003/rank-00000.safetensors")).expect("a file");
    scratch.write("index/step-00000003/index.json", "{}");
    scratch.write("latest/latest", "step-00000004\n");
}

#[test]
fn train_refuses_unusable_lines_before_the_start() {
    let scratch = Scratch::new("train", "refused");
    write_shard(&scratch, "shard.bin");
    scratch.write("empty", "");
    scratch.write("short", "A SHORT TEXT, not enough");
    scratch.write("text", "the quick brown fox jumps over the lazy dog. ".repeat(40));
    scratch.write("hosts", "a slots=2\nb slots=3\n");
    write_configurations(&scratch);
    fs::create_dir(scratch.path("directory")).expect("a new directory");
    scratch.succeed(&format!("{SMALL} --steps 2 --data text --checkpoint_dir kept"));
    let twice = "--steps 2 --save_every 1 --data text --checkpoint_dir twice";
    scratch.succeed(&format!("{SMALL} {twice}"));
    write_damaged(&scratch);
    let earlier =
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/checkpoint-format-2.safetensors");
    let whole = fs::read(earlier).expect("a checkpoint of an earlier build");
    let mut flipped = whole.clone();
    *flipped.last_mut().expect("not empty") ^= 1;
    scratch.write("flipped.safetensors", flipped);
    scratch.write("cut.safetensors", &whole[..whole.len() / 2]);
    scratch.write("foreign.safetensors", b"\x02\0\0\0\0\0\0\0{}");
    fs::remove_dir_all(scratch.path("runs")).expect("a record of the run");
    let found = scratch.screens(REFUSED, without_this_machine);
    assert!(!scratch.path("runs").exists(), "a refused line must not leave a record");
    assert!(!scratch.path("directory/nmve").exists(), "a mistyped directory is not created");
    check_expected("tests/trainer/refused.expected".as_ref(), &found);
}

/// Workers of another command decide by themselves where they compute, and rank 0 refuses what they then do not have.
#[test]
fn workers_refuse_an_option_for_gpus_together() {
    let scratch = Scratch::new("train", "together");
    scratch.write("text", "the quick brown fox jumps over the lazy dog. ".repeat(40));
    let sizes = SMALL.strip_prefix("--num_gpus 2 ").expect("the number of workers is first");
    let worker = format!("{} train {sizes} --steps 2 --data text", env!("CARGO_BIN_EXE_remuda"));
    let start = "-n 2 --accelerator cpu --no_python --no_local_rank";
    let trained = scratch.run_other("run", &format!("{start} {worker}"));
    assert!(trained.status.success(), "{}", String::from_utf8_lossy(&trained.stderr));
    let refused = scratch.run_other("run", &format!("{start} {worker} --attention flash"));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(78), "{said}");
    let error = "error[C010]: `--attention flash` is for workers on GPUs: processors compute attention in one way";
    assert_eq!(said.matches(error).count(), 2, "once, and in the report: {said}");
    assert!(said.contains("error[R101]: rank 0 "), "{said}");
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

/// The digest of parameters and moments at the end of a run.
fn digest(scratch: &Scratch, file: &str) -> String {
    let metrics = fs::read_to_string(scratch.path(file)).expect("a metrics file");
    let last: serde_json::Value =
        serde_json::from_str(metrics.lines().last().expect("a record")).expect("JSON");
    last["digest"].as_str().expect("the last record has a digest").to_owned()
}

/// A run that goes on with other workers, at another stage or with offload has the bits of one run.
#[test]
fn run_goes_on_with_other_workers_and_another_stage() {
    let scratch = Scratch::new("train", "changed");
    scratch.write("text", "the quick brown fox jumps over the lazy dog. ".repeat(40));
    scratch.write(
        "nvme.json",
        "{\"train_batch_size\": 24, \"train_micro_batch_size_per_gpu\": 2, \"zero_optimization\": \
        {\"stage\": 3, \"zero_hpz_partition_size\": 2, \"offload_optimizer\": {\"device\": \"nvme\", \
        \"nvme_path\": \"nvme\"}, \"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"nvme\"}}, \
        \"gradient_clipping\": 1}",
    );
    fs::create_dir(scratch.path("nvme")).expect("a new directory");
    let sizes = "--layers 2 --heads 2 --width 32 --block 8 --data text --batch_size 2 --lanes 12 \
                 --lr 0.01 --min_lr 0.01 --warmup 0 --eval_every 0";
    for precision in ["fp32", "bf16"] {
        let line = format!("{sizes} --precision {precision}");
        let whole = format!("whole-{precision}");
        scratch.succeed(&format!("{line} --num_gpus 3 --steps 4 --metrics {whole}"));
        let ways = [
            ["--num_gpus 4 --stage 3 --shard_group 2", "--num_gpus 2 --stage 1"],
            ["--num_gpus 1", "--num_gpus 6 --stage 3"],
            ["--num_gpus 2 --stage 2", "--num_gpus 4 --deepspeed_config nvme.json"],
        ];
        for (index, [first, second]) in ways.into_iter().enumerate() {
            if precision == "bf16" && second.contains("nvme") {
                continue;
            }
            let dir = format!("kept-{precision}-{index}");
            scratch.succeed(&format!("{line} {first} --steps 2 --checkpoint_dir {dir}"));
            scratch.succeed(&format!(
                "{line} {second} --resume {dir} --steps 4 --metrics {dir}.metrics"
            ));
            let found = digest(&scratch, &format!("{dir}.metrics"));
            assert_eq!(found, digest(&scratch, &whole), "{first}, then {second}");
        }
    }
    assert_eq!(fs::read_dir(scratch.path("nvme")).expect("a directory").count(), 0);
}

/// Rates of a schedule of torch, which the engine takes from the file.
#[test]
fn schedule_of_torch_sets_the_rate_of_every_step() {
    #[track_caller]
    fn check(schedule: &str, rates: [f64; 4]) {
        let scratch = Scratch::new("train", "schedule");
        let optimizer = "{\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}";
        let file = format!(
            "{{\"train_batch_size\": 2, \"optimizer\": {optimizer}, \"scheduler\": {schedule}}}"
        );
        scratch.write("ds.json", file);
        let sizes = "--model mlp --layers 1 --width 8 --eval_every 0 --steps 4 --num_gpus 1";
        scratch.succeed(&format!("{sizes} --config ds.json --metrics metrics"));
        let metrics = fs::read_to_string(scratch.path("metrics")).expect("it was written");
        for (line, expect) in metrics.lines().zip(rates) {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            let found = line["lr"].as_f64().expect("a rate");
            assert!((found - expect).abs() < 1e-12, "{schedule}: {line}");
        }
    }
    let of =
        |kind: &str, params: &str| format!("{{\"type\": \"{kind}\", \"params\": {{{params}}}}}");
    let linear = "\"start_factor\": 0.5, \"end_factor\": 1.0, \"total_iters\": 2";
    check(&of("LinearLR", linear), [0.005, 0.0075, 0.01, 0.01]);
    let constant = "\"factor\": 0.5, \"total_iters\": 2";
    check(&of("ConstantLR", constant), [0.005, 0.005, 0.01, 0.01]);
    check(&of("PolynomialLR", "\"total_iters\": 2"), [0.01, 0.005, 0.0, 0.0]);
    check(&of("StepLR", "\"step_size\": 3"), [0.01, 0.01, 0.01, 0.001]);
    check(&of("ExponentialLR", "\"gamma\": 0.5"), [0.01, 0.005, 0.0025, 0.00125]);
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
    let kept = "resuming after step 3 from `kept/step-00000003`; gradient accumulation 2 keeps the \
                12 samples of a step\n";
    assert!(shown.contains(kept), "{shown}");
    assert_eq!(losses(&scratch, "two"), losses(&scratch, "whole"));
    let shown = scratch.succeed(&format!("{rest} --num_gpus 3 --batch_size 2"));
    let otherwise = "resuming after step 3 from `kept/step-00000003`\n\
                     warning: a step has 6 samples now, 12 before: 4 micro-batches cannot be divided \
                     among 3 workers\n";
    assert!(shown.contains(otherwise), "{shown}");
}

/// Every step counts with the batch that it had.
#[test]
fn checkpoint_counts_samples_of_runs_with_other_batches() {
    let scratch = Scratch::new("train", "counted");
    let first = "--layers 1 --heads 2 --width 8 --block 8 --batch_size 3 --steps 2 --num_gpus 2";
    scratch.succeed(&format!("{first} --checkpoint_dir kept"));
    let rest = "--checkpoint_dir kept --resume kept --steps";
    scratch.succeed(&format!("{rest} 4 --num_gpus 3"));
    scratch.succeed(&format!("{rest} 5 --num_gpus 1"));
    let index = fs::read_to_string(scratch.path("kept/step-00000005/index.json"));
    let index = index.expect("a checkpoint").replace(' ', "");
    // 2 steps of 6 samples, and 3 of 9.
    assert!(index.contains("\"samples\":39"), "{index}");
}

#[test]
fn directory_of_another_run_is_refused_unchanged() {
    let scratch = Scratch::new("train", "in-use");
    let first = format!("{SMALL} --steps 2 --checkpoint_dir kept");
    scratch.succeed(&first);
    let file = scratch.path("kept/step-00000002/rank-00000.safetensors");
    let kept = fs::read(&file).expect("a checkpoint");
    let refused = scratch.run(&format!("{SMALL} --steps 3 --checkpoint_dir kept"));
    let stderr = text(&refused.stderr);
    let expected = "\
error[T008]: `kept` contains checkpoints of another run, up to `step-00000002`
 --> command line:1:62
  |
1 | remuda train ... 8 --batch_size 2 --steps 3 --checkpoint_dir kept
  |                                                              ^^^^ in use
  |
help: to continue that run, add `--resume kept`; for a new run, name an empty directory in `--checkpoint_dir`
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

/// The damaged byte is in the header of a file, which is checked like the tensors.
#[test]
fn resume_auto_skips_a_damaged_checkpoint() {
    let scratch = Scratch::new("train", "damaged");
    let line = |steps| format!("{SMALL} --steps {steps} --checkpoint_dir kept --resume auto");
    scratch.succeed(&line(2));
    let early = "kept/step-00000002/rank-00000.safetensors";
    let late = "kept/step-00000004/rank-00000.safetensors";
    let whole = fs::read(scratch.path(early)).expect("a checkpoint");
    scratch.succeed(&line(4));
    let mut flipped = fs::read(scratch.path(late)).expect("a checkpoint");
    // Of the header of the file.
    flipped[20] ^= 1;
    scratch.write(late, &flipped);
    let shown = scratch.succeed(&line(6));
    let damaged = "warning: checkpoint `kept/step-00000004` is damaged: `rank-00000.safetensors` was \
                   changed after it was saved, somewhere in bytes 0 to";
    assert!(shown.contains(damaged), "{shown}");
    assert!(shown.contains("resuming after step 2 from"), "{shown}");
    // Without a valid checkpoint the run does not start from the beginning.
    for later in ["kept/step-00000004", "kept/step-00000006"] {
        fs::remove_dir_all(scratch.path(later)).expect("a checkpoint");
    }
    fs::remove_file(scratch.path("kept/latest")).expect("it names the newest");
    scratch.write(early, &whole[..whole.len() - 1]);
    let refused = scratch.run(&line(4));
    let stderr = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(65), "{stderr}");
    let only = "error[T004]: the only checkpoint in `kept` is damaged: `step-00000002`: \
                `rank-00000.safetensors` was truncated: ";
    assert!(stderr.contains(only), "{stderr}");
    assert!(stderr.contains("help: use another `--checkpoint_dir`, "), "{stderr}");
    // `--resume DIR` uses only the newest checkpoint.
    scratch.write(early, &whole);
    scratch.succeed(&line(4));
    let mut flipped = fs::read(scratch.path(late)).expect("a checkpoint");
    flipped[20] ^= 1;
    scratch.write(late, &flipped);
    let line_of_newest = format!("{SMALL} --steps 6 --checkpoint_dir kept --resume kept");
    let refused = scratch.run(&line_of_newest);
    assert_eq!(refused.status.code(), Some(65), "{}", text(&refused.stderr));
    // Damage that the sizes show is found before the start, and a checkpoint that can be used is named.
    scratch.write(late, &flipped[..flipped.len() - 1]);
    let refused = scratch.run(&line_of_newest);
    let help = "help: the newest undamaged checkpoint has step 2: `--resume kept/step-00000002`\n";
    assert!(text(&refused.stderr).contains(help), "{}", text(&refused.stderr));
}

/// Damage that only the workers find: the same line would end in the same way.
#[test]
fn resume_auto_names_all_damaged_checkpoints() {
    let scratch = Scratch::new("train", "all-damaged");
    let line = |steps| format!("{SMALL} --steps {steps} --checkpoint_dir kept --resume auto");
    for steps in [2, 4] {
        scratch.succeed(&line(steps));
    }
    for step in [2, 4] {
        let file = format!("kept/step-0000000{step}/rank-00000.safetensors");
        let mut bytes = fs::read(scratch.path(&file)).expect("a checkpoint");
        bytes[20] ^= 1;
        scratch.write(&file, bytes);
    }
    let refused = scratch.run(&line(6));
    let stderr = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(65), "{stderr}");
    for expected in [
        "all 2 checkpoints in `kept` are damaged: `step-00000004`: `rank-00000.safetensors` was changed",
        "; `step-00000002`: `rank-00000.safetensors` was changed after it was saved",
        "help: use another `--checkpoint_dir`, ",
    ] {
        assert!(stderr.contains(expected), "{stderr}");
    }
    assert!(!stderr.contains("same line again"), "{stderr}");
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
    let of_another = "error[T008]: rank 0: `kept` contains checkpoints of another run, up to";
    check(&format!("--steps 3 {kept}"), of_another);
    let directory = fs::File::open(scratch.path("kept")).expect("it is there");
    let lock = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    rustix::fs::flock(&directory, lock).expect("no other process holds the lock");
    let in_use = "error[T008]: rank 0: another run is saving its checkpoints in `kept`";
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

/// A run that was killed after its last save gets its last record when it is continued.
#[test]
fn continued_run_that_is_complete_writes_its_last_record() {
    let scratch = Scratch::new("train", "last-record");
    let line = format!("{SMALL} --steps 3 --eval_every 0 --checkpoint_dir kept --metrics m");
    scratch.succeed(&line);
    let complete = fs::read_to_string(scratch.path("m")).expect("metrics");
    let digest_of_run = digest(&scratch, "m");
    let (steps, _) = complete.trim_end().rsplit_once('\n').expect("a record after the steps");
    scratch.write("m", format!("{steps}\n"));
    scratch.succeed(&format!("{line} --resume auto"));
    assert_eq!(losses(&scratch, "m").len(), 4);
    assert_eq!(digest(&scratch, "m"), digest_of_run);
}

#[test]
fn other_data_than_that_of_the_checkpoint_is_a_warning() {
    let scratch = Scratch::new("train", "other-shards");
    write_shard(&scratch, "a.bin");
    shards::write_shard(&scratch.path("b.bin"), (0..4000).map(|at| at * 7 % 100));
    let line = format!("{SMALL} --eval_every 0 --vocabulary 128");
    scratch.succeed(&format!("{line} --steps 2 --data a.bin b.bin --checkpoint_dir kept"));
    let warning = "warning: `--data` is not the same as when the checkpoint was saved";
    for (data, is_other) in [("a.bin b.bin", false), ("b.bin a.bin", true), ("a.bin", true)] {
        let shown = scratch.succeed(&format!("{line} --steps 3 --data {data} --resume kept"));
        assert_eq!(shown.contains(warning), is_other, "{data}: {shown}");
    }
    let text = "the quick brown fox jumps over the lazy dog. ".repeat(40);
    scratch.write("text", &text);
    scratch.write("shuffled", text.split_inclusive(' ').rev().collect::<String>());
    let line = format!("{SMALL} --eval_every 0");
    scratch.succeed(&format!("{line} --steps 2 --data text --checkpoint_dir of-text"));
    for (data, is_other) in [("text", false), ("shuffled", true)] {
        let shown = scratch.succeed(&format!("{line} --steps 3 --data {data} --resume of-text"));
        assert_eq!(shown.contains(warning), is_other, "{data}: {shown}");
    }
}

/// Standard error of a line that succeeds.
fn stderr_of(scratch: &Scratch, line: &str) -> String {
    let output = scratch.run(line);
    let shown = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(output.status.success(), "{line}: {shown}");
    shown
}

#[test]
fn unknown_keys_of_a_configuration_are_warnings_of_a_run() {
    let scratch = Scratch::new("train", "warnings");
    scratch.write("ds.json", "{\"train_batch_size\": 4,\n \"zero_optimisation\": {\"stage\": 1}}");
    let line = format!("{SMALL} --eval_every 0 --deepspeed_config ds.json");
    for more in ["--steps 1", "--dry_run"] {
        let shown = stderr_of(&scratch, &format!("{line} {more}"));
        assert!(
            shown.contains("warning[G006]") && shown.contains("ds.json:2:2"),
            "{more}: {shown}"
        );
        assert!(shown.contains("`zero_optimization`"), "{more}: {shown}");
    }
}

#[test]
fn open_accumulation_keeps_the_batch_of_the_checkpoint() {
    let scratch = Scratch::new("train", "kept-batch");
    scratch.write("ds.json", "{\"train_micro_batch_size_per_gpu\": 2}");
    let sizes = "--layers 1 --heads 2 --width 8 --block 8 --eval_every 0";
    let line = format!("{sizes} --deepspeed_config ds.json --metrics m");
    scratch.succeed(&format!("{line} --num_gpus 4 --steps 4"));
    let whole = digest(&scratch, "m");
    scratch.succeed(&format!("{line} --num_gpus 4 --steps 4 --checkpoint_dir kept --save_every 2"));
    let first = "--resume kept/step-00000002 --checkpoint_dir second";
    let shown = scratch.succeed(&format!("{line} --num_gpus 2 --steps 4 {first}"));
    assert!(shown.contains("gradient accumulation 2 keeps the 8 samples"), "{shown}");
    assert_eq!(digest(&scratch, "m"), whole);
}

#[test]
fn changed_settings_of_the_optimizer_are_told_at_resume() {
    let scratch = Scratch::new("train", "other-decay");
    let line = format!("{SMALL} --eval_every 0 --checkpoint_dir kept");
    scratch.succeed(&format!("{line} --steps 1 --weight_decay 0"));
    let note = "note: the optimizer is AdamW, betas 0.9, 0.99, eps 1e-8, weight decay 0.1 now, AdamW, betas 0.9, \
                0.99, eps 1e-8, weight decay 0 when the checkpoint was saved";
    let shown = stderr_of(&scratch, &format!("{line} --steps 2 --resume auto"));
    assert!(shown.contains(note), "{shown}");
    let shown = stderr_of(&scratch, &format!("{line} --steps 3 --resume auto"));
    assert!(!shown.contains("note: the optimizer"), "{shown}");
}
