//! Selection of hosts and slots: `--include`, `--exclude`, `--num_nodes`, `--num_gpus`.

use std::num::NonZeroUsize;

use crate::base::{Diagnostic, Findings, HostName, Slot, Source, Span, python_int};
use crate::pool::codes;
use crate::pool::host_source::HostSource;
use crate::pool::hostfile::hosts::Pool;
use crate::pool::selector::counts::{FlagCounts, parse_counts};
use crate::pool::selector::filter::{Filter, SlotFilter, parse_filter};

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

/// A selection from a pool; made for one pool, it names no host and no slot that the pool lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All hosts and slots.
    All,
    /// The hosts and slots of the filter.
    Include(Filter),
    /// The hosts and slots that are not in the filter.
    Exclude(Filter),
    /// The first hosts, and the first slots of each; `None`: all.
    First {
        /// Number of hosts.
        nodes: Option<NonZeroUsize>,
        /// Number of slots of each host.
        slots: Option<NonZeroUsize>,
    },
}

/// The selected part of a pool; it has at least one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selected {
    /// The selected hosts.
    pub pool: Pool,
    /// Warnings; no errors.
    pub findings: Vec<Findings>,
}

/// Applies the flags to a pool, whose source is named in messages.
pub fn select(
    pool: &Pool,
    source: &HostSource,
    args: &SelectorArgs,
) -> Result<Selected, Vec<Findings>> {
    let (selection, findings) = Selection::parse(pool, source, args)?;
    let selected = selection.apply(pool);
    if selected.nodes().is_empty() {
        return Err(vec![nothing_left(args)]);
    }
    Ok(Selected { pool: selected, findings })
}

impl Selection {
    /// Parses the flags for a pool; a successful result may include warnings.
    pub fn parse(
        pool: &Pool,
        source: &HostSource,
        args: &SelectorArgs,
    ) -> Result<(Self, Vec<Findings>), Vec<Findings>> {
        let flags = Flags::new(args)?;
        let (selection, findings) = match flags {
            Flags::None => (Self::All, Vec::new()),
            Flags::Include(text) => {
                let (filter, findings) = parse_filter((pool, source), "--include", text);
                (Self::Include(filter), vec![findings])
            }
            Flags::Exclude(text) => {
                let (filter, findings) = parse_filter((pool, source), "--exclude", text);
                (Self::Exclude(filter), vec![findings])
            }
            Flags::First { nodes, slots } => {
                let (FlagCounts { nodes, slots }, findings) =
                    parse_counts((pool, source), nodes, slots);
                (Self::First { nodes, slots }, findings)
            }
        };
        if findings.iter().any(Findings::has_errors) {
            return Err(findings);
        }
        Ok((
            selection,
            findings.into_iter().filter(|findings| !findings.diagnostics.is_empty()).collect(),
        ))
    }

    /// The selected part of a pool. Hosts keep their order; a host without selected slots is
    /// removed.
    pub fn apply(&self, pool: &Pool) -> Pool {
        let nodes_with_slots =
            pool.nodes().iter().map(|(host, slots)| (host.clone(), self.slots(host, slots)));
        let users = pool.users().clone();
        match self {
            Self::First { nodes: Some(nodes), .. } => {
                Pool::from_nodes(nodes_with_slots.take(nodes.get()), users)
            }
            _ => Pool::from_nodes(nodes_with_slots, users),
        }
    }

    /// The selected slots of a host. Named slots are in ascending order, all others in the pool's
    /// order.
    fn slots(&self, host: &HostName, slots: &[Slot]) -> Vec<Slot> {
        match self {
            Self::All => slots.to_vec(),
            Self::First { slots: count, .. } => {
                slots.iter().copied().take(count.map_or(usize::MAX, NonZeroUsize::get)).collect()
            }
            Self::Include(filter) => match filter.get(host) {
                None => Vec::new(),
                Some(SlotFilter::All) => slots.to_vec(),
                Some(SlotFilter::Slots(named)) => {
                    named.iter().copied().filter(|slot| slots.contains(slot)).collect()
                }
            },
            Self::Exclude(filter) => match filter.get(host) {
                None => slots.to_vec(),
                Some(SlotFilter::All) => Vec::new(),
                Some(SlotFilter::Slots(named)) => {
                    slots.iter().copied().filter(|slot| !named.contains(slot)).collect()
                }
            },
        }
    }
}

/// The flags that were given, without a conflict between them.
enum Flags<'a> {
    None,
    Include(&'a str),
    Exclude(&'a str),
    First { nodes: Option<&'a str>, slots: Option<&'a str> },
}

impl<'a> Flags<'a> {
    fn new(args: &'a SelectorArgs) -> Result<Self, Vec<Findings>> {
        let (include, exclude) =
            (non_empty(args.include.as_ref()), non_empty(args.exclude.as_ref()));
        let (nodes, slots) =
            (explicit_count(args.num_nodes.as_ref()), explicit_count(args.num_gpus.as_ref()));
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

fn non_empty(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|text| !text.is_empty())
}

/// A count flag, unless it is DeepSpeed's default, which wrappers pass on unchanged.
fn explicit_count(text: Option<&String>) -> Option<&str> {
    non_empty(text).filter(|text| python_int(text) != Some(-1))
}

/// The flags as they were typed, with the positions of their names.
fn command_line(left: (&str, &str), right: (&str, &str)) -> (Source, Span, Span) {
    let first = format!("{} {}", left.0, left.1);
    let text = format!("{first} {} {}", right.0, right.1);
    let right_at = first.len() + 1;
    let spans = (Span::new(0, left.0.len()), Span::new(right_at, right_at + right.0.len()));
    (Source { name: "command line".to_owned(), text }, spans.0, spans.1)
}

fn both_filters(include: &str, exclude: &str) -> Findings {
    let (source, first, second) = command_line(("--include", include), ("--exclude", exclude));
    let problem = Diagnostic::error(
        codes::BOTH_FILTERS,
        second,
        "`--include` and `--exclude` cannot be combined",
    )
    .related(first, "")
    .help("keep one of the two");
    Findings { source, diagnostics: vec![problem] }
}

fn filter_and_count(filter: (&str, &str), count: (&str, &str)) -> Findings {
    let (source, first, second) = command_line(filter, count);
    let message = format!("{} and {} cannot be combined", filter.0, count.0);
    let problem = Diagnostic::error(codes::FILTER_AND_COUNT, second, message)
        .related(first, "")
        .help("a filter already selects hosts and slots: remove one of the two");
    Findings { source, diagnostics: vec![problem] }
}

fn nothing_left(args: &SelectorArgs) -> Findings {
    let (flag, text) = match (non_empty(args.include.as_ref()), non_empty(args.exclude.as_ref())) {
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
