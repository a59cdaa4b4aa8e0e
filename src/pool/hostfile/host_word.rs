//! The first word of a line: a host name, optionally after a user, or a common mistake.

use std::net::Ipv6Addr;

use crate::base::ids::HostNameError;
use crate::base::user_name::UserNameError;
use crate::base::{Diagnostic, HostName, Span, UserName, show_typed};
use crate::pool::codes;
use crate::pool::hostfile::host_line::{HostLine, HostToken};
use crate::pool::hostfile::settings::is_slots_key;

/// The error for a line that begins with a setting.
pub(crate) fn host_missing(first: HostToken<'_>) -> Diagnostic {
    let message = format!("the host name is missing before `{}`", show_typed(first.text));
    Diagnostic::error(codes::HOST_MISSING, first.span, message)
        .label("expected a host name")
        .help("a line is a host name and its slots: `worker-0 slots=4`")
}

/// The error for `n12,slots=4`: a sign between a host and its slots instead of a space. Returns it with the
/// two parts.
pub(crate) fn host_sign_setting(
    first: HostToken<'_>,
) -> Option<(HostToken<'_>, HostToken<'_>, Diagnostic)> {
    let (before, _) = first.text.split_once('=')?;
    let at = before.rfind([',', ';', ':'])?;
    let (host, setting) = (first.part(0, at), first.part(at + 1, first.text.len()));
    let name = host.text.rsplit('@').next().unwrap_or(host.text);
    let key = &before[at + 1..];
    if HostName::parse(name).is_err() || key != "slots" && !is_slots_key(key) {
        return None;
    }
    let sign = first.part(at, at + 1);
    let shown = match sign.text {
        "," => "a comma",
        ";" => "a semicolon",
        _ => "a colon",
    };
    let line = format!("{} {}", host.text, setting.text);
    let message = format!("{shown} after the host name");
    let problem = Diagnostic::error(codes::HOST_MISSING, sign.span, message)
        .label("expected a space")
        .help(format!("write `{}`", show_typed(&line)))
        .suggest(sign.span, " ");
    Some((host, setting, problem))
}

/// The error for `node01=8`: a host, and its slots after a sign that belongs to `slots`.
pub(crate) fn host_equals_count(first: HostToken<'_>) -> Option<Diagnostic> {
    let (host, count) = first.text.split_once('=')?;
    let is_number = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
    let is_host = is_number && HostName::parse(host).is_ok() && !is_slots_key(host);
    is_host.then(|| {
        let line = format!("{host} slots={count}");
        let message = format!("`{}` is not a host and its slots", first.text);
        Diagnostic::error(codes::HOST_MISSING, first.span, message)
            .label("expected `HOST slots=N`")
            .help(format!("did you mean `{line}`?"))
            .guess(first.span, line)
    })
}

/// Checks the first word; a guessed host is stored, so that duplicates are found.
pub(crate) fn read_host(word: HostToken<'_>, rest: &[HostToken<'_>], out: &mut HostLine) {
    if word.has_control_byte() {
        return;
    }
    // As in ssh, the last `@` ends the user.
    let host = match word.text.rfind('@') {
        Some(at) => {
            match UserName::parse(&word.text[..at]) {
                Ok(user) => out.user = Some(user),
                Err(error) => out.problems.push(bad_user(word, at, error)),
            }
            word.part(at + 1, word.text.len())
        }
        None => word,
    };
    let (name, problem) = match HostName::parse(host.text) {
        Ok(name) => (Some((name, host.span)), None),
        Err(error) => explain_host(host, rest, &error),
    };
    out.host = name;
    out.problems.extend(problem);
}

/// The error for a user; the span of an empty user is its `@`.
fn bad_user(word: HostToken<'_>, at: usize, error: UserNameError) -> Diagnostic {
    let character = |from: usize| {
        let length = word.text[from..].chars().next().map_or(0, char::len_utf8);
        word.part(from, from + length).span
    };
    let span = match error {
        UserNameError::Empty => character(at),
        UserNameError::BadStart(_) => character(0),
        UserNameError::BadCharacter { at, .. } => character(at),
        UserNameError::TooLong => word.part(0, at).span,
    };
    let problem = Diagnostic::error(codes::BAD_USER, span, error.to_string());
    match error {
        UserNameError::Empty => {
            problem.label("expected a user before `@`").help("remove the `@`").suggest(span, "")
        }
        UserNameError::BadStart(_)
        | UserNameError::BadCharacter { .. }
        | UserNameError::TooLong => problem.help(
            "a user name has letters, digits, `.`, `-` and `_`; put others into ~/.ssh/config (`User`)",
        ),
    }
}

