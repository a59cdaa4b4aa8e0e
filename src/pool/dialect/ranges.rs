//! The dialect of host ranges as in pdsh and ClusterShell, with slots: `n[01-16]:8,login:1`, or
//! `slots=8` for the whole line.

use crate::base::{Diagnostic, Span, show_typed};
use crate::pool::codes;
use crate::pool::host_word::read_host;
use crate::pool::hosts::SlotCount;
use crate::pool::line::{HostLine, HostToken};
use crate::pool::nodeset::{Pattern, is_pattern, read_pattern};
use crate::pool::reader::{LinePosition, Reader, RepeatedHost};
use crate::pool::settings::{missing_slots, parse_count};

use super::horovod::missing_count;
use super::hydra::split_count;

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
    let (lists, settings): (Vec<_>, Vec<_>) =
        words.iter().partition(|word| !word.text.contains('='));
    let mut slots = None;
    for setting in settings {
        match parse_line_slots(setting) {
            Ok(count) => slots = Some(count),
            Err(problem) => {
                reader.add_problem(*problem);
                return;
            }
        }
    }
    for list in lists {
        for item in split_items(list) {
            add_item(reader, position, item, (slots, style));
        }
    }
}

/// Reads `slots=8`, which applies to all hosts of the line.
fn parse_line_slots(word: HostToken<'_>) -> Result<SlotCount, Box<Diagnostic>> {
    let at = word.text.find('=').unwrap_or(0);
    if &word.text[..at] == "slots" {
        return parse_count(word.part(at + 1, word.text.len()));
    }
    let message = format!("unknown key `{}`", show_typed(&word.text[..at]));
    let span = word.part(0, at).span;
    Err(Box::new(
        Diagnostic::error(codes::UNKNOWN_KEY, span, message)
            .label("expected `slots=N`")
            .help("a line is hosts and their slots: `n[1-4] slots=8`"),
    ))
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
    (line_slots, style): (Option<SlotCount>, SlotsStyle),
) {
    let (hosts, count) = split_count(item);
    let mut line = HostLine::default();
    match (count.map(parse_count), line_slots) {
        (Some(Ok(count)), _) | (None, Some(count)) => line.slots = Some(count),
        (Some(Err(problem)), _) => line.problems.push(*problem),
        (None, None) if style == SlotsStyle::Setting => line.problems.push(missing_slots(hosts)),
        (None, None) => line.problems.push(missing_count(hosts)),
    }
    if !is_pattern(hosts.text) && !hosts.text.is_empty() {
        read_host(hosts, &[], &mut line);
        reader.add_line(position, line, RepeatedHost::Error);
        return;
    }
    match read_pattern(hosts.text, hosts.span.start) {
        Ok(pattern) => add_pattern(reader, position, &pattern, hosts.span, &line),
        Err(problem) => reader.add_problem(problem.diagnostic()),
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
