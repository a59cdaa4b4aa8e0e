//! Collector of hosts and problems, for texts in any dialect.

use std::collections::BTreeMap;

use crate::base::{Diagnostic, HostName, Severity, Source, Span, UserName};
use crate::pool::codes;
use crate::pool::hostfile::host_line::HostLine;
use crate::pool::hostfile::host_table::{HostLookup, HostTable, Spelling, UnusableHost};
use crate::pool::hostfile::hosts::{Host, Hostfile, SLOTS_MAX, SlotCount, SlotsOption};

/// Limit of the hosts of a file; reading stops there.
pub const HOSTS_MAX: usize = 131_072;

/// Help for a file that is probably not a hostfile.
pub(crate) const NAME_A_HOSTFILE: &str = "name a hostfile: its lines are `worker-0 slots=8`";

/// A line of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinePosition {
    /// Its number, from 1.
    pub(crate) line: usize,
    /// The range of the whole line.
    pub(crate) span: Span,
}

/// The meaning of a second line for the same host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RepeatedHost {
    /// The line is reported as an error.
    Error,
    /// The slots are added.
    AddSlots,
}

/// Collector of hosts and problems, for any dialect.
#[derive(Default)]
pub(crate) struct Reader {
    table: HostTable,
    pub(crate) problems: Vec<Diagnostic>,
    /// Number of hosts in the text, valid or not.
    entries: usize,
    is_full: bool,
    /// Slots of hosts without a slot count (`--slots`).
    default_slots: Option<SlotCount>,
    slots_option: SlotsOption,
    /// Settings that are valid but have no equivalent in a pool, such as a `queue`, and how often
    /// each occurs.
    pub(crate) unused: BTreeMap<&'static str, usize>,
}

impl Reader {
    pub(crate) fn new(default_slots: Option<SlotCount>, slots_option: SlotsOption) -> Self {
        Self { default_slots, slots_option, ..Self::default() }
    }

    /// Reserves space for that many expected hosts; the limit still applies.
    pub(crate) fn reserve(&mut self, hosts: usize) {
        self.table.reserve(hosts.min(HOSTS_MAX - self.entries.min(HOSTS_MAX)));
    }

    /// Slots of hosts without a slot count.
    pub(crate) fn default_slots(&self) -> Option<SlotCount> {
        self.default_slots
    }

    /// The option for slots of hosts without a slot count, for advice.
    pub(crate) fn slots_option(&self) -> SlotsOption {
        self.slots_option
    }

    /// Adds the host of a parsed line.
    pub(crate) fn add_line(
        &mut self,
        LinePosition { line, span: line_span }: LinePosition,
        mut parsed: HostLine,
        repeats: RepeatedHost,
    ) {
        if self.is_full {
            return;
        }
        self.apply_default_slots(&mut parsed);
        if repeats == RepeatedHost::AddSlots && self.add_slots(&mut parsed) {
            self.problems.append(&mut parsed.problems);
            return;
        }
        self.entries += 1;
        if HOSTS_MAX < self.entries {
            self.is_full = true;
            self.problems.push(too_many_hosts(line_span));
            return;
        }
        let is_usable = parsed.problems.iter().all(|problem| problem.severity < Severity::Error);
        let HostLine { host, user, slots, max_slots, mut problems } = parsed;
        // The name is the first word, so its problem is placed before the other problems of the
        // line.
        let Some((name, span)) = host else { return self.problems.append(&mut problems) };
        let key = self.table.look_up(&name);
        let repeated = self.check_repeated(&key, &name, user.as_ref(), span);
        let is_duplicate =
            repeated.as_ref().is_some_and(|problem| problem.severity == Severity::Error);
        self.problems.extend(repeated);
        self.problems.append(&mut problems);
        match slots.filter(|_| is_usable) {
            _ if is_duplicate => {}
            Some(slots) => {
                self.table.insert(&key, Host { name, user, slots, max_slots, line, span });
            }
            None => self.table.insert_unusable(&key, UnusableHost { name, user, span }),
        }
    }

