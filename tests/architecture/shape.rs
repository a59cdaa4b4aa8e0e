//! Size and shape of the source: files and functions that fit the reader, modules whose `mod.rs` only lists
//! what is in them, and parameters with names.

use crate::source::{Source, Token, rust_files};

/// Most lines of a file of `src`, with its tests.
const FILE_LINES_MAX: usize = 600;
/// Most lines of a function of `src` that is not a test.
const FUNCTION_LINES_MAX: usize = 60;
/// A tuple with as many values has no names for them, and needs a struct.
const TUPLE_VALUES: usize = 3;

fn long_files(file: &Source) -> Vec<String> {
    let lines = file.text.lines().count();
    let is_long = FILE_LINES_MAX < lines;
    is_long.then(|| file.violation(0, format_args!("{lines} lines"))).into_iter().collect()
}

fn long_functions(file: &Source) -> Vec<String> {
    let tests = file.test_regions();
    let tokens = file.tokens();
    let mut found = Vec::new();
    for (index, token) in tokens.iter().enumerate().filter(|(_, token)| token.text == "fn") {
        let is_type = tokens.get(index + 1).is_some_and(|next| next.text == "(");
        if is_type || tests.iter().any(|test| test.contains(&token.at)) {
            continue;
        }
        let Some(body) = body_of(&tokens, index) else { continue };
        let lines = 1 + file.line_of(tokens[body.1].at) - file.line_of(token.at);
        if FUNCTION_LINES_MAX < lines {
            let name = tokens[index + 1].text;
            found.push(file.violation(token.at, format_args!("`{name}` has {lines} lines")));
        }
    }
    found
}

