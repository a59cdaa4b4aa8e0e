//! One line of a hostfile: `HOST slots=N`, a comment after it, and everything that people write
//! instead.

use std::net::Ipv6Addr;

use crate::base::ids::HostNameError;
use crate::base::{Diagnostic, HostName, Severity, Span};

use super::codes;
use super::hosts::{SLOTS_MAX, SlotCount};
use super::similar::nearest;

/// What a line says, as far as it can be understood.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// The host and where its name stands.
    pub(super) host: Option<(HostName, Span)>,
    /// How many slots it has.
    pub(super) slots: Option<SlotCount>,
    /// Everything that is wrong with the line.
    pub(super) problems: Vec<Diagnostic>,
}

/// Reads a line that begins at byte `start` of the text; `None` when it is blank or a comment.
pub(super) fn parse_line(line: &str, start: usize) -> Option<Line> {
    let all = words(line, start);
    let (&first, rest) = all.split_first()?;
    let mut out = Line::default();
    odd_characters(line_without_comment(line, start, first), start, &mut out.problems);
    let settings = if first.text.contains('=') {
        out.problems.push(host_missing(first));
        &all[..]
    } else {
        host(first, rest, &mut out);
        rest
    };
    Settings::default().read(first, settings, &mut out);
    out.problems.sort_by_key(|problem| problem.span);
    Some(out)
}

#[derive(Clone, Copy, Debug)]
struct Word<'a> {
    text: &'a str,
    span: Span,
}

impl<'a> Word<'a> {
    fn new(text: &'a str, start: usize) -> Self {
        Self { text, span: Span::new(start, start + text.len()) }
    }

    /// A part of the word, by its byte offsets.
    fn part(self, from: usize, to: usize) -> Self {
        Self {
            text: &self.text[from..to],
            span: Span::new(self.span.start + from, self.span.start + to),
        }
    }

    /// Said elsewhere already: a control byte, a byte that is no UTF-8.
    fn is_spoilt(self) -> bool {
        self.text.contains(|c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER)
    }
}

/// The words before a comment. `#` begins one anywhere but inside the host name.
fn words(line: &str, start: usize) -> Vec<Word<'_>> {
    let mut found: Vec<Word<'_>> = Vec::new();
    for text in line.split(char::is_whitespace).filter(|text| !text.is_empty()) {
        let at = text.as_ptr() as usize - line.as_ptr() as usize;
        let comment = text.find('#').filter(|hash| *hash == 0 || !found.is_empty());
        let text = &text[..comment.unwrap_or(text.len())];
        if !text.is_empty() {
            found.push(Word::new(text, start + at));
        }
        if comment.is_some() {
            break;
        }
    }
    found
}

fn line_without_comment<'a>(line: &'a str, start: usize, first: Word<'_>) -> &'a str {
    let after_host = first.span.end - start;
    let end = line[after_host..].find('#').map_or(line.len(), |hash| after_host + hash);
    &line[..end]
}

/// Control bytes and blanks that only look like a space; the first of each is enough.
fn odd_characters(line: &str, start: usize, problems: &mut Vec<Diagnostic>) {
    let span = |at: usize, c: char| Span::new(start + at, start + at + c.len_utf8());
    if let Some((at, c)) = line.char_indices().find(|(_, c)| c.is_control() && *c != '\t') {
        let column = line[..at].chars().count() + 1;
        let message = format!("control byte 0x{:02x} at column {column}", u32::from(c));
        problems
            .push(Diagnostic::error(codes::CONTROL_BYTE, span(at, c), message).help("remove it"));
    }
    let odd = |c: char| c.is_whitespace() && !c.is_ascii() && !c.is_control();
    if let Some((at, c)) = line.trim().char_indices().find(|(_, c)| odd(*c)) {
        let at = at + (line.len() - line.trim_start().len());
        let message = format!("blank U+{:04X} is not a space", u32::from(c));
        problems.push(
            Diagnostic::warning(codes::ODD_BLANK, span(at, c), message)
                .label("read as a space")
                .help("write a space")
                .suggest(span(at, c), " "),
        );
    }
}

fn host_missing(first: Word<'_>) -> Diagnostic {
    let message = format!("the host name is missing before `{}`", first.text.escape_debug());
    Diagnostic::error(codes::HOST_MISSING, first.span, message)
        .label("expected a host name")
        .help("a line is a host name and its slots: `worker-0 slots=4`")
}

