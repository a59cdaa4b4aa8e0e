//! Parser of `--num_nodes` and `--num_gpus`.

use std::num::NonZeroUsize;

use crate::base::{Diagnostic, Findings, Source, Span, python_int, show_typed};
use crate::pool::codes;
use crate::pool::host_source::HostSource;
use crate::pool::hostfile::hosts::{Pool, SLOTS_MAX};

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
    let slots = slots.map(|text| parse_gpus((pool, source), node_count, text));
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

/// Parses a count of at least 1; the error describes the problem.
fn parse_count(text: &str) -> Result<NonZeroUsize, String> {
    if let Some((low, high)) = parse_range(text) {
        return Err(if low <= high {
            "MIN:MAX is not supported: the number of workers per host is fixed".to_owned()
        } else {
            "MIN is above MAX".to_owned()
        });
    }
    let number = python_int(text).ok_or("not a whole number")?;
    let number = usize::try_from(number).ok().and_then(NonZeroUsize::new);
    number.ok_or_else(|| "must be at least 1".to_owned())
}

/// Parses `MIN:MAX`, in any order.
fn parse_range(text: &str) -> Option<(i64, i64)> {
    let (low, high) = text.split_once(':')?;
    Some((python_int(low)?, python_int(high)?))
}

fn parse_nodes(pool: &Pool, source: &HostSource, text: &str) -> Result<NonZeroUsize, Findings> {
    let hosts = pool.nodes().len();
    if let Some(range) = parse_range(text).filter(|(low, high)| low <= high) {
        return Err(range_of_nodes(range, hosts, text));
    }
    let help = match source {
        HostSource::ThisMachine => "name the hosts: `-H FILE` or `-H n1:8,n2:8`".to_owned(),
        HostSource::Hostfile(_) | HostSource::Named(_) | HostSource::Allocation(_) => {
            range_help(hosts)
        }
    };
    let bad =
        |why: String| bad_count(codes::BAD_NUM_NODES, "--num_nodes", text, &why, help.clone());
    let count = parse_count(text).map_err(bad)?;
    match count.get() <= hosts {
        true => Ok(count),
        false if hosts == 1 => Err(bad(source.show_content("1 host"))),
        false => Err(bad(source.show_content(&format!("{hosts} hosts")))),
    }
}

fn parse_gpus(
    (pool, source): (&Pool, &HostSource),
    node_count: usize,
    text: &str,
) -> Result<NonZeroUsize, Findings> {
    let nodes = &pool.nodes()[..node_count.min(pool.nodes().len())];
    let fewest = nodes.iter().min_by_key(|(_, slots)| slots.len());
    let slots_min = fewest.map_or(0, |(_, slots)| slots.len());
    let bad = |why: String| {
        // The range is that of a host which the message may not name.
        let differs = nodes.iter().any(|(_, slots)| slots.len() != slots_min);
        let unnamed = fewest.filter(|_| differs);
        let unnamed = unnamed.filter(|(host, _)| !why.contains(&format!("`{host}`")));
        let of_host = unnamed.map_or_else(String::new, |(host, slots)| {
            format!(": `{host}` has only {}", show_slots(slots.len()))
        });
        let help = match (source, parse_count(text)) {
            (HostSource::Allocation(_), Ok(count)) => format!(
                "the slots are the GPUs of a node, or its tasks: allocate more (`--ntasks-per-node {count}`), or type \
                 `--slots {count}` if the nodes have no GPUs"
            ),
            _ => range_help(slots_min) + &of_host,
        };
        bad_count(codes::BAD_NUM_GPUS, "--num_gpus", text, &why, help)
    };
    let count = parse_count(text).map_err(bad)?;
    let mut too_small = nodes.iter().filter(|(_, slots)| slots.len() < count.get());
    let Some((host, slots)) = too_small.next() else {
        return Ok(count);
    };
    Err(bad(match too_small.count() {
        0 => format!("`{host}` has {}", show_slots(slots.len())),
        others => format!(
            "{} of {} hosts have too few slots; the first is `{host}` with {}",
            others + 1,
            nodes.len(),
            slots.len()
        ),
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
    let count = parse_count(text);
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

/// Returns the error for `--num_nodes MIN:MAX`; its help has the two numbers, as far as there are hosts.
fn range_of_nodes((low, high): (i64, i64), hosts: usize, text: &str) -> Findings {
    let high = high.min(i64::try_from(hosts).unwrap_or(i64::MAX));
    let help = if 1 <= low && low < high {
        format!(
            "write `--num_nodes {high}`; for a job that continues with at least {}, add `--min_nodes {low}`",
            if low == 1 { "1 host".to_owned() } else { format!("{low} hosts") }
        )
    } else {
        range_help(hosts)
    };
    let message = "--num_nodes takes one number, not MIN:MAX".to_owned();
    let problem = problem(codes::BAD_NUM_NODES, text, message).label("expected one number");
    findings("--num_nodes", text, problem.help(help))
}

fn bad_count(code: &'static str, flag: &str, text: &str, why: &str, help: String) -> Findings {
    let message = format!("{flag} {}: {why}", show_typed(text));
    let problem = problem(code, text, message).label("out of range").help(help);
    findings(flag, text, problem)
}

fn problem(code: &'static str, text: &str, message: String) -> Diagnostic {
    Diagnostic::error(code, Span::new(0, text.len()), message)
}

fn findings(flag: &str, text: &str, problem: Diagnostic) -> Findings {
    Findings {
        source: Source { name: flag.to_owned(), text: text.to_owned() },
        diagnostics: vec![problem],
    }
}
