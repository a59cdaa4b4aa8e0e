//! Which slots of which hosts take part: `--include`, `--exclude`, `--num_nodes`, `--num_gpus`.

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroUsize;

use crate::base::{Diagnostic, Findings, HostName, Slot, Source, Span};

use super::codes;
use super::hosts::Pool;
use super::selector::{Spec, parse_selector, python_int};
use super::similar::nearest;

/// The texts of the flags, as typed; an empty text is a flag that was not given, as in DeepSpeed.
#[derive(Clone, Debug, Default)]
pub struct SelectorArgs {
    /// `--include`.
    pub include: Option<String>,
    /// `--exclude`.
    pub exclude: Option<String>,
    /// `--num_nodes`; -1, DeepSpeed's default, means all.
    pub num_nodes: Option<String>,
    /// `--num_gpus`; -1, DeepSpeed's default, means all.
    pub num_gpus: Option<String>,
}

/// What to take of a pool; made for one pool, names no host and no slot that it lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Everything.
    All,
    /// What the filter names.
    Include(Filter),
    /// What the filter does not name.
    Exclude(Filter),
    /// The first hosts, and the first slots of each; `None`: all.
    First {
        /// How many hosts.
        nodes: Option<NonZeroUsize>,
        /// How many slots of each.
        slots: Option<NonZeroUsize>,
    },
}

/// Hosts, whole or in part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter(HashMap<HostName, Which>);

/// Slots of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// All of them.
    All,
    /// These, in ascending order.
    Slots(BTreeSet<Slot>),
}

impl Filter {
    /// Names a host, whole or in part.
    pub fn insert(&mut self, host: HostName, which: Which) {
        self.0.insert(host, which);
    }
}

/// What is left of a pool; at least one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selected {
    /// The hosts that take part.
    pub pool: Pool,
    /// Warnings; no errors.
    pub findings: Vec<Findings>,
}

/// Applies the flags to a pool.
pub fn select(pool: &Pool, args: &SelectorArgs) -> Result<Selected, Vec<Findings>> {
    let (selection, findings) = Selection::parse(pool, args)?;
    let left = selection.apply(pool);
    if left.nodes().is_empty() {
        return Err(vec![nothing_left(args)]);
    }
    Ok(Selected { pool: left, findings })
}

impl Selection {
    /// Reads the flags for a pool; beside the selection there may be warnings.
    pub fn parse(pool: &Pool, args: &SelectorArgs) -> Result<(Self, Vec<Findings>), Vec<Findings>> {
        let flags = Flags::new(args)?;
        let (selection, findings) = match flags {
            Flags::None => (Self::All, Vec::new()),
            Flags::Include(text) => {
                let (filter, findings) = parse_filter(pool, "--include", text);
                (Self::Include(filter), vec![findings])
            }
            Flags::Exclude(text) => {
                let (filter, findings) = parse_filter(pool, "--exclude", text);
                (Self::Exclude(filter), vec![findings])
            }
            Flags::First { nodes, slots } => parse_first(pool, nodes, slots),
        };
        match findings.iter().any(Findings::has_errors) {
            true => Err(findings),
            false => Ok((
                selection,
                findings.into_iter().filter(|one| !one.diagnostics.is_empty()).collect(),
            )),
        }
    }

    /// What is left of a pool. Hosts keep their order; a host left without slots disappears.
    pub fn apply(&self, pool: &Pool) -> Pool {
        let kept = pool.nodes().iter().map(|(host, slots)| (host.clone(), self.slots(host, slots)));
        match self {
            Self::First { nodes: Some(nodes), .. } => Pool::from_nodes(kept.take(nodes.get())),
            _ => Pool::from_nodes(kept),
        }
    }

