//! Files at the limits, and arbitrary bytes.

use std::collections::BTreeSet;

use proptest::prelude::*;
use remuda::base::{Diagnostic, Findings, Severity, Source, Span};
use remuda::pool::dialect::{Dialect, HostfileFormat, write};
use remuda::pool::nodeset::{fold, read_list};
use remuda::pool::{self, HOSTS_MAX, ReadOptions, fix, format, lint, read_any};
use remuda::report::diagnostic::{Paint, show_findings};
use remuda::report::findings::{CheckKind, CheckedFile, show_github, show_json, show_sarif};

use crate::support::proof::{Random, proof_cases};

#[test]
fn huge_line_is_one_finding_without_excerpt() {
    let mut text = vec![b'x'; 10 << 20];
    text.extend_from_slice(b"\nworker-0 slots=4\n");
    let (hostfile, findings) = pool::read("hosts", &text);
    assert_eq!(hostfile.hosts().len(), 1);
    assert_eq!(findings.diagnostics.len(), 1);
    let screen = show_findings(&findings, Paint::Plain);
    assert!(screen.contains("error[H018]: line longer than 4096 bytes: 10485760"), "{screen}");
    assert!(screen.len() < 1000, "{} bytes of screen", screen.len());
}

#[test]
fn million_bad_lines_stop_at_limit_and_fit_screen() {
    let text = "worker slots=0\n".repeat(1_000_000);
    let (hostfile, findings) = pool::read("hosts", text.as_bytes());
    assert_eq!(hostfile.hosts().len(), 0);
    let last = findings.diagnostics.last().expect("there are findings");
    assert_eq!(last.message, format!("more than {HOSTS_MAX} hosts"));
    let screen = show_findings(&findings, Paint::Plain);
    assert!(screen.lines().count() < 100, "{screen}");
}

#[test]
fn hosts_at_limit_are_accepted() {
    let lines = (0..HOSTS_MAX).map(|host| format!("worker-{host} slots=8\n"));
    let (hostfile, findings) = pool::read("hosts", lines.collect::<String>().as_bytes());
    assert_eq!(hostfile.hosts().len(), HOSTS_MAX);
    assert_eq!(findings.diagnostics, []);
}

#[test]
fn span_ends_before_carriage_returns() {
    let text = "worker-0 slots=4\r\r\r\r\nworker-1 slots=4\n".to_owned();
    for end in 16..=20 {
        let source = Source { name: "hosts".to_owned(), text: text.clone() };
        let problem = Diagnostic::error("H015", Span::new(0, end), "invalid");
        let findings = Findings { source, diagnostics: vec![problem] };
        let screen = show_findings(&findings, Paint::Plain);
        assert!(screen.contains("1 | worker-0 slots=4\n  | ^^^^^^^^^^^^^^^^\n"), "{screen}");
    }
}

#[test]
fn colours_appear_only_if_requested() {
    let (_, findings) = pool::read("hosts", b"worker-0 slots=0\n");
    let plain = show_findings(&findings, Paint::Plain);
    assert!(plain.bytes().all(|byte| byte == b'\n' || (b' '..=b'~').contains(&byte)), "{plain}");
    assert!(show_findings(&findings, Paint::Colour).contains('\u{1b}'));
}

/// Words of hostfiles, mixed with arbitrary bytes.
fn hostfile_bytes() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        Just(b"worker-0".to_vec()),
        Just(b"worker-1".to_vec()),
        Just(b"slots=4".to_vec()),
        Just(b"slots".to_vec()),
        Just(b"=".to_vec()),
        Just(b"max_slots=2".to_vec()),
        Just(b" ".to_vec()),
        Just(b"\n".to_vec()),
        Just("\u{a0}".as_bytes().to_vec()),
        Just("\u{fffd}".as_bytes().to_vec()),
        Just(b"=4".to_vec()),
        Just(b"#".to_vec()),
        Just(b"[::1".to_vec()),
        Just(b"a@b:1,c".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..6),
    ];
    proptest::collection::vec(word, 0..40).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_bytes_give_usable_hosts_and_screen(bytes in hostfile_bytes()) {
        let (hostfile, findings) = pool::read("hosts", &bytes);
        let names: BTreeSet<_> = hostfile.hosts().iter().map(|host| host.name.as_str()).collect();
        prop_assert_eq!(names.len(), hostfile.hosts().len());
        for host in hostfile.hosts() {
            prop_assert_eq!(&findings.source.text[host.span.start..host.span.end], host.name.as_str());
        }
        let is_entry = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
        let entries = findings.source.text.split('\n').filter(is_entry).count();
        prop_assert!(1.max(entries) <= hostfile.hosts().len() + findings.count(Severity::Error));
        let screen = show_findings(&findings, Paint::Plain);
        prop_assert_eq!(screen.is_empty(), findings.diagnostics.is_empty());
        prop_assert!(screen.chars().all(|c| c == '\n' || !c.is_control()), "{screen:?}");
    }

    #[test]
    fn canonical_file_round_trips(slots in proptest::collection::vec(1u32..=1024, 1..20)) {
        let lines = slots.iter().enumerate().map(|(host, slots)| format!("w{host} slots={slots}\n"));
        let (hostfile, findings) = pool::read("hosts", lines.collect::<String>().as_bytes());
        let found: Vec<u32> = hostfile.hosts().iter().map(|host| host.slots.get()).collect();
        prop_assert_eq!(found, slots);
        prop_assert_eq!(findings.count(Severity::Error) + findings.count(Severity::Warning), 0);
    }
}

