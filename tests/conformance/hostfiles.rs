//! Hostfiles: a case is a list of lines with their ends.

use std::collections::BTreeSet;

use remuda::base::{Diagnostic, Findings, Severity};
use remuda::pool::{self, Host, Hostfile};

use crate::conformance::reference::{Reference, Refusal};
use crate::conformance::rules::{self, Rule, Verdict};
use crate::support::proof::Random;

const HOSTS: &[&str] = &[
    "worker-0",
    "worker-1",
    "worker-2",
    "w1",
    "W1",
    "w1.",
    "10.0.0.1",
    "localhost",
    "node_3",
    "[::1]",
    "[0::1]",
    "user@w1",
    "w1:22",
    "::1",
    "w[1-3]",
    "w1,w2",
    "-oProxyCommand=x",
    "slots=4",
    "wörker",
    "w#1",
    "a;b",
    "slots",
    "a..b",
    "=",
    "w1=",
    "ａ",
];
const BLANKS: &[&str] =
    &[" ", "  ", "\t", " \t ", "\u{a0}", "\u{2003}", "\u{b}", "\u{1f}", "\u{85}", ""];
const COUNTS: &[&str] = &[
    "1",
    "2",
    "4",
    "8",
    "16",
    "04",
    "0",
    "00",
    "1024",
    "1025",
    "99999999999999999999",
    "-1",
    "+4",
    "",
    "x",
    "4x",
    "4.5",
    "1_000",
    "４",
    "٣",
    "4#c",
    " 4",
    "0x4",
    "4,",
    "1e3",
];
const KEYS: &[&str] = &[
    "slots=",
    "slots=",
    "slots=",
    "slots=",
    "slots=",
    "slots=",
    "Slots=",
    "SLOTS=",
    "slot=",
    "slots =",
    "slots= ",
    "slots = ",
    "slots:",
    "",
    "max_slots=",
    "max_slots=8 slots=",
    "#slots=",
    ";slots=",
    "gpus=",
];
const TAILS: &[&str] = &[
    "",
    "",
    "",
    "",
    "",
    "",
    " # comment",
    "#comment",
    " max_slots=8",
    " max-slots=8",
    " x",
    " slots=3",
    " w2 slots=2",
    " ;",
    "\u{a0}",
    " ",
    "\u{0}",
    "\u{7f}",
    " slots",
    " = ",
];
const ENDS: &[&str] =
    &["\n", "\n", "\n", "\n", "\n", "\r\n", "\r", "", "\n\n", " \n", "\u{2028}", "\u{c}\n"];
const OTHERS: &[&[u8]] = &[
    b"",
    b"# only a comment",
    b"   # indented",
    b"#",
    b" ",
    b"\t",
    b"worker-9",
    b"worker-9 4",
    b"worker-9:4",
    b"this is bad slots=1",
    b"\xff",
    b"# caf\xe9",
    b"w\xff slots=4",
    b"w8 slots=4 \xff",
    b"\xef\xbb\xbf",
    b"\0",
    b"localhost slots=2",
    b"worker-7 slots=8",
    b"worker-6\tslots=8",
    b"  worker-5 slots=3",
];

/// Files of which many are valid, and most of the others have one error.
pub(crate) fn generate(random: &mut Random) -> Vec<Vec<u8>> {
    let lines = random.below(6);
    let mut case: Vec<Vec<u8>> = (0..lines).map(|_| line(random)).collect();
    if random.below(40) == 0 {
        case.insert(0, b"\xef\xbb\xbf".to_vec());
    }
    if random.below(10) == 0 {
        mutate(random, &mut case);
    }
    case
}

fn line(random: &mut Random) -> Vec<u8> {
    let pick = |random: &mut Random, list: &[&str], odd: usize| {
        // Most words are the first of their list: otherwise no file would be valid.
        let among = if random.below(odd) == 0 { list.len() } else { list.len().min(5) };
        list[random.below(among)].to_owned()
    };
    let end = pick(random, ENDS, 10);
    if random.below(12) == 0 {
        let mut other = OTHERS[random.below(OTHERS.len())].to_vec();
        other.extend_from_slice(end.as_bytes());
        return other;
    }
    let mut host = pick(random, HOSTS, 12);
    if random.below(3) != 0 {
        host = format!("n{}", random.below(1000));
    }
    let blank = if random.below(16) == 0 { pick(random, BLANKS, 1) } else { " ".to_owned() };
    let key = pick(random, KEYS, 20);
    let count = pick(random, COUNTS, 16);
    let tail = pick(random, TAILS, 10);
    format!("{host}{blank}{key}{count}{tail}{end}").into_bytes()
}

fn mutate(random: &mut Random, case: &mut [Vec<u8>]) {
    let Some(at) = (0..case.len()).nth(random.below(case.len().max(1))) else { return };
    let line = &mut case[at];
    let position = random.below(line.len() + 1);
    match random.below(3) {
        0 => line.insert(position, random.below(256) as u8),
        1 if position < line.len() => line[position] = random.below(256) as u8,
        _ if position < line.len() => drop(line.remove(position)),
        _ => {}
    }
}

