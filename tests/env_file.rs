//! Every file of `env/` beside what is read from it and what is said about it, and files that only a
//! test can make.
//!
//! `UPDATE_EXPECTED=1 cargo test --test env_file` rewrites the expectations.

#![cfg(feature = "cli")]

#[path = "support/golden.rs"]
mod golden;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use golden::Golden;
use proptest::prelude::*;
use remuda::base::Findings;
use remuda::pool::{self, EnvFile, loads_code, read_env, shadowed};
use remuda::report::diagnostic::{Paint, show_findings};

/// What is said, then what is read.
fn screen(file: &EnvFile, findings: &Findings) -> String {
    let mut out = show_findings(findings, Paint::Plain);
    for variable in &file.variables {
        let value = variable.value.escape_debug();
        writeln!(out, "line {}: {} is `{value}`", variable.line, variable.name).expect("text");
    }
    out
}

fn screen_of(path: &Path, has_errors: bool) -> String {
    let bytes = fs::read(path).expect("the file is readable");
    let (file, findings) = read_env(&path.display().to_string(), &bytes);
    assert_eq!(findings.has_errors(), has_errors, "for {}", path.display());
    screen(&file, &findings)
}

#[test]
fn valid_files_are_read_and_show_what_is_expected() {
    let valid = Golden { directory: "env/valid", extension: "env" };
    valid.check(|path| screen_of(path, false));
}

#[test]
fn invalid_files_show_what_is_expected() {
    let invalid = Golden { directory: "env/invalid", extension: "env" };
    invalid.check(|path| screen_of(path, true));
}

/// Codes of what needs two files, a file of the disk, a large one, or an accelerator.
const WITHOUT_FILE: &[&str] =
    &["E005", "E010", "E011", "E012", "E015", "E016", "E017", "E018", "E019", "E020", "E021"];

#[test]
fn every_code_of_an_environment_file_has_a_file_that_shows_it() {
    let stories = pool::codes::EXPLANATIONS.into_iter().flatten();
    let files = stories.filter(|found| found.code.starts_with('E'));
    golden::check_codes(&["env/valid", "env/invalid"], files, WITHOUT_FILE);
}

fn shown(text: &str) -> String {
    let (file, findings) = read_env("env", text.as_bytes());
    screen(&file, &findings)
}

#[test]
fn a_value_of_a_mebibyte_is_one_finding_and_is_not_drawn() {
    let screen = shown(&format!("A=1\nBIG={}\n", "x".repeat(1 << 20)));
    let message =
        "error[E011]: `BIG` is 1048580 bytes with its value; the limit of Linux is 131071";
    assert!(screen.contains(message), "{screen}");
    assert!(screen.contains("--> env:2:1"), "{screen}");
    assert!(screen.len() < 1000, "{} bytes of screen", screen.len());
    let (file, findings) = read_env("env", format!("A={}", "x".repeat(131_069)).as_bytes());
    assert_eq!((file.variables.len(), findings.diagnostics.len()), (1, 0));
}

#[test]
fn a_hundred_thousand_variables_end_at_the_limit() {
    let lines = (0..100_000).fold(String::new(), |text, number| text + &format!("V{number}=1\n"));
    let (file, findings) = read_env("env", lines.as_bytes());
    assert_eq!(file.variables.len(), 4096);
    assert_eq!(
        show_findings(&findings, Paint::Plain),
        "error[E012]: more than 4096 variables\n    --> env:4097:1\n     |\n\
         4097 | V4096=1\n     | ^^^^^ reading stops here\n     |\n\
         help: is this an environment file?\nenv: 1 error, 0 warnings\n"
    );
}

#[test]
fn what_the_other_file_says_differently_is_told_with_its_line() {
    let (home, _) = read_env("~/.deepspeed_env", b"A=1\nB=2\n\nC=3\n");
    let (here, mut findings) = read_env(".deepspeed_env", b"C=4\nA=1\n");
    findings.diagnostics.extend(shadowed(&here, &home, "~/.deepspeed_env"));
    assert_eq!(
        show_findings(&findings, Paint::Plain),
        "warning[E005]: `C` is also set on line 4 of ~/.deepspeed_env\n --> .deepspeed_env:1:1\n  |\n\
         1 | C=4\n  | ^ this one counts\n  |\n\
         help: the file of the working directory wins; remove one of the two\n\
         .deepspeed_env: 0 errors, 1 warning\n"
    );
}

#[test]
fn what_decides_which_code_runs_is_told() {
    let (file, mut findings) = read_env(".deepspeed_env", b"LD_PRELOAD=./x.so\nPATH=/x\nA=1\n");
    let found = file.variables.iter().filter_map(|found| loads_code(&found.name, found.span));
    findings.diagnostics.extend(found);
    assert_eq!(
        show_findings(&findings, Paint::Plain),
        "warning[E010]: `LD_PRELOAD` comes from the working directory\n --> .deepspeed_env:1:1\n  |\n\
         1 | LD_PRELOAD=./x.so\n  | ^^^^^^^^^^ decides which code every worker runs\n  |\n\
         help: if that is meant, put it into the file in your home directory\n\
         warning[E010]: `PATH` comes from the working directory\n --> .deepspeed_env:2:1\n  |\n\
         2 | PATH=/x\n  | ^^^^ decides which code every worker runs\n  |\n\
         help: if that is meant, put it into the file in your home directory\n\
         .deepspeed_env: 0 errors, 2 warnings\n"
    );
}

/// Bytes as they come in such files, mixed with all others.
fn env_bytes() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just(b"A".to_vec()),
        Just(b"B=".to_vec()),
        Just(b"export ".to_vec()),
        Just(b"\"".to_vec()),
        Just(b"'".to_vec()),
        Just(b"$x".to_vec()),
        Just(b" # ".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just("\u{a0}ö".as_bytes().to_vec()),
        proptest::collection::vec(any::<u8>(), 0..6),
    ];
    proptest::collection::vec(word, 0..40).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_bytes_give_variables_that_can_be_set_and_a_screen(bytes in env_bytes()) {
        let (file, findings) = read_env("env", &bytes);
        let names: BTreeSet<_> = file.variables.iter().map(|found| &found.name).collect();
        prop_assert_eq!(names.len(), file.variables.len());
        for variable in &file.variables {
            let text = &findings.source.text[variable.span.start..variable.span.end];
            prop_assert_eq!(text, &variable.name);
            prop_assert!(!variable.value.contains(['\0', '\n']));
        }
        let screen = show_findings(&findings, Paint::Plain);
        prop_assert!(screen.chars().all(|c| c == '\n' || !c.is_control()), "{screen:?}");
    }

    #[test]
    fn a_value_in_single_quotes_comes_back_as_it_was_written(value in "[^'\0\r\n]{0,40}") {
        let (file, findings) = read_env("env", format!("A='{value}'\n").as_bytes());
        prop_assert_eq!(&file.get("A").expect("it was read").value, &value);
        prop_assert_eq!(findings.diagnostics.len(), 0);
    }
}
