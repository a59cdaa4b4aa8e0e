//! Hostfile text → hosts and everything that is wrong with it.

use std::collections::{BTreeMap, HashMap};

use crate::base::{Diagnostic, Findings, HostName, Severity, Source, Span};

use super::codes;
use super::hosts::{Host, Hostfile, SLOTS_MAX, SlotCount};
use super::line::{Line, parse_line};
use super::text::decode;

/// Hosts of a file; reading stops beyond.
pub const HOSTS_MAX: usize = 131_072;
/// Bytes of a line; longer lines are not looked into.
pub const LINE_BYTES_MAX: usize = 4096;

/// Reads the bytes of a hostfile called `name`.
pub fn read(name: &str, bytes: &[u8]) -> (Hostfile, Findings) {
    let (source, diagnostics) = decode(name, bytes);
    // What is wrong with all of the file is said once: its lines were guessed.
    if diagnostics.iter().any(|diagnostic| diagnostic.span.is_none()) {
        return (Hostfile::new(Vec::new()), Findings { source, diagnostics });
    }
    let (hostfile, found) = parse(&source);
    (hostfile, in_order(source, diagnostics, found))
}

/// What is wrong with the bytes and with the text, in the order of the text.
pub(super) fn in_order(
    source: Source,
    mut diagnostics: Vec<Diagnostic>,
    found: Vec<Diagnostic>,
) -> Findings {
    diagnostics.extend(found);
    diagnostics.sort_by_key(|diagnostic| diagnostic.span.map(|span| span.start));
    // The first byte that is no text may have spoilt a host name too: once is enough.
    diagnostics.dedup_by_key(|diagnostic| (diagnostic.code, diagnostic.span));
    Findings { source, diagnostics }
}

/// Reads a hostfile: the hosts of the good lines, and all that is wrong, in the order of the text.
pub fn parse(source: &Source) -> (Hostfile, Vec<Diagnostic>) {
    let mut reader = Reader::default();
    parse_deepspeed(source, &mut reader);
    reader.finish(source)
}

/// The same, into a reader of the caller's.
pub(super) fn parse_deepspeed(source: &Source, reader: &mut Reader) {
    each_line(source, LINE_BYTES_MAX, reader, |reader, place, line| {
        if let Some(parsed) = parse_line(line, place.span.start) {
            reader.take(place, parsed, Repeats::Refused);
        }
    });
}

/// Goes through the lines until there are too many hosts; of lines above the limit only that is said.
pub(super) fn each_line(
    source: &Source,
    bytes_max: usize,
    reader: &mut Reader,
    mut read: impl FnMut(&mut Reader, Place, &str),
) {
    for (number, line, start) in lines(&source.text) {
        let place = Place { line: number, span: Span::new(start, start + line.len()) };
        if bytes_max < line.len() {
            reader.entries += 1;
            reader.problems.push(line_too_long(place.span, bytes_max));
        } else {
            read(reader, place, line);
        }
        if reader.is_full {
            break;
        }
    }
}

/// Line number from 1, the line without its end, and the byte where it begins.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (usize, &str, usize)> {
    let mut start = 0;
    text.split_inclusive('\n').zip(1..).map(move |(line, number)| {
        let from = start;
        start += line.len();
        let line = line.strip_suffix('\n').unwrap_or(line);
        (number, line.strip_suffix('\r').unwrap_or(line), from)
    })
}

/// A line of a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Its number, from 1.
    pub(super) line: usize,
    /// All of it.
    pub(super) span: Span,
}

/// What a second line for the same host means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeats {
    /// A mistake.
    Refused,
    /// More slots.
    Added,
}

/// Collects hosts and problems, whatever the dialect.
#[derive(Default)]
pub(super) struct Reader {
    hosts: Vec<Host>,
    pub(super) problems: Vec<Diagnostic>,
    /// Canonical name → its spellings so far.
    seen: HashMap<String, Vec<Seen>>,
    /// Hosts that were meant, good or bad.
    entries: usize,
    is_full: bool,
    /// Slots of hosts of which nothing is said (`--slots`).
    default_slots: Option<SlotCount>,
    /// What was understood and has no place in a pool, such as `max_slots`, and how often.
    pub(super) unused: BTreeMap<&'static str, usize>,
}

/// Where a spelling stood first.
struct Seen {
    name: HostName,
    span: Span,
    /// Its index among the hosts, if it could be used.
    host: Option<usize>,
}

impl Reader {
    pub(super) fn new(default_slots: Option<SlotCount>) -> Self {
        Self { default_slots, ..Self::default() }
    }

    /// Slots of hosts of which nothing is said.
    pub(super) fn default_slots(&self) -> Option<SlotCount> {
        self.default_slots
    }

