//! Collects hosts and what is wrong with them, whatever the dialect of the text.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use crate::base::{Diagnostic, HostName, Severity, Source, Span, UserName};

use super::codes;
use super::hosts::{Host, Hostfile, SLOTS_MAX, SlotCount};
use super::line::Line;

/// Hosts of a file; reading stops beyond.
pub const HOSTS_MAX: usize = 131_072;

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
    /// Canonical name → the first of its spellings. The table holds numbers alone: it is half empty,
    /// and with all of it in place it would be most of the memory of a large file.
    seen: HashMap<String, usize>,
    spellings: Vec<Seen>,
    /// Hosts that were meant, good or bad.
    entries: usize,
    is_full: bool,
    /// Slots of hosts of which nothing is said (`--slots`).
    default_slots: Option<SlotCount>,
    /// What was understood and has no place in a pool, such as a `queue`, and how often.
    pub(super) unused: BTreeMap<&'static str, usize>,
}

/// Where a spelling stood first, and as whom that host is reached.
struct Seen {
    name: HostName,
    user: Option<UserName>,
    span: Span,
    /// Its index among the hosts, if it could be used.
    host: Option<usize>,
    /// Other spellings of it; hardly ever there, and then it takes no memory.
    others: Vec<Seen>,
}

impl Seen {
    fn spellings(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.others)
    }
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
        if self.is_full {
            return;
        }
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
        let is_usable = parsed.problems.iter().all(|problem| problem.severity < Severity::Error);
        let index = (is_usable && parsed.slots.is_some()).then_some(self.hosts.len());
        let (host, user) = (parsed.host.as_ref(), parsed.user.as_ref());
        let repeated = host.and_then(|(name, span)| self.repeated(name, user, *span, index));
        let is_duplicate =
            repeated.as_ref().is_some_and(|problem| problem.severity == Severity::Error);
        // The name stands before everything else that can be wrong with a line.
        self.problems.extend(repeated);
        self.problems.append(&mut parsed.problems);
        if let (Some((name, span)), Some(slots)) = (parsed.host, parsed.slots)
            && is_usable
            && !is_duplicate
        {
            let Line { user, max_slots, .. } = parsed;
            self.hosts.push(Host { name, user, slots, max_slots, line: place.line, span });
        }
    }

    /// A line that names no host that could be used.
    pub(super) fn refuse(&mut self, problem: Diagnostic) {
        if self.is_full {
            return;
        }
        self.entries += 1;
        self.is_full = HOSTS_MAX < self.entries;
        match problem.span.filter(|_| self.is_full) {
            Some(span) => self.problems.push(too_many_hosts(span)),
            None => self.problems.push(problem),
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
        let is_it = |seen: &&Seen| seen.name == *name && seen.user == parsed.user;
        let first = self.seen.get(&name.canonical()).map(|first| &self.spellings[*first]);
        let seen = first.and_then(|first| first.spellings().find(is_it));
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
        self.hosts[index].max_slots = parsed.max_slots.or(self.hosts[index].max_slots);
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

    fn repeated(
        &mut self,
        name: &HostName,
        user: Option<&UserName>,
        span: Span,
        host: Option<usize>,
    ) -> Option<Diagnostic> {
        let seen = Seen { name: name.clone(), user: user.cloned(), span, host, others: Vec::new() };
        match self.seen.entry(name.canonical()) {
            Entry::Vacant(place) => {
                place.insert(self.spellings.len());
                self.spellings.push(seen);
                None
            }
            Entry::Occupied(place) => {
                let first = &mut self.spellings[*place.get()];
                if let Some(same) = first.spellings().find(|other| other.name == *name) {
                    return Some(listed_twice(name, user, span, same));
                }
                let problem = same_machine(name, span, first);
                first.others.push(seen);
                Some(problem)
            }
        }
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