    /// The slots of a host that stay. Named slots come in ascending order, all others in the pool's.
    fn slots(&self, host: &HostName, slots: &[Slot]) -> Vec<Slot> {
        match self {
            Self::All => slots.to_vec(),
            Self::First { slots: count, .. } => {
                slots.iter().copied().take(count.map_or(usize::MAX, NonZeroUsize::get)).collect()
            }
            Self::Include(filter) => match filter.0.get(host) {
                None => Vec::new(),
                Some(Which::All) => slots.to_vec(),
                Some(Which::Slots(named)) => {
                    named.iter().copied().filter(|slot| slots.contains(slot)).collect()
                }
            },
            Self::Exclude(filter) => match filter.0.get(host) {
                None => slots.to_vec(),
                Some(Which::All) => Vec::new(),
                Some(Which::Slots(named)) => {
                    slots.iter().copied().filter(|slot| !named.contains(slot)).collect()
                }
            },
        }
    }
}

/// The flags that were given, no two that contradict each other.
enum Flags<'a> {
    None,
    Include(&'a str),
    Exclude(&'a str),
    First { nodes: Option<&'a str>, slots: Option<&'a str> },
}

impl<'a> Flags<'a> {
    fn new(args: &'a SelectorArgs) -> Result<Self, Vec<Findings>> {
        let (include, exclude) = (given(&args.include), given(&args.exclude));
        let (nodes, slots) = (count_given(&args.num_nodes), count_given(&args.num_gpus));
        let filter =
            include.map(|text| ("--include", text)).or(exclude.map(|text| ("--exclude", text)));
        let count =
            nodes.map(|text| ("--num_nodes", text)).or(slots.map(|text| ("--num_gpus", text)));
        if let (Some(include), Some(exclude)) = (include, exclude) {
            return Err(vec![both_filters(include, exclude)]);
        }
        if let (Some(filter), Some(count)) = (filter, count) {
            return Err(vec![filter_and_count(filter, count)]);
        }
        Ok(match (include, exclude) {
            (Some(text), _) => Self::Include(text),
            (None, Some(text)) => Self::Exclude(text),
            (None, None) if count.is_some() => Self::First { nodes, slots },
            (None, None) => Self::None,
        })
    }
}

fn given(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

/// Wrappers pass DeepSpeed's default on as they found it.
fn count_given(text: &Option<String>) -> Option<&str> {
    given(text).filter(|text| python_int(text) != Some(-1))
}

fn parse_filter(pool: &Pool, flag: &str, text: &str) -> (Filter, Findings) {
    let (specs, mut diagnostics) = parse_selector(text);
    let mut lookup = Lookup::new(pool);
    for spec in &specs {
        lookup.take(spec);
    }
    diagnostics.append(&mut lookup.problems);
    diagnostics.sort_by_key(|problem| problem.span);
    let source = Source { name: flag.to_owned(), text: text.to_owned() };
    (lookup.filter, Findings { source, diagnostics })
}

/// Looks the specs up in the pool and merges those of one host.
struct Lookup<'a> {
    pool: HashMap<&'a str, (&'a HostName, &'a [Slot])>,
    names: Vec<&'a str>,
    filter: Filter,
    /// Where a host was named as a whole.
    whole_at: HashMap<&'a HostName, Span>,
    problems: Vec<Diagnostic>,
    unknown: usize,
}

/// Unknown hosts for which the nearest name is searched; a search goes through the whole pool.
const GUESSES_MAX: usize = 8;

impl<'a> Lookup<'a> {
    fn new(pool: &'a Pool) -> Self {
        let nodes = pool.nodes();
        Self {
            pool: nodes
                .iter()
                .map(|(host, slots)| (host.as_str(), (host, slots.as_slice())))
                .collect(),
            names: nodes.iter().map(|(host, _)| host.as_str()).collect(),
            filter: Filter::default(),
            whole_at: HashMap::new(),
            problems: Vec::new(),
            unknown: 0,
        }
    }

    fn take(&mut self, spec: &Spec<'_>) {
        let Some(&(host, slots)) = self.pool.get(spec.host) else {
            self.unknown_host(spec);
            return;
        };
        match &spec.slots {
            None => self.whole(host, spec.host_span),
            Some(named) => self.part(host, slots, named, spec.host_span),
        }
    }

    /// Beside named slots a whole host adds nothing, as in DeepSpeed.
    fn whole(&mut self, host: &'a HostName, span: Span) {
        self.whole_at.entry(host).or_insert(span);
        if let Some(Which::Slots(_)) = self.filter.0.get(host) {
            self.problems.push(whole_and_slots(host, span));
            return;
        }
        self.filter.0.insert(host.clone(), Which::All);
    }

    fn part(&mut self, host: &'a HostName, slots: &[Slot], named: &[(i64, Span)], span: Span) {
        if let Some(Which::All) = self.filter.0.get(host) {
            let whole = self.whole_at.get(host).copied().unwrap_or(span);
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
            Some(Which::Slots(before)) => before.extend(known),
            _ => drop(self.filter.0.insert(host.clone(), Which::Slots(known))),
        }
    }

    fn unknown_host(&mut self, spec: &Spec<'_>) {
        let shown = spec.host.escape_debug();
        let problem = Diagnostic::error(
            codes::UNKNOWN_HOST,
            spec.host_span,
            format!("host `{shown}` is not in the pool"),
        );
        self.unknown += 1;
        let meant = match self.unknown <= GUESSES_MAX {
            true => nearest(spec.host, self.names.iter().copied()),
            false => None,
        };
        let (first, last) = (self.names.first(), self.names.last());
        self.problems.push(match (meant, separator(spec.host), first, last) {
            (Some(meant), ..) => {
                problem.help(format!("did you mean `{meant}`?")).suggest(spec.host_span, meant)
            }
            (None, Some(help), ..) => problem.help(help),
            (None, None, Some(first), Some(last)) if first != last => problem
                .help(format!("the pool has {} hosts, `{first}` to `{last}`", self.names.len())),
            (None, None, Some(only), _) => problem.help(format!("the pool has `{only}` alone")),
            (None, None, None, _) => problem.help("the pool is empty"),
        });
    }
}

/// A character that separates hosts elsewhere, or a pattern.
fn separator(host: &str) -> Option<&'static str> {
    if host.contains([',', ';', ' ']) {
        return Some("`@` separates hosts: `worker-0@worker-1`");
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
}

/// `0-7`, or the numbers when they have gaps or an own order.
fn show_slots(slots: &[Slot]) -> String {
    let is_run = slots.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0);
    match slots {
        [first, .., last] if is_run => format!("{first}-{last}"),
        _ => slots.iter().map(Slot::to_string).collect::<Vec<_>>().join(","),
    }
}

