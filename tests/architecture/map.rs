//! ARCHITECTURE.md is a map: short, its words are few and used, and what it names exists.

use crate::documents::table_below;
use crate::source::{Source, files, read, rust_files};

/// Largest size of the map in bytes.
const MAP_BYTES_MAX: usize = 12 << 10;
/// Largest number of words that the glossary explains.
const WORDS_MAX: usize = 45;

/// The names in backticks of a table cell.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// Whether a path of the map leads to a file or a folder. Paths are relative to the project or to `src`;
/// `a/{b,c}` stands for `a/b` and `a/c`.
fn exists(path: &str, files: &[String]) -> bool {
    if let Some((head, rest)) = path.split_once('{') {
        let (names, tail) = rest.split_once('}').expect("braces are closed");
        return names.split(',').all(|name| exists(&format!("{head}{name}{tail}"), files));
    }
    let path = path.trim_end_matches('/');
    ["", "src/", "src/runtime/"].iter().any(|root| {
        let full = format!("{root}{path}");
        files.iter().any(|file| {
            file.strip_prefix(&full).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    })
}

fn map() -> Source {
    read("ARCHITECTURE.md".into())
}

#[test]
fn map_is_short() {
    let bytes = map().text.len();
    assert!(bytes <= MAP_BYTES_MAX, "ARCHITECTURE.md has {bytes} bytes");
}

#[test]
fn map_names_existing_places() {
    let (map, files) = (map(), files());
    let rows = table_below(&map.text, "## To change X, start at Y");
    assert!(15 <= rows.len(), "{rows:?}");
    let old_and_new = table_below(&map.text, "## Old names");
    let places = rows.iter().chain(&old_and_new).flat_map(|row| quoted(row[1]));
    let is_path = |name: &&str| name.contains('/') && !name.contains(' ');
    let missing: Vec<_> = places.filter(is_path).filter(|path| !exists(path, &files)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn map_names_the_test_of_every_invariant() {
    let map = map();
    let rows = table_below(&map.text, "## Invariants");
    assert!(10 <= rows.len(), "{rows:?}");
    let sources: Vec<Source> = rust_files();
    let is_test = |name: &str| {
        let function = format!("#[test]\nfn {name}(");
        let inner = format!("#[test]\n    fn {name}(");
        let has = |file: &Source| file.text.contains(&function) || file.text.contains(&inner);
        sources.iter().any(has)
            || files().iter().any(|file| file.starts_with(&format!("tests/{name}")))
    };
    for row in rows {
        let tests = quoted(row[1]);
        assert!(!tests.is_empty(), "no test of the rule: {}", row[0]);
        let missing: Vec<_> = tests.into_iter().filter(|name| !is_test(name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}

#[test]
fn map_explains_few_words_that_the_source_uses() {
    let map = map();
    let words: Vec<_> = table_below(&map.text, "## Words").into_iter().map(|row| row[0]).collect();
    assert!(words.len() <= WORDS_MAX, "{} words", words.len());
    assert!(words.is_sorted(), "words are in the order of the alphabet: {words:?}");
    let sources = rust_files();
    let is_used = |word: &str| {
        let in_source = |file: &Source| file.path.starts_with("src/") && file.text.contains(word);
        sources.iter().any(in_source)
    };
    let unused: Vec<_> = words.iter().filter(|word| !is_used(word)).collect();
    assert!(unused.is_empty(), "{unused:?}");
}

#[test]
fn places_of_a_map_are_found() {
    let files = ["src/a/b.rs", "src/a/c/d.rs", "tests/e.rs"].map(str::to_owned);
    for (path, expect) in [
        ("a/b.rs", true),
        ("a/c/", true),
        ("a/{b.rs,c}", true),
        ("a/{b.rs,x}", false),
        ("tests/e.rs", true),
        ("a/bc.rs", false),
        ("a/b", false),
    ] {
        assert_eq!(exists(path, &files), expect, "{path}");
    }
    assert_eq!(quoted("`a`, b and `c`"), ["a", "c"]);
}