/// Checks the first word; a host that can be guessed is kept, so that duplicates are found.
fn host(word: Word<'_>, rest: &[Word<'_>], out: &mut Line) {
    if word.is_spoilt() {
        return;
    }
    let (name, problem) = match HostName::parse(word.text) {
        Ok(name) => (Some((name, word.span)), None),
        Err(error) => explain_host(word, rest, &error),
    };
    out.host = name;
    out.problems.extend(problem);
}

type Guess = (Option<(HostName, Span)>, Option<Diagnostic>);

fn guess(word: Word<'_>, problem: Diagnostic) -> Guess {
    (HostName::parse(word.text).ok().map(|name| (name, word.span)), Some(problem))
}

/// Finds out what was meant by a word that is no host name.
fn explain_host(word: Word<'_>, rest: &[Word<'_>], error: &HostNameError) -> Guess {
    let text = word.text;
    if text.parse::<Ipv6Addr>().is_ok() {
        let message = format!("IPv6 address `{text}` needs brackets");
        let problem = Diagnostic::error(codes::BAD_HOST, word.span, message)
            .help("put the address in brackets")
            .suggest(word.span, format!("[{text}]"));
        return (
            HostName::parse(&format!("[{text}]")).ok().map(|name| (name, word.span)),
            Some(problem),
        );
    }
    if let Some(at) = text.rfind('@') {
        return guess(word.part(at + 1, text.len()), user_at_host(word, at));
    }
    if let Some((at, number)) = port_or_count(text) {
        return guess(word.part(0, at), host_and_number(word, rest, at, number));
    }
    if text.contains(',') {
        return (None, Some(host_list(word)));
    }
    if text.contains('[') && !text.starts_with('[') {
        return (None, Some(host_range(word)));
    }
    (None, Some(bad_host(word, error)))
}

fn user_at_host(word: Word<'_>, at: usize) -> Diagnostic {
    let user = word.part(0, at + 1);
    let message = format!("user name in `{}`", word.text.escape_debug());
    Diagnostic::error(codes::USER_AT_HOST, user.span, message)
        .label("a hostfile names machines only")
        .help("put the user into ~/.ssh/config (`User`) and leave it out here")
        .suggest(user.span, "")
}

/// `host:22`, `[::1]:22`.
fn port_or_count(text: &str) -> Option<(usize, &str)> {
    let at = text.rfind(':')?;
    let number = &text[at + 1..];
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && HostName::parse(&text[..at]).is_ok()).then_some((at, number))
}

fn host_and_number(word: Word<'_>, rest: &[Word<'_>], at: usize, number: &str) -> Diagnostic {
    let tail = word.part(at, word.text.len());
    if rest.is_empty() {
        let message = format!("`{}` is MPICH syntax", word.text);
        return Diagnostic::error(codes::OTHER_DIALECT, tail.span, message)
            .label("expected ` slots=N`")
            .help("write the number as a slot count")
            .suggest(tail.span, format!(" slots={number}"));
    }
    Diagnostic::error(codes::HOST_PORT, tail.span, format!("port in `{}`", word.text))
        .label("a hostfile names machines only")
        .help("a port belongs in --ssh_port, or in ~/.ssh/config (`Port`)")
        .suggest(tail.span, "")
}

fn host_list(word: Word<'_>) -> Diagnostic {
    Diagnostic::error(codes::OTHER_DIALECT, word.span, "a list of hosts on one line")
        .label("one host a line")
        .help("write a line for each host, each with its slots")
}

fn host_range(word: Word<'_>) -> Diagnostic {
    let shown = word.text.escape_debug();
    Diagnostic::error(
        codes::OTHER_DIALECT,
        word.span,
        format!("`{shown}` looks like a Slurm range"),
    )
    .label("one host a line")
    .help(format!("`scontrol show hostnames '{shown}'` prints the names; write a line for each"))
}

fn bad_host(word: Word<'_>, error: &HostNameError) -> Diagnostic {
    let code = match error {
        HostNameError::NotAscii { .. } => codes::HOST_NOT_ASCII,
        _ => codes::BAD_HOST,
    };
    Diagnostic::error(code, host_error_span(word, error), error.to_string()).help(host_help(error))
}

