//! The dialect of host ranges as in pdsh and ClusterShell, with slots: `n[01-16]:8,login:1`, or
//! `slots=8` for the whole line.

use super::horovod::missing_count;
use super::hydra::split_count;
use super::shape::is_number;
use crate::base::order;
use crate::base::{Diagnostic, Span};
use crate::pool::codes;
use crate::pool::hostfile::host_line::{HostLine, HostToken};
use crate::pool::hostfile::host_word::{host_missing, host_port, read_host};
use crate::pool::hostfile::hosts::SlotsOption;
use crate::pool::hostfile::reader::{LinePosition, Reader, RepeatedHost};
use crate::pool::hostfile::settings::{
    CountSyntax, HostSettings, is_slots_word, missing_slots, parse_count_of,
};
use crate::pool::nodeset::{Pattern, is_pattern, read_pattern};

/// How most lines of the file write slots, for the help of lines without slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotsStyle {
    /// `n1:4`.
    Colon,
    /// `n1 slots=4`.
    Setting,
}

impl SlotsStyle {
    pub(super) fn of(has_setting: bool) -> Self {
        if has_setting { Self::Setting } else { Self::Colon }
    }
}

pub(super) fn parse_line(
    reader: &mut Reader,
    position: LinePosition,
    words: &[HostToken<'_>],
    style: SlotsStyle,
) {
    let lists = words.iter().take_while(|word| !is_setting(**word)).count();
    let (lists, settings) = words.split_at(lists);
    let mut rest = LineRest::default();
    match (lists.first(), settings.first()) {
        (None, Some(setting)) => return reader.add_problem(host_missing(*setting)),
        (Some(first), Some(_)) => rest = LineRest::read(*first, settings, reader.slots_option()),
        (_, None) => {}
    }
    for list in lists {
        for item in split_items(*list) {
            add_item(reader, position, item, (&mut rest, style));
        }
    }
}

/// Whether a word begins the settings of the line.
fn is_setting(word: HostToken<'_>) -> bool {
    word.text.contains('=') || is_slots_word(word)
}

/// The settings of a line, which apply to all of its hosts.
#[derive(Default)]
struct LineRest {
    /// The settings, if the line has any; their problems are reported for the first host only.
    settings: Option<HostLine>,
}

impl LineRest {
    /// Reads the words after the lists like those of a line without ranges.
    fn read(first: HostToken<'_>, words: &[HostToken<'_>], option: SlotsOption) -> Self {
        let mut line = HostLine::default();
        HostSettings::new(option).read(first, words, &mut line);
        Self { settings: Some(line) }
    }
}

/// Splits a list at the commas outside brackets.
fn split_items(list: HostToken<'_>) -> Vec<HostToken<'_>> {
    let mut found = Vec::new();
    let (mut from, mut is_inside) = (0, false);
    for (at, byte) in list.text.bytes().enumerate() {
        match byte {
            b'[' => is_inside = true,
            b']' => is_inside = false,
            b',' if !is_inside => {
                found.push(list.part(from, at));
                from = at + 1;
            }
            _ => {}
        }
    }
    found.push(list.part(from, list.text.len()));
    found
}

fn add_item(
    reader: &mut Reader,
    position: LinePosition,
    item: HostToken<'_>,
    (rest, style): (&mut LineRest, SlotsStyle),
) {
    let mut line = HostLine::default();
    let hosts = match &mut rest.settings {
        Some(settings) => {
            line.slots = settings.slots;
            line.problems = std::mem::take(&mut settings.problems);
            line_host(item, &mut line)
        }
        None => counted_host(item, style, reader.slots_option(), &mut line),
    };
    if !is_pattern(hosts.text) && !hosts.text.is_empty() {
        read_host(hosts, &[], &mut line);
        order::sort_by_key(&mut line.problems, |problem| problem.span);
        reader.add_line(position, line, RepeatedHost::Error);
        return;
    }
    match read_pattern(hosts.text, hosts.span.start) {
        Ok(pattern) => add_pattern(reader, position, &pattern, hosts.span, &line),
        Err(problem) => {
            reader.add_problem(problem.diagnostic());
            let is_other = |problem: &Diagnostic| problem.code != codes::MISSING_SLOTS;
            let others = line.problems.into_iter().filter(is_other);
            others.for_each(|problem| reader.add_problem(problem));
        }
    }
}

/// The hosts of `n[1-4]:8`, whose count is stored; a missing or invalid count is a problem.
fn counted_host<'a>(
    item: HostToken<'a>,
    style: SlotsStyle,
    option: SlotsOption,
    line: &mut HostLine,
) -> HostToken<'a> {
    let (hosts, count) = split_count(item);
    match count.map(|count| parse_count_of(CountSyntax::Colon, count)) {
        Some(Ok(count)) => line.slots = Some(count),
        Some(Err(problem)) => line.problems.push(*problem),
        None if style == SlotsStyle::Setting => line.problems.push(missing_slots(hosts, option)),
        None => line.problems.push(missing_count(hosts, option)),
    }
    hosts
}

/// The hosts of a line with settings: a number after `:` is a port there, as in lines without
/// ranges.
fn line_host<'a>(item: HostToken<'a>, line: &mut HostLine) -> HostToken<'a> {
    match split_count(item) {
        (hosts, Some(count)) if is_number(count.text) => {
            line.problems.push(host_port(item, item.part(hosts.text.len(), item.text.len())));
            hosts
        }
        _ => item,
    }
}

/// Adds every name of a pattern; the problems of the line are reported for the first name.
fn add_pattern(
    reader: &mut Reader,
    position: LinePosition,
    pattern: &Pattern,
    span: Span,
    line: &HostLine,
) {
    let mut problems = line.problems.clone();
    reader.reserve(pattern.count() as usize);
    for host in pattern.hosts() {
        let line = HostLine {
            host: Some((host, span)),
            slots: line.slots,
            problems: std::mem::take(&mut problems),
            ..HostLine::default()
        };
        reader.add_line(position, line, RepeatedHost::Error);
        if reader.is_full() {
            break;
        }
    }
}
