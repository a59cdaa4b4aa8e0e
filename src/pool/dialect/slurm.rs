//! The dialect of Slurm: the output of `env | grep SLURM` in a job, or a node list with its counts,
//! `n[1-4] 2(x3),1`.

use super::shape::is_number;
use super::variables::split_variable;
use crate::base::{Diagnostic, Source, show_typed};
use crate::pool::codes;
use crate::pool::dialect::lines::LIST_BYTES_MAX;
use crate::pool::hostfile::host_line::{HostLine, HostToken};
use crate::pool::hostfile::hosts::{SlotCount, SlotsOption};
use crate::pool::hostfile::line::words;
use crate::pool::hostfile::parse::for_each_line;
use crate::pool::hostfile::reader::{LinePosition, Reader, RepeatedHost};
use crate::pool::hostfile::settings::{CountSyntax, parse_count_of};
use crate::pool::nodeset::NAMES_MAX;
use crate::pool::nodeset::read_list;

/// Variables that name the nodes, in order of preference: a step may have fewer nodes than its job.
const LISTS: [&str; 3] = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"];
/// Variables that hold the number of workers of a node: devices, then tasks.
const COUNTS: [&str; 4] = [
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_ON_NODE",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_TASKS_PER_NODE",
];

/// The form in which nodes and their counts are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Both on one line.
    Line,
    /// Each in its own variable.
    Variables,
}

