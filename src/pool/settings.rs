//! Parser of the words after the host name: `slots=N`, or a common mistake.

use crate::base::{Diagnostic, Severity, Span, show_typed};

use super::codes;
use super::hosts::{SLOTS_MAX, SlotCount};
use super::line::{HostLine, HostToken};
use super::similar::nearest;

/// State of the parser of the words after the host name.
#[derive(Default)]
pub(super) struct HostSettings {
    /// The position of the first `slots=`.
    first_slots: Option<Span>,
    /// Whether a word was meant as a slot count, even if it is invalid: then no missing count is
    /// reported.
    has_slots_word: bool,
    /// Number of words of the line that give slots in any spelling: if there are two, neither is
    /// corrected.
    slots_words: usize,
}

impl HostSettings {
    /// Parses all words; `first` is the word before them.
    pub(super) fn read(
        mut self,
        first: HostToken<'_>,
        mut rest: &[HostToken<'_>],
        out: &mut HostLine,
    ) {
        self.slots_words = rest.iter().filter(|word| is_slots_word(**word)).count();
        while let Some((&word, after)) = rest.split_first() {
            let word_count =
                self.parse_spaced(word, after, out).or_else(|| self.parse_setting(word, out));
            let Some(word_count) = word_count else {
                self.unexpected(word, rest, out);
                break;
            };
            rest = &rest[word_count..];
        }
        // The help for a line of Slurm or MPICH shows the whole line already.
        let is_explained = out.problems.iter().any(|problem| problem.code == codes::OTHER_DIALECT);
        if !self.has_slots_word && !is_explained {
            out.problems.push(missing_slots(first));
        }
    }

    /// Parses `slots = 4`, `slots= 4` or `slots =4`; returns the number of words.
    fn parse_spaced(
        &mut self,
        word: HostToken<'_>,
        after: &[HostToken<'_>],
        out: &mut HostLine,
    ) -> Option<usize> {
        let next = *after.first()?;
        let (value, word_count) = match (word.text, next.text) {
            ("slots", "=") => (*after.get(1)?, 3),
            ("slots", text) if text.starts_with('=') => (next.part(1, text.len()), 2),
            ("slots=", text) if text.starts_with(|c: char| c.is_ascii_digit()) => (next, 2),
            _ => return None,
        };
        let whole = Span::new(word.span.start, value.span.end);
        out.problems.push(
            Diagnostic::error(codes::SPACED_EQUALS, whole, "spaces around `=` are not allowed")
                .label("one word")
                .help(format!("write `slots={}`", show_typed(&value.text)))
                .suggest(whole, format!("slots={}", value.text)),
        );
        self.parse_slots(word.span, value, out);
        Some(word_count)
    }

    /// Parses `key=value`, or a key without its sign.
    fn parse_setting(&mut self, word: HostToken<'_>, out: &mut HostLine) -> Option<usize> {
        if word.has_control_byte() {
            self.has_slots_word = true;
            return Some(1);
        }
        let at = word.text.find(['=', ':']).filter(|at| 0 < *at)?;
        let (key, value) = (word.part(0, at), word.part(at + 1, word.text.len()));
        let is_equals = word.text[at..].starts_with('=');
        match key.text {
            "slots" if is_equals => self.parse_slots(word.span, value, out),
            "max_slots" | "max-slots" if is_equals => out.problems.push(self.max_slots(word)),
            _ => out.problems.push(self.unknown_key(word, key, is_equals)?),
        }
        Some(1)
    }

    fn parse_slots(&mut self, span: Span, value: HostToken<'_>, out: &mut HostLine) {
        self.has_slots_word = true;
        if let Some(first) = self.first_slots {
            out.problems.push(
                Diagnostic::error(codes::SLOTS_TWICE, span, "`slots` given twice")
                    .label("given again here")
                    .related(first, "first given here")
                    .help("keep one of the two"),
            );
            return;
        }
        self.first_slots = Some(span);
        match parse_count(value) {
            Ok(count) => out.slots = Some(count),
            Err(problem) => out.problems.push(*problem),
        }
    }

    /// The problem of `max_slots`: DeepSpeed ignores text after the count, so a file shared with
    /// Open MPI works there.
    fn max_slots(&self, word: HostToken<'_>) -> Diagnostic {
        let problem =
            Diagnostic::error(codes::OTHER_DIALECT, word.span, "`max_slots` is Open MPI syntax");
        match self.first_slots {
            Some(_) => problem.severity(Severity::Warning).label("ignored").help("remove it"),
            None => problem
                .label("expected `slots=N` first")
                .help("put `slots=N` directly after the host"),
        }
    }

    /// The problem of an unknown key; `None` when the word is no setting at all.
    fn unknown_key(
        &mut self,
        word: HostToken<'_>,
        key: HostToken<'_>,
        is_equals: bool,
    ) -> Option<Diagnostic> {
        let slots_word = slots_word(key.text);
        if !is_equals && slots_word.is_none() {
            return None;
        }
        let message = if is_equals {
            format!("unknown key `{}`", show_typed(&key.text))
        } else {
            format!("`{}` has no `=`", show_typed(&word.text))
        };
        let problem =
            Diagnostic::error(codes::UNKNOWN_KEY, key.span, message).label("expected `slots=N`");
        self.has_slots_word |= slots_word.is_some();
        let sign = Span::new(key.span.start, key.span.end + 1);
        Some(match (slots_word, self.slots_words) {
            (Some(SlotsWord::Mistyped), 1) => {
                problem.help("did you mean `slots`?").suggest(sign, "slots=")
            }
            (Some(SlotsWord::Other), 1) => {
                problem.help("did you mean `slots`?").guess(sign, "slots=")
            }
            _ => problem.help("a line is a host name and its slots: `worker-0 slots=4`"),
        })
    }

    /// Reports a word that is no setting: the rest of the line is not parsed.
    fn unexpected(&mut self, word: HostToken<'_>, rest: &[HostToken<'_>], out: &mut HostLine) {
        let is_number = word.text.bytes().all(|byte| byte.is_ascii_digit());
        if is_number && !self.has_slots_word {
            self.has_slots_word = true;
            out.problems.push(number_without_key(word, self.slots_words));
            return;
        }
        let last = rest.last().map_or(word.span, |last| last.span);
        let span = Span::new(word.span.start, last.end);
        let message = format!("unexpected `{}`", show_typed(&word.text));
        let problem = Diagnostic::error(codes::UNEXPECTED_TEXT, span, message);
        out.problems.push(match self.first_slots {
            Some(_) if rest[1..].iter().any(|word| word.text.starts_with("slots")) => {
                problem.label("a second host").help("write one host per line")
            }
            Some(_) => {
                problem.label("expected the end of the line").help("a comment begins with `#`")
            }
            None => problem.label("expected `slots=N`").help("write `slots=N` after the host name"),
        });
        self.has_slots_word = true;
    }
}

/// The error for a number instead of `slots=`; the line may also have a `slots=` after it.
fn number_without_key(word: HostToken<'_>, sayings: usize) -> Diagnostic {
    if 0 < sayings {
        let message = format!("unexpected `{}` before `slots`", word.text);
        return Diagnostic::error(codes::UNEXPECTED_TEXT, word.span, message)
            .label("expected `slots=N` directly after the host")
            .help("remove it, or move it into the host name or after `slots=`");
    }
    Diagnostic::error(codes::MISSING_SLOTS, word.span, "`slots=` is missing before the number")
        .label("expected `slots=N`")
        .help("write the number as a slot count")
        .suggest(word.span, format!("slots={}", word.text))
}

/// Whether a word gives slots: `slots=4`, `slots`, `lots=4`.
fn is_slots_word(word: HostToken<'_>) -> bool {
    let key = word.text.split(['=', ':']).next().unwrap_or_default();
    key == "slots" || key.len() < word.text.len() && slots_word(key).is_some()
}

/// A key that was used instead of `slots`.
enum SlotsWord {
    /// A misspelling: `lots`.
    Mistyped,
    /// A name in other tools and habits: `gpus`.
    Other,
}

/// Whether a word is a key of a line rather than a host.
pub(super) fn is_slots_key(word: &str) -> bool {
    slots_word(word).is_some() || matches!(word, "max_slots" | "max-slots")
}

fn slots_word(key: &str) -> Option<SlotsWord> {
    const OTHERS: [&str; 17] = [
        "gpus",
        "gpu",
        "ngpus",
        "num_gpus",
        "gpus_per_node",
        "np",
        "ppn",
        "nproc",
        "procs",
        "processes",
        "tasks",
        "ntasks",
        "workers",
        "devices",
        "count",
        "cores",
        "cpus",
    ];
    let name = key.to_ascii_lowercase().replace('-', "_");
    if OTHERS.contains(&&*name) {
        return Some(SlotsWord::Other);
    }
    nearest(key, ["slots"]).map(|_| SlotsWord::Mistyped)
}

pub(super) fn missing_slots(host: HostToken<'_>) -> Diagnostic {
    Diagnostic::error(codes::MISSING_SLOTS, host.span, "`slots=` is missing")
        .label("expected `slots=N` after the host name")
        .help("set the number of workers: `worker-0 slots=4`, or `--slots 4` for all hosts")
}

/// Parses the number after `slots=`.
pub(super) fn parse_count(value: HostToken<'_>) -> Result<SlotCount, Box<Diagnostic>> {
    parse_count_of("slots", value)
}

/// Parses the number after this key.
pub(super) fn parse_count_of(
    key: &str,
    value: HostToken<'_>,
) -> Result<SlotCount, Box<Diagnostic>> {
    let text = value.text;
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let problem = match (digits, text.parse::<u32>()) {
        _ if text.is_empty() => no_value(key, value),
        (0, _) => bad_count(key, value, &format!("not `{}`", show_typed(&text))),
        _ if digits < text.len() => after_count(key, value, digits),
        (_, Ok(0)) => bad_count(key, value, "not 0")
            .help("to leave the host out, put `#` before the line or use --exclude"),
        (_, Ok(count)) => match SlotCount::new(count) {
            Some(count) => return Ok(count),
            None => above_limit(key, value),
        },
        // The text has digits only, so the number is too large.
        (_, Err(_)) => above_limit(key, value),
    };
    Err(Box::new(problem))
}

fn no_value(key: &str, value: HostToken<'_>) -> Diagnostic {
    Diagnostic::error(codes::BAD_COUNT, value.span, format!("`{key}=` has no value"))
        .label("expected a number")
        .help(format!("set the number of workers of the host: `{key}=4`"))
}

fn bad_count(key: &str, value: HostToken<'_>, found: &str) -> Diagnostic {
    let message = format!("{key} must be a whole number of at least 1, {found}");
    let digits = value.text.trim_start_matches('-');
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    Diagnostic::error(codes::BAD_COUNT, value.span, message)
        .label(if is_number { "expected 1 or more" } else { "expected a number" })
        .help(format!("write the number of workers: `{key}=4`"))
}

fn after_count(key: &str, value: HostToken<'_>, digits: usize) -> Diagnostic {
    let (number, tail) = (value.part(0, digits), value.part(digits, value.text.len()));
    let message = format!("unexpected `{}` after `{key}={}`", show_typed(&tail.text), number.text);
    let problem = Diagnostic::error(codes::AFTER_COUNT, tail.span, message)
        .label("the number ends before this");
    // For `0x8`, the text without the suffix would not be a count.
    match number.text.parse().ok().and_then(SlotCount::new) {
        Some(_) => problem.help("remove it, or correct the number").guess(tail.span, ""),
        None => problem.help("slots are counted in decimal digits: `slots=8`"),
    }
}

fn above_limit(key: &str, value: HostToken<'_>) -> Diagnostic {
    Diagnostic::error(
        codes::COUNT_ABOVE_LIMIT,
        value.span,
        format!("{key} above the limit {SLOTS_MAX}"),
    )
    .label("no machine has that many devices")
    .help("correct the number")
}
