//! `--include` and `--exclude`, resolved against a pool.

use std::collections::{BTreeSet, HashMap};

use crate::base::order;
use crate::base::{Diagnostic, Findings, HostName, Slot, Source, Span, show_typed};
use crate::pool::codes;
use crate::pool::host_source::HostSource;
use crate::pool::hostfile::hosts::{Pool, Users};
use crate::pool::nodeset::{fold_set, siblings};
use crate::pool::selector::filter_parse::{Spec, parse_selector};
use crate::pool::similar_hosts::nearest_host;

/// Filter of a pool: whole hosts, and slots of hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter(HashMap<HostName, SlotFilter>);

/// The selected slots of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlotFilter {
    /// All slots.
    All,
    /// These slots, in ascending order.
    Slots(BTreeSet<Slot>),
}

impl Filter {
    /// Adds a host, whole or in part.
    pub fn insert(&mut self, host: HostName, which: SlotFilter) {
        self.0.insert(host, which);
    }

    /// The selected slots of a host.
    pub fn get(&self, host: &HostName) -> Option<&SlotFilter> {
        self.0.get(host)
    }
}

/// Parses `--include` or `--exclude` and looks its hosts and slots up in the pool.
pub(crate) fn parse_filter(
    (pool, source): (&Pool, &HostSource),
    flag: &str,
    text: &str,
) -> (Filter, Findings) {
    let (specs, mut diagnostics) = parse_selector(text);
    let mut lookup = Lookup::new(pool, source);
    for spec in &specs {
        lookup.add(spec);
    }
    diagnostics.append(&mut lookup.problems);
    order::sort_by_key(&mut diagnostics, |problem| problem.span);
    let source = Source { name: flag.to_owned(), text: text.to_owned() };
    (lookup.filter, Findings { source, diagnostics })
}

/// Looks the specs up in the pool and merges those of the same host.
struct Lookup<'a> {
    pool: HashMap<&'a str, (&'a HostName, &'a [Slot])>,
    names: Vec<&'a str>,
    source: &'a HostSource,
    users: &'a Users,
    filter: Filter,
    /// Position at which a host was named without slots.
    host_spans: HashMap<&'a HostName, Span>,
    problems: Vec<Diagnostic>,
    unknown_hosts: usize,
}

/// Limit of the unknown hosts for which the nearest name is searched; a search goes through the
/// whole pool.
const GUESSES_MAX: usize = 8;
/// Limit of the bytes of a folded list of names; of a longer list only the first and last name are
/// shown.
const FOLDED_BYTES_MAX: usize = 60;

impl<'a> Lookup<'a> {
    fn new(pool: &'a Pool, source: &'a HostSource) -> Self {
        let nodes = pool.nodes();
        Self {
            pool: nodes
                .iter()
                .map(|(host, slots)| (host.as_str(), (host, slots.as_slice())))
                .collect(),
            names: nodes.iter().map(|(host, _)| host.as_str()).collect(),
            source,
            users: pool.users(),
            filter: Filter::default(),
            host_spans: HashMap::new(),
            problems: Vec::new(),
            unknown_hosts: 0,
        }
    }

    fn add(&mut self, spec: &Spec<'_>) {
        let Some(&(host, slots)) = self.pool.get(spec.host) else {
            self.unknown_host(spec);
            return;
        };
        match &spec.slots {
            None => self.add_host(host, spec.host_span),
            Some(named) => self.add_slots(host, slots, named, spec.host_span),
        }
    }

    /// Adds a whole host. Beside named slots of the same host it adds nothing, as in DeepSpeed.
    fn add_host(&mut self, host: &'a HostName, span: Span) {
        self.host_spans.entry(host).or_insert(span);
        if let Some(SlotFilter::Slots(_)) = self.filter.0.get(host) {
            self.problems.push(whole_and_slots(host, span));
            return;
        }
        self.filter.0.insert(host.clone(), SlotFilter::All);
    }

    fn add_slots(&mut self, host: &'a HostName, slots: &[Slot], named: &[(i64, Span)], span: Span) {
        if let Some(SlotFilter::All) = self.filter.0.get(host) {
            let whole = self.host_spans.get(host).copied().unwrap_or(span);
            self.problems.push(whole_and_slots(host, whole));
        }
        let mut known = BTreeSet::new();
        for &(number, at) in named {
            match u32::try_from(number).ok().map(Slot).filter(|slot| slots.contains(slot)) {
                Some(slot) => drop(known.insert(slot)),
                None => self.problems.push(unknown_slot(host, slots, number, at, span)),
            }
        }
        match self.filter.0.get_mut(host) {
            Some(SlotFilter::Slots(before)) => before.extend(known),
            _ => drop(self.filter.0.insert(host.clone(), SlotFilter::Slots(known))),
        }
    }