/// The best variable found of each kind, by its index in the list.
#[derive(Default)]
struct Found<'a> {
    list: Option<(usize, LinePosition, HostToken<'a>)>,
    counts: Option<(usize, HostToken<'a>)>,
}

pub(super) fn parse(source: &Source, reader: &mut Reader) {
    let mut found = Found::default();
    for_each_line(source, LIST_BYTES_MAX, reader, |reader, position, line| {
        // The same text, but with the lifetime of the source.
        let line = &source.text[position.span.start..position.span.start + line.len()];
        if let Some((name, value)) = split_variable(line, position.span.start) {
            found.add(name, value, position);
            return;
        }
        match words(line, position.span.start)[..] {
            [] => {}
            [list] => add_nodes(reader, position, Form::Line, list, None),
            [list, counts] => add_nodes(reader, position, Form::Line, list, Some(counts)),
            [.., last] => reader.add_problem(unexpected(last)),
        }
    });
    if let Some((_, position, list)) = found.list {
        let counts = found.counts.map(|(_, counts)| counts);
        add_nodes(reader, position, Form::Variables, list, counts);
    }
}

impl<'a> Found<'a> {
    fn add(&mut self, name: &str, value: HostToken<'a>, position: LinePosition) {
        if value.text.is_empty() {
            return;
        }
        if let Some(rank) = LISTS.iter().position(|known| *known == name)
            && self.list.is_none_or(|(best, ..)| rank < best)
        {
            self.list = Some((rank, position, value));
        }
        if let Some(rank) = COUNTS.iter().position(|known| *known == name)
            && self.counts.is_none_or(|(best, _)| rank < best)
        {
            self.counts = Some((rank, value));
        }
    }
}

fn add_nodes(
    reader: &mut Reader,
    position: LinePosition,
    form: Form,
    list: HostToken<'_>,
    counts: Option<HostToken<'_>>,
) {
    let patterns = match read_list(list.text, list.span.start) {
        Ok(patterns) => patterns,
        Err(problems) => {
            for problem in problems {
                reader.add_problem(problem.diagnostic());
            }
            return;
        }
    };
    let nodes: u64 = patterns.iter().map(|(pattern, _)| pattern.count()).sum();
    let counts = match counts.map(|counts| read_counts(counts, nodes)) {
        Some(Ok(counts)) => counts,
        Some(Err(problem)) => {
            reader.add_problem(*problem);
            return;
        }
        None => Vec::new(),
    };
    let mut counts = counts.into_iter();
    let mut missing = vec![missing_counts(list, nodes, form, reader.slots_option())];
    for (pattern, span) in &patterns {
        reader.reserve(pattern.count() as usize);
        for host in pattern.hosts() {
            let slots = counts.next();
            let mut line = HostLine { host: Some((host, *span)), slots, ..HostLine::default() };
            if slots.is_none() && reader.default_slots().is_none() {
                line.problems.append(&mut missing);
            }
            line.slots = slots.or(reader.default_slots());
            reader.add_line(position, line, RepeatedHost::Error);
        }
    }
}

/// Parses `2(x3),1` into 2, 2, 2, 1. A single number, also after a type (`a100:8`), applies to
/// every node.
fn read_counts(word: HostToken<'_>, nodes: u64) -> Result<Vec<SlotCount>, Box<Diagnostic>> {
    if let Some(single) = single_count(word) {
        let count = parse_count_of(CountSyntax::Runs, single)?;
        return Ok((0..nodes).map(|_| count).collect());
    }
    let mut counts = Vec::new();
    let mut at = 0;
    for item in word.text.split(',') {
        let item = word.part(at, at + item.len());
        at += item.text.len() + 1;
        let (count, times) = read_item(item)?;
        let count = parse_count_of(CountSyntax::Runs, count)?;
        let counts_left = NAMES_MAX.saturating_sub(counts.len() as u64);
        counts.extend((0..times.min(counts_left)).map(|_| count));
    }
    if counts.len() as u64 == nodes {
        Ok(counts)
    } else {
        Err(counts_differ(word, counts.len(), nodes))
    }
}

fn single_count(word: HostToken<'_>) -> Option<HostToken<'_>> {
    let at = word.text.rfind(':').map_or(0, |at| at + 1);
    let number = word.part(at, word.text.len());
    is_number(number.text).then_some(number)
}

/// Parses one item, `2(x3)`.
fn read_item(item: HostToken<'_>) -> Result<(HostToken<'_>, u64), Box<Diagnostic>> {
    let Some(at) = item.text.find('(') else { return Ok((item, 1)) };
    let times = item.text[at..].strip_prefix("(x").and_then(|rest| rest.strip_suffix(')'));
    match times.filter(|times| is_number(times)).and_then(|times| times.parse().ok()) {
        Some(times) if 0 < times => Ok((item.part(0, at), times)),
        _ => {
            let message = format!("`{}` is not a count", show_typed(item.text));
            Err(Box::new(
                Diagnostic::error(codes::BAD_COUNT, item.span, message)
                    .help("counts are `2(x3),1`: three nodes with 2, one with 1"),
            ))
        }
    }
}

fn counts_differ(word: HostToken<'_>, counts: usize, nodes: u64) -> Box<Diagnostic> {
    let noun = |one: bool| if one { "node" } else { "nodes" };
    let message = format!(
        "the counts are for {counts} {}, and the list has {nodes} {}",
        noun(counts == 1),
        noun(nodes == 1)
    );
    Box::new(
        Diagnostic::error(codes::COUNTS_DIFFER, word.span, message)
            .label("from a different list")
            .help("do not combine `SLURM_STEP_*` and `SLURM_JOB_*` variables"),
    )
}

fn missing_counts(list: HostToken<'_>, nodes: u64, form: Form, option: SlotsOption) -> Diagnostic {
    let counts = if nodes == 1 { "8".to_owned() } else { format!("8(x{nodes})") };
    let (message, label, action) = match form {
        Form::Line => (
            "the numbers of workers of the nodes are missing",
            "expected the numbers after the list",
            "add the numbers",
        ),
        Form::Variables => (
            "`SLURM_TASKS_PER_NODE` is missing: the numbers of workers of the nodes are unknown",
            "these nodes",
            "add a line",
        ),
    };
    let written = match form {
        Form::Line => format!("{} {counts}", list.text),
        Form::Variables => format!("SLURM_TASKS_PER_NODE={counts}"),
    };
    Diagnostic::error(codes::MISSING_SLOTS, list.span, message)
        .label(label)
        .help(format!("{action}: `{written}`, or use `{option} 8` for all nodes"))
}

fn unexpected(word: HostToken<'_>) -> Diagnostic {
    let message = format!("unexpected `{}`", show_typed(word.text));
    Diagnostic::error(codes::UNEXPECTED_TEXT, word.span, message)
        .help("a line is a node list and its counts: `n[1-4] 2(x4)`")
}

/// Formats counts like the values of `SLURM_TASKS_PER_NODE`.
pub(super) fn show_counts(counts: &[u32]) -> String {
    let runs = counts.chunk_by(|left, right| left == right).map(|run| match run {
        [only] => only.to_string(),
        _ => format!("{}(x{})", run[0], run.len()),
    });
    runs.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_written_as_runs() {
        assert_eq!(show_counts(&[2, 2, 2, 1]), "2(x3),1");
        assert_eq!(show_counts(&[1, 2, 2]), "1,2(x2)");
        assert_eq!(show_counts(&[8]), "8");
    }
}