fn host_error_span(word: Word<'_>, error: &HostNameError) -> Span {
    let character = |at: usize| {
        let length = word.text[at..].chars().next().map_or(0, char::len_utf8);
        word.part(at, at + length).span
    };
    match *error {
        HostNameError::BadCharacter { at, .. } | HostNameError::NotAscii { at } => character(at),
        HostNameError::BadStart(_) => character(0),
        _ => word.span,
    }
}

fn host_help(error: &HostNameError) -> &'static str {
    match error {
        HostNameError::NotAscii { .. } => "write the name in punycode: `xn--...`",
        HostNameError::UnclosedBracket => "write `[::1]`",
        HostNameError::NotIpv6(_) => "brackets hold an IPv6 address and nothing else: `[fe80::1]`",
        _ => "a host name has letters, digits, `.`, `-` and `_`, and begins with a letter or digit",
    }
}

/// The words after the host name.
#[derive(Default)]
struct Settings {
    /// Where the first `slots=` stands.
    slots_at: Option<Span>,
    /// A slot count was meant, even if it could not be read: its absence is not to be reported.
    slots_meant: bool,
}

impl Settings {
    fn read(mut self, first: Word<'_>, mut rest: &[Word<'_>], out: &mut Line) {
        while let Some((&word, after)) = rest.split_first() {
            let taken = self.spaced(word, after, out).or_else(|| self.setting(word, out));
            let Some(taken) = taken else {
                self.unexpected(word, rest, out);
                break;
            };
            rest = &rest[taken..];
        }
        if !self.slots_meant {
            out.problems.push(missing_slots(first));
        }
    }

    /// `slots = 4`, `slots= 4`, `slots =4`: says how many words that were.
    fn spaced(&mut self, word: Word<'_>, after: &[Word<'_>], out: &mut Line) -> Option<usize> {
        let next = *after.first()?;
        let (value, taken) = match (word.text, next.text) {
            ("slots", "=") => (*after.get(1)?, 3),
            ("slots", text) if text.starts_with('=') => (next.part(1, text.len()), 2),
            ("slots=", text) if text.starts_with(|c: char| c.is_ascii_digit()) => (next, 2),
            _ => return None,
        };
        let whole = Span::new(word.span.start, value.span.end);
        out.problems.push(
            Diagnostic::error(codes::SPACED_EQUALS, whole, "spaces around `=` are not allowed")
                .label("one word")
                .help(format!("write `slots={}`", value.text.escape_debug()))
                .suggest(whole, format!("slots={}", value.text)),
        );
        self.count(word.span, value, out);
        Some(taken)
    }

    /// `key=value`, or a key that lost its sign.
    fn setting(&mut self, word: Word<'_>, out: &mut Line) -> Option<usize> {
        if word.is_spoilt() {
            self.slots_meant = true;
            return Some(1);
        }
        let at = word.text.find(['=', ':']).filter(|at| 0 < *at)?;
        let (key, value) = (word.part(0, at), word.part(at + 1, word.text.len()));
        let is_equals = word.text[at..].starts_with('=');
        match key.text {
            "slots" if is_equals => self.count(word.span, value, out),
            "max_slots" | "max-slots" if is_equals => out.problems.push(self.max_slots(word)),
            _ => out.problems.push(self.unknown_key(word, key, is_equals)?),
        }
        Some(1)
    }

    fn count(&mut self, span: Span, value: Word<'_>, out: &mut Line) {
        self.slots_meant = true;
        if let Some(first) = self.slots_at {
            out.problems.push(
                Diagnostic::error(codes::SLOTS_TWICE, span, "`slots` given twice")
                    .label("given again here")
                    .related(first, "first given here")
                    .help("keep one of the two"),
            );
            return;
        }
        self.slots_at = Some(span);
        match parse_count(value) {
            Ok(count) => out.slots = Some(count),
            Err(problem) => out.problems.push(problem),
        }
    }

    /// DeepSpeed ignores what follows the count, so a file shared with Open MPI works there.
    fn max_slots(&self, word: Word<'_>) -> Diagnostic {
        let problem =
            Diagnostic::error(codes::OTHER_DIALECT, word.span, "`max_slots` is Open MPI syntax");
        match self.slots_at {
            Some(_) => problem.severity(Severity::Warning).label("ignored").help("remove it"),
            None => problem
                .label("expected `slots=N` first")
                .help("put `slots=N` directly after the host"),
        }
    }

    /// `None` when the word is no setting at all.
    fn unknown_key(
        &mut self,
        word: Word<'_>,
        key: Word<'_>,
        is_equals: bool,
    ) -> Option<Diagnostic> {
        let meant = nearest(key.text, ["slots"]);
        if !is_equals && meant.is_none() {
            return None;
        }
        let message = match is_equals {
            true => format!("unknown key `{}`", key.text.escape_debug()),
            false => format!("`{}` has no `=`", word.text.escape_debug()),
        };
        let problem =
            Diagnostic::error(codes::UNKNOWN_KEY, key.span, message).label("expected `slots=N`");
        self.slots_meant |= meant.is_some();
        let sign = Span::new(key.span.start, key.span.end + 1);
        Some(match (meant, self.slots_at) {
            (Some(_), None) => problem.help("did you mean `slots`?").suggest(sign, "slots="),
            _ => problem.help("a line is a host name and its slots: `worker-0 slots=4`"),
        })
    }

    /// A word that is no setting: the rest of the line is not looked at.
    fn unexpected(&mut self, word: Word<'_>, rest: &[Word<'_>], out: &mut Line) {
        let is_number = word.text.bytes().all(|byte| byte.is_ascii_digit());
        if is_number && !self.slots_meant {
            self.slots_meant = true;
            out.problems.push(
                Diagnostic::error(
                    codes::MISSING_SLOTS,
                    word.span,
                    "`slots=` is missing before the number",
                )
                .label("expected `slots=N`")
                .help("write the number as a slot count")
                .suggest(word.span, format!("slots={}", word.text)),
            );
            return;
        }
        let last = rest.last().map_or(word.span, |last| last.span);
        let span = Span::new(word.span.start, last.end);
        let message = format!("unexpected `{}`", word.text.escape_debug());
        let problem = Diagnostic::error(codes::UNEXPECTED_TEXT, span, message);
        out.problems.push(match self.slots_at {
            Some(_) if rest[1..].iter().any(|word| word.text.starts_with("slots")) => {
                problem.label("a second host").help("write one host a line")
            }
            Some(_) => {
                problem.label("nothing may follow the slots").help("a comment begins with `#`")
            }
            None => problem.label("expected `slots=N`").help("write `slots=N` after the host name"),
        });
        self.slots_meant = true;
    }
}

