//! Parser of the words after the host name: `slots=N`, or a common mistake.

use crate::base::{Diagnostic, HostName, Severity, Span, nearest, show_typed};
use crate::pool::codes;
use crate::pool::hostfile::host_line::{HostLine, HostToken};
use crate::pool::hostfile::hosts::{SLOTS_MAX, SlotCount, SlotsOption};

/// State of the parser of the words after the host name.
#[derive(Default)]
pub(crate) struct HostSettings {
    /// The position of the first `slots=`.
    first_slots: Option<Span>,
    /// Whether a word was meant as a slot count, even if it is invalid: then no missing count is
    /// reported.
    has_slots_word: bool,
    /// Number of words of the line that give slots in any spelling: if there are two, neither is
    /// corrected.
    slots_words: usize,
    /// The option for slots of hosts without a count, for advice.
    slots_option: SlotsOption,
}

impl HostSettings {
    pub(crate) fn new(slots_option: SlotsOption) -> Self {
        Self { slots_option, ..Self::default() }
    }

    /// Parses all words; `first` is the word before them.
    pub(crate) fn read(
        mut self,
        first: HostToken<'_>,
        mut rest: &[HostToken<'_>],
        out: &mut HostLine,
    ) {
        self.slots_words = rest.iter().filter(|word| is_slots_word(**word)).count();
        while let Some((&word, after)) = rest.split_first() {
            if let Some((sign, problem)) = second_host(first, word, after) {
                let slots = word.part(0, sign);
                self.parse_slots(slots.span, slots.part("slots=".len(), sign), out);
                out.problems.push(problem);
                break;
            }
            let word_count =
                self.parse_spaced(word, after, out).or_else(|| self.parse_setting(word, out));
            let Some(word_count) = word_count else {
                self.unexpected(word, rest, out);
                break;
            };
            // The words after `slots=4,n2` belong to another host.
            if has_second_host(word.text) {
                break;
            }
            rest = &rest[word_count..];
        }
        // The help for a line of Slurm or MPICH shows the whole line already.
        let is_explained = out.problems.iter().any(|problem| problem.code == codes::OTHER_DIALECT);
        if !self.has_slots_word && !is_explained {
            out.problems.push(missing_slots(first, self.slots_option));
        }
    }

    /// Parses `slots = 4`, `slots= 4`, `slots =4` or `slots: 4`; returns the number of words.
    fn parse_spaced(
        &mut self,
        word: HostToken<'_>,
        after: &[HostToken<'_>],
        out: &mut HostLine,
    ) -> Option<usize> {
        let spaced = SpacedSetting::read(word, after)?;
        let SpacedSetting { key, is_equals, value, word_count } = spaced;
        let whole = Span::new(word.span.start, value.span.end);
        if key.text != "slots" || !is_equals {
            let setting = format!("slots={}", value.text);
            let is_only = self.slots_words == usize::from(is_slots_word(word));
            out.problems.push(unknown_key(key, is_equals, is_only, (whole, &setting)));
            self.has_slots_word = true;
            return Some(word_count);
        }
        out.problems.push(
            Diagnostic::error(codes::SPACED_EQUALS, whole, "spaces around `=` are not allowed")
                .label("one word")
                .help(format!("write `slots={}`", show_typed(value.text)))
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
            _ if !is_equals && slots_word(key.text).is_none() => return None,
            _ => {
                let sign = Span::new(key.span.start, key.span.end + 1);
                let problem = unknown_key(key, is_equals, self.slots_words == 1, (sign, "slots="));
                out.problems.push(problem);
                self.has_slots_word |= slots_word(key.text).is_some();
            }
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
        let message = format!("unexpected `{}`", show_typed(word.text));
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

/// The error for `n1 slots=4, n2 slots=4`, and the position of the comma in `word`; `first` is the host of
/// the line.
fn second_host(
    first: HostToken<'_>,
    word: HostToken<'_>,
    after: &[HostToken<'_>],
) -> Option<(usize, Diagnostic)> {
    let sign = word.text.find([',', ';'])?;
    let count = word.text[..sign].strip_prefix("slots=")?;
    let is_count = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
    let directly_after = &word.text[sign + 1..];
    let (host, settings) = match (directly_after, after.split_first()) {
        ("", None) => return None,
        ("", Some((host, settings))) => (host.text, settings),
        (host, _) => (host, after),
    };
    let is_host = host.starts_with(|c: char| c.is_ascii_alphabetic())
        && HostName::parse(host).is_ok()
        && !is_slots_key(host);
    if !is_count || !is_host || first.span == word.span {
        return None;
    }
    let slots = settings.first().map(|slots| slots.text.trim_end_matches([',', ';']));
    let slots = slots.filter(|slots| slots.starts_with("slots=")).unwrap_or("slots=N");
    let lines = (format!("{} {}", first.text, &word.text[..sign]), format!("{host} {slots}"));
    let end = after.last().map_or(word.span, |last| last.span).end;
    let span = Span::new(word.span.start + sign, end);
    let problem = Diagnostic::error(codes::UNEXPECTED_TEXT, span, "a second host on the line")
        .label("one host per line")
        .help(format!(
            "write a line for each host: `{}`, then `{}`",
            show_typed(&lines.0),
            show_typed(&lines.1)
        ));
    Some((sign, problem))
}

/// A setting of slots with blanks around its sign.
struct SpacedSetting<'a> {
    key: HostToken<'a>,
    /// Whether the sign is `=` and not `:`.
    is_equals: bool,
    value: HostToken<'a>,
    /// Number of words of the setting.
    word_count: usize,
}

impl<'a> SpacedSetting<'a> {
    fn read(word: HostToken<'a>, after: &[HostToken<'a>]) -> Option<Self> {
        let next = *after.first()?;
        let without_sign = word.text.strip_suffix(['=', ':']);
        let key = word.part(0, without_sign.map_or(word.text.len(), str::len));
        slots_word(key.text)?;
        let is_equals = |signed: &str, at: usize| signed[at..].starts_with('=');
        match (without_sign, next.text) {
            (Some(key_text), text) if text.starts_with(|c: char| c.is_ascii_digit()) => {
                let is_equals = is_equals(word.text, key_text.len());
                Some(Self { key, is_equals, value: next, word_count: 2 })
            }
            (None, "=" | ":") => {
                let is_equals = next.text == "=";
                Some(Self { key, is_equals, value: *after.get(1)?, word_count: 3 })
            }
            (None, text) if text.starts_with(['=', ':']) => {
                let value = next.part(1, text.len());
                Some(Self { key, is_equals: is_equals(text, 0), value, word_count: 2 })
            }
            _ => None,
        }
    }
}

/// The problem of an unknown key, or of `slots:`; the replacement is suggested only if no other
/// word of the line gives slots.
fn unknown_key(
    key: HostToken<'_>,
    is_equals: bool,
    is_only: bool,
    (span, replacement): (Span, &str),
) -> Diagnostic {
    let shown = show_typed(key.text);
    let message = if is_equals {
        format!("unknown key `{shown}`")
    } else {
        format!("`=` is missing after `{shown}`")
    };
    let problem =
        Diagnostic::error(codes::UNKNOWN_KEY, key.span, message).label("expected `slots=N`");
    match slots_word(key.text) {
        Some(_) if !is_equals && is_only && key.text == "slots" => {
            problem.help("write `=`").suggest(span, replacement)
        }
        Some(SlotsWord::Mistyped) if is_only => {
            problem.help("did you mean `slots`?").suggest(span, replacement)
        }
        Some(SlotsWord::Other) if is_only => {
            problem.help("did you mean `slots`?").guess(span, replacement)
        }
        _ => problem.help("a line is a host name and its slots: `worker-0 slots=4`"),
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
pub(crate) fn is_slots_word(word: HostToken<'_>) -> bool {
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
pub(crate) fn is_slots_key(word: &str) -> bool {
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

pub(crate) fn missing_slots(host: HostToken<'_>, option: SlotsOption) -> Diagnostic {
    // A word that is no host name gets an example.
    let is_name = HostName::parse(host.text).is_ok();
    let name = if is_name { show_typed(host.text) } else { "worker-0".to_owned() };
    Diagnostic::error(codes::MISSING_SLOTS, host.span, "`slots=` is missing")
        .label("expected `slots=N` after the host name")
        .help(format!(
            "set the number of workers: `{name} slots=4`, or `{option} 4` for all hosts without it"
        ))
}

/// The way in which a dialect writes a number of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CountSyntax<'a> {
    /// `slots=4`, with this key.
    Setting(&'a str),
    /// `host:4`.
    Colon,
    /// `host 4`.
    Word,
    /// `2(x3),1`.
    Runs,
}

impl CountSyntax<'_> {
    /// The name of the number in messages.
    fn name(&self) -> &str {
        match self {
            Self::Setting(key) => key,
            Self::Colon | Self::Word | Self::Runs => "slots",
        }
    }

    /// A number as it is written.
    fn show(self, number: &str) -> String {
        match self {
            Self::Setting(key) => format!("{key}={number}"),
            Self::Colon => format!(":{number}"),
            Self::Word | Self::Runs => number.to_owned(),
        }
    }

    /// Whether the number is a limit of the slots: `max_slots=4`.
    fn is_limit(self) -> bool {
        matches!(self, Self::Setting(key) if key != "slots")
    }

    /// An example of a correct number, in backticks.
    fn example(self) -> String {
        match self {
            Self::Setting(key) => format!("`{key}=4`"),
            Self::Colon => "`host:4`".to_owned(),
            Self::Word => "`host 4`".to_owned(),
            Self::Runs => "`4` for every node, or `2(x3),1` for four nodes".to_owned(),
        }
    }
}

/// Parses the number after `slots=`.
pub(crate) fn parse_count(value: HostToken<'_>) -> Result<SlotCount, Box<Diagnostic>> {
    parse_count_of(CountSyntax::Setting("slots"), value)
}

/// Parses a number in this syntax.
pub(crate) fn parse_count_of(
    syntax: CountSyntax<'_>,
    value: HostToken<'_>,
) -> Result<SlotCount, Box<Diagnostic>> {
    let text = value.text;
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let problem = match (digits, text.parse::<u32>()) {
        _ if text.is_empty() => no_value(syntax, value),
        (0, _) => bad_count(syntax, value, &format!("not `{}`", show_typed(text))),
        _ if digits < text.len() => after_count(syntax, value, digits),
        (_, Ok(0)) => bad_count(syntax, value, "not 0")
            .help("to leave the host out, put `#` before the line or use --exclude"),
        (_, Ok(count)) => match SlotCount::new(count) {
            Some(count) => return Ok(count),
            None => above_limit(syntax, value),
        },
        // The text has digits only, so the number is too large.
        (_, Err(_)) => above_limit(syntax, value),
    };
    Err(Box::new(problem))
}

fn no_value(syntax: CountSyntax<'_>, value: HostToken<'_>) -> Diagnostic {
    let message = match syntax {
        CountSyntax::Setting(key) => format!("`{key}=` has no value"),
        CountSyntax::Colon => "the number after `:` is missing".to_owned(),
        CountSyntax::Word | CountSyntax::Runs => "the number of slots is missing".to_owned(),
    };
    let help = if syntax.is_limit() {
        write_limit(syntax)
    } else {
        format!("set the number of workers of the host: {}", syntax.example())
    };
    Diagnostic::error(codes::BAD_COUNT, value.span, message).label("expected a number").help(help)
}

fn write_limit(syntax: CountSyntax<'_>) -> String {
    format!("write the largest number of slots: {}", syntax.example())
}

fn bad_count(syntax: CountSyntax<'_>, value: HostToken<'_>, found: &str) -> Diagnostic {
    let message = format!("{} must be a whole number of at least 1, {found}", syntax.name());
    let digits = value.text.trim_start_matches('-');
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let help = if syntax.is_limit() {
        write_limit(syntax)
    } else {
        format!("write the number of workers: {}", syntax.example())
    };
    Diagnostic::error(codes::BAD_COUNT, value.span, message)
        .label(if is_number { "expected 1 or more" } else { "expected a number" })
        .help(help)
}

fn after_count(syntax: CountSyntax<'_>, value: HostToken<'_>, digits: usize) -> Diagnostic {
    let (number, tail) = (value.part(0, digits), value.part(digits, value.text.len()));
    let message =
        format!("unexpected `{}` after `{}`", show_typed(tail.text), syntax.show(number.text));
    let problem = Diagnostic::error(codes::AFTER_COUNT, tail.span, message);
    if has_second_host(value.text) {
        return problem.label("a second host").help("write one host per line");
    }
    let problem = problem.label("the number ends before this");
    // For `0x8`, the text without the suffix would not be a count.
    match number.text.parse().ok().and_then(SlotCount::new) {
        Some(_) => problem.help("remove it, or correct the number").guess(tail.span, ""),
        None => problem.help(format!("slots are counted in decimal digits: {}", syntax.example())),
    }
}

/// Whether a number is followed by a comma and another host: `4,n2`.
fn has_second_host(value: &str) -> bool {
    let is_host = |host: &str| host.starts_with(|c: char| c.is_ascii_alphanumeric());
    value.split_once([',', ';']).is_some_and(|(_, rest)| is_host(rest))
}

fn above_limit(syntax: CountSyntax<'_>, value: HostToken<'_>) -> Diagnostic {
    Diagnostic::error(
        codes::COUNT_ABOVE_LIMIT,
        value.span,
        format!("{} above the limit {SLOTS_MAX}", syntax.name()),
    )
    .label("no machine has that many devices")
    .help("correct the number")
}
