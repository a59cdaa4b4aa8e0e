//! The dialect of Open MPI and PRRTE: `[user@]host [slots=N] [max_slots=N]`, with blanks around
//! `=`, and `#` and `//` comments; a host without a number has one slot for every line that names
//! it.

use std::collections::HashMap;

use super::hydra::parse_user;
use super::shape::{mixed_dialects, other_dialect};
use crate::base::{Diagnostic, HostName, Severity, Source, Span, nearest, show_typed};
use crate::pool::codes;
use crate::pool::dialect::kind::Dialect;
use crate::pool::dialect::lines::LIST_BYTES_MAX;
use crate::pool::hostfile::host_line::{HostLine, HostToken};
use crate::pool::hostfile::host_word::read_host;
use crate::pool::hostfile::hosts::SlotCount;
use crate::pool::hostfile::line::{check_characters, line_without_comment, words};
use crate::pool::hostfile::parse::for_each_line;
use crate::pool::hostfile::reader::{LinePosition, Reader, RepeatedHost};
use crate::pool::hostfile::settings::{CountSyntax, parse_count, parse_count_of};

/// Hosts on lines without a slot count, each with its number of lines and its first position.
#[derive(Default)]
struct HostsWithoutSlots {
    lines: HashMap<HostName, (usize, Span)>,
}

pub(super) fn parse(source: &Source, reader: &mut Reader) {
    let mut bare = HostsWithoutSlots::default();
    for_each_line(source, LIST_BYTES_MAX, reader, |reader, position, line| {
        let line = &line[..comment_at(line)];
        let words = words(line, position.span.start);
        let Some((&first, rest)) = words.split_first() else { return };
        let content = line_without_comment(line, position.span.start, first);
        check_characters(content, position.span.start, &mut reader.problems);
        match other_dialect(&words, Dialect::OpenMpi) {
            Some(Dialect::Hydra) => reader.add_problem(counted_host(first)),
            Some(other) => reader.add_problem(mixed_dialects(&words, Dialect::OpenMpi, other)),
            None => parse_line(first, rest, &mut bare, reader, position),
        }
    });
    // The number of processors of another machine is not known here.
    let mut single_lines: Vec<Span> =
        bare.lines.values().filter(|(lines, _)| *lines == 1).map(|(_, span)| *span).collect();
    single_lines.sort_unstable();
    if reader.default_slots().is_none() {
        reader.remove_hosts(&single_lines);
        reader.problems.extend(single_lines.into_iter().map(no_slots));
    }
}

/// The byte where a `//` comment begins.
pub(in crate::pool) fn comment_at(line: &str) -> usize {
    let is_word_start = |at: usize| line[..at].chars().next_back().is_none_or(char::is_whitespace);
    line.match_indices("//").map(|(at, _)| at).find(|at| is_word_start(*at)).unwrap_or(line.len())
}

