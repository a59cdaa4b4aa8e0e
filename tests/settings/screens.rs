//! Bad files and their whole screens. A line `| TEXT` of an expectation is a line of `remuda.toml` in the
//! working directory, `~ TEXT` one of the user's file; `$ LINE` is a command line with its screen.

use std::fs;
use std::path::Path;

use super::Place;
use crate::support::expected::check_expected;

/// The lines of an expectation that begin with a mark, without it.
fn lines_with(text: &str, mark: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(mark)).collect();
    let content =
        lines.iter().fold(String::new(), |text, line| text + line.trim_start_matches(' ') + "\n");
    (!lines.is_empty()).then_some(content)
}

#[track_caller]
fn check(name: &str) {
    let path = Path::new("tests/settings/screens").join(name).with_extension("expected");
    let old =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let head = old.split("\n$ ").next().unwrap_or_default();
    let mut place = Place::new(name);
    if let Some(text) = lines_with(head, "|") {
        place = place.local(&text);
    }
    if let Some(text) = lines_with(head, "~") {
        place = place.user(&text);
    }
    let lines = old.lines().filter_map(|line| line.strip_prefix("$ "));
    let screens: String = lines.map(|line| place.screen(line)).collect();
    check_expected(&path, &format!("{}\n\n{screens}", head.trim_end()));
}

#[test]
fn unknown_keys() {
    check("unknown_keys");
}

#[test]
fn unknown_tables() {
    check("unknown_tables");
}

#[test]
fn values_of_wrong_types() {
    check("wrong_types");
}

#[test]
fn values_without_a_text() {
    check("no_text");
}

#[test]
fn values_that_an_option_refuses() {
    check("bad_values");
}

#[test]
fn options_that_are_given_twice() {
    check("twice");
}

#[test]
fn tables_that_are_given_twice() {
    check("twice_tables");
}

#[test]
fn text_that_is_not_toml() {
    check("syntax");
}

#[test]
fn options_that_no_file_can_have() {
    check("not_allowed");
}

#[test]
fn profiles_that_no_file_has() {
    check("profiles");
}

#[test]
fn variables_with_bad_values() {
    check("variables");
}

#[test]
fn all_problems_of_both_files() {
    check("both_files");
}

#[test]
fn contradictions_of_the_line_and_the_file() {
    check("contradictions");
}

#[test]
fn files_of_options_that_cannot_be_used() {
    check("sources");
}

#[test]
fn every_screen_of_settings_has_a_test() {
    let mut names: Vec<String> = fs::read_dir("tests/settings/screens")
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort_unstable();
    let expect = [
        "bad_values",
        "both_files",
        "contradictions",
        "no_text",
        "not_allowed",
        "profiles",
        "sources",
        "syntax",
        "twice",
        "twice_tables",
        "unknown_keys",
        "unknown_tables",
        "variables",
        "wrong_types",
    ];
    assert_eq!(names, expect.map(|name| format!("{name}.expected")));
}
