//! The words of a command line, and the excerpts of it in messages.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
#[cfg(feature = "train")]
use std::path::Path;

use super::applied::AppliedSettings;
use super::codes;
use super::flags::{Flags, OptionOwner, Takes};
use crate::base::shell::quoted;
use crate::base::{Diagnostic, Findings, Source, Span};

/// Number of words that are shown on each side of a marked word.
const NEIGHBOURS_MAX: usize = 6;
/// Number of letters of a word that are shown.
const WORD_CHARS_MAX: usize = 60;

/// A range of bytes in a word of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArgvSpan {
    /// Index of the word, from 0; the end of the line is the number of words.
    pub word: usize,
    /// First byte.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

/// An option that was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenOption {
    /// Its first long spelling, without dashes.
    pub flag: String,
    /// Place of its name.
    pub name: ArgvSpan,
    /// Its value, and the place of the value.
    pub value: Option<(OsString, ArgvSpan)>,
}

/// A command line: its words, and the options among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandLine {
    /// The program and command before the words: `remuda run`.
    pub program: String,
    /// The words after the program, as typed.
    pub words: Vec<OsString>,
    /// The options, in order.
    pub options: Vec<GivenOption>,
    /// Options that take one value and were given several times with different values: the index of
    /// the last but one time, and of the last time.
    replaced: Vec<(usize, usize)>,
    /// What the line was made from; `None`: it was typed.
    pub(super) origin: Option<Box<LineOrigin>>,
}

/// What a line was made from that no user typed: errors about its options are shown there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct LineOrigin {
    /// The line that was typed.
    pub(in crate::cli) typed: CommandLine,
    /// How the line was made from it.
    pub(in crate::cli) relation: LineRelation,
    /// Files and variables that give values of options.
    pub(in crate::cli) sources: Vec<SettingsSource>,
    /// The values of files and variables that the line has, for screens.
    pub(in crate::cli) applied: Option<AppliedSettings>,
}

/// How a line was made from a typed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum LineRelation {
    /// Its options stand for those of another command; these have another name there, or in a file.
    Translated(&'static [(&'static str, &'static str)]),
    /// This number of words was added before those that were typed.
    Extended(usize),
}

/// A file, or a variable, that gives values of options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct SettingsSource {
    /// Its text.
    pub(in crate::cli) source: Source,
    /// The places of the values.
    pub(in crate::cli) values: Vec<SettingPlace>,
    /// Code of an error about a value.
    pub(in crate::cli) code: &'static str,
    /// What an error is about.
    pub(in crate::cli) input: RefusedInput,
}

/// The place of a value in a file or a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct SettingPlace {
    /// Name of the setting, as messages show it.
    pub(in crate::cli) name: String,
    /// The option that has the value.
    pub(in crate::cli) flag: String,
    /// The value.
    pub(in crate::cli) span: Span,
    /// Index of the word that was added for it.
    pub(in crate::cli) word: Option<usize>,
}

/// The input that an error is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum RefusedInput {
    /// The command line.
    Line,
    /// A file from which the line was made.
    File,
    /// A variable that gives the value of an option.
    Variable,
}

/// An error in a command line: the line, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedLine {
    /// The findings, ready to be printed.
    pub findings: Findings,
    /// The input that they are about.
    pub(in crate::cli) input: RefusedInput,
}

impl GivenOption {
    /// Returns the name of the variable that `--env NAME=VALUE` or `--env NAME` sets.
    fn variable(&self) -> Option<String> {
        let (text, _) = self.value.as_ref().filter(|_| self.flag == "env")?;
        text.to_string_lossy().split('=').next().map(str::to_owned)
    }
}

impl CommandLine {
    /// Creates a command line in which no options have been looked for.
    pub fn new(program: &str, words: Vec<OsString>) -> Self {
        Self { program: program.to_owned(), words, ..Self::default() }
    }

    /// Whether a user typed it; else it was made from another line.
    pub(in crate::cli) fn is_typed(&self) -> bool {
        self.origin.is_none()
    }

