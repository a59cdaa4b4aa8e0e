//! Type names: a type that other modules can see has a name of its own in the whole crate, so that
//! a reader who searches for the name finds one definition.

use std::collections::BTreeMap;

use crate::source::Source;

/// Names that say the role of a type in its module; the path says the rest.
const ROLES: &[(&str, &str)] = &[
    ("Error", "the one error of a module"),
    ("Options", "what the caller of a module may choose"),
    ("Args", "the command line of one command"),
    ("State", "the state of one state machine"),
];

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
