//! Bad command lines and their whole screens: what is printed, and the exit status.
//!
//! `UPDATE_EXPECTED=1 cargo test --test program cli::` rewrites the expectations.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::expected::check_expected;

const REMUDA: &str = env!("CARGO_BIN_EXE_remuda");

/// Creates a directory with the files of the cases.
fn make_directory(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli").join(name);
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(dir.join("directory")).expect("a directory");
    let hosts = "worker-0 slots=8\nworker-1 slots=8\nworker-2 slots=2\nworker-3 slots=8\n";
    fs::write(dir.join("hosts"), hosts).expect("a hostfile");
    fs::write(dir.join("writable"), hosts).expect("a hostfile");
    fs::set_permissions(dir.join("hosts"), fs::Permissions::from_mode(0o600)).expect("ours");
    fs::set_permissions(dir.join("writable"), fs::Permissions::from_mode(0o666)).expect("ours");
    symlink("loop", dir.join("loop")).expect("a link");
    fs::write(dir.join("run.sh"), "#!/bin/sh\nexit 3\n").expect("a script");
    fs::write(dir.join("job.sh"), "#!/bin/sh\n#SBATCH -N 2\nsrun hostname\n").expect("a script");
    fs::write(dir.join("zero.json"), "{\n  \"train_batch_size\": 8\n}\n").expect("a configuration");
    let precision = "distributed_type: 'NO'\nmixed_precision: bf17\n";
    fs::write(dir.join("bf17.yaml"), precision).expect("a configuration");
    fs::write(dir.join("train.py"), "raise SystemExit('it was started')\n").expect("a script");
    fs::write(dir.join("evaluate.py"), "raise SystemExit('it was started')\n").expect("a script");
    dir
}

/// A line of the golden file: `$ remuda run …`, its screen, its status.
#[expect(clippy::disallowed_methods, reason = "these tests start the real program")]
fn screen(dir: &Path, line: &str, words: &[OsString]) -> String {
    let (program, words) = match words[0].to_str() {
        Some(program @ "remuda") => (program, &words[1..]),
        _ => ("deepspeed", &words[1..]),
    };
    let mut command = Command::new(REMUDA);
    command.arg0(program).args(words).current_dir(dir).stdin(Stdio::null()).env_clear();
    command.env("PATH", "/usr/bin:/bin").env("XDG_STATE_HOME", dir.join("state"));
    command.env("HOME", dir.join("home"));
    let output = command.output().expect("remuda starts");
    assert!(output.stdout.is_empty(), "for `{line}`: {output:?}");
    let screen = String::from_utf8(output.stderr).expect("text");
    let screen = screen.replace(&*dir.to_string_lossy(), "DIR");
    let status = output.status.code().expect("it exits");
    format!("$ {line}\n{screen}[{status}]\n\n")
}

/// Words are separated by blanks; `␣` is a blank, `''` an empty word, `\xff` a byte.
fn words(line: &str) -> Vec<OsString> {
    let word = |text: &str| {
        let mut bytes = text.replace('␣', " ").replace("''", "").into_bytes();
        if let Some(at) = bytes.windows(4).position(|part| part == b"\\xff") {
            bytes.splice(at..at + 4, [0xff]);
        }
        OsString::from_vec(bytes)
    };
    line.split(' ').map(word).collect()
}

#[track_caller]
fn check(name: &str) {
    let path = Path::new("tests/cli/screens").join(name).with_extension("expected");
    let old =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let dir = make_directory(name);
    let mut found = String::new();
    for line in old.lines() {
        if let Some(line) = line.strip_prefix("$ ") {
            found += &screen(&dir, line, &words(line));
        } else if line.starts_with("# ") {
            writeln!(found, "{line}").expect("writing to a String cannot fail");
        }
    }
    check_expected(&path, &found);
    let _ = fs::remove_dir_all(dir);
}

#[test]
fn grammar_of_lines() {
    check("grammar");
}

#[test]
fn line_with_nothing_after_its_command_shows_the_usage() {
    check("bare");
}

#[test]
fn invalid_values_of_options() {
    check("values");
}

#[test]
fn invalid_selections() {
    check("selection");
}

#[test]
fn programs_that_cannot_run() {
    check("programs");
}

#[test]
fn invalid_lines_of_launch() {
    check("launch");
}

#[test]
fn unknown_codes_of_explain() {
    check("explain");
}

#[test]
fn invalid_lines_of_other_commands() {
    check("commands");
}

#[test]
fn unknown_option_gets_a_suggestion() {
    check("guesses");
}

#[test]
fn first_word_that_is_not_a_script() {
    check("no_script");
}

#[test]
fn value_that_is_given_twice_is_shown_at_both_places() {
    check("repeats");
}

#[test]
fn list_in_place_of_a_hostfile_is_read_alike_everywhere() {
    check("host_lists");
}

#[test]
fn every_screen_has_an_expectation_and_a_test() {
    let mut names: Vec<String> = fs::read_dir("tests/cli/screens")
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort_unstable();
    let expect = [
        "bare",
        "commands",
        "explain",
        "grammar",
        "guesses",
        "host_lists",
        "launch",
        "no_script",
        "programs",
        "repeats",
        "selection",
        "values",
    ];
    assert_eq!(names, expect.map(|name| format!("{name}.expected")));
}
