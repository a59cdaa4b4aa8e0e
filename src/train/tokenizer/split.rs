//! Division of a text into words, within which tokens are merged.
//!
//! The patterns are regular expressions with a look-ahead, written as code: each word is a function of
//! the text from its beginning, so a text can be cut wherever a blank follows another character that is
//! no white space ([`safe_cut`]).

use super::letters::{CharClass, CharClasses};

/// Rule by which text is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SplitPattern {
    /// `'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
    Gpt2,
    /// `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*`, then for white
    /// space as [`WhiteSpaceAtEnd`] says.
    Gpt4(WhiteSpaceAtEnd),
}

/// White space at the end of a text, where rules of [`SplitPattern::Gpt4`] differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WhiteSpaceAtEnd {
    /// `|\s+$|\s*[\r\n]|\s+(?!\S)|\s`: one word, as tiktoken has it.
    OneWord,
    /// `|\s*[\r\n]+|\s+(?!\S)|\s+`: divided after the last line end, as Llama 3 has it.
    AfterLineEnds,
}

impl SplitPattern {
    /// Length of the first word of a text that is not empty.
    pub(super) fn first_word(self, text: &str, classes: CharClasses) -> usize {
        match self {
            Self::Gpt2 => gpt2_word(text, classes),
            Self::Gpt4(at_end) => gpt4_word(text, classes, at_end),
        }
    }
}

/// First place at or after `from` where a text can be divided without dividing a word; its end if there is
/// no other.
pub(super) fn safe_cut(text: &str, from: usize) -> usize {
    let bytes = text.as_bytes();
    // Both bytes are whole characters. Other characters can be white space, so they do not count.
    let is_cut = |at: &usize| bytes[*at] == b' ' && bytes[at - 1].is_ascii_graphic();
    (from.max(1)..bytes.len()).find(is_cut).unwrap_or(bytes.len())
}

fn gpt2_word(text: &str, classes: CharClasses) -> usize {
    if let Some(length) = contraction(text.as_bytes()) {
        return length;
    }
    let blank = usize::from(text.starts_with(' '));
    match classes.first(&text[blank..]) {
        None | Some(CharClass::Space) => space_word(text, classes),
        Some(class) => blank + classes.run(&text[blank..], class),
    }
}

fn gpt4_word(text: &str, classes: CharClasses, at_end: WhiteSpaceAtEnd) -> usize {
    if let Some(length) = contraction_of_any_case(text) {
        return length;
    }
    let mut letters = text.chars();
    let first = letters.next().expect("the text is not empty");
    let class = classes.of(first);
    let after = classes.first(letters.as_str());
    let is_prefix = class != CharClass::Number && !matches!(first, '\r' | '\n');
    if class == CharClass::Letter || is_prefix && after == Some(CharClass::Letter) {
        return first.len_utf8() + classes.run(letters.as_str(), CharClass::Letter);
    }
    if class == CharClass::Number {
        let is_number = |letter: &char| classes.of(*letter) == CharClass::Number;
        return text.chars().take(3).take_while(is_number).map(char::len_utf8).sum();
    }
    let blank = usize::from(first == ' ');
    let signs = blank + classes.run(&text[blank..], CharClass::Other);
    if blank < signs {
        let is_line_end = |byte: &&u8| matches!(byte, b'\r' | b'\n');
        return signs + text.as_bytes()[signs..].iter().take_while(is_line_end).count();
    }
    let run = classes.run(text, CharClass::Space);
    if run == text.len() && at_end == WhiteSpaceAtEnd::OneWord {
        return run;
    }
    match text[..run].rfind(['\r', '\n']) {
        Some(at) => at + 1,
        None => space_word(text, classes),
    }
}

/// `\s+(?!\S)|\s+`: the last character of white space before a word is left to that word.
fn space_word(text: &str, classes: CharClasses) -> usize {
    let run = classes.run(text, CharClass::Space);
    let last = text[..run].chars().next_back().map_or(0, char::len_utf8);
    if run < text.len() && last < run { run - last } else { run }
}

/// `'(?:[sdmt]|ll|ve|re)`.
fn contraction(text: &[u8]) -> Option<usize> {
    match text {
        [b'\'', b's' | b'd' | b'm' | b't', ..] => Some(2),
        [b'\'', b'l', b'l', ..] | [b'\'', b'v' | b'r', b'e', ..] => Some(3),
        _ => None,
    }
}

/// `'(?i:[sdmt]|ll|ve|re)`; the long s is a small letter of S.
fn contraction_of_any_case(text: &str) -> Option<usize> {
    if !text.starts_with('\'') {
        return None;
    }
    if text[1..].starts_with('ſ') {
        return Some(1 + 'ſ'.len_utf8());
    }
    let mut start = [0; 3];
    let length = text.len().min(3);
    start[..length].copy_from_slice(&text.as_bytes()[..length]);
    start.make_ascii_lowercase();
    contraction(&start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(pattern: SplitPattern, mut text: &str) -> Vec<&str> {
        let mut found = Vec::new();
        while !text.is_empty() {
            let (word, rest) = text.split_at(pattern.first_word(text, CharClasses::get()));
            found.push(word);
            text = rest;
        }
        found
    }

    #[track_caller]
    fn check(pattern: SplitPattern, text: &str, expected: &[&str]) {
        assert_eq!(words(pattern, text), expected);
    }

    #[test]
    fn words_of_gpt2() {
        let check = |text: &str, expected: &[&str]| check(SplitPattern::Gpt2, text, expected);
        check("It's 12 o'clock", &["It", "'s", " 12", " o", "'", "clock"]);
        check("we'll they've I'M", &["we", "'ll", " they", "'ve", " I", "'", "M"]);
        check("a  b", &["a", " ", " b"]);
        check("a \n\n b\n", &["a", " \n\n", " b", "\n"]);
        check("a\nb\u{a0}\u{a0}c", &["a", "\n", "b", "\u{a0}", "\u{a0}", "c"]);
        check("  ", &["  "]);
        check("x²٣ (!?)", &["x", "²٣", " (!?)"]);
        check("'", &["'"]);
    }

    #[test]
    fn words_of_gpt4() {
        let tiktoken = SplitPattern::Gpt4(WhiteSpaceAtEnd::OneWord);
        let llama = SplitPattern::Gpt4(WhiteSpaceAtEnd::AfterLineEnds);
        for pattern in [tiktoken, llama] {
            let check = |text: &str, expected: &[&str]| check(pattern, text, expected);
            check("It'S 12345\t(x)", &["It", "'S", " ", "123", "45", "\t", "(x", ")"]);
            check("a.\n\n b", &["a", ".\n\n", " b"]);
            check("a \n\n  b  9", &["a", " \n\n", " ", " b", " ", " ", "9"]);
            check("'ſo\n", &["'ſ", "o", "\n"]);
        }
        check(tiktoken, "a \n ", &["a", " \n "]);
        check(llama, "a \n ", &["a", " \n", " "]);
    }

    #[test]
    fn cuts_are_between_words() {
        let text = "It's  12 o'clock\u{a0} (x. \n b";
        for pattern in [SplitPattern::Gpt2, SplitPattern::Gpt4(WhiteSpaceAtEnd::OneWord)] {
            for from in 0..=text.len() {
                let (before, after) = text.split_at(safe_cut(text, from));
                let parts = [words(pattern, before), words(pattern, after)].concat();
                assert_eq!(parts, words(pattern, text));
            }
        }
        assert_eq!(safe_cut(text, 5), 8);
        assert_eq!(safe_cut("aaaa", 3), 4);
    }
}
