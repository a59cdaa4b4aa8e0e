//! `--deepspeed_config` of `remuda train`: what the file and the line decide together.

use std::fs;

use super::{digest, losses};
use crate::support::scratch::{Scratch, text};

/// Options of a GPT that trains within milliseconds.
const TINY: &str = "--layers 1 --heads 2 --width 8 --block 8 --data text --steps 2 --eval_every 0";

fn scratch_with_text(name: &str) -> Scratch {
    let scratch = Scratch::new("train", name);
    scratch.write("text", "the quick brown fox jumps over the lazy dog. ".repeat(40));
    scratch
}

/// The batch is that of the file, whatever the lanes: the same samples with every number of workers.
#[test]
fn lanes_divide_the_batch_of_a_file() {
    let scratch = scratch_with_text("lanes-of-file");
    scratch.write("ds.json", "{\"train_batch_size\": 8}");
    let digests = [(1, "1 worker × 4"), (2, "2 workers × 2"), (4, "4 workers × 1")].map(
        |(workers, division)| {
            let metrics = format!("metrics-{workers}");
            let shown = scratch.succeed(&format!(
                "{TINY} --num_gpus {workers} --lanes 4 --deepspeed_config ds.json --metrics {metrics}"
            ));
            let expect = format!("2 steps of {division} micro-batch");
            assert!(shown.contains(&expect) && shown.contains(" × 2\n"), "{shown}");
            digest(&scratch, &metrics)
        },
    );
    assert!(digests.iter().all(|digest| *digest == digests[0]), "{digests:?}");
}

/// An offload to the memory of the host has an effect where workers compute on GPUs.
#[test]
fn offload_to_the_host_is_noted_only_for_processors() {
    let scratch = scratch_with_text("offload-to-host");
    scratch.write(
        "ds.json",
        "{\"train_batch_size\": 8, \"zero_optimization\": {\"stage\": 2,\n \
        \"offload_optimizer\": {\"device\": \"cpu\"}}}",
    );
    let line = "-H n1:2 --precision bf16 --width 256 --deepspeed_config ds.json --dry-run";
    let note = "note: ds.json:2:24: `zero_optimization.offload_optimizer.device` has no effect here: \
                it has an effect on GPUs only: a CPU slot has no other memory\n";
    for (device, expected) in [("cpu", note), ("cuda", "")] {
        let output = scratch.run(&format!("--device {device} {line}"));
        let (shown, screen) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{screen}");
        assert!(screen.contains(expected), "{screen}");
        assert_eq!(screen.contains("has no effect"), !expected.is_empty(), "{screen}");
        let is_in_host = shown.contains(", its state in the memory of the host");
        assert_eq!(is_in_host, device == "cuda", "{shown}");
        let of_what = if device == "cuda" { "memory of a GPU " } else { "memory of a worker " };
        assert!(shown.starts_with(of_what), "{shown}");
        assert_eq!(shown.contains("\nmatrix products "), device == "cuda", "{shown}");
    }
}

/// Options give what a file leaves open, by `auto` or by leaving a key out.
#[test]
fn options_fill_what_a_file_leaves_open() {
    let scratch = scratch_with_text("open-file");
    scratch.write("open.json", "{}");
    scratch.write(
        "auto.json",
        "{\"train_batch_size\": \"auto\", \"gradient_accumulation_steps\": \"auto\", \
        \"bf16\": {\"enabled\": \"auto\"}, \"fp16\": {\"enabled\": \"auto\"}, \
        \"zero_optimization\": {\"stage\": \"auto\"}, \"gradient_clipping\": \"auto\"}",
    );
    let line = "--num_gpus 2 --batch_size 3 --accumulate 2 --precision bf16 --stage 2 --clip 0.5";
    scratch.succeed(&format!("{TINY} {line} --metrics without"));
    for file in ["open.json", "auto.json"] {
        let shown = scratch
            .succeed(&format!("{TINY} {line} --deepspeed_config {file} --metrics with-{file}"));
        assert!(shown.contains("2 workers × 2 micro-batches × 3"), "{shown}");
        assert_eq!(
            digest(&scratch, &format!("with-{file}")),
            digest(&scratch, "without"),
            "{file}"
        );
    }
    let shown = scratch.succeed(&format!("{TINY} --num_gpus 1 --deepspeed_config auto.json"));
    assert!(shown.contains("1 worker × 1 micro-batch × 8"), "{shown}");
}

/// Activations are computed again if a file does not decide on it, or decides the same.
#[test]
fn activations_are_computed_again_beside_a_file() {
    let scratch = scratch_with_text("recomputed-beside-file");
    scratch.write("open.json", "{\"train_batch_size\": 8}");
    let of_file =
        "{\"train_batch_size\": 8, \"activation_checkpointing\": {\"number_checkpoints\": 3}}";
    scratch.write("blocks.json", of_file);
    let line = "--layers 3 --width 256 --num_gpus 2 --dry-run --deepspeed_config";
    let shown = |end: &str| text(&scratch.run(&format!("{line} {end}")).stdout);
    let [kept, of_file] = [shown("open.json"), shown("blocks.json")];
    assert_ne!(kept, of_file, "a worker needs less memory");
    for file in ["open.json", "blocks.json"] {
        assert_eq!(shown(&format!("{file} --activation_checkpointing")), of_file, "{file}");
    }
}

