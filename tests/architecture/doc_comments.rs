//! Doc comments: one of one or two words says more than the name of its item.

use crate::prose::help_regions;
use crate::source::{Source, Token, rust_files};

/// Words that stand before a name without adding anything to it.
const FILLERS: &[&str] = &["a", "an", "each", "its", "one", "the", "their", "this"];

/// Doc comments that consist of one of these words describe nothing.
const QUESTIONS: &[&str] = &["how", "what", "when", "where", "which", "who", "whose", "why"];

/// Words between a doc comment and the name of its item.
const KEYWORDS: &[&str] = &[
    "async", "const", "enum", "extern", "fn", "mod", "mut", "pub", "static", "struct", "trait",
    "type", "union", "unsafe",
];

/// Doc comments of one or two words that only repeat the name of their item. Help texts of clap are
/// exempt: users read them without the name.
fn empty_docs(file: &Source) -> Vec<String> {
    let help = help_regions(file);
    let tokens = file.tokens();
    let mut found = Vec::new();
    for (at, doc) in single_line_docs(&file.text) {
        if help.iter().any(|range| range.contains(&at)) {
            continue;
        }
        let after = tokens.partition_point(|token| token.at < at);
        let Some(name) = item_name(&tokens[after..]) else { continue };
        if says_nothing(doc, name) {
            found.push(file.violation(at, format_args!("`/// {doc}` only repeats `{name}`")));
        }
    }
    found
}

/// Doc comments of one line, each with the byte at which its line begins.
fn single_line_docs(text: &str) -> Vec<(usize, &str)> {
    let mut found: Vec<(usize, &str)> = Vec::new();
    let mut at = 0;
    let mut lines_of_doc = 0;
    for line in text.split_inclusive('\n') {
        match line.trim().strip_prefix("///") {
            Some(doc) if lines_of_doc == 0 => {
                found.push((at, doc.trim()));
                lines_of_doc = 1;
            }
            Some(_) => {
                if lines_of_doc == 1 {
                    found.pop();
                }
                lines_of_doc += 1;
            }
            None => lines_of_doc = 0,
        }
        at += line.len();
    }
    found
}

/// The name of the item that begins at the first token, after its attributes.
fn item_name<'a>(tokens: &[Token<'a>]) -> Option<&'a str> {
    let mut rest = tokens;
    loop {
        let first = rest.first()?.text;
        rest = match first {
            "#" => &rest[group_len(&rest[1..], "[", "]") + 1..],
            "(" => &rest[group_len(rest, "(", ")")..],
            keyword if KEYWORDS.contains(&keyword) => &rest[1..],
            name => return Some(name),
        };
    }
}

/// Number of tokens up to and with the bracket that closes the first one.
fn group_len(tokens: &[Token<'_>], open: &str, close: &str) -> usize {
    let mut depth = 0usize;
    for (index, token) in tokens.iter().enumerate() {
        if token.text == open {
            depth += 1;
        } else if token.text == close {
            depth -= 1;
            if depth == 0 {
                return index + 1;
            }
        }
    }
    tokens.len()
}

fn says_nothing(doc: &str, name: &str) -> bool {
    let text = doc.trim_end_matches('.').to_lowercase();
    let words: Vec<&str> = text.split_whitespace().collect();
    match words[..] {
        [only] => QUESTIONS.contains(&only) || words_of_name(name) == [only],
        [first, second] if FILLERS.contains(&first) => words_of_name(name) == [second],
        [_, _] => words_of_name(name) == words,
        _ => false,
    }
}

/// `node_rank` and `NodeRank` as `node`, `rank`.
fn words_of_name(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut is_after_lower = false;
    for c in name.chars() {
        if c == '_' || c.is_uppercase() && is_after_lower {
            words.push(String::new());
        }
        if c != '_' {
            words.last_mut().expect("there is always a word").extend(c.to_lowercase());
        }
        is_after_lower = c.is_lowercase();
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn short_doc_comments_say_more_than_the_name() {
    let found: Vec<String> = rust_files().iter().flat_map(empty_docs).collect();
    assert!(found.is_empty(), "{} violations:\n{}", found.len(), found.join("\n"));
}

#[test]
fn planted_empty_doc_comment_is_found() {
    #[track_caller]
    fn check(text: &str, expect: &str) {
        let found = empty_docs(&Source::new("src/a.rs", text));
        assert_eq!(found.first().map_or("-", String::as_str), expect, "for `{text}`");
    }
    check(
        "struct A {\n    /// The port.\n    port: u16,\n}",
        "src/a.rs:2: `/// The port.` only repeats `port`",
    );
    check(
        "/// Node rank.\n#[derive(A, B(c))]\npub(super) struct NodeRank;",
        "src/a.rs:1: `/// Node rank.` only repeats `NodeRank`",
    );
    check("/// Which.\npub const fn rank() {}", "src/a.rs:1: `/// Which.` only repeats `rank`");
    check("/// Port of rank 0.\nport: u16,", "-");
    check("/// The limit.\nport: u16,", "-");
    check("/// Port\n/// of rank 0.\nport: u16,", "-");
    check("/// First part.\n///\n/// More.\npart: u16,", "-");
    check("#[derive(Args)]\nstruct A {\n    /// Port\n    port: u16,\n}", "-");
}