    /// Takes what a line says of a host.
    pub(super) fn take(&mut self, place: Place, mut parsed: Line, repeats: Repeats) {
        self.fill_in_slots(&mut parsed);
        if repeats == Repeats::Added && self.add(&mut parsed) {
            self.problems.append(&mut parsed.problems);
            return;
        }
        self.entries += 1;
        if HOSTS_MAX < self.entries {
            self.is_full = true;
            self.problems.push(too_many_hosts(place.span));
            return;
        }
        let repeated = parsed.host.as_ref().and_then(|(name, span)| self.repeated(name, *span));
        let is_duplicate =
            repeated.as_ref().is_some_and(|problem| problem.severity == Severity::Error);
        // The name stands before everything else that can be wrong with a line.
        self.problems.extend(repeated);
        let is_usable = parsed.problems.iter().all(|problem| problem.severity < Severity::Error);
        self.problems.append(&mut parsed.problems);
        if let (Some((name, span)), Some(slots)) = (parsed.host, parsed.slots)
            && is_usable
            && !is_duplicate
        {
            if let Some(seen) = self.seen.get_mut(&name.canonical()).and_then(|all| all.last_mut())
            {
                seen.host = Some(self.hosts.len());
            }
            self.hosts.push(Host { name, slots, line: place.line, span });
        }
    }

    /// A line that names no host that could be used.
    pub(super) fn refuse(&mut self, problem: Diagnostic) {
        self.entries += 1;
        self.problems.push(problem);
        if HOSTS_MAX < self.entries {
            self.is_full = true;
        }
    }

    /// Whether reading has stopped.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Forgets the hosts that were named at these places, which are in order.
    pub(super) fn drop_hosts(&mut self, places: &[Span]) {
        self.hosts.retain(|host| places.binary_search(&host.span).is_err());
    }

    /// What was read and what is wrong with it.
    pub(super) fn finish(mut self, source: &Source) -> (Hostfile, Vec<Diagnostic>) {
        if self.entries == 0 {
            self.problems.push(no_host(source));
        }
        (Hostfile::new(self.hosts), self.problems)
    }

    /// Where `--slots` says what a line does not, nothing is missing.
    fn fill_in_slots(&self, parsed: &mut Line) {
        let is_missing = |problem: &Diagnostic| {
            problem.code == codes::MISSING_SLOTS && problem.suggestion.is_none()
        };
        if let Some(slots) = self.default_slots
            && parsed.slots.is_none()
            && parsed.problems.iter().all(is_missing)
        {
            parsed.problems.clear();
            parsed.slots = Some(slots);
        }
    }

    /// Adds the slots of a line to those of its host; `false` when it is a new one.
    fn add(&mut self, parsed: &mut Line) -> bool {
        let (Some((name, span)), Some(slots)) = (&parsed.host, parsed.slots) else { return false };
        let spellings = self.seen.get(&name.canonical());
        let seen = spellings.and_then(|all| all.iter().find(|seen| seen.name == *name));
        let Some((index, first)) = seen.and_then(|seen| Some((seen.host?, seen.span))) else {
            return false;
        };
        let sum = self.hosts[index].slots.get() + slots.get();
        let Some(sum) = SlotCount::new(sum) else {
            let message = format!("slots of `{name}` add up to more than the limit {SLOTS_MAX}");
            let problem = Diagnostic::error(codes::COUNT_ABOVE_LIMIT, *span, message)
                .related(first, "first listed here")
                .help("no host has so many devices: correct the file");
            parsed.problems.push(problem);
            return true;
        };
        self.hosts[index].slots = sum;
        if index + 1 != self.hosts.len() {
            let message = format!("host `{name}` comes again after other hosts");
            let problem = Diagnostic::warning(codes::SCATTERED_HOST, *span, message)
                .label("its slots are added to those above")
                .related(first, "first listed here")
                .help("ranks follow hosts, not lines: put the lines of a host together");
            parsed.problems.push(problem);
        }
        true
    }

    fn repeated(&mut self, name: &HostName, span: Span) -> Option<Diagnostic> {
        let spellings = self.seen.entry(name.canonical()).or_default();
        if let Some(first) = spellings.iter().find(|seen| seen.name == *name) {
            return Some(listed_twice(name, span, first.span));
        }
        let problem =
            spellings.first().map(|first| same_machine(name, span, &first.name, first.span));
        spellings.push(Seen { name: name.clone(), span, host: None });
        problem
    }
}

fn listed_twice(name: &HostName, span: Span, first: Span) -> Diagnostic {
    Diagnostic::error(codes::DUPLICATE_HOST, span, format!("host `{name}` is listed twice"))
        .label("listed again here")
        .related(first, "first listed here")
        .help("merge the two lines")
}

fn same_machine(name: &HostName, span: Span, other: &HostName, first: Span) -> Diagnostic {
    let message = format!("host `{name}` is the same machine as `{other}`");
    Diagnostic::warning(codes::SAME_HOST, span, message)
        .label("the same name to a resolver")
        .related(first, "first listed here")
        .help("list it once")
}

fn line_too_long(span: Span, bytes_max: usize) -> Diagnostic {
    let message = format!("line longer than {bytes_max} bytes: {}", span.end - span.start);
    Diagnostic::error(codes::LINE_TOO_LONG, span, message)
        .help("is this a hostfile? a line is `worker-0 slots=4`")
}

fn too_many_hosts(span: Span) -> Diagnostic {
    Diagnostic::error(codes::TOO_MANY_HOSTS, span, format!("more than {HOSTS_MAX} hosts"))
        .label("reading stops here")
        .help("is this a hostfile?")
}

fn no_host(source: &Source) -> Diagnostic {
    let why = if source.text.trim().is_empty() { "it is empty" } else { "all lines are comments" };
    Diagnostic::whole(codes::NO_HOST, format!("no host in the file: {why}"))
        .help("write a line for each host: `worker-0 slots=4`")
}
