//! Lints of a valid hostfile, reported by `hostfile check` alone.
//!
//! A launch does not run them, and no lint prevents a job from running.

use std::borrow::Cow;
use std::collections::HashMap;
use std::net::Ipv4Addr;

use crate::base::shell::quoted;
use crate::base::{Diagnostic, HostName, Severity};
use crate::pool::codes;
use crate::pool::dialect::{Dialect, Reading, with_article};
use crate::pool::hostfile::hosts::Host;

/// Warnings and notes about the hosts that can be used. Errors in other lines hide none of them.
pub fn lint(reading: &Reading) -> Vec<Diagnostic> {
    let hosts = reading.hostfile.hosts();
    let mut found: Vec<Diagnostic> = other_dialect(reading).into_iter().collect();
    found.extend(short_and_long(hosts));
    found.extend(loopback_among_others(hosts));
    found.extend(unequal_slots(hosts));
    found.extend(hosts.iter().filter_map(invalid_address));
    found.extend(hosts.iter().filter_map(underscore));
    found.extend(out_of_order(hosts));
    found
}

/// The note for a hostfile that DeepSpeed cannot read, reported even when the caller named the
/// dialect.
fn other_dialect(reading: &Reading) -> Option<Diagnostic> {
    let dialect = reading.dialect;
    let first = reading.hostfile.hosts().first()?.span;
    let span = reading.evidence.unwrap_or(first);
    let message = format!("this is {}", with_article(dialect));
    // A word that is an error in this dialect is no evidence for it.
    let is_wrong = |problem: &Diagnostic| {
        problem.severity == Severity::Error
            && problem.span.is_some_and(|at| span.start <= at.start && at.end <= span.end)
    };
    let is_doubtful = reading.findings.diagnostics.iter().any(is_wrong);
    // Without evidence, the file is only read like this because the caller named the dialect.
    let from = match reading.evidence {
        Some(_) => String::new(),
        None => format!("--from {} ", dialect.name()),
    };
    let file = quoted(&reading.findings.source.name);
    (dialect != Dialect::DeepSpeed && !is_doubtful).then(|| {
        Diagnostic::error(codes::DIALECT, span, message)
            .severity(Severity::Note)
            .label("not DeepSpeed's dialect")
            .help(format!(
                "remuda reads this format; to convert it, type `remuda hostfile convert {from}--to deepspeed \
                 {file}`"
            ))
    })
}

/// Hosts such as `node1` and `node1.cluster`, which are one machine if the resolver's search list
/// makes them so.
fn short_and_long(hosts: &[Host]) -> Vec<Diagnostic> {
    let is_address = |host: &&Host| host.name.as_str().parse::<Ipv4Addr>().is_ok();
    let long = hosts.iter().filter(|host| has_dot(&host.name) && !is_address(host));
    let long: Vec<&Host> = long.collect();
    if long.is_empty() {
        return Vec::new();
    }
    let short = hosts.iter().filter(|host| !has_dot(&host.name));
    let short: HashMap<Cow<'_, str>, &Host> =
        short.map(|host| (host.name.canonical(), host)).collect();
    let pairs = long.into_iter().filter_map(|long| {
        let canonical = long.name.canonical();
        let other = short.get(canonical.split('.').next()?)?;
        let (first, second) = if other.line < long.line { (*other, long) } else { (long, *other) };
        let message = format!("`{}` and `{}` may be the same machine", first.name, second.name);
        Some(
            Diagnostic::warning(codes::SHORT_AND_LONG, second.span, message)
                .label("one is the short form of the other")
                .related(first.span, "listed here")
                .help("list each machine once, with one of its names"),
        )
    });
    pairs.collect()
}

/// Whether a name has a dot, as names with a domain and addresses have.
fn has_dot(name: &HostName) -> bool {
    let name = name.as_str().as_bytes();
    name.strip_suffix(b".").unwrap_or(name).contains(&b'.')
}