/// The number of workers of a file of accelerate is used where the line gives none.
#[test]
fn file_of_accelerate_gives_the_number_of_workers() {
    let scratch = scratch_with_text("processes");
    let text = "distributed_type: MULTI_CPU\nnum_processes: 3\nnum_machines: 1\nuse_cpu: true\n";
    scratch.write("accelerate.yaml", text);
    let shown = scratch.succeed(&format!("{TINY} --config accelerate.yaml"));
    assert!(shown.contains("2 steps of 3 workers"), "{shown}");
    let shown = scratch.succeed(&format!("{TINY} --config accelerate.yaml --num_gpus 2"));
    assert!(shown.contains("2 steps of 2 workers"), "{shown}");
}

/// The files that a user of DeepSpeed, of the Hugging Face Trainer and of accelerate has.
#[test]
fn files_of_users_train_on_1_2_4_and_8_workers() {
    let scratch = Scratch::new("train", "users");
    let files = [
        ("ds.json", include_str!("../config/valid/adam_fp16_zero.json")),
        ("trainer.json", include_str!("../config/valid/zero3_auto.json")),
        ("accelerate.yaml", include_str!("../config/accelerate/zero3_cpu.yaml")),
    ];
    for (name, content) in files {
        scratch.write(name, content);
        for workers in [1, 2, 4, 8] {
            let metrics = format!("{name}-{workers}");
            scratch.succeed(&format!(
                "--model mlp --layers 1 --width 8 --steps 2 --eval_every 0 --num_gpus {workers} \
                 --deepspeed_config {name} --metrics {metrics}"
            ));
            assert_eq!(losses(&scratch, &metrics).len(), 3, "two steps and the end: {metrics}");
        }
    }
}

/// The Trainer's example has eight; one alone is told with its reason.
#[test]
fn keys_without_effect_are_told_in_one_line() {
    let scratch = Scratch::new("train", "idle");
    scratch.write("trainer.json", include_str!("../config/valid/zero3_auto.json"));
    let line = "--model mlp --num_gpus 1 --dry-run --deepspeed_config trainer.json";
    let note = "note: 8 keys of `trainer.json` have no effect here: `zero_optimization.offload_optimizer.pin_memory`, \
                `zero_optimization.offload_param.pin_memory`, `zero_optimization.overlap_comm`, \
                `zero_optimization.contiguous_gradients`, `zero_optimization.stage3_max_live_parameters`, \
                `zero_optimization.stage3_max_reuse_distance`, `steps_per_print`, `wall_clock_breakdown`; `remuda config \
                check trainer.json` says why\n";
    assert_eq!(text(&scratch.run(line).stderr), note);
    let checked = scratch.run_other("config", "check trainer.json");
    let checked = text(&checked.stdout);
    assert_eq!(checked.lines().filter(|line| line.starts_with("  line ")).count(), 8, "{checked}");
}

/// The same settings, from a file and from options.
#[test]
fn configuration_of_deepspeed_sets_the_engine() {
    let scratch = Scratch::new("train", "deepspeed");
    scratch.write("text", "the quick brown fox jumps over the lazy dog. ".repeat(40));
    let sizes = "--layers 2 --heads 2 --width 8 --block 8 --data text --steps 5";
    let file = "{\"train_batch_size\": 12, \"gradient_accumulation_steps\": 2, // a comment\n \
        \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": \"auto\", \"betas\": [0.9, 0.95], \
        \"weight_decay\": 0.1}}, \"scheduler\": {\"type\": \"WarmupLR\", \"params\": \
        {\"warmup_min_lr\": 0.01, \"warmup_max_lr\": 0.01, \"warmup_num_steps\": 2}}, \
        \"zero_optimization\": {\"stage\": 3, \"overlap_comm\": true}, \"bf16\": {\"enabled\": true}, \
        \"gradient_clipping\": 0.5, \"csv_monitor\": {\"enabled\": true}, \"tensorboard\": \
        {\"enabled\": true, \"output_path\": \"runs-of\", \"job_name\": \"gpt\"}}";
    scratch.write("ds.json", file);
    let shown = scratch
        .run(&format!("{sizes} --num_gpus 2 --deepspeed_config ds.json --lr 0.01 --metrics file"));
    let stderr = text(&shown.stderr);
    assert!(shown.status.success(), "{stderr}");
    assert!(stderr.contains("`zero_optimization.overlap_comm` has no effect here"), "{stderr}");
    let rates = fs::read_to_string(scratch.path("DeepSpeedJobName/Train_Samples_lr.csv"));
    let rows = "12,0.01\r\n24,0.01\r\n36,0.01\r\n48,0.01\r\n60,0.01\r\n";
    assert_eq!(rates.expect("a file of the monitor"), format!("step,lr\r\n{rows}"));
    assert_eq!(fs::read_dir(scratch.path("runs-of/gpt")).expect("a directory").count(), 1);
    let options = "--batch_size 3 --accumulate 2 --lr 0.01 --min_lr 0.01 --warmup 0 --beta2 0.95 \
                   --weight_decay 0.1 --clip 0.5 --stage 3 --precision bf16";
    scratch.succeed(&format!("{sizes} --num_gpus 2 {options} --metrics options"));
    assert_eq!(losses(&scratch, "file"), losses(&scratch, "options"));
}
