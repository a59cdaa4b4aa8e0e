//! `hostfiles/`: every file and the whole screen of `remuda hostfile check`.

use std::fs;

use remuda::base::{Applicability, Severity};
use remuda::pool::dialect::Dialect;
use remuda::pool::{self, ReadOptions, mend, read_any};

use crate::support::{Golden, check_codes, files};
use crate::{hostfile, word};

/// The screen of every file of a directory, and the status.
#[track_caller]
fn check_directory(directory: &'static str, flags: &[&str]) {
    Golden { directory, extension: "txt" }.check(|text| {
        let outcome = hostfile(&[&["check", word(text)], flags].concat());
        let status = outcome.status.code();
        format!("{}{}exit status {status}\n", outcome.stdout, outcome.stderr)
    });
}

#[track_caller]
fn check_errors(directory: &str, has_errors: bool) {
    for text in files(directory, "txt") {
        let bytes = fs::read(&text).expect("it is readable");
        let reading = read_any("hosts", &bytes, ReadOptions::default());
        assert_eq!(reading.findings.has_errors(), has_errors, "for {}", text.display());
    }
}

#[test]
fn valid_files_are_read_and_show_what_is_expected() {
    check_directory("hostfiles/valid", &[]);
    check_errors("hostfiles/valid", false);
}

#[test]
fn invalid_files_show_what_is_expected() {
    check_directory("hostfiles/invalid", &[]);
    check_errors("hostfiles/invalid", true);
}

/// The directory of each dialect.
const DIALECTS: [(Dialect, &str); 8] = [
    (Dialect::OpenMpi, "hostfiles/openmpi"),
    (Dialect::Hydra, "hostfiles/hydra"),
    (Dialect::Ranges, "hostfiles/ranges"),
    (Dialect::Pbs, "hostfiles/pbs"),
    (Dialect::Horovod, "hostfiles/horovod"),
    (Dialect::Lsf, "hostfiles/lsf"),
    (Dialect::Sge, "hostfiles/sge"),
    (Dialect::Slurm, "hostfiles/slurm"),
];

#[test]
fn files_of_a_named_dialect_show_what_is_expected() {
    assert_eq!(DIALECTS.len() + 1, Dialect::ALL.len(), "DeepSpeed's has two directories");
    for (dialect, directory) in DIALECTS {
        check_directory(directory, &["--from", dialect.name()]);
    }
}

/// Codes of files that only a test can make, or that are too large to keep, and of what is no file.
const WITHOUT_FILE: &[&str] =
    &["H010", "H019", "H024", "H025", "H026", "H027", "H028", "H042", "H043"];

#[test]
fn every_code_of_a_hostfile_has_a_file_that_shows_it() {
    let stories = pool::codes::EXPLANATIONS.into_iter().flatten();
    let hostfiles = stories.filter(|found| found.code.starts_with('H'));
    let dialects = DIALECTS.map(|(_, directory)| directory);
    let directories = [&["hostfiles/valid", "hostfiles/invalid"], &dialects[..]].concat();
    check_codes(&directories, hostfiles, WITHOUT_FILE);
}

/// Bad files of which nothing is wrong once the certain changes are made.
const MENDED: &[&str] = &["certain", "spaces_around_equals"];

#[test]
fn what_can_be_mended_is_mended_and_checking_again_is_clean() {
    let options = ReadOptions::default();
    let mut clean = Vec::new();
    for text in files("hostfiles/invalid", "txt") {
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