/// Compares how both launchers read the file.
pub(crate) fn compare(reference: &mut Reference, case: &[Vec<u8>]) -> Verdict {
    let bytes = case.concat();
    let (hostfile, findings) = pool::read("hosts", &bytes);
    let theirs = reference.hostfile(&bytes);
    match theirs {
        Ok(pool) if findings.has_errors() => explain_our_refusal(
            &findings,
            findings.source.text.len(),
            bytes.starts_with(MARK),
            |host| {
                // The hosts that remuda could read are those that DeepSpeed has read.
                hostfile.hosts().iter().all(|ours| host(&with_user(ours), ours.slots.get()))
            },
            &pool,
        ),
        Ok(pool) => same_hosts(&hostfile, &bytes, &pool),
        Err(refusal) if findings.has_errors() => compare_refusals(&findings, &refusal, &bytes),
        Err(refusal) if bytes.starts_with(MARK) => {
            // The mark hides a comment, or is the only line.
            let without = reference.hostfile(&bytes[MARK.len()..]);
            match without {
                Ok(pool) if show_ours(&hostfile) == pool => Verdict::by([rules::BYTE_ORDER_MARK]),
                other => {
                    Verdict::Unexplained(format!("DeepSpeed: {refusal:?}, unmarked {other:?}"))
                }
            }
        }
        Err(refusal) => {
            Verdict::Unexplained(format!("remuda accepts, DeepSpeed: {}", refusal.text))
        }
    }
}

const MARK: &[u8] = b"\xEF\xBB\xBF";

fn show_ours(hostfile: &Hostfile) -> Vec<(String, String)> {
    let hosts = hostfile.hosts().iter();
    hosts.map(|host| (with_user(host), host.slots.get().to_string())).collect()
}

/// The host with its user, which is a part of the name for DeepSpeed.
fn with_user(host: &Host) -> String {
    host.user.as_ref().map_or(host.name.to_string(), |user| format!("{user}@{}", host.name))
}

fn same_hosts(hostfile: &Hostfile, bytes: &[u8], pool: &[(String, String)]) -> Verdict {
    let ours = show_ours(hostfile);
    // Neither launcher keeps leading zeros.
    if ours == pool {
        return Verdict::Same;
    }
    let unmarked = pool
        .iter()
        .map(|(host, slots)| (host.trim_start_matches('\u{feff}').to_owned(), slots.clone()));
    if bytes.starts_with(MARK) && unmarked.eq(ours.iter().cloned()) {
        return Verdict::by([rules::BYTE_ORDER_MARK]);
    }
    Verdict::Unexplained(format!("remuda: {ours:?}, DeepSpeed: {pool:?}"))
}

/// Every error of remuda before byte `until` must be one that COMPAT.md names.
fn explain_our_refusal(
    findings: &Findings,
    until: usize,
    is_marked: bool,
    agrees: impl Fn(&dyn Fn(&str, u32) -> bool) -> bool,
    pool: &[(String, String)],
) -> Verdict {
    let (rules, unknown) = rules_of(findings, until, is_marked);
    if let Some(unknown) = unknown {
        return Verdict::Unexplained(format!("only remuda refuses: {unknown}"));
    }
    let in_pool = |host: &str, slots: u32| {
        pool.iter().any(|(theirs, count)| {
            theirs.trim_start_matches('\u{feff}') == host && *count == slots.to_string()
        })
    };
    // Only DeepSpeed ends a line at a single carriage return, and remuda ends none at invalid UTF-8.
    if !rules.contains(&rules::CONTROL_BYTES) && !rules.contains(&rules::UTF_8) && !agrees(&in_pool)
    {
        return Verdict::Unexplained(format!("a host of remuda is not among {pool:?}"));
    }
    Verdict::Explained(rules)
}

/// The rules of all errors before a byte, and the first error without one.
fn rules_of(
    findings: &Findings,
    until: usize,
    is_marked: bool,
) -> (BTreeSet<Rule>, Option<String>) {
    let errors = findings.diagnostics.iter().filter(|found| found.severity == Severity::Error);
    let before = errors.filter(|found| found.span.is_none_or(|span| span.start <= until));
    let mut rules = BTreeSet::new();
    for error in before {
        match rule_of(error, findings, is_marked) {
            Some(rule) => drop(rules.insert(rule)),
            None => return (rules, Some(format!("{}: {}", error.code, error.message))),
        }
    }
    (rules, None)
}

