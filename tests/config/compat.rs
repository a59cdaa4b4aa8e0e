//! COMPAT.md has the tables of keys and of rules for `auto`, as the code has them.
//!
//! `UPDATE_EXPECTED=1 cargo test --test program config::` rewrites both tables.

use std::fs;

use remuda::base::env_vars;
use remuda::config::keys::{KeySpec, KeyStatus, SectionSpec, all_sections};
use remuda::config::{AUTO_RULES, DEFAULT_RULE};

const KEYS: &str = "## Keys of `ds_config.json`";
const AUTO: &str = "### Values that are `auto`";

/// `works`, `no effect`, … with the remark.
fn status(key: &KeySpec) -> (&'static str, &'static str) {
    match key.status {
        KeyStatus::Works(remark) => ("works", remark),
        KeyStatus::NoEffect(reason) => ("no effect", reason),
        KeyStatus::Refused(instead) => ("default only", instead),
        KeyStatus::Removed(instead) => ("removed", instead),
    }
}

/// `` `stage` int 0 ``.
fn shown(key: &KeySpec) -> String {
    let names = match key.alias {
        Some(alias) => format!("`{}` (`{alias}`)", key.name),
        None => format!("`{}`", key.name),
    };
    if key.section().is_some() {
        return names;
    }
    format!("{names} {} {}", key.kind.word(), key.default.show())
}

/// Rows of a section: keys with the same status and remark share one.
fn rows(section: &SectionSpec) -> Vec<String> {
    let mut groups: Vec<((&str, &str), Vec<String>)> = Vec::new();
    for key in section.keys {
        let status = status(key);
        match groups.iter_mut().find(|(known, _)| *known == status) {
            Some((_, keys)) => keys.push(shown(key)),
            None => groups.push((status, vec![shown(key)])),
        }
    }
    let place =
        if section.path.is_empty() { String::new() } else { format!("`{}`: ", section.path) };
    let row = |((here, remark), keys): ((&str, &str), Vec<String>)| {
        format!("| {place}{} | {here} | {remark} |\n", keys.join(", "))
    };
    groups.into_iter().map(row).collect()
}

fn table_of_keys() -> String {
    let rows: String = all_sections().into_iter().flat_map(rows).collect();
    format!("| keys, with type and default | here | remark |\n|---|---|---|\n{rows}")
}

fn table_of_rules() -> String {
    let rule = |path: &str, text: &str| format!("| {path} | {text} |\n");
    let rules: String =
        AUTO_RULES.iter().map(|one| rule(&format!("`{}`", one.path), one.text)).collect();
    let others = rule("another key of a section that DeepSpeed checks", DEFAULT_RULE);
    format!("| key | `auto` is |\n|---|---|\n{rules}{others}")
}

/// The first table below a heading, as a range of the document.
fn table_below(document: &str, heading: &str) -> std::ops::Range<usize> {
    let section = document.find(&format!("{heading}\n")).expect("the heading");
    let start = section + document[section..].find("\n|").expect("a table") + 1;
    let end = document[start..].find("\n\n").map_or(document.len(), |end| start + end + 1);
    start..end
}

#[test]
fn tables_of_keys_are_those_of_the_code() {
    let mut document = fs::read_to_string("COMPAT.md").expect("a document");
    for (heading, table) in [(KEYS, table_of_keys()), (AUTO, table_of_rules())] {
        let range = table_below(&document, heading);
        if env_vars::get("UPDATE_EXPECTED").is_some() {
            document.replace_range(range, &table);
        } else {
            let found = &document[range];
            let first = found.lines().zip(table.lines()).find(|(old, new)| old != new);
            assert!(found == table, "{heading}: UPDATE_EXPECTED=1 rewrites it; first {first:?}");
        }
    }
    if env_vars::get("UPDATE_EXPECTED").is_some() {
        fs::write("COMPAT.md", document).expect("the document is writable");
    }
}

#[test]
fn keys_of_a_section_have_unique_names() {
    for section in all_sections() {
        let names = section.keys.iter().flat_map(|key| std::iter::once(key.name).chain(key.alias));
        let mut names: Vec<&str> = names.collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count, "{}", section.path);
    }
}