    /// Creates a line that was made from another one.
    pub(in crate::cli) fn made(program: &str, words: Vec<OsString>, origin: LineOrigin) -> Self {
        Self { origin: Some(Box::new(origin)), ..Self::new(program, words) }
    }

    /// Returns the place of a whole word.
    pub(in crate::cli) fn word_span(&self, index: usize) -> ArgvSpan {
        let end = self.words.get(index).map_or(0, |word| word.len());
        ArgvSpan { word: index, start: 0, end }
    }

    /// Returns the place after the last word.
    pub(in crate::cli) fn end_span(&self) -> ArgvSpan {
        ArgvSpan { word: self.words.len(), start: 0, end: 0 }
    }

    /// Returns the last occurrence of an option.
    pub fn last(&self, flag: &str) -> Option<&GivenOption> {
        self.options.iter().rev().find(|given| given.flag == flag)
    }

    /// Returns the place of the value of an option, or of its name if it has no value.
    pub fn value_span(&self, flag: &str) -> Option<ArgvSpan> {
        let given = self.last(flag)?;
        Some(given.value.as_ref().map_or(given.name, |(_, place)| *place))
    }

    /// Returns the place of the name of an option.
    pub fn name_span(&self, flag: &str) -> Option<ArgvSpan> {
        self.last(flag).map(|given| given.name)
    }

    /// Returns the name of an option as it was typed last: `-H` or `--hostfile`.
    pub(in crate::cli) fn spelling(&self, flag: &str) -> Option<String> {
        let place = self.name_span(flag).filter(|place| self.added_words() <= place.word)?;
        let name = self.text_of(place);
        // The letters of `-qH` have no dash each.
        Some(if name.starts_with('-') { name } else { format!("-{name}") })
    }

    /// Returns the place of the word that is this path.
    #[cfg(feature = "train")]
    pub(in crate::cli) fn path_span(&self, path: &Path) -> Option<ArgvSpan> {
        let word = self.words.iter().position(|word| word == path.as_os_str())?;
        Some(self.word_span(word))
    }

    /// Returns the place of the value of an option, or the end of the line without the option.
    pub(in crate::cli) fn value_or_end(&self, flag: &str) -> ArgvSpan {
        self.value_span(flag).unwrap_or_else(|| self.end_span())
    }

    /// Returns the place of the name of an option, or the end of the line without the option.
    pub(in crate::cli) fn name_or_end(&self, flag: &str) -> ArgvSpan {
        self.name_span(flag).unwrap_or_else(|| self.end_span())
    }

    /// Finds options that take one value and were given with several values, and variables that
    /// were set to several values.
    pub(in crate::cli) fn find_replaced(&mut self, flags: &Flags) {
        for (last, given) in self.options.iter().enumerate() {
            let is_list =
                flags.exact(&given.flag, OptionOwner::All).is_some_and(|at| flags.get(at).is_list);
            if is_list && given.variable().is_none() {
                continue;
            }
            let before = self.options[..last]
                .iter()
                .rposition(|one| one.flag == given.flag && one.variable() == given.variable());
            let text = |given: &GivenOption| given.value.as_ref().map(|(text, _)| text.clone());
            if let Some(before) = before
                && text(&self.options[before]) != text(given)
            {
                self.replaced.push((before, last));
            }
        }
    }

    /// Returns a note for each value that a later one replaces: ``note: `-n 3` replaces `-n 2` ``.
    pub(in crate::cli) fn show_replacements(&self) -> String {
        let shown = |at: usize| {
            let given = &self.options[at];
            let name = self.text_of(given.name);
            // The letters of `-qn3` have no dash each.
            let dash = if name.starts_with('-') { "" } else { "-" };
            let value = given.value.as_ref().map_or_else(String::new, |(text, _)| quoted(text));
            format!("`{dash}{name} {value}`")
        };
        let line = |(before, last): &(usize, usize)| {
            format!("note: {} replaces {}\n", shown(*last), shown(*before))
        };
        self.replaced.iter().map(line).collect()
    }

