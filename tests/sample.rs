//! Command lines of `remuda sample`: texts of checkpoints that `remuda train` has saved.
//!
//! `tests/sample/refused.expected` contains every refused line with its screen and exit status;
//! `UPDATE_EXPECTED=1 cargo test --test program sample::` rewrites it.

use crate::support::expected::check_expected;
use crate::support::scratch::{Scratch, text};
use crate::support::shards::{MERGES_OF_THE, WORDS_OF_THE, write_vocabulary};

/// Options of a GPT that trains within milliseconds.
const SMALL: &str = "--num_gpus 2 --layers 1 --heads 2 --width 8 --block 8 --batch_size 2";

/// Trains in the directory of the test, and returns the screen of the workers.
fn train(scratch: &Scratch, line: &str) -> String {
    let output = scratch.run_other("train", line);
    assert!(output.status.success(), "{line}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// A checkpoint `bytes` of a model of the bytes of `text`.
fn scratch_with_text(name: &str) -> (Scratch, String) {
    let scratch = Scratch::new("sample", name);
    scratch.write("text", "the quick brown fox jumps over the lazy dog. ".repeat(40) + "\né");
    let line = "--data text --steps 30 --lr 0.01 --seed 7 --checkpoint_dir bytes";
    let screen = train(&scratch, &format!("{SMALL} {line}"));
    (scratch, screen)
}

#[test]
fn sample_is_that_of_the_training() {
    let (scratch, screen) = scratch_with_text("same");
    let (_, after) = screen.split_once("sample of the model:\n").expect("a sample");
    let (of_training, _) = after.split_once("\nstep 30 is saved in").expect("the end");
    // The training begins with a line break, which it does not show.
    let line = "bytes --data text --tokens 320 --seed 7";
    assert_eq!(scratch.succeed(line).trim_end(), of_training);
    let other = scratch.succeed("bytes --data text --tokens 320 --seed 8");
    assert_ne!(other.trim_end(), of_training);
}

#[test]
fn sample_continues_the_prompt() {
    let (scratch, _) = scratch_with_text("prompt");
    let likely = "bytes --data text --tokens 12 --prompt the --temperature 0";
    let shown = scratch.succeed(likely);
    assert!(shown.starts_with("the") && shown.ends_with('\n'), "{shown}");
    let one_choice = likely.replace("--temperature 0", "--temperature 1 --top_k 1");
    assert_eq!(scratch.succeed(&one_choice), shown);
    let step = "bytes/step-00000030";
    assert_eq!(scratch.succeed(&likely.replacen("bytes", step, 1)), shown);
}

#[test]
fn sample_of_tokens_has_the_text_of_their_vocabulary() {
    let scratch = Scratch::new("sample", "tokens");
    write_vocabulary(&scratch, &WORDS_OF_THE, MERGES_OF_THE);
    scratch.write("text", "thetheé".repeat(300));
    let written = scratch.run_other("tokenize", "text -o text.bin --vocab small");
    assert!(written.status.success(), "{}", text(&written.stderr));
    let line = "--data text.bin --steps 100 --lr 0.02 --warmup 5 --checkpoint_dir kept";
    train(&scratch, &format!("{SMALL} {line}"));
    let shown = scratch.succeed("kept --vocab small --prompt the --tokens 40 --temperature 0");
    assert!(shown.contains("éthetheéthetheé"), "{shown}");
    let json = scratch.succeed("kept --vocab small --prompt the --tokens 2 --temperature 0 --json");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["prompt"], serde_json::json!([257]));
    assert_eq!(json["tokens"].as_array().map(Vec::len), Some(2));
    let token = &json["tokens"][0];
    assert!(token["log_probability"].as_f64().is_some_and(|log| log < 0.0), "{json}");
    // The start of a text is a token that is not shown.
    let begun = scratch.succeed("kept --vocab small --tokens 3 --temperature 0");
    assert!(!begun.contains("endoftext"), "{begun}");
}

#[test]
fn sample_refuses_unusable_lines() {
    let (scratch, _) = scratch_with_text("refused");
    write_vocabulary(&scratch, &[("th", 256)], "#version: 0.2\nt h\n");
    scratch.write("short", "th".repeat(300));
    let written =
        scratch.run_other("tokenize", "short -o short.bin --vocab small --text_separator none");
    assert!(written.status.success(), "{}", text(&written.stderr));
    train(&scratch, &format!("{SMALL} --data short.bin --steps 1 --checkpoint_dir tokens"));
    train(&scratch, "--model mlp --num_gpus 1 --width 4 --steps 1 --checkpoint_dir mlp");
    let found = scratch.screens(
        &[
            "none",
            "text",
            "mlp",
            "bytes",
            "bytes --data none",
            "bytes --data short",
            "bytes --vocab small",
            "bytes --data text --prompt Quick",
            "bytes --data text --prompt=",
            "bytes --data text --temperature -1",
            "bytes --data text --top_k 0",
            "bytes --data text --tokens many",
            "tokens",
            "tokens --vocab none",
            "tokens --vocab small",
            "tokens --vocab small --prompt=",
        ],
        str::to_owned,
    );
    check_expected("tests/sample/refused.expected".as_ref(), &found);
}
