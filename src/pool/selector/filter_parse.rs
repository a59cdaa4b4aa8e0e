//! Parser of `--include` and `--exclude`: `HOST[:SLOT[,SLOT…]][@HOST…]`, with DeepSpeed's rules.

use std::net::Ipv6Addr;

use crate::base::{Diagnostic, HostName, Span, python_int, show_typed};
use crate::pool::codes;

/// One host of a selector, not yet looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spec<'a> {
    /// The host, untrimmed as in DeepSpeed.
    pub(crate) host: &'a str,
    /// Its position.
    pub(crate) host_span: Span,
    /// The named slots; `None`: the whole host.
    pub(crate) slots: Option<Vec<(i64, Span)>>,
}

/// Parses a selector; every invalid part is one diagnostic.
pub(crate) fn parse_selector(text: &str) -> (Vec<Spec<'_>>, Vec<Diagnostic>) {
    let mut specs = Vec::new();
    let mut problems = Vec::new();
    let mut start = 0;
    for part in text.split('@') {
        specs.extend(parse_spec(part, start, &mut problems));
        start += part.len() + 1;
    }
    (specs, problems)
}

fn parse_spec<'a>(part: &'a str, start: usize, problems: &mut Vec<Diagnostic>) -> Option<Spec<'a>> {
    let host_end = host_end(part);
    let host = &part[..host_end];
    let host_span = Span::new(start, start + host_end);
    if host.is_empty() {
        problems.push(empty_host(start));
        return None;
    }
    let Some(list) = part[host_end..].strip_prefix(':') else {
        return Some(Spec { host, host_span, slots: None });
    };
    let list_start = start + host_end + 1;
    if let Some(at) = list.find(':') {
        problems.push(second_colon(part, start, list_start + at));
        return None;
    }
    if list.is_empty() {
        problems.push(empty_list(host, Span::new(list_start - 1, list_start)));
        return None;
    }
    let slots = parse_slots(list, list_start, problems)?;
    Some(Spec { host, host_span, slots: Some(slots) })
}

/// The byte where the host ends: the first colon outside brackets.
fn host_end(part: &str) -> usize {
    let after = match part.find(']') {
        Some(end) if part.starts_with('[') => end,
        _ => 0,
    };
    part[after..].find(':').map_or(part.len(), |colon| after + colon)
}

fn parse_slots(
    list: &str,
    start: usize,
    problems: &mut Vec<Diagnostic>,
) -> Option<Vec<(i64, Span)>> {
    let before = problems.len();
    let mut slots = Vec::new();
    let mut at = start;
    for item in list.split(',') {
        let span = Span::new(at, at + item.len());
        match python_int(item) {
            Some(slot) => slots.push((slot, span)),
            None => problems.push(bad_slot(item, span)),
        }
        at += item.len() + 1;
    }
    (problems.len() == before).then_some(slots)
}

fn empty_host(at: usize) -> Diagnostic {
    Diagnostic::error(
        codes::EMPTY_HOST,
        Span::new(at, at),
        format!("empty host at column {}", at + 1),
    )
    .label("expected a host name")
    .help("`@` separates two hosts: `worker-0@worker-1:0,2`")
}

fn empty_list(host: &str, colon: Span) -> Diagnostic {
    Diagnostic::error(codes::BAD_SLOT, colon, "empty slot list after `:`")
        .label("expected slot numbers")
        .help(format!("to select all slots, write `{}`", show_typed(host)))
        .suggest(colon, "")
}

fn second_colon(part: &str, start: usize, at: usize) -> Diagnostic {
    let whole = Span::new(start, start + part.len());
    if let Some(separated) = separate_hosts(part) {
        return Diagnostic::error(codes::SECOND_COLON, Span::new(at, at + 1), "second `:`")
            .label("a second host")
            .help(format!("hosts are separated by `@`: `{separated}`"))
            .suggest(whole, separated);
    }
    let problem = Diagnostic::error(codes::SECOND_COLON, Span::new(at, at + 1), "second `:`")
        .label("at most one colon");
    let (address, slots) = match part.rsplit_once(':') {
        _ if part.parse::<Ipv6Addr>().is_ok() => (part, None),
        Some((address, slots)) if address.parse::<Ipv6Addr>().is_ok() => (address, Some(slots)),
        _ => return problem.help("a host has one list of slots: `worker-0:0,1`"),
    };
    // `fe80::1:0` can be an address, or an address with a slot; the suggestion must not choose.
    match slots {
        Some(slots) => problem
            .help(format!("write IPv6 as `[{address}]:{slots}`"))
            .suggest(whole, format!("[{address}]:{slots}")),
        None => problem
            .help(format!("write IPv6 in brackets: `[{address}]`, or `[ADDRESS]:0,1` with slots")),
    }
}

/// The hosts of `h1:0,1;h2:0` with `@` between them, if the result is a valid selector.
fn separate_hosts(part: &str) -> Option<String> {
    let mut out = String::with_capacity(part.len());
    for item in part.split([',', ';', ' ']).filter(|item| !item.is_empty()) {
        let separator = if python_int(item).is_some() { "," } else { "@" };
        out += if out.is_empty() { "" } else { separator };
        out += item;
    }
    if out.split('@').any(|spec| 1 < spec.matches(':').count()) {
        return None;
    }
    let (specs, problems) = parse_selector(&out);
    let are_hosts = specs.iter().all(|spec| HostName::parse(spec.host).is_ok());
    (1 < specs.len() && are_hosts && problems.is_empty()).then_some(out)
}

fn bad_slot(item: &str, span: Span) -> Diagnostic {
    let message = match item {
        "" => "a slot number is missing beside a comma".to_owned(),
        item => format!("`{}` is not a slot number", show_typed(item)),
    };
    let problem = Diagnostic::error(codes::BAD_SLOT, span, message);
    match range(item) {
        Some(numbers) => problem
            .label("ranges are not supported")
            .help(format!("write `{numbers}`"))
            .suggest(span, numbers),
        None => problem
            .label("expected a number")
            .help("slots are numbers separated by commas: `worker-0:0,2`"),
    }
}

/// Expands `0-3` → `0,1,2,3`, if the result is short enough.
fn range(item: &str) -> Option<String> {
    const WRITTEN_MAX: u32 = 64;
    let (low, high) = item.split_once('-')?;
    let (low, high) = (low.trim().parse::<u32>().ok()?, high.trim().parse::<u32>().ok()?);
    let length = high.checked_sub(low)?;
    (length < WRITTEN_MAX)
        .then(|| (low..=high).map(|slot| slot.to_string()).collect::<Vec<_>>().join(","))
}
