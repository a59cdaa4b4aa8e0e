//! Golden files in `hostfiles/`, each with the screen of `remuda hostfile check`.

use std::fs;
use std::path::{Path, PathBuf};

use remuda::base::{Applicability, Findings, Severity, Status};
use remuda::pool::dialect::Dialect;
use remuda::pool::{self, ReadOptions, fix, read_any};

use crate::hostfile::{hostfile, scratch, word, write};
use crate::support::golden::{Golden, check_codes, files};

/// Compares the screen and the status of every file in a directory.
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
        let bytes = fs::read(&text).expect("the file is readable");
        let reading = read_any("hosts", &bytes, ReadOptions::default());
        assert_eq!(reading.findings.has_errors(), has_errors, "for {}", text.display());
    }
}

#[test]
fn valid_files_match_expected_screens() {
    check_directory("hostfiles/valid", &[]);
    check_errors("hostfiles/valid", false);
}

#[test]
fn invalid_files_match_expected_screens() {
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
fn dialect_files_match_expected_screens() {
    assert_eq!(DIALECTS.len() + 1, Dialect::ALL.len(), "DeepSpeed's has two directories");
    for (dialect, directory) in DIALECTS {
        check_directory(directory, &["--from", dialect.name()]);
    }
}

/// Codes without a file in the corpus: the file would be too large, a test has to create it, or the
/// code is not about a file.
const WITHOUT_FILE: &[&str] =
    &["H010", "H019", "H024", "H025", "H026", "H027", "H028", "H042", "H043"];

#[test]
fn every_hostfile_code_has_a_file() {
    let stories = pool::codes::EXPLANATIONS.into_iter().flatten();
    let hostfiles = stories.filter(|found| found.code.starts_with('H'));
    let dialects = DIALECTS.map(|(_, directory)| directory);
    let directories = [&["hostfiles/valid", "hostfiles/invalid"], &dialects[..]].concat();
    check_codes(&directories, hostfiles, WITHOUT_FILE);
}

/// Every file of the corpus with its dialect; `None`: the dialect is detected.
fn corpus() -> impl Iterator<Item = (PathBuf, Option<Dialect>)> {
    let named = DIALECTS.map(|(dialect, directory)| (Some(dialect), directory));
    let detected = ["hostfiles/valid", "hostfiles/invalid"].map(|directory| (None, directory));
    let all = detected.into_iter().chain(named);
    all.flat_map(|(dialect, directory)| {
        files(directory, "txt").into_iter().map(move |file| (file, dialect))
    })
}

/// Codes of problems of a whole file, which have no position.
const WITHOUT_POSITION: &[&str] =
    &[pool::codes::NO_HOST, pool::codes::NOT_TEXT, pool::codes::NOT_A_HOSTFILE];

#[test]
fn every_finding_has_a_position() {
    for (file, dialect) in corpus() {
        let bytes = fs::read(&file).expect("the file is readable");
        let reading = read_any("hosts", &bytes, ReadOptions { dialect, ..ReadOptions::default() });
        for found in &reading.findings.diagnostics {
            let is_whole = WITHOUT_POSITION.contains(&found.code);
            assert!(found.span.is_some() || is_whole, "{}: {found:?}", file.display());
        }
    }
}

/// Files without a problem after the certain changes.
const CLEAN_AFTER_FIX: &[&str] = &[
    "valid/no_break_space",
    "invalid/certain",
    "invalid/spaces_around_equals",
    "openmpi/count_of_mpich",
];

#[test]
fn fix_is_idempotent_and_result_is_clean() {
    let directory = scratch("fixed");
    let copy = directory.join("hosts");
    let mut clean = Vec::new();
    for (file, dialect) in corpus() {
        let shown = file.display();
        let from = dialect.map_or(Vec::new(), |dialect| vec!["--from", dialect.name()]);
        let check = |flags: &[&str]| hostfile(&[&["check", word(&copy)], flags, &from].concat());
        write(&copy, fs::read(&file).expect("the file is readable"));
        let before = check(&[]);
        let fixed = check(&["--fix"]);
        let text = fs::read(&copy).expect("the file exists");
        let after = check(&["--fix"]);
        assert_eq!(fs::read(&copy).expect("the file exists"), text, "{shown}: fixed twice");
        assert!(!after.stderr.contains(" made, on "), "{shown}: {}", after.stderr);
        assert_eq!(after.status, fixed.status, "{shown}");
        let has_changes = fixed.stderr.contains(" made, on ");
        assert_eq!(!has_changes, before.stdout == after.stdout, "{shown}");
        let is_nothing_fixed = fixed.stderr.contains("--fix changed nothing");
        assert_eq!(is_nothing_fixed, !has_changes && fixed.status.code() != 0, "{shown}");
        if after.status == Status::Success && before.status != Status::Success {
            let kind = file.parent().and_then(Path::file_name).expect("a directory").display();
            clean.push(format!("{kind}/{}", file.file_stem().expect("a name").display()));
        }
    }
    assert_eq!(clean, CLEAN_AFTER_FIX);
}

/// Number of errors with this code on a line, and of all its errors.
fn errors_on_line(findings: &Findings, code: &str, line: usize) -> (usize, usize) {
    let number = |at: usize| findings.source.text[..at].matches('\n').count();
    let errors = findings.diagnostics.iter().filter(|found| found.severity == Severity::Error);
    let here = errors.filter(|found| found.span.is_some_and(|span| number(span.start) == line));
    (here.clone().filter(|found| found.code == code).count(), here.count())
}

#[test]
fn suggested_line_has_fewer_errors() {
    let mut suggestions = 0;
    let mut wrong = Vec::new();
    for (file, dialect) in corpus() {
        let bytes = fs::read(&file).expect("the file is readable");
        let options = ReadOptions { dialect, ..ReadOptions::default() };
        let before = read_any("hosts", &bytes, options);
        let options = ReadOptions { dialect: Some(before.dialect), ..ReadOptions::default() };
        let text = &before.findings.source.text;
        for found in &before.findings.diagnostics {
            let Some(change) = &found.suggestion else { continue };
            suggestions += 1;
            let mut changed = text.clone();
            changed.replace_range(change.span.start..change.span.end, &change.replacement);
            let after = read_any("hosts", changed.as_bytes(), options);
            let line = text[..change.span.start].matches('\n').count();
            let count = |findings| errors_on_line(findings, found.code, line);
            let (old, new) = (count(&before.findings), count(&after.findings));
            let shown = changed.lines().nth(line).unwrap_or_default();
            let is_error = found.severity == Severity::Error;
            if is_error && (old.0 <= new.0 || old.1 <= new.1) {
                wrong.push(format!("{}: {}: `{shown}`", file.display(), found.code));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
    assert!(20 < suggestions, "{suggestions}");
}

#[test]
fn fix_keeps_hosts_and_applies_all_certain_changes() {
    for (file, dialect) in corpus() {
        let shown = file.display();
        let options = ReadOptions { dialect, ..ReadOptions::default() };
        let before = read_any("hosts", &fs::read(&file).expect("the file is readable"), options);
        let hosts = before.hostfile.hosts().len();
        let fixed = fix(before, options);
        let left = &fixed.reading.findings.diagnostics;
        let mut changes = left.iter().filter_map(|found| found.suggestion.as_ref());
        let is_certain = changes.any(|change| change.applicability == Applicability::Certain);
        let is_text = left.iter().all(|found| found.code != pool::codes::NOT_TEXT);
        assert!(!(is_text && is_certain), "for {shown}");
        assert!(hosts <= fixed.reading.hostfile.hosts().len(), "for {shown}");
    }
}
