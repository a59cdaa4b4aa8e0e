//! Golden files in `tests/config/`, each with the screen of `remuda config check`. A comment on the first
//! line, `flags: --world_size 3`, has options of the command.

use std::fs;
use std::path::Path;

use remuda::base::Severity;
use remuda::config::{ConfigInputs, codes, read_config};

use crate::config::config;
use crate::support::golden::{Golden, check_codes, files};

/// The options that a file asks for.
fn flags(text: &str) -> Vec<String> {
    let first = text.lines().next().unwrap_or_default();
    let flags = first.split_once("flags: ").map_or("", |(_, flags)| flags);
    flags.split_whitespace().map(str::to_owned).collect()
}

/// Compares the screen and the status of every file in a directory.
#[track_caller]
fn check_directory(directory: &'static str, extension: &'static str) {
    Golden { directory, extension }.check(|path| {
        let text = String::from_utf8_lossy(&fs::read(path).expect("it is readable")).into_owned();
        let flags = flags(&text);
        let mut words = vec!["check", path.to_str().expect("text")];
        words.extend(flags.iter().map(String::as_str));
        let outcome = config(&words);
        format!("{}{}exit status {}\n", outcome.stdout, outcome.stderr, outcome.status.code())
    });
}

#[track_caller]
fn check_errors(directory: &str, has_errors: bool) {
    for path in files(directory, "json") {
        let bytes = fs::read(&path).expect("the file is readable");
        let flags = flags(&String::from_utf8_lossy(&bytes));
        let world_size = flags.windows(2).find(|pair| pair[0] == "--world_size");
        let world_size = world_size.map(|pair| pair[1].parse().expect("a number"));
        let inputs = ConfigInputs { world_size, ..ConfigInputs::default() };
        let reading = read_config("config", &bytes, &inputs);
        assert_eq!(reading.findings.has_errors(), has_errors, "for {}", path.display());
        assert_eq!(reading.config.is_some(), !has_errors, "for {}", path.display());
    }
}

#[test]
fn valid_files_match_expected_screens() {
    check_directory("tests/config/valid", "json");
    check_errors("tests/config/valid", false);
}

#[test]
fn invalid_files_match_expected_screens() {
    check_directory("tests/config/invalid", "json");
    check_errors("tests/config/invalid", true);
}

#[test]
fn accelerate_files_match_expected_screens() {
    check_directory("tests/config/accelerate", "yaml");
}

/// Codes that are on no screen of these files: a test creates the file, or the code is a note of the
/// machine-readable formats.
const WITHOUT_FILE: &[&str] =
    &[codes::NO_EFFECT, codes::SETTINGS_NOT_TRUSTED, codes::SETTINGS_UNREADABLE];

#[test]
fn every_config_code_has_a_file() {
    let directories = [
        "tests/config/valid",
        "tests/config/invalid",
        "tests/config/accelerate",
        "tests/settings/screens",
    ];
    let pages = codes::EXPLANATIONS.into_iter().flatten();
    check_codes(&directories, pages, WITHOUT_FILE);
}

/// Codes of problems of a whole file, which have no place.
const WITHOUT_PLACE: &[&str] =
    &[codes::CONFIG_NOT_TEXT, codes::BATCH_MISSING, codes::BAD_CONFIG_VALUE];

#[test]
fn every_finding_has_a_place() {
    let json = ["tests/config/valid", "tests/config/invalid"].map(|path| files(path, "json"));
    let all = json.into_iter().flatten().chain(files("tests/config/accelerate", "yaml"));
    for path in all {
        let bytes = fs::read(&path).expect("the file is readable");
        let reading = read_config(name(&path), &bytes, &ConfigInputs::default());
        let text = &reading.findings.source.text;
        for found in &reading.findings.diagnostics {
            let is_whole = WITHOUT_PLACE.contains(&found.code);
            assert!(found.span.is_some() || is_whole, "{}: {found:?}", path.display());
            if let Some(span) = found.span {
                assert!(text.get(span.start..span.end).is_some(), "{}: {found:?}", path.display());
            }
            let is_helped = found.help.is_some() || !found.label.is_empty();
            assert!(is_helped, "{}: {found:?}", path.display());
        }
    }
}

fn name(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// The files that a user of DeepSpeed, of the Hugging Face Trainer and of accelerate has.
#[test]
fn files_of_users_are_usable() {
    for (path, ranks) in [
        ("tests/config/valid/adam_fp16_zero.json", [1, 2, 4, 8]),
        ("tests/config/valid/zero3_auto.json", [1, 2, 3, 64]),
        ("tests/config/accelerate/zero3_cpu.yaml", [1, 2, 3, 8]),
    ] {
        let bytes = fs::read(path).expect("the file is readable");
        for ranks in ranks {
            let inputs = ConfigInputs { world_size: Some(ranks), ..ConfigInputs::default() };
            let reading = read_config(path, &bytes, &inputs);
            let is_note = |found: &remuda::base::Diagnostic| found.severity == Severity::Note;
            assert!(reading.findings.diagnostics.iter().all(is_note), "{path}");
            let found = reading.config.expect("no error");
            assert_eq!(found.world_size, ranks);
            assert_eq!(found.batch.train, found.batch.micro * found.batch.accumulation * ranks);
        }
    }
}