    /// Adds the problem of a line without a usable host.
    pub(crate) fn add_problem(&mut self, problem: Diagnostic) {
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
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Removes the hosts with these spans, which are sorted.
    pub(crate) fn remove_hosts(&mut self, spans: &[Span]) {
        self.table.hosts.retain(|host| spans.binary_search(&host.span).is_err());
    }

    /// The hosts, and the problems in the order of the text.
    pub(crate) fn finish(mut self, source: &Source) -> (Hostfile, Vec<Diagnostic>) {
        if self.entries == 0 {
            self.problems.push(no_host(source));
        }
        (Hostfile::new(self.table.hosts), self.problems)
    }

    /// Uses the count of `--slots` for a line without one, and removes the error for it.
    fn apply_default_slots(&self, parsed: &mut HostLine) {
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

    /// Adds the slots of a line to its host; `false` when the host is new.
    fn add_slots(&mut self, parsed: &mut HostLine) -> bool {
        let (Some((name, span)), Some(slots)) = (&parsed.host, parsed.slots) else { return false };
        let key = self.table.look_up(name);
        let same = self.table.same_spelling(&key).filter(|same| same.user == parsed.user.as_ref());
        let Some((index, first)) = same.and_then(|same| Some((same.host?, same.span))) else {
            return false;
        };
        let is_last = index + 1 == self.table.hosts.len();
        let host = &mut self.table.hosts[index];
        let sum = host.slots.get() + slots.get();
        let Some(sum) = SlotCount::new(sum) else {
            let message = format!("slots of `{name}` add up to more than the limit {SLOTS_MAX}");
            let problem = Diagnostic::error(codes::COUNT_ABOVE_LIMIT, *span, message)
                .related(first, "first listed here")
                .help("no machine has that many devices: correct the file");
            parsed.problems.push(problem);
            return true;
        };
        host.slots = sum;
        host.max_slots = parsed.max_slots.or(host.max_slots);
        if !is_last {
            let message = format!("host `{name}` is listed again after other hosts");
            let problem = Diagnostic::warning(codes::SCATTERED_HOST, *span, message)
                .label("its slots are added to the first entry")
                .related(first, "first listed here")
                .help("ranks follow hosts, not lines: put the lines of a host together");
            parsed.problems.push(problem);
        }
        true
    }

    fn check_repeated(
        &self,
        key: &HostLookup,
        name: &HostName,
        user: Option<&UserName>,
        span: Span,
    ) -> Option<Diagnostic> {
        let first = self.table.first_spelling(key)?;
        Some(match self.table.same_spelling(key) {
            Some(same) => listed_twice(name, user, span, &same),
            None => same_machine(name, span, &first),
        })
    }
}

fn listed_twice(
    name: &HostName,
    user: Option<&UserName>,
    span: Span,
    first: &Spelling<'_>,
) -> Diagnostic {
    if first.span == span {
        return Diagnostic::error(
            codes::DUPLICATE_HOST,
            span,
            format!("host `{name}` is listed twice"),
        )
        .label("two parts of this word name the host")
        .help("name each host once");
    }
    let help = if first.user == user {
        "name each host once"
    } else {
        "name each host once, with one user"
    };
    Diagnostic::error(codes::DUPLICATE_HOST, span, format!("host `{name}` is listed twice"))
        .label("listed again here")
        .related(first.span, "first listed here")
        .help(help)
}

fn same_machine(name: &HostName, span: Span, first: &Spelling<'_>) -> Diagnostic {
    let message = format!("host `{name}` is the same machine as `{}`", first.name);
    Diagnostic::warning(codes::SAME_HOST, span, message)
        .label("the same name to a resolver")
        .related(first.span, "first listed here")
        .help("list it once")
}

fn too_many_hosts(span: Span) -> Diagnostic {
    Diagnostic::error(codes::TOO_MANY_HOSTS, span, format!("more than {HOSTS_MAX} hosts"))
        .label("reading stops here")
        .help(NAME_A_HOSTFILE)
}

fn no_host(source: &Source) -> Diagnostic {
    let is_comment = |line: &str| line.is_empty() || line.starts_with(['#', '/']);
    let why = if source.text.trim().is_empty() {
        "the file is empty"
    } else if source.text.lines().map(str::trim_start).all(is_comment) {
        "all lines are comments"
    } else {
        "no line names a host"
    };
    Diagnostic::whole(codes::NO_HOST, format!("no host in the file: {why}"))
        .help("write a line for each host: `worker-0 slots=4`")
}
