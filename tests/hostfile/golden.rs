//! `hostfiles/`: every file and the whole screen of `remuda hostfile check`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use remuda::base::{Applicability, Severity};
use remuda::pool::dialect::Dialect;
use remuda::pool::{self, ReadOptions, mend, read_any};

use crate::{hostfile, word};

fn files(directory: &Path, extension: &str) -> BTreeSet<PathBuf> {
    let entries =
        fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension().is_some_and(|found| found == extension)).collect()
}

/// Compares every file of a directory with its expectation.
#[track_caller]
fn check_directory(directory: &Path, flags: &[&str]) {
    let update = remuda::base::env_vars::get("UPDATE_EXPECTED").is_some();
    let texts = files(directory, "txt");
    assert!(!texts.is_empty(), "nothing in {}", directory.display());
    for text in &texts {
        let words = [&["check", word(text)], flags].concat();
        let outcome = hostfile(&words);
        let found =
            format!("{}{}exit status {}\n", outcome.stdout, outcome.stderr, outcome.status.code());
        let expectation = text.with_extension("expected");
        if update {
            fs::write(&expectation, &found).expect("the directory is writable");
        }
        let expected = fs::read_to_string(&expectation)
            .unwrap_or_else(|error| panic!("no expectation {}: {error}", expectation.display()));
        assert_eq!(found, expected, "for {}", text.display());
    }
    let with_text: BTreeSet<_> = texts.iter().map(|text| text.with_extension("expected")).collect();
    assert_eq!(files(directory, "expected"), with_text, "an expectation without its file");
}

#[track_caller]
fn check_errors(directory: &str, has_errors: bool) {
    for text in files(Path::new(directory), "txt") {
        let bytes = fs::read(&text).expect("it is readable");
        let reading = read_any("hosts", &bytes, ReadOptions::default());
        assert_eq!(reading.findings.has_errors(), has_errors, "for {}", text.display());
    }
}

#[test]
fn valid_files_are_read_and_show_what_is_expected() {
    check_directory(Path::new("hostfiles/valid"), &[]);
    check_errors("hostfiles/valid", false);
}

#[test]
fn invalid_files_show_what_is_expected() {
    check_directory(Path::new("hostfiles/invalid"), &[]);
    check_errors("hostfiles/invalid", true);
}

#[test]
fn files_of_a_named_dialect_show_what_is_expected() {
    for dialect in Dialect::ALL.into_iter().filter(|dialect| *dialect != Dialect::DeepSpeed) {
        let directory = Path::new("hostfiles").join(dialect.name());
        check_directory(&directory, &["--from", dialect.name()]);
    }
}

/// Codes of files that only a test can make, or that are too large to keep, and of what is no file.
const WITHOUT_FILE: &[&str] =
    &["H010", "H019", "H024", "H025", "H026", "H027", "H028", "H042", "H043"];

fn directories() -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir("hostfiles").expect("the directory is there");
    entries.map(|entry| entry.expect("an entry").path())
}

#[test]
fn every_code_of_a_hostfile_has_a_file_that_shows_it() {
    let screens: String = directories()
        .flat_map(|directory| files(&directory, "expected"))
        .map(|path| fs::read_to_string(path).expect("it is readable"))
        .collect();
    for explanation in pool::codes::EXPLANATIONS.iter().filter(|found| found.code.starts_with('H'))
    {
        let is_shown = screens.contains(&format!("[{}]", explanation.code));
        assert_eq!(is_shown, !WITHOUT_FILE.contains(&explanation.code), "for {}", explanation.code);
    }
}

/// Bad files of which nothing is wrong once the certain changes are made.
const MENDED: &[&str] = &["certain", "spaces_around_equals"];

#[test]
fn what_can_be_mended_is_mended_and_checking_again_is_clean() {
    let options = ReadOptions::default();
    let mut clean = Vec::new();
    for text in files(Path::new("hostfiles/invalid"), "txt") {
        let bytes = fs::read(&text).expect("it is readable");
        let before = read_any("hosts", &bytes, options);
        let hosts = before.hostfile.hosts().len();
        let mended = mend(before, options);
        let left = &mended.reading.findings;
        let is_certain = |found: &pool::Mended| {
            let changes = found.reading.findings.diagnostics.iter();
            let mut changes = changes.filter_map(|found| found.suggestion.as_ref());
            changes.any(|change| change.applicability == Applicability::Certain)
        };
        let is_text = left.diagnostics.iter().all(|found| found.code != pool::codes::NOT_TEXT);
        assert!(!(is_text && is_certain(&mended)), "for {}", text.display());
        assert!(hosts <= mended.reading.hostfile.hosts().len(), "for {}", text.display());
        if left.count(Severity::Error) + left.count(Severity::Warning) == 0 {
            clean.push(text.file_stem().expect("a name").to_string_lossy().into_owned());
        }
    }
    assert_eq!(clean, MENDED);
}
