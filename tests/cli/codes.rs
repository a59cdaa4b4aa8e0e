//! Every error code of the program has a `remuda explain` page, and every page a code.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use remuda::cli::explain::explanations;

const REMUDA: &str = env!("CARGO_BIN_EXE_remuda");

/// `H003`: a letter and three digits, between quotes as a constant or between brackets on a screen.
fn codes_in(text: &str) -> impl Iterator<Item = &str> {
    let is_code = |part: &&[u8]| {
        let [before, letter, digits @ .., after] = part else { return false };
        matches!((before, after), (b'"', b'"') | (b'[', b']'))
            && letter.is_ascii_uppercase()
            && digits.iter().all(u8::is_ascii_digit)
    };
    let found = text.as_bytes().windows(6).filter(is_code);
    found.map(|part| std::str::from_utf8(&part[1..5]).expect("a code is ASCII"))
}

fn files(directory: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory of this project").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files(&path, ending, found);
        } else if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
}

/// The text of every file, without its unit tests.
fn texts(directories: &[&str], ending: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for directory in directories {
        files(Path::new(directory), ending, &mut paths);
    }
    assert!(!paths.is_empty(), "nothing ends in {ending}");
    let read = |path: PathBuf| fs::read_to_string(&path).ok();
    let without_tests = |text: String| match text.split_once("#[cfg(test)]") {
        Some((code, _)) => code.to_owned(),
        None => text,
    };
    paths.into_iter().filter_map(read).map(without_tests).collect()
}

fn explained() -> BTreeSet<String> {
    explanations().into_iter().map(|found| found.code.to_owned()).collect()
}

#[test]
fn codes_and_explain_pages_match() {
    let sources = texts(&["src"], ".rs");
    let used: BTreeSet<String> =
        sources.iter().flat_map(|text| codes_in(text)).map(str::to_owned).collect();
    assert_eq!(used, explained());
}

#[test]
fn codes_of_screens_have_explain_pages() {
    let screens = texts(&["tests", "hostfiles", "env"], ".expected");
    let shown: BTreeSet<String> =
        screens.iter().flat_map(|text| codes_in(text)).map(str::to_owned).collect();
    let known = explained();
    let unknown: Vec<&String> = shown.difference(&known).collect();
    assert!(unknown.is_empty() && 40 < shown.len(), "{unknown:?} of {} codes", shown.len());
}

#[expect(clippy::disallowed_methods, reason = "these tests start the real program")]
fn explain(words: &[&str]) -> String {
    let output = Command::new(REMUDA).arg("explain").args(words).output().expect("remuda starts");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn explain_prints_the_page_of_a_code() {
    let expect = "\
H002: `slots=` is missing

Every line sets the number of workers of its host, usually one for each GPU:

    worker-0 slots=8

Other tools assume a number if it is missing (Open MPI the number of cores,
MPICH 1). DeepSpeed and remuda do not. `--slots N` sets it for all hosts without
one.
";
    assert_eq!(explain(&["H002"]), expect);
    assert_eq!(explain(&["[h002]"]), expect);
}

#[test]
fn explain_prints_pages_in_order() {
    let both = explain(&["H002", "c005"]);
    assert_eq!(both, format!("{}\n{}", explain(&["H002"]), explain(&["C005"])));
}

#[test]
fn explain_without_a_code_lists_all() {
    let list = explain(&[]);
    let listed: BTreeSet<String> = list.lines().map(|line| line[..4].to_owned()).collect();
    assert_eq!(listed, explained());
    assert!(list.contains("R101  a rank failed\n"), "{list}");
}

#[test]
fn page_of_unreachable_hosts_names_every_way_to_start_agents() {
    let found = explanations().into_iter().find(|found| found.code == "R107").expect("a page");
    for way in ["Over ssh", "By a process manager", "By itself"] {
        assert!(found.text.contains(&format!("\n* {way} (")), "{way}: {}", found.text);
    }
}
