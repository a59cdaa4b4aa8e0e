//! Command lines of `remuda checkpoint`, and their screens.
//!
//! `tests/checkpoints/*.expected` contain every line with its screens and exit status; `UPDATE_EXPECTED=1 cargo
//! test --test program checkpoints::` rewrites them.

use std::fmt::Write as _;
use std::fs;
use std::process::Output;

use remuda::runtime::checkpoint::CheckpointReader;
use remuda::runtime::{Bf16, Element};
use safetensors::SafeTensors;

use crate::support::checkpoints::{save_all, tensors};
use crate::support::expected::check_expected;
use crate::support::scratch::{Scratch, screen_of, text};

/// A line with standard output, standard error and exit status.
fn shown(line: &str, output: &Output) -> String {
    let status = output.status.code().expect("it ends by itself");
    let (stdout, stderr) = (text(&output.stdout), screen_of(output));
    format!("$ remuda checkpoint {line}\n{stdout}{stderr}[{status}]\n\n")
}

fn flip(scratch: &Scratch, file: &str, at: usize) {
    let mut bytes = fs::read(scratch.path(file)).expect("a file");
    bytes[at] ^= 0x10;
    scratch.write(file, bytes);
}

/// A directory with three checkpoints of 4 ranks, and one of an earlier version.
fn run(name: &str) -> Scratch {
    let scratch = Scratch::new("checkpoint", name);
    save_all(4, &scratch.path("run"), &[2, 4, 6]);
    let old = include_bytes!("vectors/checkpoint-format-2.safetensors");
    scratch.write("run/step-00000001.safetensors", old);
    scratch
}

#[test]
fn checkpoints_are_shown_and_verified() {
    let scratch = run("shown");
    let lines = [
        "show run",
        "show run/step-00000002",
        "show run/step-00000001.safetensors",
        "show run/step-00000002 --json",
        "verify run",
        "verify run/step-00000002 --threads 1",
        "verify run/step-00000001.safetensors",
    ];
    let mut found = String::new();
    for line in lines {
        found += &shown(line, &scratch.run(line));
    }
    check_expected("tests/checkpoints/shown.expected".as_ref(), &found);
}

#[test]
fn damaged_and_missing_checkpoints_are_named() {
    let scratch = run("damaged");
    fs::create_dir(scratch.path("empty")).expect("a new directory");
    scratch.write("notes.txt", "not a checkpoint");
    let mut found = String::new();
    let mut check = |title: &str, lines: &[&str]| {
        let _ = writeln!(found, "# {title}\n");
        for line in lines {
            found += &shown(line, &scratch.run(line));
        }
    };
    let lines = ["show none", "verify none", "show empty", "verify empty", "show notes.txt"];
    check("nothing there", &lines);
    check("not a checkpoint", &["verify notes.txt", "export notes.txt --to model.safetensors"]);

    flip(&scratch, "run/step-00000006/rank-00001.safetensors", 900);
    check("a changed file", &["verify run", "verify run/step-00000006", "export run --to a"]);
    fs::remove_file(scratch.path("run/step-00000006/rank-00002.safetensors")).expect("a file");
    let cut = scratch.path("run/step-00000006/rank-00003.safetensors");
    let bytes = fs::read(&cut).expect("a file");
    fs::write(&cut, &bytes[..100]).expect("it is written");
    check("a missing and a truncated file, too", &["verify run", "show run"]);
    let old = scratch.path("run/step-00000002/rank-00000.safetensors");
    fs::copy(old, scratch.path("run/step-00000006/rank-00000.safetensors")).expect("it is copied");
    check("a file of another step, too", &["verify run/step-00000006"]);

    let index = fs::read_to_string(scratch.path("run/step-00000004/index.json")).expect("a file");
    scratch
        .write("run/step-00000004/index.json", index.replacen("checkpoint/1", "checkpoint/9", 1));
    check("a newer format", &["verify run/step-00000004", "show run/step-00000004", "verify run"]);
    flip(&scratch, "run/step-00000002/index.json", 300);
    check("a changed index", &["verify run/step-00000002", "show run/step-00000002"]);
    scratch.write("run/latest", "step-00000008\n");
    check("`latest` names nothing", &["show run"]);
    fs::remove_file(scratch.path("run/latest")).expect("a file");
    fs::remove_dir_all(scratch.path("run/step-00000006")).expect("a directory");
    fs::remove_dir_all(scratch.path("run/step-00000004")).expect("a directory");
    save_all(1, &scratch.path("other"), &[4]);
    fs::rename(scratch.path("other/step-00000004"), scratch.path("run/step-00000004"))
        .expect("it is moved");
    check("no `latest`", &["show run", "verify run"]);
    check_expected("tests/checkpoints/damaged.expected".as_ref(), &found);
}