/// The lint for `localhost` among other hosts: on every other host, `localhost` means that host
/// itself.
fn loopback_among_others(hosts: &[Host]) -> Option<Diagnostic> {
    let is_loopback = |host: &&Host| match host.name.as_str() {
        "localhost" | "localhost.localdomain" | "[::1]" => true,
        name => name.starts_with("127.") && name.parse::<Ipv4Addr>().is_ok(),
    };
    let loopback = hosts.iter().find(is_loopback)?;
    let other = hosts.iter().find(|host| !is_loopback(host))?;
    let message = format!("`{}` is listed with other hosts", loopback.name);
    Some(
        Diagnostic::warning(codes::LOOPBACK_AMONG_OTHERS, loopback.span, message)
            .label("other hosts would resolve it to themselves")
            .related(other.span, "another host")
            .help("use a name that the other hosts can resolve"),
    )
}

fn unequal_slots(hosts: &[Host]) -> Option<Diagnostic> {
    let first = hosts.first()?;
    let other = hosts.iter().find(|host| host.slots != first.slots)?;
    let least = hosts.iter().map(|host| host.slots.get()).min()?;
    let message = "hosts have different numbers of slots";
    let problem = Diagnostic::warning(codes::UNEQUAL_SLOTS, other.span, message)
        .help(format!("if the script needs equal numbers, add `--num_gpus {least}`"));
    let (other_slots, first_slots) = (other.slots.get(), first.slots.get());
    Some(if first.span == other.span {
        problem.label(format!("{first_slots} and {other_slots} slots"))
    } else {
        problem
            .label(format!("{other_slots} here"))
            .related(first.span, format!("{first_slots} here"))
    })
}

/// The lint for digits and dots that are no IPv4 address. No host name ends in a number, so a
/// resolver reads `10.0.0.300` as an address, and `10.1` as 10.0.0.1.
fn invalid_address(host: &Host) -> Option<Diagnostic> {
    let name = host.name.as_str();
    let is_dotted =
        name.contains('.') && name.bytes().all(|byte| byte == b'.' || byte.is_ascii_digit());
    (is_dotted && name.parse::<Ipv4Addr>().is_err()).then(|| {
        let message = format!("`{name}` is not an IPv4 address");
        Diagnostic::warning(codes::NOT_AN_ADDRESS, host.span, message)
            .label("resolvers read this as an address")
            .help("an address has four numbers of at most 255: `10.0.0.1`")
    })
}

fn underscore(host: &Host) -> Option<Diagnostic> {
    host.name.as_str().as_bytes().contains(&b'_').then(|| {
        let message = format!("`{}` has an underscore", host.name);
        Diagnostic::warning(codes::UNDERSCORE, host.span, message)
            .label("not allowed in DNS host names")
            .help("some resolvers refuse it; `-` is always valid")
    })
}

/// The lint for hosts out of order, since ranks follow the lines. Only the first such host is
/// reported: all hosts after it may be out of order too.
fn out_of_order(hosts: &[Host]) -> Option<Diagnostic> {
    let mut last = None;
    let (before, host) = hosts.iter().find_map(|host| {
        let this = split_number(&host.name).map(|number| (host, number));
        match (std::mem::replace(&mut last, this), this) {
            (Some((before, (left, high))), Some((host, (right, low)))) => {
                (left == right && low < high).then_some((before, host))
            }
            _ => None,
        }
    })?;
    let message = format!("`{}` is listed after `{}`", host.name, before.name);
    Some(
        Diagnostic::error(codes::OUT_OF_ORDER, host.span, message)
            .severity(Severity::Note)
            .label("not in numeric order")
            .related(before.span, "a higher number")
            .help("ranks follow the lines: sort the lines, unless the order is intended"),
    )
}

/// Splits a name before its last number: `node`, 12.
fn split_number(name: &HostName) -> Option<(&str, u64)> {
    let name = name.as_str();
    let last = name.bytes().rposition(|byte| !byte.is_ascii_digit())?;
    let (prefix, number) = name.split_at(last + 1);
    let number = number.parse().ok()?;
    (!prefix.contains('.')).then_some((prefix, number))
}