/// Indexes of the braces around the body of a function.
fn body_of(tokens: &[Token<'_>], function: usize) -> Option<(usize, usize)> {
    let mut open = function;
    loop {
        match tokens.get(open)?.text {
            "{" => return Some((open, closing(tokens, open)?)),
            ";" => return None,
            "(" | "[" => open = closing(tokens, open)? + 1,
            _ => open += 1,
        }
    }
}

/// Index of the bracket that closes the one at `open`.
fn closing(tokens: &[Token<'_>], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" if depth == 1 => return Some(index),
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Words that begin a definition.
const KEYWORDS: [&str; 10] =
    ["fn", "struct", "enum", "trait", "impl", "const", "static", "type", "union", "macro_rules"];

/// Definitions in a `mod.rs`, which holds documentation, modules and re-exports only.
fn definitions_in_mod_file(file: &Source) -> Vec<String> {
    if !file.path.ends_with("/mod.rs") {
        return Vec::new();
    }
    let tests = file.test_regions();
    let tokens = file.tokens();
    let code = tokens.iter().filter(|token| !tests.iter().any(|test| test.contains(&token.at)));
    let is_lifetime = |at: usize| file.text[..at].ends_with('\'');
    let defines = code.filter(|token| KEYWORDS.contains(&token.text) && !is_lifetime(token.at));
    defines
        .map(|token| file.violation(token.at, format_args!("`{}` in a mod.rs", token.text)))
        .collect()
}

/// Parameters of functions that are tuples of many values.
fn tuple_parameters(file: &Source) -> Vec<String> {
    let tests = file.test_regions();
    let tokens = file.tokens();
    let mut found = Vec::new();
    for (index, token) in tokens.iter().enumerate().filter(|(_, token)| token.text == "fn") {
        if tests.iter().any(|test| test.contains(&token.at)) {
            continue;
        }
        let Some(open) = tokens[index..].iter().position(|token| token.text == "(") else {
            continue;
        };
        let Some(close) = closing(&tokens, index + open) else { continue };
        let parameters = &tokens[index + open + 1..close];
        if parameters.iter().enumerate().any(|(at, _)| is_large_tuple(parameters, at)) {
            let name = tokens[index + 1].text;
            found.push(file.violation(
                token.at,
                format_args!("`{name}` has a tuple of {TUPLE_VALUES} or more values"),
            ));
        }
    }
    found
}

/// Whether a tuple type of many values begins at a token.
fn is_large_tuple(parameters: &[Token<'_>], at: usize) -> bool {
    let before = at.checked_sub(1).map_or(",", |before| parameters[before].text);
    // After a name there are arguments of `Fn(…)`; a pattern is followed by its type, which counts.
    if parameters[at].text != "(" || !matches!(before, ":" | "&" | "mut" | "[" | "<" | "(") {
        return false;
    }
    let Some(close) = closing(parameters, at) else { return false };
    let mut values = 1;
    let mut depth = 0usize;
    for token in &parameters[at + 1..close] {
        match token.text {
            "(" | "[" | "<" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            ">" => depth = depth.saturating_sub(1),
            "," if depth == 0 => values += 1,
            _ => {}
        }
    }
    values -= usize::from(parameters[close - 1].text == ",");
    TUPLE_VALUES <= values
}

#[track_caller]
fn assert_none(rule: fn(&Source) -> Vec<String>) {
    let files = rust_files().into_iter().filter(|file| file.path.starts_with("src/"));
    let found: Vec<String> = files.flat_map(|file| rule(&file)).collect();
    assert!(found.is_empty(), "{} violations:\n{}", found.len(), found.join("\n"));
}

#[test]
fn files_have_at_most_600_lines() {
    assert_none(long_files);
}

#[test]
fn functions_have_at_most_60_lines() {
    assert_none(long_functions);
}

#[test]
fn mod_files_only_document_and_re_export() {
    assert_none(definitions_in_mod_file);
}

#[test]
fn parameters_are_no_tuples_of_many_values() {
    assert_none(tuple_parameters);
}

#[track_caller]
fn check(rule: fn(&Source) -> Vec<String>, path: &str, text: &str, expect: &str) {
    let found = rule(&Source::new(path, text));
    assert_eq!(found.first().map_or("-", String::as_str), expect, "for `{text}`");
}

#[test]
fn planted_shapes_are_found() {
    check(long_files, "src/a.rs", &"\n".repeat(600), "-");
    check(long_files, "src/a.rs", &"\n".repeat(601), "src/a.rs:1: 601 lines");
    let function = |lines: usize| format!("fn f(a: [u8; 2]) -> u8 {{{}}}", "\n".repeat(lines - 1));
    check(long_functions, "src/a.rs", &function(60), "-");
    check(long_functions, "src/a.rs", &function(61), "src/a.rs:1: `f` has 61 lines");
    check(long_functions, "src/a.rs", "trait T { fn f(); }", "-");
    check(definitions_in_mod_file, "src/a/mod.rs", "//! Doc.\nmod b;\npub use b::fn_c;", "-");
    check(
        definitions_in_mod_file,
        "src/a/mod.rs",
        "mod b;\nfn c() {}",
        "src/a/mod.rs:2: `fn` in a mod.rs",
    );
    check(definitions_in_mod_file, "src/a/b.rs", "fn c() {}", "-");
    let tuple = "src/a.rs:1: `f` has a tuple of 3 or more values";
    check(tuple_parameters, "src/a.rs", "fn f((a, b): (u8, u8)) {}", "-");
    check(tuple_parameters, "src/a.rs", "fn f(g: impl Fn(u8, u8, u8)) {}", "-");
    check(tuple_parameters, "src/a.rs", "fn f(a: (u8, Vec<(u8, u8)>)) {}", "-");
    check(tuple_parameters, "src/a.rs", "fn f((a, b, c): (u8, u8, u8)) {}", tuple);
    check(tuple_parameters, "src/a.rs", "fn f(a: &[(u8, u8, u8)]) {}", tuple);
    check(tuple_parameters, "src/a.rs", "fn f(a: Vec<(u8, u8, u8)>) {}", tuple);
}