#[test]
fn unusable_lines_are_refused() {
    let scratch = run("refused");
    scratch.write("there.safetensors", "");
    fs::create_dir(scratch.path("model")).expect("a new directory");
    scratch.write("model/model-00001-of-00002.safetensors", "");
    scratch.write("file", "");
    let found = scratch.screens(
        &[
            "",
            "shwo run",
            "run",
            "show",
            "verify",
            "export run",
            "export run --to there.safetensors",
            "export run --to hf:model",
            "export run --to hf:",
            "export run --to hf model",
            "export run --to pt:model2",
            "export run --to model/",
            "export run --to file/model.safetensors",
            "export run --to a --dtype int8",
            "export run --to hf:a --max_shard_size 0",
            "export run --to hf:a --max_shard_size many",
            "verify run --threads 0",
            "import run",
        ],
        str::to_owned,
    );
    check_expected("tests/checkpoints/refused.expected".as_ref(), &found);
    assert!(!scratch.path("a").exists());
}

#[test]
fn exported_parameters_have_the_saved_bits() {
    let scratch = run("export");
    let expect = |dtype: &str| {
        let parameters = tensors(6).into_iter().filter(|(tensor, _)| !tensor.name.contains('/'));
        let bytes = |values: Vec<f32>| {
            let mut narrow = Vec::new();
            match dtype {
                "F32" => bytemuck::cast_slice(&values).to_vec(),
                _ => bytemuck::cast_slice(Bf16::narrow(&values, &mut narrow)).to_vec(),
            }
        };
        parameters.map(|(tensor, values)| (tensor.name, tensor.shape, bytes(values))).collect()
    };
    let check = |file: &str, dtype: &str| {
        let mut expected: Vec<(String, Vec<usize>, Vec<u8>)> = expect(dtype);
        expected.sort();
        let mut found = Vec::new();
        let bytes = fs::read(scratch.path(file)).expect("it was written");
        let read = SafeTensors::deserialize(&bytes).expect("it is valid");
        for (name, tensor) in read.tensors() {
            assert_eq!(format!("{:?}", tensor.dtype()), dtype);
            found.push((name, tensor.shape().to_vec(), tensor.data().to_vec()));
        }
        let (_, header) = SafeTensors::read_metadata(&bytes).expect("it is valid");
        let metadata = header.metadata().as_ref().expect("transformers needs it");
        assert_eq!(metadata["format"], "pt");
        found.sort();
        assert_eq!(found, expected, "{file}");
    };
    let shown = scratch.succeed("export run --to model.safetensors");
    assert_eq!(shown, "4 tensors, 1.3 KiB, safetensors: `model.safetensors`\n");
    check("model.safetensors", "F32");
    scratch.succeed("export run --to half.safetensors --dtype bf16");
    check("half.safetensors", "BF16");
    // An export is no checkpoint, and the checkpoint is as it was.
    assert!(CheckpointReader::open(&scratch.path("model.safetensors")).is_err());
    scratch.succeed("verify run");
}
