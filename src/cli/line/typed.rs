//! What was typed, word by word, and how a part of it is shown.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use super::flags::{Flags, Takes, Whose};
use crate::base::{Diagnostic, Findings, Source, Span};

/// Words that are shown on both sides of one that is pointed at.
const NEIGHBOURS_MAX: usize = 6;
/// Letters of a word that are shown.
const WORD_CHARS_MAX: usize = 60;

/// Bytes of a word of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Which word, from 0; the number of words for the end of the line.
    pub word: usize,
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

/// An option that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// Its first long spelling, without dashes.
    pub flag: String,
    /// Where its name stands.
    pub name: Place,
    /// Its value, and where that stands.
    pub value: Option<(OsString, Place)>,
}

/// A command line: the words, and the options that were found among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Typed {
    /// What stands before the words: `remuda run`.
    pub program: String,
    /// The words.
    pub words: Vec<OsString>,
    /// The options, in order.
    pub options: Vec<Given>,
}

/// A command line that makes no sense: the line, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Ready to be drawn.
    pub findings: Findings,
}

impl Typed {
    /// Words in which nothing was looked for yet.
    pub fn new(program: &str, words: Vec<OsString>) -> Self {
        Self { program: program.to_owned(), words, options: Vec::new() }
    }

    /// A whole word.
    pub(in crate::cli) fn word(&self, index: usize) -> Place {
        let end = self.words.get(index).map_or(0, |word| word.len());
        Place { word: index, start: 0, end }
    }

    /// The place behind the last word.
    pub(in crate::cli) fn end(&self) -> Place {
        Place { word: self.words.len(), start: 0, end: 0 }
    }

    /// The last time that an option was given.
    pub fn last(&self, flag: &str) -> Option<&Given> {
        self.options.iter().rev().find(|given| given.flag == flag)
    }

    /// Where the value of an option stands, or its name when it has none.
    pub fn place_of(&self, flag: &str) -> Option<Place> {
        let given = self.last(flag)?;
        Some(given.value.as_ref().map_or(given.name, |(_, place)| *place))
    }

    /// Where the name of an option stands.
    pub fn name_of(&self, flag: &str) -> Option<Place> {
        self.last(flag).map(|given| given.name)
    }