fn whole_and_slots(host: &HostName, whole: Span) -> Diagnostic {
    let message = format!("`{host}` is named as a whole and by slots: only the slots count");
    Diagnostic::warning(codes::WHOLE_AND_SLOTS, whole, message)
        .label("adds nothing")
        .help("name the host once")
}

/// Flags as they were typed, with the places of their names.
fn typed(left: (&str, &str), right: (&str, &str)) -> (Source, Span, Span) {
    let first = format!("{} {}", left.0, left.1);
    let text = format!("{first} {} {}", right.0, right.1);
    let right_at = first.len() + 1;
    let spans = (Span::new(0, left.0.len()), Span::new(right_at, right_at + right.0.len()));
    (Source { name: "command line".to_owned(), text }, spans.0, spans.1)
}

fn both_filters(include: &str, exclude: &str) -> Findings {
    let (source, first, second) = typed(("--include", include), ("--exclude", exclude));
    let problem = Diagnostic::error(
        codes::BOTH_FILTERS,
        second,
        "--include and --exclude are mutually exclusive",
    )
    .related(first, "")
    .help("keep one of the two");
    Findings { source, diagnostics: vec![problem] }
}

fn filter_and_count(filter: (&str, &str), count: (&str, &str)) -> Findings {
    let (source, first, second) = typed(filter, count);
    let message = format!("{} and {} cannot be combined", filter.0, count.0);
    let problem = Diagnostic::error(codes::FILTER_AND_COUNT, second, message)
        .related(first, "")
        .help("a filter already says which hosts and slots take part");
    Findings { source, diagnostics: vec![problem] }
}