type Guess = (Option<(HostName, Span)>, Option<Diagnostic>);

fn guess(word: HostToken<'_>, problem: Diagnostic) -> Guess {
    (HostName::parse(word.text).ok().map(|name| (name, word.span)), Some(problem))
}

/// Guesses the meaning of a word that is no host name.
fn explain_host(word: HostToken<'_>, rest: &[HostToken<'_>], error: &HostNameError) -> Guess {
    let text = word.text;
    if text.parse::<Ipv6Addr>().is_ok() {
        let message = format!("IPv6 address `{text}` needs brackets");
        let problem = Diagnostic::error(codes::BAD_HOST, word.span, message)
            .help("put the address in brackets")
            .suggest(word.span, format!("[{text}]"));
        return (
            HostName::parse(&format!("[{text}]")).ok().map(|name| (name, word.span)),
            Some(problem),
        );
    }
    if let Some(interface) = interface_of_address(word) {
        return (None, Some(address_with_interface(interface)));
    }
    if let Some((at, number)) = port_or_count(text) {
        return guess(word.part(0, at), number_after_host(word, rest, at, number));
    }
    if let Some(name) = text.strip_suffix([',', ':']).filter(|name| HostName::parse(name).is_ok()) {
        return guess(word.part(0, name.len()), trailing_sign(word.part(name.len(), text.len())));
    }
    if let Some((scheme, host)) = text.split_once("://") {
        return (None, Some(address_with_scheme(word, scheme, host)));
    }
    if text.contains(',') {
        return (None, Some(host_list(word)));
    }
    if text.contains('[') && !text.starts_with('[') {
        return (None, Some(host_range(word)));
    }
    (None, Some(bad_host(word, error)))
}

/// Finds `%eth0` in `fe80::1%eth0`, with or without brackets.
fn interface_of_address(word: HostToken<'_>) -> Option<HostToken<'_>> {
    let start = usize::from(word.text.starts_with('['));
    let at = word.text.find('%')?;
    let end = word.text.find(']').unwrap_or(word.text.len());
    let is_address = word.text.get(start..at)?.parse::<Ipv6Addr>().is_ok();
    (is_address && at < end).then(|| word.part(at, end))
}

fn address_with_interface(interface: HostToken<'_>) -> Diagnostic {
    let message = format!(
        "an IPv6 address with an interface (`{}`) is not supported",
        show_typed(interface.text)
    );
    Diagnostic::error(codes::BAD_HOST, interface.span, message)
        .help("write a host name, or an address without `%`: `[2001:db8::1]`")
}

/// Splits `host:22` or `[::1]:22`.
fn port_or_count(text: &str) -> Option<(usize, &str)> {
    let at = text.rfind(':')?;
    let number = &text[at + 1..];
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && HostName::parse(&text[..at]).is_ok()).then_some((at, number))
}

