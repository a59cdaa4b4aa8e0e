//! The dialect of MPICH and Intel MPI: `host[:count] [attribute=value]…`; the counts of a repeated
//! host are added.

use crate::base::{Diagnostic, Severity, UserName, show_typed};
use crate::pool::codes;
use crate::pool::hostfile::host_line::{HostLine, HostToken};
use crate::pool::hostfile::host_word::read_host;
use crate::pool::hostfile::hosts::SlotCount;
use crate::pool::hostfile::reader::{LinePosition, Reader, RepeatedHost};
use crate::pool::hostfile::settings::{CountSyntax, parse_count_of};

pub(super) fn parse_line(reader: &mut Reader, position: LinePosition, words: &[HostToken<'_>]) {
    let Some((&first, rest)) = words.split_first() else { return };
    let mut line = HostLine::default();
    let (host, count) = split_count(first);
    read_host(host, rest, &mut line);
    match count.map(|count| parse_count_of(CountSyntax::Colon, count)) {
        Some(Ok(count)) => line.slots = Some(count),
        Some(Err(problem)) => line.problems.push(*problem),
        None => line.slots = reader.default_slots().or(SlotCount::new(1)),
    }
    for word in rest {
        parse_attribute(*word, &mut line, reader);
    }
    reader.add_line(position, line, RepeatedHost::AddSlots);
}

/// Splits `host:4` into host and count; an IPv6 address is in brackets because of its colons.
pub(super) fn split_count(word: HostToken<'_>) -> (HostToken<'_>, Option<HostToken<'_>>) {
    let from = match (word.text.starts_with('['), word.text.rfind(']')) {
        // The caller reports an address without one or both brackets.
        (true, None) => return (word, None),
        (_, end) => end.unwrap_or(0),
    };
    let mut colons = word.text[from..].match_indices(':').map(|(at, _)| from + at);
    match (colons.next(), colons.next()) {
        (Some(at), None) => (word.part(0, at), Some(word.part(at + 1, word.text.len()))),
        _ => (word, None),
    }
}

fn parse_attribute(word: HostToken<'_>, line: &mut HostLine, reader: &mut Reader) {
    let key = word.text.split_once('=').map(|(key, _)| key);
    let unused = match key {
        Some("ifname") => "ifname",
        Some("binding") => "binding",
        Some("user") => return parse_user(word.part("user=".len(), word.text.len()), line),
        _ => {
            let message = format!("unexpected `{}`", show_typed(word.text));
            let label = key.map_or("expected `attribute=value`", |_| "unknown attribute");
            line.problems.push(
                Diagnostic::error(codes::UNEXPECTED_TEXT, word.span, message)
                    .label(label)
                    .help("MPICH supports `user=`, `ifname=` and `binding=`"),
            );
            return;
        }
    };
    *reader.unused.entry(unused).or_default() += 1;
    let help = match unused {
        "ifname" => {
            "`--master_addr ADDRESS` selects the address of rank 0, and with it the interface"
        }
        _ => "processors are assigned by --bind_cores_to_rank",
    };
    line.problems.push(
        Diagnostic::error(codes::UNUSED_SETTING, word.span, format!("`{unused}=` is ignored"))
            .severity(Severity::Warning)
            .label("used by MPICH only")
            .help(help),
    );
}

/// Reads the login user of a host: `user=ada`, or `username=ada` in Open MPI's hostfiles.
pub(super) fn parse_user(name: HostToken<'_>, line: &mut HostLine) {
    match UserName::parse(name.text) {
        Ok(user) => line.user = Some(user),
        Err(error) => line
            .problems
            .push(Diagnostic::error(codes::BAD_USER, name.span, error.to_string()).help(
            "a user name has letters, digits, `.`, `-` and `_`; put others into ~/.ssh/config (`User`)",
        )),
    }
}