fn nothing_left(args: &SelectorArgs) -> Findings {
    let (flag, text) = match (given(&args.include), given(&args.exclude)) {
        (Some(text), _) => ("--include", text),
        (None, Some(text)) => ("--exclude", text),
        (None, None) => ("hosts", ""),
    };
    let problem = Diagnostic::error(
        codes::NOTHING_LEFT,
        Span::new(0, text.len()),
        "the selection leaves nothing to run on",
    )
    .label(if flag == "--exclude" { "excludes every slot of every host" } else { "no slot" })
    .help("leave at least one slot of one host");
    let source = Source { name: flag.to_owned(), text: text.to_owned() };
    Findings { source, diagnostics: vec![problem] }
}

fn parse_first(
    pool: &Pool,
    nodes: Option<&str>,
    slots: Option<&str>,
) -> (Selection, Vec<Findings>) {
    let nodes = nodes.map(|text| parse_nodes(pool, text));
    // Hosts that --num_nodes cuts off need no slots.
    let taken = match &nodes {
        Some(Ok(count)) => count.get(),
        _ => usize::MAX,
    };
    let slots = slots.map(|text| parse_gpus(pool, taken, text));
    let mut findings = Vec::new();
    let mut keep = |count: Option<Result<NonZeroUsize, Findings>>| match count {
        Some(Ok(count)) => Some(count),
        Some(Err(found)) => {
            findings.push(found);
            None
        }
        None => None,
    };
    let selection = Selection::First { nodes: keep(nodes), slots: keep(slots) };
    (selection, findings)
}

/// A count of at least 1; otherwise what is wrong with it.
fn parse_count(text: &str) -> Result<NonZeroUsize, &'static str> {
    if let Some((low, high)) = text.split_once(':')
        && let (Some(low), Some(high)) = (python_int(low), python_int(high))
    {
        return Err(match low <= high {
            true => "MIN:MAX is not supported: the number of nodes is fixed",
            false => "MIN is above MAX",
        });
    }
    let number = python_int(text).ok_or("it is not a whole number")?;
    let number = usize::try_from(number).map_err(|_| "it must be at least 1")?;
    NonZeroUsize::new(number).ok_or("it must be at least 1")
}

fn parse_nodes(pool: &Pool, text: &str) -> Result<NonZeroUsize, Findings> {
    let hosts = pool.nodes().len();
    let bad = |why: String| bad_count(codes::BAD_NUM_NODES, "--num_nodes", text, &why, hosts);
    let count = parse_count(text).map_err(|why| bad(why.to_owned()))?;
    match count.get() <= hosts {
        true => Ok(count),
        false if hosts == 1 => Err(bad("the pool has 1 host".to_owned())),
        false => Err(bad(format!("the pool has {hosts} hosts"))),
    }
}

fn parse_gpus(pool: &Pool, taken: usize, text: &str) -> Result<NonZeroUsize, Findings> {
    let nodes = &pool.nodes()[..taken.min(pool.nodes().len())];
    let least = nodes.iter().map(|(_, slots)| slots.len()).min().unwrap_or(0);
    let bad = |why: String| bad_count(codes::BAD_NUM_GPUS, "--num_gpus", text, &why, least);
    let count = parse_count(text).map_err(|why| bad(why.to_owned()))?;
    let mut short = nodes.iter().filter(|(_, slots)| slots.len() < count.get());
    let Some((host, slots)) = short.next() else {
        return Ok(count);
    };
    let plural = if slots.len() == 1 { "" } else { "s" };
    let first = format!("`{host}` has {} slot{plural}", slots.len());
    Err(bad(match short.count() {
        0 => first,
        others => format!("{first}, and {others} more of {} hosts have too few", nodes.len()),
    }))
}

fn bad_count(code: &'static str, flag: &str, text: &str, why: &str, most: usize) -> Findings {
    let message = format!("{flag} {}: {why}", text.escape_debug());
    let problem = Diagnostic::error(code, Span::new(0, text.len()), message)
        .label("out of range")
        .help(if most <= 1 {
            "write 1, or leave it out".to_owned()
        } else {
            format!("write 1 to {most}")
        });
    Findings {
        source: Source { name: flag.to_owned(), text: text.to_owned() },
        diagnostics: vec![problem],
    }
}