    /// The text of a place, for messages.
    pub(super) fn shown(&self, place: Place) -> String {
        let bytes = &self.words[place.word].as_bytes()[place.start..place.end];
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// Whether a place is in a word that looks like an option.
    pub(super) fn word_starts_with_dash(&self, place: Place) -> bool {
        self.words.get(place.word).is_some_and(|word| word.as_bytes().first() == Some(&b'-'))
    }

    /// The line with something wrong at a place; `make` is given the span of every place.
    pub(in crate::cli) fn refuse(
        &self,
        places: &[Place],
        make: impl FnOnce(&[Span]) -> Diagnostic,
    ) -> Refused {
        let (text, spans) = self.draw(places);
        let source = Source { name: "command line".to_owned(), text };
        Refused { findings: Findings { source, diagnostics: vec![make(&spans)] } }
    }

    /// The line as it could be typed into a shell, what is far from all places left out.
    fn draw(&self, places: &[Place]) -> (String, Vec<Span>) {
        let mut text = self.program.clone();
        let mut spans = vec![Span::new(0, 0); places.len()];
        let is_near =
            |index: usize| places.iter().any(|place| index.abs_diff(place.word) <= NEIGHBOURS_MAX);
        let mut left_out = false;
        for (index, word) in self.words.iter().enumerate() {
            if !is_near(index) {
                left_out = true;
                continue;
            }
            if std::mem::take(&mut left_out) {
                text += " ...";
            }
            text.push(' ');
            let at = text.len();
            let shown = show_word(word);
            for (place, span) in places.iter().zip(&mut spans).filter(|(p, _)| p.word == index) {
                *span = within(word, &shown, *place).shifted(at);
            }
            text += &shown;
        }
        if left_out {
            text += " ...";
        }
        for (_, span) in places.iter().zip(&mut spans).filter(|(p, _)| p.word == self.words.len()) {
            *span = Span::new(text.len(), text.len());
        }
        (text, spans)
    }
}

/// A part of a word that is shown as it is, or between quotes; else all of the word.
fn within(word: &OsStr, shown: &str, place: Place) -> Span {
    let is_plain = word.as_bytes() == shown.as_bytes();
    let quoted = shown.strip_prefix('\'').and_then(|shown| shown.strip_suffix('\''));
    let is_quoted = quoted.is_some_and(|shown| shown.as_bytes() == word.as_bytes());
    let is_part = place.start < place.end;
    if is_plain && is_part {
        Span::new(place.start, place.end)
    } else if is_quoted && is_part && place.end - place.start < word.len() {
        Span::new(place.start + 1, place.end + 1)
    } else {
        Span::new(0, shown.len())
    }
}

/// A word as a shell would take it; long ones are cut.
fn show_word(word: &OsStr) -> String {
    let text = String::from_utf8_lossy(word.as_bytes());
    let cut = match text.char_indices().nth(WORD_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.clone().into_owned(),
    };
    let is_plain = |c: char| c.is_alphanumeric() || "_-=./:,@%+~^".contains(c);
    let is_odd = word.to_str().is_none() || text.contains(char::is_control);
    if is_odd {
        return show_odd(&word.as_bytes()[..word.len().min(WORD_CHARS_MAX)]);
    }
    if !cut.is_empty() && cut.chars().all(is_plain) {
        return cut;
    }
    format!("'{}'", cut.replace('\'', "'\\''"))
}

/// Bytes that no quotes can show: `$'line\nbreak'`.
fn show_odd(bytes: &[u8]) -> String {
    let shown: String = bytes.iter().map(|byte| byte.escape_ascii().to_string()).collect();
    format!("$'{shown}'")
}

/// The options of a line that clap reads alone, found by their spellings.
pub(in crate::cli) fn scan(typed: &mut Typed, flags: &Flags) {
    for index in 0..typed.words.len() {
        let Some(text) = typed.words[index].to_str() else { continue };
        if text == "--" {
            break;
        }
        let Some((flag, end, value)) = option(text, flags) else { continue };
        let value = match value {
            Some(from) => {
                Some((text[from..].into(), Place { word: index, start: from, end: text.len() }))
            }
            None => typed.words.get(index + 1).map(|next| (next.clone(), typed.word(index + 1))),
        };
        let flag = flags.get(flag);
        let value = value.filter(|_| flag.takes == Takes::Value);
        let name = Place { word: index, start: 0, end };
        typed.options.push(Given { flag: flag.long.clone(), name, value });
    }
}

/// The options before the first other word, from this word on: what follows may be a script's own.
pub(in crate::cli) fn scan_options(typed: &mut Typed, flags: &Flags, from: usize) {
    let mut words = from..typed.words.len();
    while let Some(index) = words.next() {
        let Some(text) = typed.words[index].to_str() else { break };
        if text == "--" || !text.starts_with('-') {
            break;
        }
        let Some((flag, end, value)) = option(text, flags) else { continue };
        let flag = flags.get(flag);
        let value = match value {
            _ if flag.takes != Takes::Value => None,
            Some(from) => {
                Some((text[from..].into(), Place { word: index, start: from, end: text.len() }))
            }
            None => words.next().map(|next| (typed.words[next].clone(), typed.word(next))),
        };
        let name = Place { word: index, start: 0, end };
        typed.options.push(Given { flag: flag.long.clone(), name, value });
    }
}

/// The words with every option that [`scan`] found in the spelling that clap knows.
pub(in crate::cli) fn respelt(typed: &Typed) -> Vec<OsString> {
    let mut words = typed.words.clone();
    for given in &typed.options {
        let word = words[given.name.word].as_bytes();
        if word.starts_with(b"--") {
            let mut spelt = OsString::from(format!("--{}", given.flag));
            spelt.push(OsStr::from_bytes(&word[given.name.end..]));
            words[given.name.word] = spelt;
        }
    }
    words
}

/// An option, the end of its name, and where its value begins if that is in the same word.
fn option(text: &str, flags: &Flags) -> Option<(usize, usize, Option<usize>)> {
    if let Some(name) = text.strip_prefix("--") {
        let end = name.find('=').map_or(text.len(), |at| at + 2);
        let flag = flags.exact(&text[2..end], Whose::All)?;
        return Some((flag, end, (end < text.len()).then_some(end + 1)));
    }
    let letter = *text.strip_prefix('-')?.as_bytes().first()?;
    let flag = flags.short(letter, Whose::All)?;
    Some((flag, 2, (2 < text.len()).then_some(2)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The line, and carets under every place.
    #[track_caller]
    fn check(words: &[&[u8]], places: &[(usize, usize, usize)], expect: &str) {
        let words = words.iter().map(|word| OsStr::from_bytes(word).to_owned()).collect();
        let places: Vec<Place> =
            places.iter().map(|&(word, start, end)| Place { word, start, end }).collect();
        let (text, spans) = Typed::new("remuda run", words).draw(&places);
        let shown: Vec<&str> = spans.iter().map(|span| &text[span.start..span.end]).collect();
        assert_eq!(format!("{text} | {}", shown.join(" ")), expect);
    }

    #[test]
    fn a_line_is_shown_as_it_could_be_typed() {
        check(&[b"-n", b"2", b"x.py"], &[(1, 0, 1)], "remuda run -n 2 x.py | 2");
        check(&[b"--num_gpus=x", b"a b"], &[(0, 11, 12)], "remuda run --num_gpus=x 'a b' | x");
        check(&[b"a {b} c"], &[(0, 2, 5)], "remuda run 'a {b} c' | {b}");
        check(&[b"it's", b""], &[(0, 0, 4)], "remuda run 'it'\\''s' '' | 'it'\\''s'");
        check(&[b"a\nb\xff"], &[(0, 0, 1)], "remuda run $'a\\nb\\xff' | $'a\\nb\\xff'");
        check(&[b"-q"], &[(1, 0, 0)], "remuda run -q | ");
    }

    #[test]
    fn of_a_long_line_the_neighbourhood_is_shown() {
        let words: Vec<&[u8]> = [b"w".as_slice()].repeat(100);
        let near = "remuda run ... w w w w w w w w w w w w w ... | w";
        check(&words, &[(50, 0, 1)], near);
        let long = [b'x'; 1000];
        let cut = "x".repeat(60);
        check(&[&long], &[(0, 0, 1000)], &format!("remuda run {cut}... | {cut}..."));
    }
}