fn parse_line(
    first: HostToken<'_>,
    rest: &[HostToken<'_>],
    bare: &mut HostsWithoutSlots,
    reader: &mut Reader,
    position: LinePosition,
) {
    if let Some(problem) = relative_host(first) {
        reader.add_problem(problem);
        return;
    }
    let mut line = HostLine::default();
    read_host(first, rest, &mut line);
    let mut settings = Settings::default();
    settings.read(rest, &mut line, &mut reader.unused);
    if line.slots.is_some() || settings.slots_intended {
        settings.check_limit(&line).into_iter().for_each(|problem| line.problems.push(problem));
        reader.add_line(position, line, RepeatedHost::Error);
        return;
    }
    if line.problems.is_empty()
        && let Some((name, span)) = line.host.clone()
    {
        bare.lines.entry(name).or_insert((0, span)).0 += 1;
    }
    line.slots = reader.default_slots().or(SlotCount::new(1));
    reader.add_line(position, line, RepeatedHost::AddSlots);
}

#[derive(Default)]
struct Settings {
    slots_at: Option<Span>,
    slots_intended: bool,
    max: Option<(SlotCount, Span)>,
}

impl Settings {
    fn read(
        &mut self,
        words: &[HostToken<'_>],
        out: &mut HostLine,
        unused: &mut std::collections::BTreeMap<&'static str, usize>,
    ) {
        let mut rest = words;
        while let Some((key, value, word_count)) = setting(rest) {
            rest = &rest[word_count..];
            match key.text {
                "slots" | "cpu" | "cpus" | "count" => self.slots(key, value, out),
                "max_slots" | "max-slots" | "cpus_max" | "cpus-max" | "count_max" => {
                    match parse_count_of(CountSyntax::Setting(key.text), value) {
                        Ok(max) => {
                            self.max = Some((max, value.span));
                            out.max_slots = Some(max);
                        }
                        Err(problem) => out.problems.push(*problem),
                    }
                }
                "username" => parse_user(value, out),
                "port" => {
                    *unused.entry("port").or_default() += 1;
                    out.problems.push(unused_port(key, value));
                }
                _ => {
                    self.slots_intended |= nearest(key.text, ["slots"]).is_some();
                    out.problems.push(unknown_key(key));
                }
            }
        }
        if let Some(word) = rest.first() {
            let message = format!("unexpected `{}`", show_typed(word.text));
            let problem = Diagnostic::error(codes::UNEXPECTED_TEXT, word.span, message)
                .label("expected `key=value`")
                .help("a line is a host name, `slots=N` and `max_slots=N`");
            out.problems.push(problem);
        }
    }

    fn slots(&mut self, key: HostToken<'_>, value: HostToken<'_>, out: &mut HostLine) {
        self.slots_intended = true;
        if let Some(first) = self.slots_at.replace(key.span) {
            out.problems.push(
                Diagnostic::error(codes::SLOTS_TWICE, key.span, "`slots` given twice")
                    .label("given again here")
                    .related(first, "first given here")
                    .help("keep one of the two"),
            );
            return;
        }
        match parse_count(value) {
            Ok(count) => out.slots = Some(count),
            Err(problem) => out.problems.push(*problem),
        }
    }

    fn check_limit(&self, line: &HostLine) -> Option<Diagnostic> {
        let (slots, (max, span)) = (line.slots?, self.max?);
        (max < slots).then(|| max_below_slots(span, max, slots))
    }
}

/// The warning about a limit that is below the slots.
fn max_below_slots(span: Span, max: SlotCount, slots: SlotCount) -> Diagnostic {
    let message = format!("`max_slots` is {}, below the {} slots", max.get(), slots.get());
    Diagnostic::warning(codes::MAX_BELOW_SLOTS, span, message)
        .label("the slots are used")
        .help("correct one of the two; Open MPI 5 can hang on such a host")
}

/// Reads `key=value`, with or without blanks around the sign; returns the number of words too.
fn setting<'a>(words: &[HostToken<'a>]) -> Option<(HostToken<'a>, HostToken<'a>, usize)> {
    let first = *words.first()?;
    if let Some(at) = first.text.find('=').filter(|at| 0 < *at) {
        let (key, value) = (first.part(0, at), first.part(at + 1, first.text.len()));
        return match words.get(1) {
            Some(next) if value.text.is_empty() && !next.text.contains('=') => {
                Some((key, *next, 2))
            }
            _ => Some((key, value, 1)),
        };
    }
    match words {
        [key, sign, value, ..] if sign.text == "=" => Some((*key, *value, 3)),
        [key, value, ..] if value.text.len() > 1 && value.text.starts_with('=') => {
            Some((*key, value.part(1, value.text.len()), 2))
        }
        _ => None,
    }
}

fn unknown_key(key: HostToken<'_>) -> Diagnostic {
    let message = format!("unknown key `{}`", show_typed(key.text));
    let problem =
        Diagnostic::error(codes::UNKNOWN_KEY, key.span, message).label("not a setting of Open MPI");
    match nearest(key.text, ["slots", "max_slots"]) {
        Some(known) => problem.help(format!("did you mean `{known}`?")).suggest(key.span, known),
        None => problem.help("Open MPI supports `slots=N` and `max_slots=N`"),
    }
}

fn unused_port(key: HostToken<'_>, value: HostToken<'_>) -> Diagnostic {
    let whole = Span::new(key.span.start, value.span.end);
    Diagnostic::error(codes::UNUSED_SETTING, whole, "`port` is ignored in a hostfile")
        .severity(Severity::Warning)
        .label("has no effect")
        .help("set the port with --ssh_port, or in ~/.ssh/config (`Port`)")
}

/// The error for relative names and exclusions: they filter an allocation and are not hosts.
fn relative_host(first: HostToken<'_>) -> Option<Diagnostic> {
    let (message, help) = if first.text.starts_with('^') {
        ("`^` excludes a host of an allocation", "remove the line, or use --exclude")
    } else if first.text.starts_with('+') {
        ("a relative host refers to an allocation", "write the name of the host")
    } else {
        return None;
    };
    let shown = show_typed(first.text);
    Some(
        Diagnostic::error(codes::UNUSED_SETTING, first.span, format!("`{shown}`: {message}"))
            .label("not a host name")
            .help(help),
    )
}

fn counted_host(first: HostToken<'_>) -> Diagnostic {
    let at = first.text.rfind(':').unwrap_or(0);
    let (tail, number) = (first.part(at, first.text.len()), &first.text[at + 1..]);
    let message = format!("`{}` is MPICH syntax in an Open MPI hostfile", first.text);
    Diagnostic::error(codes::MIXED_DIALECTS, tail.span, message)
        .label("expected ` slots=N`")
        .help("write the number as a slot count")
        .suggest(tail.span, format!(" slots={number}"))
}

fn no_slots(span: Span) -> Diagnostic {
    Diagnostic::error(codes::MISSING_SLOTS, span, "`slots=` is missing")
        .label("expected `slots=N` after the host name")
        .help("Open MPI uses the number of cores, which is not known here: add `slots=N`")
}
