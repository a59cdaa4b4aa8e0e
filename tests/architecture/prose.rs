//! Banned words in string literals of the program, help texts, comments and documents. `names` looks
//! for them in the names of tests.

use std::ops::Range;

use crate::source::{Source, files, has_extension, read, rust_files, tokens};

/// Words without a named subject, and metaphors; CONTRIBUTING.md says what to write instead.
const BANNED: &[&str] = &[
    "anew",
    "anybody",
    "anyone",
    "called again",
    "everybody",
    "for want of",
    "had heard",
    "has heard",
    "hears of",
    "in vain",
    "let in",
    "let it in",
    "let them in",
    "let us in",
    "nobody",
    "our",
    "ours",
    "somebody",
    "someone",
    "stands still",
    "stood still",
    "was told",
    "we",
    "were told",
    "who is",
    "who it is",
    "whoever",
    "whom",
    "without a word",
    "words stand",
    "would not die",
];

/// Derives of clap whose doc comments are help texts.
const HELP_DERIVES: &[&str] = &["Args", "Parser", "Subcommand", "ValueEnum"];

/// Banned words in the literals and help texts of a file of the program.
fn prose_violations(file: &Source) -> Vec<String> {
    if !file.path.starts_with("src/") {
        return Vec::new();
    }
    let tests = file.test_regions();
    let literals = file.literals().into_iter().map(|(at, literal)| (at, decoded(literal)));
    let mut found = Vec::new();
    for (at, text) in literals.chain(help_texts(file)) {
        if tests.iter().any(|range| range.contains(&at)) {
            continue;
        }
        if let Some(word) = banned_word(&without_placeholders(&text)) {
            found.push(file.violation(at, format_args!("`{word}` in {:?}", shortened(&text))));
        }
    }
    found
}

/// Comments, with consecutive lines joined, each with the byte at which it begins.
fn comments(file: &Source) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut at = 0;
    let mut is_open = false;
    for line in file.text.split_inclusive('\n') {
        let comment = file.comment_in(at..at + line.len());
        match (comment, found.last_mut()) {
            (Some(start), Some((_, last))) if is_open => {
                *last += &file.text[start..at + line.len()];
            }
            (Some(start), _) => {
                found.push((start, file.text[start..at + line.len()].to_owned()));
            }
            (None, _) => {}
        }
        // A comment after code ends with its line.
        is_open = comment.is_some() && line.trim_start().starts_with("//");
        at += line.len();
    }
    found
}

/// Replaces code in backticks by blanks; lines stay.
fn without_code(text: &str) -> String {
    let blank = |part: &str| part.replace(|c| c != '\n', " ");
    let parts = text.split('`').enumerate();
    parts
        .map(|(number, part)| if number % 2 == 0 { part.to_owned() } else { blank(part) })
        .collect()
}

/// Removes the names of values from a format string: `{ours}` is a value of the program.
fn without_placeholders(text: &str) -> String {
    let mut parts = text.split('{');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + " " + part.split_once('}').map_or(part, |(_, rest)| rest))
}

/// Banned words in the comments of a file.
fn comment_violations(file: &Source) -> Vec<String> {
    let found = comments(file).into_iter();
    let found = found.map(|(at, text)| (at, without_code(&text.replace("//", ""))));
    found
        .filter_map(|(at, text)| {
            let word = banned_word(&text)?;
            Some(file.violation(at, format_args!("`{word}` in {:?}", shortened(&text))))
        })
        .collect()
}

/// The content of a literal as a reader sees it: without quotes, continued lines joined.
fn decoded(literal: &str) -> String {
    let Some(text) = literal.strip_prefix('"') else {
        let body = literal.split_once('"').map_or(literal, |(_, body)| body);
        return body.trim_end_matches('#').trim_end_matches('"').to_owned();
    };
    let text = text.strip_suffix('"').unwrap_or(text);
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek()) {
            ('\\', Some('\n')) => while chars.next_if(|c| c.is_whitespace()).is_some() {},
            ('\\', Some('n' | 't' | 'r')) => {
                chars.next();
                out.push(' ');
            }
            ('\\', Some(_)) => out.extend(chars.next()),
            _ => out.push(c),
        }
    }
    out
}

/// Doc comments of types from which clap makes options, joined to paragraphs.
fn help_texts(file: &Source) -> Vec<(usize, String)> {
    let regions = help_regions(file);
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut at = 0;
    let mut in_comment = false;
    for line in file.text.split_inclusive('\n') {
        let comment = line.trim().strip_prefix("///");
        let is_help = regions.iter().any(|range| range.contains(&at));
        match (comment, found.last_mut()) {
            (Some(text), Some((_, last))) if is_help && in_comment => *last += text,
            (Some(text), _) if is_help => found.push((at, text.to_owned())),
            _ => {}
        }
        in_comment = comment.is_some() && is_help;
        at += line.len();
    }
    found
}

/// Types that derive a trait of clap, from the doc comment above them to their end.
pub(crate) fn help_regions(file: &Source) -> Vec<Range<usize>> {
    file.items_deriving(HELP_DERIVES)
        .into_iter()
        .map(|item| start_of_docs(&file.text, item.start)..item.end)
        .collect()
}

