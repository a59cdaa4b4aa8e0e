//! Hostfile text → hosts and everything that is wrong with it.

use std::collections::HashMap;

use crate::base::{Diagnostic, Findings, HostName, Severity, Source, Span, UserName};

use super::codes;
use super::hosts::{Host, Hostfile};
use super::line::{Line, parse_line};
use super::text::decode;

/// Hosts of a file; reading stops beyond.
pub const HOSTS_MAX: usize = 131_072;
/// Bytes of a line; longer lines are not looked into.
pub const LINE_BYTES_MAX: usize = 4096;

/// Reads the bytes of a hostfile called `name`.
pub fn read(name: &str, bytes: &[u8]) -> (Hostfile, Findings) {
    let (source, mut diagnostics) = decode(name, bytes);
    // What is wrong with all of the file is said once: its lines were guessed.
    if diagnostics.iter().any(|diagnostic| diagnostic.span.is_none()) {
        return (Hostfile::new(Vec::new()), Findings { source, diagnostics });
    }
    let (hostfile, found) = parse(&source);
    diagnostics.extend(found);
    diagnostics.sort_by_key(|diagnostic| diagnostic.span.map(|span| span.start));
    // The first byte that is no text may have spoilt a host name too: once is enough.
    diagnostics.dedup_by_key(|diagnostic| (diagnostic.code, diagnostic.span));
    (hostfile, Findings { source, diagnostics })
}

/// Reads a hostfile: the hosts of the good lines, and all that is wrong, in the order of the text.
pub fn parse(source: &Source) -> (Hostfile, Vec<Diagnostic>) {
    let mut reader = Reader::default();
    let mut entries = 0;
    for (number, line, start) in lines(&source.text) {
        if LINE_BYTES_MAX < line.len() {
            entries += 1;
            reader.problems.push(line_too_long(line, start));
            continue;
        }
        let Some(parsed) = parse_line(line, start) else { continue };
        entries += 1;
        if HOSTS_MAX < entries {
            reader.problems.push(too_many_hosts(line, start));
            break;
        }
        reader.take(number, parsed);
    }
    if entries == 0 {
        reader.problems.push(no_host(source));
    }
    (Hostfile::new(reader.hosts), reader.problems)
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

#[derive(Default)]
struct Reader {
    hosts: Vec<Host>,
    problems: Vec<Diagnostic>,
    /// Canonical name → its spellings so far.
    seen: HashMap<String, Vec<Seen>>,
}

/// Where a spelling stood first, and as whom that host is reached.
struct Seen {
    name: HostName,
    user: Option<UserName>,
    span: Span,
}

impl Reader {
    fn take(&mut self, line: usize, mut parsed: Line) {
        let (host, user) = (parsed.host.as_ref(), &parsed.user);
        let repeated = host.and_then(|(name, span)| self.repeated(name, user.as_ref(), *span));
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
            self.hosts.push(Host { name, user: parsed.user, slots, line, span });
        }
    }

    fn repeated(
        &mut self,
        name: &HostName,
        user: Option<&UserName>,
        span: Span,
    ) -> Option<Diagnostic> {
        let spellings = self.seen.entry(name.canonical()).or_default();
        if let Some(first) = spellings.iter().find(|seen| seen.name == *name) {
            return Some(listed_twice(name, user, span, first));
        }
        let problem = spellings.first().map(|first| same_machine(name, span, first));
        spellings.push(Seen { name: name.clone(), user: user.cloned(), span });
        problem
    }
}

fn listed_twice(name: &HostName, user: Option<&UserName>, span: Span, first: &Seen) -> Diagnostic {
    let help = if first.user.as_ref() == user {
        "merge the two lines"
    } else {
        "merge the two lines: a host takes part once, as one user"
    };
    Diagnostic::error(codes::DUPLICATE_HOST, span, format!("host `{name}` is listed twice"))
        .label("listed again here")
        .related(first.span, "first listed here")
        .help(help)
}

fn same_machine(name: &HostName, span: Span, first: &Seen) -> Diagnostic {
    let message = format!("host `{name}` is the same machine as `{}`", first.name);
    Diagnostic::warning(codes::SAME_HOST, span, message)
        .label("the same name to a resolver")
        .related(first.span, "first listed here")
        .help("list it once")
}

fn line_too_long(line: &str, start: usize) -> Diagnostic {
    let message = format!("line longer than {LINE_BYTES_MAX} bytes: {}", line.len());
    Diagnostic::error(codes::LINE_TOO_LONG, Span::new(start, start + line.len()), message)
        .help("is this a hostfile? a line is `worker-0 slots=4`")
}

fn too_many_hosts(line: &str, start: usize) -> Diagnostic {
    let span = Span::new(start, start + line.len());
    Diagnostic::error(codes::TOO_MANY_HOSTS, span, format!("more than {HOSTS_MAX} hosts"))
        .label("reading stops here")
        .help("is this a hostfile?")
}

fn no_host(source: &Source) -> Diagnostic {
    let why = if source.text.trim().is_empty() { "it is empty" } else { "all lines are comments" };
    Diagnostic::whole(codes::NO_HOST, format!("no host in the file: {why}"))
        .help("write a line for each host: `worker-0 slots=4`")
}
