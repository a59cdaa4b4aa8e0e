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
    ["", "src/", "src/runtime/"].iter().any(|root| is_place(&format!("{root}{path}"), files))
}

/// Whether a path from the root of the repository is that of a file or a folder.
fn is_place(path: &str, files: &[String]) -> bool {
    let path = path.trim_end_matches('/');
    files.iter().any(|file| {
        file.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// Rows of the table of old names that lead to no file, or whose old name is still in use and not among the
/// new ones. Paths are relative to `src`.
fn lost_names(document: &str, files: &[String]) -> Vec<String> {
    let is_there = |path: &str| is_place(&format!("src/{path}"), files);
    let rows = document.lines().filter_map(|line| {
        let (old, new) = line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | ")?;
        Some((*quoted(old).first()?, quoted(new)))
    });
    let is_lost = |(old, new): &(&str, Vec<&str>)| {
        let is_used = is_there(old) && !new.contains(old);
        new.is_empty() || is_used || !new.iter().all(|path| is_there(path))
    };
    rows.filter(is_lost).map(|(old, new)| format!("`{old}`: {}", new.join(", "))).collect()
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
    let places = rows.iter().flat_map(|row| quoted(row[1]));
    let is_path = |name: &&str| name.contains('/') && !name.contains(' ');
    let missing: Vec<_> = places.filter(is_path).filter(|path| !exists(path, &files)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn old_names_lead_to_existing_places() {
    let document = read("docs/old_names.md".into()).text;
    assert!(200 <= document.lines().filter(|line| line.starts_with("| `")).count());
    crate::assert_clean(lost_names(&document, &files()));
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

#[test]
fn planted_lost_name_is_found() {
    #[track_caller]
    fn check(row: &str, expect: &[&str]) {
        let files = ["src/a/b.rs", "src/a/c/d.rs"].map(str::to_owned);
        assert_eq!(lost_names(&format!("| old | new |\n|---|---|\n{row}\n"), &files), expect);
    }
    check("| `x.rs` | `a/b.rs`, `a/c/` |", &[]);
    check("| `a/b.rs` | `a/b.rs`, `a/c/d.rs` |", &[]);
    check("| `a/b.rs` | `a/c/d.rs` |", &["`a/b.rs`: a/c/d.rs"]);
    check("| `x.rs` | `a/b.rs`, `a/x.rs` |", &["`x.rs`: a/b.rs, a/x.rs"]);
    check("| `x.rs` | gone |", &["`x.rs`: "]);
}
