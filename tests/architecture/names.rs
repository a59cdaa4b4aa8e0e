//! Names of types and tests. A type that other modules can see has a name of its own in the whole
//! crate, so that a search for the name finds one definition; the name of a test is short and has no
//! banned word.

use std::collections::BTreeMap;

use crate::prose::banned_word;
use crate::source::{Source, Token, rust_files};

/// Names that say the role of a type in its module; the path says the rest.
const ROLES: &[(&str, &str)] = &[
    ("Error", "the one error of a module"),
    ("Options", "what the caller of a module may choose"),
    ("Args", "the command line of one command"),
    ("State", "the state of one state machine"),
];

/// Most characters in the name of a test.
const TEST_NAME_CHARS_MAX: usize = 60;

/// Where a type is defined.
struct Definition {
    name: String,
    place: String,
}

/// Types of a file that other modules can see: `pub`, `pub(crate)`, `pub(super)`, `pub(in …)`.
fn visible_types(file: &Source) -> Vec<Definition> {
    let tests = file.test_regions();
    let tokens = file.tokens();
    let mut found = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let is_type = matches!(token.text, "struct" | "enum" | "trait" | "type" | "union");
        if !is_type || tests.iter().any(|range| range.contains(&token.at)) {
            continue;
        }
        let Some(name) = tokens.get(index + 1) else { continue };
        let before: Vec<&str> = tokens[..index].iter().rev().take(8).map(|t| t.text).collect();
        if is_visible(&before) && name.text.starts_with(char::is_uppercase) {
            let place = file.violation(token.at, "");
            found.push(Definition { name: name.text.to_owned(), place });
        }
    }
    found
}

/// Whether the words before `struct`, last one first, make it visible: `pub`, or `pub ( … )`.
fn is_visible(before: &[&str]) -> bool {
    let before = before.strip_prefix(&["unsafe"]).unwrap_or(before);
    match before {
        ["pub", ..] => true,
        [")", rest @ ..] => {
            let open = rest.iter().position(|text| *text == "(");
            open.is_some_and(|open| rest.get(open + 1) == Some(&"pub"))
        }
        _ => false,
    }
}

/// Names that are defined more than once, with every place.
pub(crate) fn repeated_names<'a>(files: impl Iterator<Item = &'a Source>) -> Vec<String> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for definition in files.flat_map(visible_types) {
        places.entry(definition.name).or_default().push(definition.place);
    }
    let is_role = |name: &str| ROLES.iter().any(|(role, _)| *role == name);
    let repeated = places.into_iter().filter(|(name, places)| 1 < places.len() && !is_role(name));
    repeated.map(|(name, places)| format!("{}`{name}`", places.concat())).collect()
}

/// Names of the functions under `#[test]`, and those that `proptest!` contains.
fn test_functions<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    let is_test = |index: &usize| {
        let head = tokens[*index..].iter().take(4).map(|token| token.text);
        head.eq(["#", "[", "test", "]"])
    };
    let starts = (0..tokens.len()).filter(is_test);
    let names = starts.filter_map(|start| {
        let keyword = tokens[start..].iter().position(|token| token.text == "fn")?;
        tokens.get(start + keyword + 1).copied()
    });
    names.collect()
}

/// Tests of a file whose names are too long.
fn long_test_names(file: &Source) -> Vec<String> {
    let tests = test_functions(&file.tokens());
    let long = tests.iter().filter(|name| TEST_NAME_CHARS_MAX < name.text.chars().count());
    long.map(|name| {
        let count = name.text.chars().count();
        file.violation(name.at, format_args!("{count} characters: `{}`", name.text))
    })
    .collect()
}

/// Tests of a file whose names have a banned word.
fn banned_test_names(file: &Source) -> Vec<String> {
    let tests = test_functions(&file.tokens());
    let banned = tests.iter().filter_map(|name| {
        let word = banned_word(&name.text.replace('_', " "))?;
        Some(file.violation(name.at, format_args!("`{word}` in `{}`", name.text)))
    });
    banned.collect()
}

#[test]
fn test_names_have_no_banned_words() {
    let found: Vec<String> = rust_files().iter().flat_map(banned_test_names).collect();
    assert!(found.is_empty(), "{} violations:\n{}", found.len(), found.join("\n"));
}

#[test]
fn planted_banned_test_name_is_found() {
    #[track_caller]
    fn check(name: &str, expect: &[&str]) {
        let file = Source::new("tests/a.rs", format!("#[test]\nfn {name}() {{}}"));
        assert_eq!(banned_test_names(&file), expect);
    }
    check("node_is_rejected", &[]);
    check("node_is_not_let_in", &["tests/a.rs:2: `let in` in `node_is_not_let_in`"]);
}

#[test]
fn test_names_have_at_most_60_characters() {
    let found: Vec<String> = rust_files().iter().flat_map(long_test_names).collect();
    assert!(found.is_empty(), "{} violations:\n{}", found.len(), found.join("\n"));
}

#[test]
fn planted_long_test_name_is_found() {
    #[track_caller]
    fn check(text: &str, expect: &[String]) {
        assert_eq!(long_test_names(&Source::new("tests/a.rs", text)), expect, "for `{text}`");
    }
    let long = "a".repeat(61);
    let found = [format!("tests/a.rs:3: 61 characters: `{long}`")];
    check(&format!("#[test]\n#[expect(b, reason = \"c\")]\nfn {long}() {{}}"), &found);
    check(&format!("proptest! {{\n#[test]\nfn {long}(d in 0..9) {{}} }}"), &found);
    check(&format!("fn {long}() {{}}"), &[]);
    check(&format!("#[test]\nfn {}() {{}}", "a".repeat(60)), &[]);
}

#[test]
fn planted_repeated_type_name_is_found() {
    #[track_caller]
    fn check(texts: [&str; 2], expect: &[&str]) {
        let files: Vec<Source> = ["src/a.rs", "src/b.rs"]
            .into_iter()
            .zip(texts)
            .map(|(p, t)| Source::new(p, t))
            .collect();
        assert_eq!(repeated_names(files.iter()), expect, "{texts:?}");
    }
    check(["pub struct A;", "pub(super) enum A { B }"], &["src/a.rs:1: src/b.rs:1: `A`"]);
    check(["pub(in crate::cli) struct A;", "pub type A = u8;"], &["src/a.rs:1: src/b.rs:1: `A`"]);
    check(["pub unsafe trait A {}", "\npub(crate) union A {}"], &["src/a.rs:1: src/b.rs:2: `A`"]);
    check(["struct A;", "pub struct A;"], &[]);
    check(["pub struct A;", "#[cfg(test)] mod tests { pub struct A; }"], &[]);
    check(["impl B { type A = u8; }", "pub struct A;"], &[]);
    check(["pub struct Error;", "pub struct Error;"], &[]);
}
