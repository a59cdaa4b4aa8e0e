//! Parser of `--num_nodes` and `--num_gpus`.

use std::num::NonZeroUsize;

use crate::base::{Diagnostic, Findings, Source, Span, show_typed};
use crate::pool::codes;
use crate::pool::host_source::HostSource;
use crate::pool::hostfile::hosts::{Pool, SLOTS_MAX};
use crate::pool::selector::filter_text::python_int;

/// What `--num_gpus` counts.
const WORKERS: &str = "workers per host";

/// The values of the two flags; `None`: not given, or invalid.
pub(crate) struct FlagCounts {
    pub(crate) nodes: Option<NonZeroUsize>,
    pub(crate) slots: Option<NonZeroUsize>,
}

/// Parses the two flags; the problems of both are in the findings.
pub(crate) fn parse_counts(
    (pool, source): (&Pool, &HostSource),
    nodes: Option<&str>,
    slots: Option<&str>,
) -> (FlagCounts, Vec<Findings>) {
    let nodes = nodes.map(|text| parse_nodes(pool, source, text));
    // Hosts beyond --num_nodes need no slots.
    let node_count = match &nodes {
        Some(Ok(count)) => count.get(),
        _ => usize::MAX,
    };
    let slots = slots.map(|text| parse_gpus(pool, node_count, text));
    let mut findings = Vec::new();
    let mut take = |count: Option<Result<NonZeroUsize, Findings>>| match count {
        Some(Ok(count)) => Some(count),
        Some(Err(found)) => {
            findings.push(found);
            None
        }
        None => None,
    };
    (FlagCounts { nodes: take(nodes), slots: take(slots) }, findings)
}

/// Parses a count of at least 1; the error describes the problem. `what` is counted.
fn parse_count(text: &str, what: &str) -> Result<NonZeroUsize, String> {
    if let Some((low, high)) = text.split_once(':')
        && let (Some(low), Some(high)) = (python_int(low), python_int(high))
    {
        return Err(if low <= high {
            format!("MIN:MAX is not supported: the number of {what} is fixed")
        } else {
            "MIN is above MAX".to_owned()
        });
    }
    let number = python_int(text).ok_or("not a whole number")?;
    let number = usize::try_from(number).ok().and_then(NonZeroUsize::new);
    number.ok_or_else(|| "must be at least 1".to_owned())
}

fn parse_nodes(pool: &Pool, source: &HostSource, text: &str) -> Result<NonZeroUsize, Findings> {
    let hosts = pool.nodes().len();
    let bad =
        |why: String| bad_count(codes::BAD_NUM_NODES, "--num_nodes", text, &why, range_help(hosts));
    let count = parse_count(text, "nodes").map_err(bad)?;
    match count.get() <= hosts {
        true => Ok(count),
        false if hosts == 1 => Err(bad(source.show_content("1 host"))),
        false => Err(bad(source.show_content(&format!("{hosts} hosts")))),
    }
}

fn parse_gpus(pool: &Pool, node_count: usize, text: &str) -> Result<NonZeroUsize, Findings> {
    let nodes = &pool.nodes()[..node_count.min(pool.nodes().len())];
    let fewest = nodes.iter().min_by_key(|(_, slots)| slots.len());
    let slots_min = fewest.map_or(0, |(_, slots)| slots.len());
    let bad = |why: String| {
        // The range is that of a host which the message may not name.
        let differs = nodes.iter().any(|(_, slots)| slots.len() != slots_min);
        let unnamed = fewest.filter(|_| differs);
        let unnamed = unnamed.filter(|(host, _)| !why.contains(&format!("`{host}`")));
        let of_host = unnamed.map_or_else(String::new, |(host, slots)| {
            format!("; `{host}` has {}", show_slots(slots.len()))
        });
        bad_count(codes::BAD_NUM_GPUS, "--num_gpus", text, &why, range_help(slots_min) + &of_host)
    };
    let count = parse_count(text, WORKERS).map_err(bad)?;
    let mut too_small = nodes.iter().filter(|(_, slots)| slots.len() < count.get());
    let Some((host, slots)) = too_small.next() else {
        return Ok(count);
    };
    let first = format!("`{host}` has {}", show_slots(slots.len()));
    Err(bad(match too_small.count() {
        0 => first,
        others => format!("{first}, and {others} more of {} hosts have too few", nodes.len()),
    }))
}

/// The value of `--num_gpus` where it sets the number of slots and does not select among existing
/// ones; `None` for texts that set no number.
pub fn parse_slot_count(text: &str) -> Result<Option<usize>, Findings> {
    if text.is_empty() || python_int(text) == Some(-1) {
        return Ok(None);
    }
    let max = SLOTS_MAX as usize;
    let bad =
        |why: &str, help: String| bad_count(codes::BAD_NUM_GPUS, "--num_gpus", text, why, help);
    let count = parse_count(text, WORKERS);
    let count = count.map_err(|why| bad(&why, "write 1 or more".to_owned()))?.get();
    if max < count {
        return Err(bad(&format!("above the limit of {max}"), format!("write {max} at most")));
    }
    Ok(Some(count))
}

fn show_slots(count: usize) -> String {
    if count == 1 { "1 slot".to_owned() } else { format!("{count} slots") }
}

fn range_help(max: usize) -> String {
    if max <= 1 {
        "write 1, or leave out the option".to_owned()
    } else {
        format!("write 1 to {max}")
    }
}

fn bad_count(code: &'static str, flag: &str, text: &str, why: &str, help: String) -> Findings {
    let message = format!("{flag} {}: {why}", show_typed(text));
    let problem =
        Diagnostic::error(code, Span::new(0, text.len()), message).label("out of range").help(help);
    Findings {
        source: Source { name: flag.to_owned(), text: text.to_owned() },
        diagnostics: vec![problem],
    }
}