fn number_after_host(
    word: HostToken<'_>,
    rest: &[HostToken<'_>],
    at: usize,
    number: &str,
) -> Diagnostic {
    let tail = word.part(at, word.text.len());
    if rest.is_empty() {
        let message = format!("`{}` is MPICH syntax", word.text);
        return Diagnostic::error(codes::OTHER_DIALECT, tail.span, message)
            .label("expected ` slots=N`")
            .help("write the number as a slot count")
            .suggest(tail.span, format!(" slots={number}"));
    }
    host_port(word, tail)
}

/// The error for `host:22` beside a number of slots; `tail` is the part from the colon.
pub(crate) fn host_port(word: HostToken<'_>, tail: HostToken<'_>) -> Diagnostic {
    Diagnostic::error(codes::HOST_PORT, tail.span, format!("port in `{}`", show_typed(word.text)))
        .label("a hostfile contains no ports")
        .help("set the port with --ssh_port, or in ~/.ssh/config (`Port`)")
        .guess(tail.span, "")
}

fn trailing_sign(sign: HostToken<'_>) -> Diagnostic {
    let name = if sign.text == "," { "comma" } else { "colon" };
    let help =
        format!("remove the {name}: a line is a host name and its slots, `worker-0 slots=4`");
    Diagnostic::error(codes::BAD_HOST, sign.span, format!("{name} after a host name"))
        .label("not part of the name")
        .help(help)
        .suggest(sign.span, "")
}

/// The error for `http://n1`.
fn address_with_scheme(word: HostToken<'_>, scheme: &str, host: &str) -> Diagnostic {
    let message = format!("`{}` is a URL and not a host name", show_typed(word.text));
    let prefix = word.part(0, scheme.len() + "://".len());
    let problem = Diagnostic::error(codes::BAD_HOST, prefix.span, message)
        .label("not part of the name")
        .help("write the name alone");
    if HostName::parse(host).is_ok() { problem.guess(prefix.span, "") } else { problem }
}

fn host_list(word: HostToken<'_>) -> Diagnostic {
    Diagnostic::error(codes::OTHER_DIALECT, word.span, "a list of hosts on one line")
        .label("one host per line")
        .help("write a line for each host, each with its slots")
}

fn host_range(word: HostToken<'_>) -> Diagnostic {
    let shown = show_typed(word.text);
    let message = format!("`{shown}` looks like a range of hosts");
    let problem = Diagnostic::error(codes::OTHER_DIALECT, word.span, message);
    if word.text.contains(']') {
        let help = "write a line for each host, or ranges in all lines: `n[1-4] slots=8`";
        return problem.label("one host per line").help(help);
    }
    problem.label("the range ends here").help("a range contains no spaces: `n[1-4] slots=8`")
}

fn bad_host(word: HostToken<'_>, error: &HostNameError) -> Diagnostic {
    if let Some(at) = word.text.find(char::REPLACEMENT_CHARACTER) {
        let span = word.part(at, at + char::REPLACEMENT_CHARACTER.len_utf8()).span;
        return Diagnostic::error(
            codes::NOT_TEXT,
            span,
            "a host name with a byte that is not UTF-8",
        )
        .help("save the file as UTF-8; host names and slots are plain ASCII");
    }
    let code = match error {
        HostNameError::NotAscii { .. } => codes::HOST_NOT_ASCII,
        _ => codes::BAD_HOST,
    };
    let span = host_error_span(word, error);
    let problem = Diagnostic::error(code, span, error.to_string());
    match error {
        HostNameError::NotAscii { at } => {
            let label = match word.text[*at..].chars().next() {
                Some(DASH_FIRST..=DASH_LAST | MINUS) => "a dash",
                Some(QUOTE_FIRST..=QUOTE_LAST) => "a quotation mark",
                _ => return problem.help(host_help(error)),
            };
            let problem = problem.label(label);
            match without_typography(word.text) {
                Some(name) => problem.help(format!("write `{name}`")).guess(word.span, name),
                None => problem.help(host_help(error)),
            }
        }
        HostNameError::EmptyLabel => {
            problem.help(format!("write one dot: `{}`", with_single_dots(word.text)))
        }
        _ => problem.help(host_help(error)),
    }
}

/// The text with one dot in the place of several dots in a row.
fn with_single_dots(text: &str) -> String {
    let mut name = text.to_owned();
    while name.contains("..") {
        name = name.replace("..", ".");
    }
    name
}

const DASH_FIRST: char = '\u{2010}';
const DASH_LAST: char = '\u{2015}';
const MINUS: char = '\u{2212}';
const QUOTE_FIRST: char = '\u{2018}';
const QUOTE_LAST: char = '\u{201f}';

/// The host name with `-` for dashes and without quotation marks, if it is valid then.
fn without_typography(text: &str) -> Option<String> {
    let plain = text.chars().filter_map(|c| match c {
        DASH_FIRST..=DASH_LAST | MINUS => Some('-'),
        QUOTE_FIRST..=QUOTE_LAST => None,
        _ => Some(c),
    });
    let name: String = plain.collect();
    HostName::parse(&name).is_ok().then_some(name)
}

fn host_error_span(word: HostToken<'_>, error: &HostNameError) -> Span {
    let character = |at: usize| {
        let length = word.text[at..].chars().next().map_or(0, char::len_utf8);
        word.part(at, at + length).span
    };
    match *error {
        HostNameError::BadCharacter { at, .. } | HostNameError::NotAscii { at } => character(at),
        HostNameError::BadStart(_) => character(0),
        _ => word.span,
    }
}

fn host_help(error: &HostNameError) -> &'static str {
    match error {
        HostNameError::NotAscii { .. } => "write the name in punycode: `xn--...`",
        HostNameError::BadCharacter { character: '{' | '(', .. } => "ranges are written `n[1-4]`",
        HostNameError::UnclosedBracket => "write `[::1]`",
        HostNameError::NotIpv6(_) => "brackets contain only an IPv6 address: `[fe80::1]`",
        HostNameError::TooLong | HostNameError::LabelTooLong => {
            "shorten the name: at most 63 bytes between two dots, 253 in all"
        }
        _ => "a host name has letters, digits, `.`, `-` and `_`, and begins with a letter or digit",
    }
}