/// The row of COMPAT.md for an error that DeepSpeed does not report.
fn rule_of(error: &Diagnostic, findings: &Findings, is_marked: bool) -> Option<Rule> {
    use pool::codes;
    let text = &findings.source.text;
    let marked = error.span.map_or("", |span| &text[span.start..span.end]);
    // Control bytes separate words in Python and are errors in remuda.
    let line = error.span.map_or("", |span| {
        let start = text[..span.start].rfind('\n').map_or(0, |end| end + 1);
        text[start..].lines().next().unwrap_or_default()
    });
    if has_control(line) {
        return Some(rules::CONTROL_BYTES);
    }
    Some(match error.code {
        codes::AFTER_COUNT | codes::SLOTS_TWICE | codes::UNEXPECTED_TEXT | codes::UNKNOWN_KEY => {
            rules::TRAILING_TEXT
        }
        codes::SPACED_EQUALS => rules::TRAILING_TEXT,
        codes::BAD_COUNT if marked.chars().any(|c| c.is_numeric() && !c.is_ascii()) => {
            rules::ASCII_DIGITS
        }
        codes::BAD_COUNT => rules::NO_SLOTS,
        codes::COUNT_ABOVE_LIMIT | codes::LINE_TOO_LONG | codes::TOO_MANY_HOSTS => rules::LIMITS,
        codes::BAD_HOST
        | codes::HOST_NOT_ASCII
        | codes::BAD_USER
        | codes::HOST_PORT
        | codes::OTHER_DIALECT
        | codes::HOST_MISSING => rules::HOST_NAMES,
        codes::DUPLICATE_HOST if is_marked => rules::BYTE_ORDER_MARK,
        codes::DUPLICATE_HOST if has_other_user(text, line) => rules::HOST_NAMES,
        codes::DUPLICATE_HOST if has_host_problem(findings) => rules::HOST_NAMES,
        codes::NOT_TEXT => rules::UTF_8,
        codes::CONTROL_BYTE => rules::CONTROL_BYTES,
        _ => return None,
    })
}

/// `user@w1` is host w1 for remuda, and another host for DeepSpeed.
fn has_other_user(text: &str, line: &str) -> bool {
    let host = |line: &str| line.split_whitespace().next().unwrap_or_default().to_owned();
    let name = |host: &str| host.rsplit('@').next().unwrap_or_default().to_owned();
    let ours = host(line);
    let mut others = text.lines().map(host).filter(|other| name(other) == name(&ours));
    others.any(|other| other != ours)
}

fn has_host_problem(findings: &Findings) -> bool {
    use pool::codes;
    let is_one = |code| {
        matches!(code, codes::BAD_HOST | codes::BAD_USER | codes::HOST_PORT | codes::HOST_MISSING)
    };
    findings.diagnostics.iter().any(|found| is_one(found.code))
}

/// Both refuse: remuda has an error where DeepSpeed stopped, and its earlier errors are in COMPAT.md.
fn compare_refusals(findings: &Findings, refusal: &Refusal, bytes: &[u8]) -> Verdict {
    let text = &findings.source.text;
    let is_plain = std::str::from_utf8(bytes).is_ok_and(|text| {
        !text.starts_with('\u{feff}') && !has_control(&text.replace("\r\n", "\n"))
    });
    // Otherwise the two sides do not agree on what a line is.
    let Some(line) = refused_line(refusal).filter(|_| is_plain) else {
        return Verdict::Refused;
    };
    let Some((start, end)) = find_line(text, &line) else {
        return Verdict::Unexplained(format!(
            "DeepSpeed's line is not in the file: {}",
            refusal.text
        ));
    };
    let errors = || findings.diagnostics.iter().filter(|found| found.severity == Severity::Error);
    let inside = |found: &Diagnostic| {
        found.span.is_some_and(|span| start <= span.start && span.start <= end)
    };
    if !errors().any(inside) {
        return Verdict::Unexplained(format!(
            "remuda finds no error where DeepSpeed reports: {}",
            refusal.text
        ));
    }
    match start.checked_sub(1).map(|until| rules_of(findings, until, false)) {
        Some((_, Some(unknown))) => Verdict::Unexplained(format!("only remuda refuses: {unknown}")),
        _ => Verdict::Refused,
    }
}

fn has_control(text: &str) -> bool {
    text.contains(|c: char| c.is_control() && !"\t\n".contains(c))
}

enum Refused {
    Entry(String),
    Duplicate(String),
}

fn refused_line(refusal: &Refusal) -> Option<Refused> {
    let text = refusal.text.strip_suffix(", unable to proceed with launching")?;
    match text.strip_prefix("Hostfile contains a bad entry: ") {
        Some(line) => Some(Refused::Entry(line.to_owned())),
        None => text
            .strip_prefix("Hostfile contains multiple entries for ")
            .map(|host| Refused::Duplicate(host.to_owned())),
    }
}

/// Byte range of the line that DeepSpeed has refused.
fn find_line(text: &str, refused: &Refused) -> Option<(usize, usize)> {
    let strip = |line: &str| -> String {
        line.trim_matches(|c: char| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c))
            .to_owned()
    };
    let mut start = 0;
    let mut seen = 0;
    for line in text.split_inclusive('\n') {
        let content = strip(line);
        let is_it = match refused {
            Refused::Entry(entry) => content == *entry,
            Refused::Duplicate(host) => {
                let first = content
                    .split(|c: char| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c));
                seen += usize::from(first.take(1).eq([host.as_str()]));
                seen == 2
            }
        };
        if is_it {
            return Some((start, start + line.len()));
        }
        start += line.len();
    }
    None
}