/// Where the doc comment begins that ends directly above a byte.
fn start_of_docs(text: &str, at: usize) -> usize {
    let mut start = text[..at].rfind('\n').map_or(0, |end| end + 1);
    for line in text[..start].split_inclusive('\n').rev() {
        if !line.trim_start().starts_with("///") {
            break;
        }
        start -= line.len();
    }
    start
}

/// The first banned word of a text.
pub(crate) fn banned_word(text: &str) -> Option<&'static str> {
    let lower = text.to_lowercase();
    let text_words: Vec<&str> = words(&lower);
    BANNED.iter().copied().find(|banned| {
        let banned_words = words(banned);
        text_words.windows(banned_words.len()).any(|window| window == banned_words)
    })
}

fn words(text: &str) -> Vec<&str> {
    let is_word = |word: &&str| word.chars().all(|c| c.is_alphanumeric() || c == '_');
    tokens(text).into_iter().map(|token| token.text).filter(is_word).collect()
}

fn shortened(text: &str) -> String {
    text.split_whitespace().take(12).collect::<Vec<_>>().join(" ")
}

#[test]
fn screens_and_help_name_their_subjects() {
    let found: Vec<String> = rust_files().iter().flat_map(prose_violations).collect();
    assert!(found.is_empty(), "{} violations:\n{}", found.len(), found.join("\n"));
}

#[test]
fn comments_name_their_subjects() {
    let found: Vec<String> = rust_files().iter().flat_map(comment_violations).collect();
    assert!(found.is_empty(), "{} violations:\n{}", found.len(), found.join("\n"));
}

#[test]
fn documents_name_their_subjects() {
    let is_document = |path: &String| {
        has_extension(path, &["md"])
            && (!path.contains('/') || path.starts_with("docs/") || path.starts_with("tests/"))
    };
    let documents: Vec<Source> = files().into_iter().filter(is_document).map(read).collect();
    assert!(10 < documents.len(), "{} documents", documents.len());
    let mut found = Vec::new();
    for document in documents {
        let mut at = 0;
        for line in without_code(&document.text).split_inclusive('\n') {
            found.extend(banned_word(line).map(|word| document.violation(at, word)));
            at += line.len();
        }
    }
    assert!(found.is_empty(), "{} violations:\n{}", found.len(), found.join("\n"));
}

#[test]
fn planted_comments_are_found() {
    #[track_caller]
    fn check(text: &str, expect: &str) {
        let found = comment_violations(&Source::new("src/a.rs", text));
        assert_eq!(found.first().map_or("-", String::as_str), expect, "for `{text}`");
    }
    check("// Node 3 waits.\nfn nobody() { f(\"// nobody\") }", "-");
    check("/// See `ours`.", "-");
    check(
        "/// It has stood\n/// still.",
        "src/a.rs:1: `stood still` in \"/ It has stood / still.\"",
    );
    check("f(); // for nobody\n", "src/a.rs:1: `nobody` in \"for nobody\"");
    check("f(); // stood\n// still", "-");
}

#[test]
fn planted_words_are_found() {
    #[track_caller]
    fn check(text: &str, expect: &str) {
        let found = prose_violations(&Source::new("src/a.rs", text));
        assert_eq!(found.first().map_or("-", String::as_str), expect, "for `{text}`");
    }
    check("f(\"node 3 is not expected\")", "-");
    check("// nobody\n/* nobody */ fn nobody() {}", "-");
    check("f(\"disembodied\"); g('\"'); h(\"b\")", "-");
    check("\nf(\"Nobody waits\")", "src/a.rs:2: `nobody` in \"Nobody waits\"");
    check("f(r#\"is \"nobody\" there\"#)", "src/a.rs:1: `nobody` in \"is \\\"nobody\\\" there\"");
    check("f(\"{ours} and {nobody:?}\")", "-");
    check("f(b\"nobody\")", "src/a.rs:1: `nobody` in \"nobody\"");
    check(
        "f(\"its disk stood \\\n   still\")",
        "src/a.rs:1: `stood still` in \"its disk stood still\"",
    );
    check("f(\"stood\\nstill\")", "src/a.rs:1: `stood still` in \"stood still\"");
    check("#[cfg(test)]\nmod tests { fn f() { g(\"nobody\") } }", "-");
}

#[test]
fn planted_help_is_found() {
    #[track_caller]
    fn check(text: &str, expect: &str) {
        let found = prose_violations(&Source::new("src/cli/a.rs", text));
        assert_eq!(found.first().map_or("-", String::as_str), expect, "for `{text}`");
    }
    check("/// Nobody.\nstruct A;", "-");
    check("#[derive(Clone)]\nstruct A {\n    /// Nobody.\n    b: u8,\n}", "-");
    check(
        "#[derive(Clone, Args)]\nstruct A {\n    /// Time that is let\n    /// in\n    b: u8,\n}",
        "src/cli/a.rs:3: `let in` in \"Time that is let in\"",
    );
    check(
        "/// For somebody\n#[derive(Parser)]\n#[command(a = \"b\")]\nstruct A {}\n/// whom\nfn c() {}",
        "src/cli/a.rs:1: `somebody` in \"For somebody\"",
    );
}