fn missing_slots(host: Word<'_>) -> Diagnostic {
    Diagnostic::error(codes::MISSING_SLOTS, host.span, "`slots=` is missing")
        .label("expected `slots=N` after the host name")
        .help("say how many workers the host takes: `worker-0 slots=4`")
}

fn parse_count(value: Word<'_>) -> Result<SlotCount, Diagnostic> {
    let text = value.text;
    if text.is_empty() {
        return Err(Diagnostic::error(codes::BAD_COUNT, value.span, "`slots=` has no value")
            .label("expected a number")
            .help("say how many workers the host takes: `slots=4`"));
    }
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return Err(bad_count(value, format!("not `{}`", text.escape_debug())));
    }
    if digits < text.len() {
        return Err(after_count(value, digits));
    }
    match text.parse::<u32>() {
        Ok(0) => Err(bad_count(value, "not 0".to_owned())
            .help("to leave the host out, put `#` before the line or use --exclude")),
        Ok(count) => SlotCount::new(count).ok_or_else(|| above_limit(value)),
        // All digits: it can only be too large.
        Err(_) => Err(above_limit(value)),
    }
}

fn bad_count(value: Word<'_>, found: String) -> Diagnostic {
    let message = format!("slots must be a whole number of at least 1, {found}");
    Diagnostic::error(codes::BAD_COUNT, value.span, message).help("write a number: `slots=4`")
}

fn after_count(value: Word<'_>, digits: usize) -> Diagnostic {
    let (number, tail) = (value.part(0, digits), value.part(digits, value.text.len()));
    let message =
        format!("unexpected `{}` after `slots={}`", tail.text.escape_debug(), number.text);
    Diagnostic::error(codes::AFTER_COUNT, tail.span, message)
        .label("the number ends before this")
        .help("remove it, or correct the number")
        .suggest(tail.span, "")
}

fn above_limit(value: Word<'_>) -> Diagnostic {
    Diagnostic::error(
        codes::COUNT_ABOVE_LIMIT,
        value.span,
        format!("slots above the limit {SLOTS_MAX}"),
    )
    .label("no host has so many devices")
    .help("correct the number")
}
