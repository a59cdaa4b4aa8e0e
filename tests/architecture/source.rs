//! Just enough of a Rust lexer to read imports and find banned calls: comments and literals are
//! blanked, what remains is cut into words and punctuation. No macro is expanded.

use std::ops::Range;
use std::path::{Path, PathBuf};

/// A file of the repository, with its path relative to the root.
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
    /// The text with comments and literals replaced by spaces: same length, same lines.
    code: String,
    /// Byte ranges of string literals, with their quotes.
    literals: Vec<Range<usize>>,
}

/// A word or a punctuation mark, such as `::`, and the byte at which it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    pub(crate) at: usize,
}

impl Source {
    pub(crate) fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        let text = text.into();
        let (code, literals) = blank_comments_and_literals(&text);
        Self { path: path.into(), code, literals, text }
    }

    /// String literals as they are written, each with the byte at which it begins.
    pub(crate) fn literals(&self) -> Vec<(usize, &str)> {
        self.literals.iter().map(|range| (range.start, &self.text[range.clone()])).collect()
    }

    /// Byte ranges of items that derive one of these traits, from the attribute on.
    pub(crate) fn items_deriving(&self, traits: &[&str]) -> Vec<Range<usize>> {
        let tokens = self.tokens();
        let starts = (0..tokens.len()).filter(|&index| derives(&tokens[index..], traits));
        starts.map(|index| tokens[index].at..end_of_item(&tokens, index, self.code.len())).collect()
    }

    pub(crate) fn tokens(&self) -> Vec<Token<'_>> {
        tokens(&self.code)
    }

    /// Number of the line, from 1, that holds a byte.
    pub(crate) fn line_of(&self, at: usize) -> usize {
        1 + self.text[..at].matches('\n').count()
    }

    pub(crate) fn violation(&self, at: usize, what: impl std::fmt::Display) -> String {
        format!("{}:{}: {what}", self.path, self.line_of(at))
    }

    /// The byte at which a comment begins in a range of bytes without line breaks.
    pub(crate) fn comment_in(&self, line: Range<usize>) -> Option<usize> {
        let slashes = self.text[line.clone()].match_indices("//").map(|(at, _)| line.start + at);
        let is_literal = |at: usize| self.literals.iter().any(|literal| literal.contains(&at));
        slashes.into_iter().find(|at| self.code.as_bytes()[*at] == b' ' && !is_literal(*at))
    }

    /// Byte ranges of items under `#[cfg(test)]`.
    pub(crate) fn test_regions(&self) -> Vec<Range<usize>> {
        let tokens = self.tokens();
        let starts = (0..tokens.len()).filter(|&index| opens_test_item(&tokens[index..]));
        starts.map(|index| tokens[index].at..end_of_item(&tokens, index, self.code.len())).collect()
    }
}

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file of the repository, in a stable order.
pub(crate) fn rust_files() -> Vec<Source> {
    files().into_iter().filter(|path| has_extension(path, &["rs"])).map(read).collect()
}

/// Paths of all files but build outputs and version control, relative to the root.
pub(crate) fn files() -> Vec<String> {
    let mut found = Vec::new();
    walk(root(), &mut found);
    let mut paths: Vec<String> = found
        .iter()
        .map(|path| path.strip_prefix(root()).expect("the walk starts at the root"))
        .map(|path| path.to_string_lossy().into_owned())
        .collect();
    paths.sort();
    paths
}

pub(crate) fn has_extension(path: &str, extensions: &[&str]) -> bool {
    let own = Path::new(path).extension();
    extensions.iter().any(|extension| own.is_some_and(|own| own == *extension))
}

/// Reads a file of the repository; bytes that are not UTF-8 are replaced.
pub(crate) fn read(path: String) -> Source {
    let bytes = std::fs::read(root().join(&path)).expect("the file was just listed");
    Source::new(path, String::from_utf8_lossy(&bytes))
}

fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("the repository is readable") {
        let entry = entry.expect("the repository is readable");
        let kind = entry.file_type().expect("the repository is readable");
        if kind.is_dir() && !is_foreign(&entry.file_name().to_string_lossy()) {
            walk(&entry.path(), found);
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
}

fn is_foreign(directory: &str) -> bool {
    matches!(directory, "target" | ".git" | "__pycache__") || directory.starts_with(".venv")
}

/// Cuts code into words, `::` and single marks.
pub(crate) fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(first) = code[at..].chars().next() {
        let rest = &code[at..];
        let len = match first {
            _ if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            _ => first.len_utf8(),
        };
        if !first.is_whitespace() {
            found.push(Token { text: &rest[..len], at });
        }
        at += len;
    }
    found
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Code without comments and literals, and where the string literals are.
fn blank_comments_and_literals(text: &str) -> (String, Vec<Range<usize>>) {
    let mut code = String::with_capacity(text.len());
    let mut literals = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let in_word = code.ends_with(is_word);
        let literal = literal_len(rest, in_word);
        if let (Some(len), None, true) = (literal, comment_len(rest), first != '\'') {
            literals.push(code.len()..code.len() + len);
        }
        let skipped = comment_len(rest).or(literal);
        let len = skipped.unwrap_or(first.len_utf8());
        match skipped {
            Some(_) => blank(&rest[..len], &mut code),
            None => code.push(first),
        }
        rest = &rest[len..];
    }
    (code, literals)
}

