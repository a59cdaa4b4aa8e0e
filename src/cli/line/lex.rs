//! Grammar of Python's argparse for a line of options, a script and the arguments of the script.
//!
//! Options must be before the first positional word. If a word could be a value, only DeepSpeed's
//! options decide whether it is an option, so that options of remuda never change the meaning of a
//! line of DeepSpeed's.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::codes;
use super::flags::{Flags, OptionOwner, Takes, underscored};
use super::typed::{ArgvSpan, CommandLine, GivenOption, RefusedLine};
use crate::base::Diagnostic;
use crate::base::shell::quoted;
use crate::cli::help::Length;
use crate::cli::line::equivalents::suggestion;

/// What is wrong with a line that has no script.
pub(in crate::cli) const NO_SCRIPT_MESSAGE: &str = "there is no script to run";

/// Options that DeepSpeed had until 0.19.7.
const REMOVED: [&str; 4] =
    ["elastic_training", "min_elastic_nodes", "max_elastic_nodes", "enable_elastic_training"];

/// Result of lexing a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Lexed {
    /// Options, and the index of the script; all words after it are arguments of the script.
    Script(usize),
    /// A request for help.
    Help(Length),
    /// A request for the version.
    Version,
}

/// Finds the options and the script, and adds the options to `typed`.
pub(super) fn lex(flags: &Flags, typed: &mut CommandLine) -> Result<Lexed, RefusedLine> {
    let mut lexer = Lexer { flags, typed, at: 0, unknown: None };
    let lexed = lexer.run()?;
    // A request for help or for the version takes precedence over an unknown option; a script does
    // not.
    match (lexer.unknown.take(), lexed) {
        (Some(place), Some(Lexed::Script(_)) | None) => Err(lexer.unknown_option(place)),
        (None, None) => Err(lexer.no_script()),
        (_, Some(lexed)) => Ok(lexed),
    }
}

/// Kind of a word.
enum WordKind {
    Positional,
    Option {
        flag: usize,
        /// Length of the name with its dashes.
        name: usize,
        value: Attached,
    },
    Ambiguous(Vec<&'static str>),
    Unknown,
}

/// Text after the name of an option in the same word.
#[derive(Clone, Copy)]
enum Attached {
    Nothing,
    /// Start of the value after an `=`, in bytes.
    Equals(usize),
    /// Start of the value after the letter of a short option, in bytes.
    Glued(usize),
}

struct Lexer<'a> {
    flags: &'a Flags,
    typed: &'a mut CommandLine,
    at: usize,
    /// The first option that is not known.
    unknown: Option<ArgvSpan>,
}