    /// Returns an error if a value replaces another one.
    pub(in crate::cli) fn refuse_replaced(&self) -> Result<(), RefusedLine> {
        let Some((before, last)) = self.replaced.first() else { return Ok(()) };
        let place = |at: usize| {
            let given = &self.options[at];
            given.value.as_ref().map_or(given.name, |(_, place)| *place)
        };
        let given = &self.options[*last];
        let flag = match given.variable() {
            Some(name) => format!("{} {}", given.flag, name.escape_debug()),
            None => given.flag.clone(),
        };
        Err(self.refuse(&[place(*last), place(*before)], |spans| {
            let message = format!("`--{flag}` is given twice, with different values");
            Diagnostic::error(codes::GIVEN_TWICE, spans[0], message)
                .label("given again here")
                .related(spans[1], "first given here")
                .help("keep one of the two")
        }))
    }

    /// Returns the text of a place, for messages.
    pub(super) fn text_of(&self, place: ArgvSpan) -> String {
        let bytes = &self.words[place.word].as_bytes()[place.start..place.end];
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// Whether the word of a place looks like an option.
    pub(super) fn word_starts_with_dash(&self, place: ArgvSpan) -> bool {
        self.words.get(place.word).is_some_and(|word| word.as_bytes().first() == Some(&b'-'))
    }

    /// Returns an error for places of the line; `make` receives the span of every place. If the line was
    /// made from another one, the error shows the places from which it was made. Options have the names that were
    /// typed.
    pub(in crate::cli) fn refuse(
        &self,
        places: &[ArgvSpan],
        make: impl FnOnce(&[Span]) -> Diagnostic,
    ) -> RefusedLine {
        let make = |spans: &[Span]| self.in_typed_spelling(make(spans));
        if let Some(origin) = &self.origin {
            return origin.refuse(self, places, Box::new(make));
        }
        let (text, spans) = self.excerpt(places);
        let source = Source { name: "command line".to_owned(), text };
        let findings = Findings { source, diagnostics: vec![make(&spans)] };
        RefusedLine { findings, input: RefusedInput::Line }
    }

    /// Returns the option whose name or value is at this place, and whether it is the value.
    pub(super) fn option_at(&self, place: ArgvSpan) -> Option<(&str, bool)> {
        let covers = |outer: ArgvSpan| {
            outer.word == place.word && (outer.start..=outer.end).contains(&place.start)
        };
        self.options.iter().rev().find_map(|given| {
            let is_value = given.value.as_ref().is_some_and(|(_, value)| covers(*value));
            (is_value || covers(given.name)).then_some((given.flag.as_str(), is_value))
        })
    }

    /// Returns the error of a problem at one place of the line.
    pub(in crate::cli) fn refuse_at(&self, place: ArgvSpan, problem: Diagnostic) -> RefusedLine {
        self.refuse(&[place], |spans| Diagnostic { span: Some(spans[0]), ..problem })
    }

    /// Returns the line in shell syntax, without the words that are far from all places, and the
    /// spans.
    fn excerpt(&self, places: &[ArgvSpan]) -> (String, Vec<Span>) {
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
                *span = span_within(word, &shown, *place).shifted(at);
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

/// Returns the span of a part of a word if the word is shown as it is or in quotes; else the whole
/// word.
fn span_within(word: &OsStr, shown: &str, place: ArgvSpan) -> Span {
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

/// Formats a word in shell syntax; long words are cut.
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

/// Formats bytes that quotes cannot represent: `$'line\nbreak'`.
fn show_odd(bytes: &[u8]) -> String {
    let shown: String = bytes.iter().map(|byte| byte.escape_ascii().to_string()).collect();
    format!("$'{shown}'")
}

/// Finds the options of a line that clap alone parses, by their spellings.
pub(in crate::cli) fn scan_options(typed: &mut CommandLine, flags: &Flags) {
    let mut at = flags.first_word();
    while let Some(word) = typed.words.get(at) {
        let index = at;
        at += 1;
        let Some(text) = word.to_str() else { continue };
        if text == "--" {
            break;
        }
        let Some(OptionInWord { flag, name_end, value_start }) = option_in(text, flags) else {
            // The words after it belong to another program.
            if flags.end_at_word() && !text.starts_with('-') {
                break;
            }
            continue;
        };
        let takes_value = flags.get(flag).takes == Takes::Value;
        let value = match value_start {
            Some(from) => {
                Some((text[from..].into(), ArgvSpan { word: index, start: from, end: text.len() }))
            }
            None => {
                typed.words.get(index + 1).map(|next| (next.clone(), typed.word_span(index + 1)))
            }
        };
        let value = value.filter(|_| takes_value);
        // A value is neither an option nor a word; if it begins with a dash, the value of the
        // option may be missing.
        let is_next = value.as_ref().is_some_and(|(_, place)| place.word != index);
        let next = typed.words.get(at).map(|word| word.as_bytes());
        at += usize::from(is_next && next.is_some_and(|word| word.first() != Some(&b'-')));
        let name = ArgvSpan { word: index, start: 0, end: name_end };
        typed.options.push(GivenOption { flag: flags.get(flag).long.clone(), name, value });
    }
}

/// Returns the words, with every option that [`scan_options`] found in clap's spelling.
pub(in crate::cli) fn in_clap_spelling(typed: &CommandLine) -> Vec<OsString> {
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

/// An option in a word.
struct OptionInWord {
    /// Its index in the table.
    flag: usize,
    name_end: usize,
    /// Start of the value if it is in the same word.
    value_start: Option<usize>,
}

fn option_in(text: &str, flags: &Flags) -> Option<OptionInWord> {
    if let Some(name) = text.strip_prefix("--") {
        let name_end = name.find('=').map_or(text.len(), |at| at + 2);
        let flag = flags.exact(&text[2..name_end], OptionOwner::All)?;
        let value_start = (name_end < text.len()).then_some(name_end + 1);
        return Some(OptionInWord { flag, name_end, value_start });
    }
    let letter = *text.strip_prefix('-')?.as_bytes().first()?;
    let flag = flags.short(letter, OptionOwner::All)?;
    Some(OptionInWord { flag, name_end: 2, value_start: (2 < text.len()).then_some(2) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(word: usize, start: usize, end: usize) -> ArgvSpan {
        ArgvSpan { word, start, end }
    }

    /// Checks the line, and the carets under every place.
    #[track_caller]
    fn check(words: &[&[u8]], places: &[ArgvSpan], expect: &str) {
        let words = words.iter().map(|word| OsStr::from_bytes(word).to_owned()).collect();
        let (text, spans) = CommandLine::new("remuda run", words).excerpt(places);
        let shown: Vec<&str> = spans.iter().map(|span| &text[span.start..span.end]).collect();
        assert_eq!(format!("{text} | {}", shown.join(" ")), expect);
    }

    #[test]
    fn line_is_shown_in_shell_syntax() {
        check(&[b"-n", b"2", b"x.py"], &[at(1, 0, 1)], "remuda run -n 2 x.py | 2");
        check(&[b"--num_gpus=x", b"a b"], &[at(0, 11, 12)], "remuda run --num_gpus=x 'a b' | x");
        check(&[b"a {b} c"], &[at(0, 2, 5)], "remuda run 'a {b} c' | {b}");
        check(&[b"it's", b""], &[at(0, 0, 4)], "remuda run 'it'\\''s' '' | 'it'\\''s'");
        check(&[b"a\nb\xff"], &[at(0, 0, 1)], "remuda run $'a\\nb\\xff' | $'a\\nb\\xff'");
        check(&[b"-q"], &[at(1, 0, 0)], "remuda run -q | ");
    }

    #[test]
    fn long_line_is_shown_around_the_marked_word() {
        let words: Vec<&[u8]> = [b"w".as_slice()].repeat(100);
        let near = "remuda run ... w w w w w w w w w w w w w ... | w";
        check(&words, &[at(50, 0, 1)], near);
        let long = [b'x'; 1000];
        let cut = "x".repeat(60);
        check(&[&long], &[at(0, 0, 1000)], &format!("remuda run {cut}... | {cut}..."));
    }
}