/// Words of hostfiles in every dialect, and words that are valid in none.
const WORDS: &[&[u8]] = &[
    b"worker-0",
    b"worker-1",
    b"n[01-03,7]",
    b"n[1-",
    b"[9-1]",
    b"[0-65535]",
    b"[0-99999999]",
    b"a:2",
    b":4",
    b"slots=4",
    b"slots",
    b"=",
    b"max_slots=2",
    b"//",
    b"#",
    b" ",
    b" ",
    b" ",
    b"\t",
    b"\n",
    b"\n",
    b"\n",
    b"\r\n",
    b"\r",
    b",",
    b",",
    b"SLURM_JOB_NODELIST=",
    b"SLURM_TASKS_PER_NODE=",
    b"2(x3),1",
    b"(x99999999999)",
    b"LSB_MCPU_HOSTS=\"",
    b"LSB_HOSTS='",
    b"export ",
    b"q@a",
    b"<NULL>",
    b"^a",
    b"+n1",
    b"[::1]",
    b"::1",
    b"ada@b",
    b"4",
    b"-o",
    b"\0",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\xc2\xa0",
    b"\xf0\x9f\x90\xb4",
    b"/2",
    b"]",
    b"[",
    b"\"",
    b"'",
    b"ifname=x",
];
/// Limit of the bytes of most texts, and of a rare large one.
const TEXT_BYTES_MAX: usize = 64 << 10;
const HUGE_BYTES_MAX: usize = 1 << 20;

/// Random words, often with one word repeated, and some arbitrary bytes.
fn any_text(random: &mut Random) -> Vec<u8> {
    let mut text = Vec::new();
    let length = match random.below(64) {
        0 => random.below(HUGE_BYTES_MAX),
        1..8 => random.below(TEXT_BYTES_MAX),
        _ => random.below(400),
    };
    let repeated = WORDS[random.below(WORDS.len())];
    let repeats = random.below(4);
    while text.len() < length {
        match random.below(16) {
            0 => text.push(random.below(256) as u8),
            pick if pick <= 4 * repeats => text.extend_from_slice(repeated),
            _ => text.extend_from_slice(WORDS[random.below(WORDS.len())]),
        }
    }
    text
}

#[test]
fn prove_any_bytes_in_any_dialect_give_screen() {
    let mut random = Random::from_seed();
    for _ in 0..proof_cases(30) {
        let text = any_text(&mut random);
        for dialect in [None].into_iter().chain(Dialect::ALL.map(Some)) {
            check_any(&text, ReadOptions { dialect, ..ReadOptions::default() });
        }
    }
}

/// Runs every operation of the commands on a text.
fn check_any(bytes: &[u8], options: ReadOptions) {
    let mut reading = read_any("hosts", bytes, options);
    let notes = lint(&reading);
    reading.findings.diagnostics.extend(notes);
    let hosts = reading.hostfile.hosts();
    assert!(hosts.len() <= HOSTS_MAX);
    assert!(!hosts.is_empty() || reading.findings.has_errors());
    let screen = show_findings(&reading.findings, Paint::Plain);
    assert!(screen.chars().all(|c| c == '\n' || !c.is_control()), "{screen:?}");
    let files = [CheckedFile { findings: &reading.findings, hosts: Vec::new(), world: None }];
    serde_json::from_str::<serde_json::Value>(&show_json(&files)).expect("JSON");
    serde_json::from_str::<serde_json::Value>(&show_sarif(CheckKind::Hostfiles, &files))
        .expect("JSON");
    let lines = show_github(&files).lines().count();
    assert_eq!(lines, reading.findings.diagnostics.len());
    if !reading.findings.has_errors() {
        let text = format(&reading.findings.source.text, reading.dialect);
        let again = read_any(
            "hosts",
            text.as_bytes(),
            ReadOptions { dialect: Some(reading.dialect), ..options },
        );
        assert_eq!(again.hostfile.slot_count(), reading.hostfile.slot_count());
        for dialect in Dialect::ALL {
            write(hosts, HostfileFormat::Dialect(dialect));
        }
    }
    fix(reading, options);
}

#[test]
fn names_at_limit_expand_and_fold() {
    let list = "rack[01-16]n[0001-4096]";
    let patterns = read_list(list, 0).expect("within the limit");
    let names: Vec<String> = patterns[0].0.hosts().map(|host| host.to_string()).collect();
    assert_eq!(names.len(), 65_536);
    let folded = fold(names.iter().map(String::as_str));
    assert_eq!(folded.matches(',').count(), 15, "{folded}");
    assert!(folded.starts_with("rack01n[0001-4096],rack02n"), "{folded}");
}