impl Lexer<'_> {
    /// Lexes the line; the result is `None` if the line ends before a script.
    fn run(&mut self) -> Result<Option<Lexed>, RefusedLine> {
        while let Some(word) = self.typed.words.get(self.at) {
            if word == "--" {
                let script = self.at + 1;
                return Ok((script < self.typed.words.len()).then_some(Lexed::Script(script)));
            }
            match classify(self.flags, word, OptionOwner::All) {
                WordKind::Positional => return Ok(Some(Lexed::Script(self.at))),
                WordKind::Ambiguous(names) => return Err(self.ambiguous(&names)),
                WordKind::Unknown => {
                    self.unknown.get_or_insert(self.typed.word_span(self.at));
                    self.at += 1;
                }
                WordKind::Option { flag, name, value } => {
                    if let Some(lexed) = self.option(flag, name, value)? {
                        return Ok(Some(lexed));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Adds an option with its value, or several options of one letter.
    fn option(
        &mut self,
        mut flag: usize,
        name: usize,
        mut value: Attached,
    ) -> Result<Option<Lexed>, RefusedLine> {
        let mut name = ArgvSpan { word: self.at, start: 0, end: name };
        loop {
            match (self.flags.get(flag).takes, value) {
                (Takes::Value, Attached::Nothing) => self.value_of_next(flag, name)?,
                (Takes::Value, Attached::Equals(from) | Attached::Glued(from)) => {
                    self.value_of_this(flag, name, from);
                }
                (_, Attached::Equals(from)) => return Err(self.value_unwanted(flag, name, from)),
                // `-hostfile` of mpirun: for argparse, too, the letters after `-h` are an error.
                (Takes::Help, Attached::Glued(from)) if !self.is_letter_of_deepspeed(from) => {
                    self.unknown.get_or_insert(self.typed.word_span(self.at));
                }
                (Takes::Help, _) => {
                    let word = self.typed.words[self.at].as_bytes();
                    return Ok(Some(Lexed::Help(Length::of(word))));
                }
                (Takes::Version, _) => return Ok(Some(Lexed::Version)),
                (Takes::Nothing, Attached::Nothing) => self.push(flag, name, None),
                (Takes::Nothing, Attached::Glued(from)) => {
                    self.push(flag, name, None);
                    (flag, value) = self.next_bundled(flag, name, from)?;
                    name = ArgvSpan { word: self.at, start: from, end: from + 1 };
                    continue;
                }
            }
            self.at += 1;
            return Ok(None);
        }
    }

    /// Whether this byte of the current word is a short option of DeepSpeed.
    fn is_letter_of_deepspeed(&self, at: usize) -> bool {
        let letter = self.typed.words[self.at].as_bytes().get(at);
        letter.is_some_and(|letter| self.flags.short(*letter, OptionOwner::Original).is_some())
    }

    /// Finds the next letter of a word such as `-qH`.
    fn next_bundled(
        &self,
        flag: usize,
        name: ArgvSpan,
        from: usize,
    ) -> Result<(usize, Attached), RefusedLine> {
        let bytes = self.typed.words[self.at].as_bytes();
        let letter = bytes[from];
        let Some(next) = self.flags.short(letter, OptionOwner::All) else {
            let end = bytes.len();
            let message =
                format!("`{}` is followed by an unknown option", self.typed.text_of(name));
            return Err(self.typed.refuse(
                &[ArgvSpan { word: self.at, start: from, end }],
                |spans| {
                    Diagnostic::error(codes::VALUE_UNWANTED, spans[0], message)
                        .label("not an option of one letter")
                        .help(format!("`--{}` takes no value", self.flags.get(flag).long))
                },
            ));
        };
        Ok((next, attached(bytes, from + 1)))
    }

    fn value_of_this(&mut self, flag: usize, name: ArgvSpan, from: usize) {
        let bytes = self.typed.words[self.at].as_bytes();
        let value = OsString::from_vec(bytes[from..].to_vec());
        let place = ArgvSpan { word: self.at, start: from, end: bytes.len() };
        self.push(flag, name, Some((value, place)));
    }

    fn value_of_next(&mut self, flag: usize, name: ArgvSpan) -> Result<(), RefusedLine> {
        let next = self.at + 1;
        match self.typed.words.get(next) {
            Some(word) if is_value(self.flags, word) => {
                let value = (word.clone(), self.typed.word_span(next));
                self.push(flag, name, Some(value));
                self.at = next;
                Ok(())
            }
            other => Err(self.value_missing(flag, name, other.is_some())),
        }
    }

    fn push(&mut self, flag: usize, name: ArgvSpan, value: Option<(OsString, ArgvSpan)>) {
        let flag = self.flags.get(flag).long.clone();
        self.typed.options.push(GivenOption { flag, name, value });
    }

    fn value_unwanted(&self, flag: usize, name: ArgvSpan, from: usize) -> RefusedLine {
        let end = self.typed.words[name.word].len();
        let long = &self.flags.get(flag).long;
        self.typed.refuse(&[ArgvSpan { word: name.word, start: from, end }], |spans| {
            Diagnostic::error(codes::VALUE_UNWANTED, spans[0], format!("`--{long}` takes no value"))
                .label("a value")
                .help(format!("write `--{long}` alone, or leave it out"))
        })
    }

    fn value_missing(&self, flag: usize, name: ArgvSpan, has_next: bool) -> RefusedLine {
        let long = &self.flags.get(flag).long;
        let message = format!("`--{long}` needs a value");
        let places = [name, self.typed.word_span(name.word + 1)];
        self.typed.refuse(&places[..=usize::from(has_next)], |spans| {
            let problem = Diagnostic::error(codes::VALUE_MISSING, spans[0], message);
            match spans.get(1) {
                None => problem.label("nothing follows"),
                Some(next) => problem
                    .label("")
                    .related(*next, "looks like an option")
                    .help(format!("a value that begins with `-` is written `--{long}=VALUE`")),
            }
        })
    }

    fn ambiguous(&self, names: &[&str]) -> RefusedLine {
        let word = &self.typed.words[self.at];
        let end = word.as_bytes().iter().position(|byte| *byte == b'=').unwrap_or(word.len());
        let place = ArgvSpan { word: self.at, start: 0, end };
        let list = names.iter().map(|name| format!("--{name}")).collect::<Vec<_>>().join(", ");
        let message =
            format!("ambiguous option: `{}` could match {list}", self.typed.text_of(place));
        self.typed.refuse(&[place], |spans| {
            Diagnostic::error(codes::AMBIGUOUS, spans[0], message)
                .label(format!("{} options start with this", names.len()))
                .help("write the option out")
        })
    }

    fn no_script(&self) -> RefusedLine {
        // In `--max_restarts train.py` the script is missing because it was read as the value.
        let last = self.typed.words.len().checked_sub(1);
        let taken = self.typed.options.last().and_then(|given| {
            let (value, place) = given.value.as_ref()?;
            let looks_like_script = value.as_bytes().ends_with(b".py");
            (Some(place.word) == last && place.word != given.name.word && looks_like_script)
                .then(|| (self.typed.text_of(given.name), given.flag.clone(), *place))
        });
        let places =
            [self.typed.end_span(), taken.as_ref().map_or(self.typed.end_span(), |at| at.2)];
        self.typed.refuse(&places[..=usize::from(taken.is_some())], |spans| {
            let problem = Diagnostic::error(codes::NO_SCRIPT, spans[0], NO_SCRIPT_MESSAGE)
                .label("expected the script, then its own arguments");
            match taken {
                Some((name, flag, place)) => problem
                    .related(spans[1], format!("read as the value of `{name}`"))
                    .help(format!("type `{}`", self.with_value_before(&flag, place))),
                None => problem.help(format!("`{} --help` lists the options", self.typed.program)),
            }
        })
    }

    /// The line with a placeholder for the value of an option before a word that was read as the value.
    fn with_value_before(&self, flag: &str, place: ArgvSpan) -> String {
        let flag = self.flags.exact(flag, OptionOwner::All).map(|at| self.flags.get(at));
        let value = flag.map_or("VALUE", |flag| &flag.value_name);
        let before = self.typed.words_before(place.word).iter().map(quoted);
        let after = self.typed.words[place.word..].iter().map(quoted);
        let words: Vec<String> = before.chain([value.to_owned()]).chain(after).collect();
        format!("{} {}", self.typed.program, words.join(" "))
    }

    fn unknown_option(&self, word: ArgvSpan) -> RefusedLine {
        let text = self.typed.words[word.word].to_string_lossy();
        let typed_name = text.split('=').next().unwrap_or_default();
        let place = ArgvSpan { end: typed_name.len().min(word.end), ..word };
        let name = underscored(typed_name.trim_start_matches('-'));
        if let Some(removed) = removed(&name) {
            return self.removed(place, removed);
        }
        let message = format!("there is no option `{typed_name}`");
        let meant = suggestion(self.typed, word.word, &self.typed.program, self.flags);
        self.typed.refuse(&[place], |spans| {
            let problem = Diagnostic::error(codes::UNKNOWN_OPTION, spans[0], message);
            match meant {
                _ if typed_name == "-m" => {
                    let module = self.typed.words.get(word.word + 1).map_or_else(|| "NAME".to_owned(), quoted);
                    problem.label("unknown").help(format!(
                        "`--module {module}` runs a module, as `python -m` does"
                    ))
                }
                _ if name == "print_completion" => problem
                    .label("unknown")
                    .help("`remuda completion SHELL` prints the completion script of a shell"),
                Some(meant) => problem.label("unknown").help(meant),
                None => problem.label("unknown").help(format!(
                    "place options of the script after the script; `{} --help` lists those of remuda",
                    self.typed.program
                )),
            }
        })
    }

    fn removed(&self, place: ArgvSpan, name: &str) -> RefusedLine {
        let help = number_of_nodes(self.flags);
        self.typed.refuse(&[place], |spans| {
            let message = format!("`--{name}` was removed in DeepSpeed 0.19.8");
            Diagnostic::error(codes::REMOVED, spans[0], message).label("removed").help(help)
        })
    }
}

/// What a command has instead of the removed options.
fn number_of_nodes(flags: &Flags) -> &'static str {
    if flags.has("min_nodes") {
        "leave it out; `--num_nodes N` uses the first N hosts, `--min_nodes N` continues without lost hosts"
    } else if flags.has("world_info") {
        "leave it out: `remuda launch` starts the workers of one node"
    } else if flags.has("nodes") {
        "leave it out: `--nodes N` is the number of pods"
    } else {
        "leave it out"
    }
}

/// Returns the removed option that a name abbreviates, if there is one.
fn removed(name: &str) -> Option<&'static str> {
    const LETTERS_MIN: usize = 4;
    let is_it = |removed: &&str| LETTERS_MIN <= name.len() && removed.starts_with(name);
    REMOVED.into_iter().find(is_it)
}

/// Whether a word may be the value of the option before it.
fn is_value(flags: &Flags, word: &OsStr) -> bool {
    word != "--" && matches!(classify(flags, word, OptionOwner::Original), WordKind::Positional)
}

/// Classifies a word, as argparse's `_parse_optional` does.
fn classify(flags: &Flags, word: &OsStr, owner: OptionOwner) -> WordKind {
    let bytes = word.as_bytes();
    if bytes.first() != Some(&b'-') || bytes.len() == 1 {
        return WordKind::Positional;
    }
    let equals = bytes.iter().position(|byte| *byte == b'=');
    let head = &bytes[..equals.unwrap_or(bytes.len())];
    let value = equals.map_or(Attached::Nothing, |at| Attached::Equals(at + 1));
    let found = match head.strip_prefix(b"--") {
        Some(name) => find_long(flags, std::str::from_utf8(name).unwrap_or_default(), owner),
        None if head.len() == 2 => {
            flags.short(head[1], owner).map_or(Ok(None), |flag| Ok(Some(flag)))
        }
        None => Ok(None),
    };
    match found {
        Ok(Some(flag)) => return WordKind::Option { flag, name: head.len(), value },
        Err(names) => return WordKind::Ambiguous(names),
        Ok(None) => {}
    }
    if bytes[1] != b'-'
        && let Some(flag) = flags.short(bytes[1], owner)
    {
        return WordKind::Option { flag, name: 2, value: attached(bytes, 2) };
    }
    if is_negative_number(bytes) || bytes.contains(&b' ') {
        WordKind::Positional
    } else {
        WordKind::Unknown
    }
}

/// Finds the option with this name, or the only one that begins with it; several matches are an
/// error.
fn find_long(
    flags: &Flags,
    name: &str,
    owner: OptionOwner,
) -> Result<Option<usize>, Vec<&'static str>> {
    if let Some(flag) = flags.exact(name, owner) {
        return Ok(Some(flag));
    }
    // `--=x` would match every option.
    let candidates = if name.is_empty() { Vec::new() } else { flags.abbreviated(name, owner) };
    match candidates[..] {
        [] => Ok(None),
        [(flag, _)] => Ok(Some(flag)),
        _ => Err(candidates.into_iter().map(|(_, name)| name).collect()),
    }
}

/// Finds the text after the letter of a short option; the `=` of `-H=file` is not part of the
/// value.
fn attached(bytes: &[u8], from: usize) -> Attached {
    match bytes.get(from) {
        None => Attached::Nothing,
        Some(b'=') => Attached::Equals(from + 1),
        Some(_) => Attached::Glued(from),
    }
}

/// Whether a word is a negative number such as `-5`, `-.5`, `-1.5`: argparse does not take these
/// for options.
fn is_negative_number(bytes: &[u8]) -> bool {
    let Some(number) = bytes.strip_prefix(b"-") else { return false };
    let number = number.strip_suffix(b"\n").unwrap_or(number);
    let is_digits = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
    let (whole, fraction) = match number.iter().position(|byte| *byte == b'.') {
        Some(point) => (&number[..point], &number[point + 1..]),
        None => (&number[..0], number),
    };
    is_digits(whole) && !fraction.is_empty() && is_digits(fraction)
}
