//! Lines of torchrun and accelerate, and configurations of DeepSpeed: remuda's reading against recorded answers
//! of the real programs.
//!
//! `scripts/conformance --peer NAME` asks the launchers themselves, `--record` writes the answers.

use std::path::Path;
use std::process::Command;

use crate::support::launch::REMUDA;

/// Names of the allowed differences: the texts that the rules return.
pub(super) fn rules() -> impl Iterator<Item = &'static str> {
    let lines = include_str!("../../scripts/conformance.d/line_rules.py");
    let configs = include_str!("../../scripts/conformance.d/config_rules.py");
    [lines, configs].into_iter().flat_map(returned_names)
}

/// The texts that the functions of a program return.
fn returned_names(source: &'static str) -> impl Iterator<Item = &'static str> {
    let quoted =
        source.lines().filter_map(|line| line.trim().strip_prefix("return \"")?.split('"').next());
    quoted.filter(|name| !name.is_empty())
}

/// Runs a comparison with recorded answers.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "the comparison is a program in Python")]
fn check(script: &str, recorded: &str, verdict: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let vectors = root.join("tests/vectors").join(recorded);
    let mut command = Command::new("python3");
    command.args(["-X", "utf8", "-B"]).arg(root.join("scripts/conformance.d").join(script));
    command.args(["--remuda", REMUDA, "--replay"]).arg(&vectors);
    let output = command.output().expect("python3 starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains(verdict), "{text}");
}

#[test]
fn lines_of_torchrun_are_read_as_recorded() {
    check("compare_lines.py", "lines/torchrun.jsonl", " 0 unexplained");
}

#[test]
fn lines_of_accelerate_are_read_as_recorded() {
    check("compare_lines.py", "lines/accelerate.jsonl", " 0 unexplained");
}

#[test]
fn workers_of_both_see_what_was_recorded() {
    check("run_lines.py", "lines/runs.jsonl", " 0 differ;");
}

#[test]
fn configurations_are_read_as_recorded() {
    check("compare_configs.py", "configs/deepspeed.jsonl", " 0 unexplained");
}
