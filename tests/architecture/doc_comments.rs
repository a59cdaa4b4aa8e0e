//! Doc comments: one of one or two words says more than the name of its item.

use std::collections::BTreeSet;

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

/// Names of types in the prose of doc comments: what a rename of a type leaves where a word was meant.
fn bare_type_names(file: &Source, types: &BTreeSet<String>) -> Vec<String> {
    let (mut found, mut is_code, mut at) = (Vec::new(), false, 0);
    for line in file.text.split_inclusive('\n') {
        let text = line.trim_start();
        if let Some(doc) = text.strip_prefix("///").or_else(|| text.strip_prefix("//!")) {
            is_code ^= doc.trim_start().starts_with("```");
            // Names of code stand between backticks.
            let prose = doc.split('`').step_by(2).collect::<Vec<_>>().join(" ");
            let words = prose.split(|c: char| !c.is_alphanumeric() && !"_:]".contains(c));
            for word in words.filter(|word| !is_code && types.contains(*word)) {
                found.push(file.violation(at, format_args!("`{word}` is no word of a sentence")));
            }
        }
        at += line.len();
    }
    found
}

/// Types of the crate with a name of several words, none of which is also the name of a product.
fn types_of_several_words(files: &[Source]) -> BTreeSet<String> {
    const PRODUCTS: &[&str] = &["DeepSpeed", "OpenMpi", "RmsNorm"];
    let kinds = ["struct", "enum", "trait", "type"];
    let names = files.iter().flat_map(|file| {
        let tokens = file.tokens();
        let pairs = tokens.windows(2).filter(|pair| kinds.contains(&pair[0].text));
        pairs.map(|pair| pair[1].text.to_owned()).collect::<Vec<_>>()
    });
    let is_compound = |name: &String| 1 < words_of_name(name).len();
    let is_type = |name: &String| name.starts_with(char::is_uppercase);
    names
        .filter(|name| is_type(name) && is_compound(name) && !PRODUCTS.contains(&&**name))
        .collect()
}

#[test]
fn names_of_types_are_no_words_of_sentences() {
    let files = rust_files();
    let types = types_of_several_words(&files);
    let found: Vec<String> = files.iter().flat_map(|file| bare_type_names(file, &types)).collect();
    assert!(found.is_empty(), "{} violations:\n{}", found.len(), found.join("\n"));
}

#[test]
fn planted_name_of_a_type_is_found() {
    let text = "/// RunPlan of a job, see `RunPlan` and [RunPlan].\n/// ```\n/// RunPlan::new()\n/// ```\nstruct RunPlan;";
    let file = Source::new("src/a.rs", text);
    let types = types_of_several_words(std::slice::from_ref(&file));
    let expect = "src/a.rs:1: `RunPlan` is no word of a sentence";
    assert_eq!(bare_type_names(&file, &types), [expect]);
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