    fn unknown_host(&mut self, spec: &Spec<'_>) {
        let message = self.source.show_missing(&show_typed(spec.host));
        let problem = Diagnostic::error(codes::UNKNOWN_HOST, spec.host_span, message);
        self.unknown_hosts += 1;
        let suggestion = if self.unknown_hosts <= GUESSES_MAX {
            // A host that the selector names already is no suggestion.
            let is_named = |name: &str| self.filter.0.keys().any(|host| host.as_str() == name);
            nearest_host(spec.host, self.names.iter().copied().filter(|name| !is_named(name)))
        } else {
            None
        };
        if self.users.values().any(|user| user.as_str() == spec.host) {
            let help = "this is a user of the hostfile; name the host without its user";
            self.problems.push(problem.help(help));
            return;
        }
        self.problems.push(match (self.separated(spec), suggestion, separator_help(spec.host)) {
            (Some((list, is_valid)), ..) => {
                let problem = problem.help(format!("hosts are separated by `@`: `{list}`"));
                if is_valid { problem.suggest(spec.host_span, list) } else { problem }
            }
            (None, Some(suggestion), _) => problem
                .help(format!("did you mean `{suggestion}`?"))
                .suggest(spec.host_span, suggestion),
            (None, None, Some(help)) => problem.help(help),
            (None, None, None) => problem.help(self.show_hosts(spec.host)),
        });
    }

    /// The hosts of a word such as `h1,h2` with `@` between them, and whether all of them exist;
    /// slots after the word belong to the last of them.
    fn separated(&self, spec: &Spec<'_>) -> Option<(String, bool)> {
        let hosts = || spec.host.split([',', ';', ' ']).filter(|host| !host.is_empty());
        let are_names = hosts().all(|host| HostName::parse(host).is_ok());
        let all_exist = hosts().all(|host| self.pool.contains_key(host));
        let list = || hosts().collect::<Vec<_>>().join("@");
        (1 < hosts().count() && are_names).then(|| (list(), all_exist))
    }

    /// The hosts that can be selected, for a help text; of many hosts, only those with a similar
    /// name.
    fn show_hosts(&self, host: &str) -> String {
        let similar: Vec<&str> = siblings(host, self.names.iter().copied()).collect();
        let shown = if similar.is_empty() { &self.names } else { &similar };
        let folded = fold_set(shown.iter().copied());
        self.source.show_content(&match self.names[..] {
            [] => "no host".to_owned(),
            [only] => format!("only `{only}`"),
            [first, .., last] if FOLDED_BYTES_MAX < folded.len() => {
                format!("{} hosts, `{first}` to `{last}`", self.names.len())
            }
            _ => format!("`{folded}`"),
        })
    }
}

/// The help for a host that contains a separator of other tools, or a pattern.
fn separator_help(host: &str) -> Option<&'static str> {
    if host.contains([',', ';', ' ']) {
        return Some("hosts are separated by `@`: `worker-0@worker-1`");
    }
    host.contains(['*', '?', '[']).then_some("patterns are not supported: name every host")
}

fn unknown_slot(
    host: &HostName,
    slots: &[Slot],
    number: i64,
    at: Span,
    host_at: Span,
) -> Diagnostic {
    let message = match number {
        ..0 => "slot numbers are at least 0".to_owned(),
        _ => format!("`{host}` has no slot {number}"),
    };
    Diagnostic::error(codes::UNKNOWN_SLOT, at, message)
        .label(format!("slots of {host} are {}", show_slots(slots)))
        .related(host_at, "")
        .help("slots are numbered from 0: `slots=4` has 0, 1, 2 and 3")
}

/// Formats slots as `0-7`, or as single numbers when they have gaps or another order.
fn show_slots(slots: &[Slot]) -> String {
    let is_run = slots.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0);
    match slots {
        [first, .., last] if is_run => format!("{first}-{last}"),
        _ => slots.iter().map(Slot::to_string).collect::<Vec<_>>().join(","),
    }
}

fn whole_and_slots(host: &HostName, whole: Span) -> Diagnostic {
    let message = format!("`{host}` is named as a whole and by slots: only the slots are used");
    Diagnostic::warning(codes::WHOLE_AND_SLOTS, whole, message)
        .label("has no effect")
        .help("name the host once")
}
