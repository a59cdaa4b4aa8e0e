//! Golden tests of environment files: every file of `env/` with its variables and findings, and
//! files that only a test can create.
//!
//! `UPDATE_EXPECTED=1 cargo test --test program env_file::` rewrites the expectations.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::support::golden::Golden;
use proptest::prelude::*;
use remuda::base::Findings;
use remuda::pool::{self, EnvFile, loads_code_warning, read_env, shadowed};
use remuda::report::diagnostic::{Paint, show_findings};

/// The findings, then the variables.
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
fn valid_env_files_match_expectations() {
    let valid = Golden { directory: "env/valid", extension: "env" };
    valid.check(|path| screen_of(path, false));
}

#[test]
fn invalid_env_files_match_expectations() {
    let invalid = Golden { directory: "env/invalid", extension: "env" };
    invalid.check(|path| screen_of(path, true));
}

/// Codes that need two files, a property of the file on disk, a large file, or an accelerator.
const WITHOUT_FILE: &[&str] =
    &["E005", "E010", "E011", "E012", "E015", "E016", "E017", "E018", "E019", "E020", "E021"];

#[test]
fn every_env_file_code_has_a_golden_file() {
    let explanations = pool::codes::EXPLANATIONS.into_iter().flatten();
    let env_codes = explanations.filter(|found| found.code.starts_with('E'));
    crate::support::golden::check_codes(&["env/valid", "env/invalid"], env_codes, WITHOUT_FILE);
}

fn shown(text: &str) -> String {
    let (file, findings) = read_env("env", text.as_bytes());
    screen(&file, &findings)
}

#[test]
fn long_value_is_one_finding_and_is_not_printed() {
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
fn variables_beyond_the_limit_are_one_error() {
    let lines = (0..100_000).fold(String::new(), |text, number| text + &format!("V{number}=1\n"));
    let (file, findings) = read_env("env", lines.as_bytes());
    assert_eq!(file.variables.len(), 4096);
    assert_eq!(
        show_findings(&findings, Paint::Plain),
        "error[E012]: more than 4096 variables\n    --> env:4097:1\n     |\n\
         4097 | V4096=1\n     | ^^^^^ reading stops here\n     |\n\
         help: name an environment file: its lines are `NAME=value`\nenv: 1 error\n"
    );
}

#[test]
fn shadowed_variable_warning_has_line_of_other_file() {
    let (home, _) = read_env("~/.deepspeed_env", b"A=1\nB=2\n\nC=3\n");
    let (here, mut findings) = read_env(".deepspeed_env", b"C=4\nA=1\n");
    findings.diagnostics.extend(shadowed(&here, &home, "~/.deepspeed_env"));
    assert_eq!(
        show_findings(&findings, Paint::Plain),
        "warning[E005]: `C` is also set on line 4 of ~/.deepspeed_env\n --> .deepspeed_env:1:1\n  |\n\
         1 | C=4\n  | ^ this value is used\n  |\n\
         help: the file of the working directory wins; remove one of the two\n\
         .deepspeed_env: 1 warning\n"
    );
}

#[test]
fn variables_that_load_code_are_warned_about() {
    let (file, mut findings) = read_env(".deepspeed_env", b"LD_PRELOAD=./x.so\nPATH=/x\nA=1\n");
    let found =
        file.variables.iter().filter_map(|found| loads_code_warning(&found.name, found.span));
    findings.diagnostics.extend(found);
    assert_eq!(
        show_findings(&findings, Paint::Plain),
        "warning[E010]: `LD_PRELOAD` is set by a file of the working directory\n --> .deepspeed_env:1:1\n  |\n\
         1 | LD_PRELOAD=./x.so\n  | ^^^^^^^^^^ selects the code that every worker runs\n  |\n\
         help: if this is intended, move the line to the file in your home directory\n\
         warning[E010]: `PATH` is set by a file of the working directory\n --> .deepspeed_env:2:1\n  |\n\
         2 | PATH=/x\n  | ^^^^ selects the code that every worker runs\n  |\n\
         help: if this is intended, move the line to the file in your home directory\n\
         .deepspeed_env: 2 warnings\n"
    );
}

/// Typical pieces of such files, mixed with arbitrary bytes.
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
    fn env_file_parser_accepts_any_bytes(bytes in env_bytes()) {
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
    fn single_quoted_value_is_unchanged(value in "[^'\0\r\n]{0,40}") {
        let (file, findings) = read_env("env", format!("A='{value}'\n").as_bytes());
        prop_assert_eq!(&file.get("A").expect("it was read").value, &value);
        prop_assert_eq!(findings.diagnostics.len(), 0);
    }
}