fn blank(text: &str, code: &mut String) {
    code.extend(text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }));
}

fn comment_len(rest: &str) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if !rest.starts_with("/*") {
        return None;
    }
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        match rest.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    Some(at)
}

fn literal_len(rest: &str, in_word: bool) -> Option<usize> {
    if let Some(body) = rest.strip_prefix('"') {
        return Some(1 + quoted_len(body, '"'));
    }
    if let Some(body) = rest.strip_prefix('\'') {
        return char_len(body).map(|len| 1 + len);
    }
    if in_word { None } else { raw_string_len(rest) }
}

/// Length up to and with the closing quote.
fn quoted_len(body: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in body.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    body.len()
}

/// `None` for a lifetime, which has no closing quote.
fn char_len(body: &str) -> Option<usize> {
    let first = body.chars().next()?;
    if first == '\\' {
        return Some(quoted_len(body, '\''));
    }
    body[first.len_utf8()..].starts_with('\'').then_some(first.len_utf8() + 1)
}

fn raw_string_len(rest: &str) -> Option<usize> {
    let prefix = ["r", "br", "cr"].into_iter().find(|prefix| {
        let after = rest.strip_prefix(prefix).map(|rest| rest.trim_start_matches('#'));
        after.is_some_and(|after| after.starts_with('"'))
    })?;
    let hashes = rest[prefix.len()..].find('"')?;
    let body = prefix.len() + hashes + 1;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(rest[body..].find(&end).map_or(rest.len(), |at| body + at + end.len()))
}

fn opens_test_item(tokens: &[Token<'_>]) -> bool {
    let Some(head) = tokens.get(..4) else { return false };
    head.iter().map(|token| token.text).eq(["#", "[", "cfg", "("])
        && tokens[4..]
            .iter()
            .take_while(|token| token.text != "]")
            .any(|token| token.text == "test")
}

fn derives(tokens: &[Token<'_>], traits: &[&str]) -> bool {
    let Some(head) = tokens.get(..4) else { return false };
    head.iter().map(|token| token.text).eq(["#", "[", "derive", "("])
        && tokens[4..]
            .iter()
            .take_while(|token| token.text != "]")
            .any(|token| traits.contains(&token.text))
}

/// Where the item that begins at a token ends: after its block, or at its semicolon.
fn end_of_item(tokens: &[Token<'_>], first: usize, end: usize) -> usize {
    let mut depth = 0usize;
    for token in &tokens[first..] {
        match token.text {
            "{" => depth += 1,
            "}" if depth <= 1 => return token.at + 1,
            "}" => depth -= 1,
            ";" if depth == 0 => return token.at + 1,
            _ => {}
        }
    }
    end
}

#[test]
fn comments_and_literals_are_blanked() {
    #[track_caller]
    fn check(text: &str, expect: &str) {
        let words: Vec<_> =
            Source::new("x.rs", text).tokens().iter().map(|t| t.text).map(str::to_owned).collect();
        assert_eq!(words.join(" "), expect, "for `{text}`");
    }
    check("a // b\nc", "a c");
    check("a /* b /* c */ d */ e", "a e");
    check(r#"a("b\"c", 'd', '\'', b'"') e"#, "a ( , , , b ) e");
    check("a(r#\"b \" c\"#) d", "a ( ) d");
    check("fn a<'b>(c: &'b str) -> for_r\"d\"", "fn a < ' b > ( c : & ' b str ) - > for_r");
    check("\"unterminated", "");
    check("crate::a::{b}", "crate :: a :: { b }");
}

#[test]
fn test_regions_cover_exactly_the_item() {
    let text = "fn a() {}\n#[cfg(all(test, unix))]\nmod tests { fn b() { } }\nfn c() {}\n#[cfg(test)] use d;\n";
    let source = Source::new("x.rs", text);
    let regions: Vec<_> = source.test_regions().into_iter().map(|range| &text[range]).collect();
    assert_eq!(
        regions,
        ["#[cfg(all(test, unix))]\nmod tests { fn b() { } }", "#[cfg(test)] use d;"]
    );
}
