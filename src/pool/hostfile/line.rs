//! Parser of one line of a hostfile: `[USER@]HOST slots=N`, a comment after it, and common
//! mistakes.

use std::iter;

use crate::base::order;
use crate::base::{Diagnostic, HostName, Span};
use crate::pool::codes;
use crate::pool::hostfile::host_line::{HostLine, HostToken};
use crate::pool::hostfile::host_word::{
    host_equals_count, host_missing, host_sign_setting, read_host,
};
use crate::pool::hostfile::hosts::{SlotCount, SlotsOption};
use crate::pool::hostfile::settings::HostSettings;

/// Parses a line that begins at byte `start` of the text; `None` when it is blank or a comment.
pub(crate) fn parse_line(line: &str, start: usize, option: SlotsOption) -> Option<HostLine> {
    parse_plain_line(line, start).or_else(|| parse_any_line(line, start, option))
}

/// Fast path for `worker-0 slots=4` without anything else: nearly every line, and it needs no list
/// of words.
fn parse_plain_line(line: &str, start: usize) -> Option<HostLine> {
    let blank = line.bytes().position(|byte| byte == b' ')?;
    let count = line[blank + 1..].strip_prefix("slots=")?;
    let is_number = count.bytes().all(|byte| byte.is_ascii_digit());
    let slots = SlotCount::new(count.parse().ok().filter(|_| is_number)?);
    let name = HostName::parse(&line[..blank]).ok()?;
    let host = Some((name, Span::new(start, start + blank)));
    slots.map(|_| HostLine { host, slots, ..HostLine::default() })
}

fn parse_any_line(line: &str, start: usize, option: SlotsOption) -> Option<HostLine> {
    let all = words(line, start);
    let mut out = HostLine::default();
    let Some((&first, rest)) = all.split_first() else {
        out.problems.extend(carriage_return_in_comment(line, start, 0));
        return (!out.problems.is_empty()).then_some(out);
    };
    let content = line_without_comment(line, start, first);
    check_characters(content, start, &mut out.problems);
    out.problems.extend(carriage_return_in_comment(line, start, content.len()));
    if let Some((host, setting, problem)) = host_sign_setting(first) {
        out.problems.push(problem);
        let settings: Vec<HostToken<'_>> =
            iter::once(setting).chain(rest.iter().copied()).collect();
        read_host(host, &settings, &mut out);
        HostSettings::new(option).read(host, &settings, &mut out);
        order::sort_by_key(&mut out.problems, |problem| problem.span);
        return Some(out);
    }
    let settings = if let Some(problem) = host_equals_count(first) {
        out.problems.push(problem);
        if rest.is_empty() {
            return Some(out);
        }
        rest
    } else if first.is_setting() {
        out.problems.push(host_missing(first));
        &all[..]
    } else {
        read_host(first, rest, &mut out);
        rest
    };
    HostSettings::new(option).read(first, settings, &mut out);
    order::sort_by_key(&mut out.problems, |problem| problem.span);
    Some(out)
}

/// The words before a comment. `#` begins a comment anywhere except inside the host name.
pub(crate) fn words(line: &str, start: usize) -> Vec<HostToken<'_>> {
    let mut found: Vec<HostToken<'_>> = Vec::new();
    for text in line.split(char::is_whitespace).filter(|text| !text.is_empty()) {
        let at = text.as_ptr() as usize - line.as_ptr() as usize;
        let comment = text.find('#').filter(|hash| *hash == 0 || !found.is_empty());
        let text = &text[..comment.unwrap_or(text.len())];
        if !text.is_empty() {
            found.push(HostToken::new(text, start + at));
        }
        if comment.is_some() {
            break;
        }
    }
    found
}

pub(crate) fn line_without_comment<'a>(
    line: &'a str,
    start: usize,
    first: HostToken<'_>,
) -> &'a str {
    let after_host = first.span.end - start;
    let end = line[after_host..].find('#').map_or(line.len(), |hash| after_host + hash);
    &line[..end]
}

/// The error for a carriage return in a comment, which begins at byte `from`: many tools, DeepSpeed
/// among them, end the line there, and read the rest as a line of its own.
fn carriage_return_in_comment(line: &str, start: usize, from: usize) -> Option<Diagnostic> {
    let at = from + line[from..].find('\r')?;
    if line[at..].trim().is_empty() {
        return None;
    }
    let span = Span::new(start + at, start + at + 1);
    let message = "a carriage return in a comment hides the rest of the line";
    Some(
        Diagnostic::error(codes::CONTROL_BYTE, span, message)
            .label("other tools end the line here")
            .help("replace it with a line feed"),
    )
}

/// Reports control bytes and blanks that look like a space; only the first of each kind.
pub(crate) fn check_characters(line: &str, start: usize, problems: &mut Vec<Diagnostic>) {
    if line.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t')) {
        return;
    }
    let span = |at: usize, c: char| Span::new(start + at, start + at + c.len_utf8());
    if let Some((at, c)) = line.char_indices().find(|(_, c)| c.is_control() && *c != '\t') {
        let column = line[..at].chars().count() + 1;
        let message = format!("control byte 0x{:02x} at column {column}", u32::from(c));
        let help = match c {
            '\r' => "end the line there: `tr '\\r' '\\n'` converts the line ends of old Macs",
            _ => "remove it",
        };
        problems.push(Diagnostic::error(codes::CONTROL_BYTE, span(at, c), message).help(help));
    }
    let odd = |c: char| c.is_whitespace() && !c.is_ascii() && !c.is_control();
    if let Some((at, c)) = line.trim().char_indices().find(|(_, c)| odd(*c)) {
        let at = at + (line.len() - line.trim_start().len());
        let message = format!("blank U+{:04X} is not a space", u32::from(c));
        problems.push(
            Diagnostic::warning(codes::ODD_BLANK, span(at, c), message)
                .label("read as a space")
                .help("write a space")
                .suggest(span(at, c), " "),
        );
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn plain_line_equals_general_parser(line in "[a#]{1,2}[a@.\\[ ]{0,2} (slots=)?[+0-9x# ]{0,5}") {
            if let Some(plain) = parse_plain_line(&line, 7) {
                prop_assert_eq!(Some(plain), parse_any_line(&line, 7, SlotsOption::default()));
            }
        }
    }

    #[test]
    fn common_lines_take_the_fast_path() {
        for line in ["a slots=1", "worker-0.rack slots=1024", "10.0.0.1 slots=08", "[::1] slots=4"]
        {
            let any = parse_any_line(line, 0, SlotsOption::default());
            assert_eq!(parse_plain_line(line, 0), any, "for `{line}`");
        }
        for line in ["", "a", "a slots=", "a slots=0", "a slots=+1", "a slots=1025", "a:1 slots=1"]
        {
            assert_eq!(parse_plain_line(line, 0), None, "for `{line}`");
        }
    }
}
