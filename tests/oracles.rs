//! Host ranges compared with other programs: ClusterShell's `nodeset` (strict: remuda refuses what it
//! refuses), `pdsh` and Slurm's `scontrol`, which accept more. Ranges that all accept must have the same
//! hosts.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::proof::{Random, has, proof_cases};
use remuda::pool::nodeset::{fold, fold_set, fold_without_suffix, read_list};

/// Number of patterns in one query.
const BATCH: usize = 50;
/// Separator of patterns in one query to a tool that keeps the order.
const MARK: &str = "zz";

/// Program that reads patterns, one per line, and prints their host names, or `!` for a refused pattern.
const NODESET: &str = "
import sys
from ClusterShell.NodeSet import NodeSet
for line in sys.stdin:
    try:
        print(' '.join(NodeSet(line.rstrip('\\n'))))
    except Exception:
        print('!')
";

#[test]
fn prove_host_ranges_match_other_tools() {
    if !has("oracles", "prove_host_ranges_match_other_tools") {
        return;
    }
    let mut random = Random::from_seed();
    let mut left = proof_cases(200);
    while 0 < left {
        let patterns: Vec<String> = (0..left.min(BATCH)).map(|_| pattern(&mut random)).collect();
        left -= patterns.len();
        let expanded: Vec<Option<Vec<String>>> = patterns.iter().map(|list| expand(list)).collect();
        check_nodeset(&patterns, &expanded);
        let plain = |keep: fn(&str) -> bool| -> Vec<(&str, &[String])> {
            let cases = patterns.iter().zip(&expanded);
            let cases = cases.filter_map(|(list, names)| Some((list.as_str(), names.as_deref()?)));
            // Long lists exceed a command line.
            let is_short = |names: &[String]| names.len() <= 1000;
            cases.filter(|(list, names)| is_short(names) && keep(list)).collect()
        };
        check_in_order("scontrol", &plain(slurm_takes), scontrol);
        check_pdsh(&plain(pdsh_takes));
        check_folds(&plain(|_| true));
    }
}

fn expand(list: &str) -> Option<Vec<String>> {
    let patterns = read_list(list, 0).ok()?;
    let hosts = patterns.iter().flat_map(|(pattern, _)| pattern.hosts());
    Some(hosts.map(|host| host.to_string()).collect())
}

/// Random names with one or two ranges, sometimes with a syntax error.
fn pattern(random: &mut Random) -> String {
    const STEMS: [&str; 5] = ["n", "r", "gpu-", "a1b", "x0-"];
    let mut text = String::new();
    for part in 0..=random.below(2) {
        // ClusterShell does not support two brackets without a letter between them.
        if part != 0 || random.below(4) != 0 {
            text += STEMS[random.below(STEMS.len())];
        }
        if random.below(6) == 0 {
            text += &number(random);
            text += STEMS[random.below(STEMS.len())];
        }
        let items: Vec<String> = (0..=random.below(3)).map(|_| item(random)).collect();
        text.extend(["[", &items.join(","), "]"]);
    }
    if random.below(4) == 0 {
        text += "-ib";
    }
    if random.below(5) == 0 {
        text.extend([",", STEMS[random.below(STEMS.len())], &number(random)]);
    }
    if random.below(4) == 0 {
        mutate(random, &mut text);
    }
    text
}

fn number(random: &mut Random) -> String {
    let bound = if random.below(4) == 0 { 300 } else { 12 };
    let number = random.below(bound);
    match random.below(3) {
        0 => format!("{number:03}"),
        1 => format!("{number:02}"),
        _ => number.to_string(),
    }
}

fn item(random: &mut Random) -> String {
    let bound = if random.below(4) == 0 { 120 } else { 12 };
    let first = random.below(bound);
    let last = first + random.below(12);
    let step = if random.below(8) == 0 { format!("/{}", random.below(4)) } else { String::new() };
    match random.below(8) {
        0..3 => number(random),
        3 => format!("{first:02}-{last:02}{step}"),
        4 => format!("{first:03}-{last:03}"),
        5 => format!("{}-{}", number(random), number(random)),
        _ => format!("{first}-{last}{step}"),
    }
}

/// Adds, removes or replaces a character.
fn mutate(random: &mut Random, text: &mut String) {
    const LETTERS: [char; 8] = ['[', ']', ',', '-', '0', '9', 'b', '/'];
    let at = random.below(text.len());
    match random.below(3) {
        0 => drop(text.remove(at)),
        1 => text.insert(at, LETTERS[random.below(LETTERS.len())]),
        _ => {
            text.remove(at);
            text.insert(at, LETTERS[random.below(LETTERS.len())]);
        }
    }
}

/// Whether Slurm accepts a list that remuda accepts: it supports neither steps nor suffixes after a bracket.
fn slurm_takes(list: &str) -> bool {
    let is_suffixed = |part: &str| part.contains('[') && !part.ends_with(']');
    !list.contains('/') && !parts(list).any(is_suffixed)
}

/// Whether pdsh accepts a list that remuda accepts: it does not support steps.
fn pdsh_takes(list: &str) -> bool {
    !list.contains('/')
}

/// Parts at the commas outside of brackets.
fn parts(list: &str) -> impl Iterator<Item = &str> {
    let mut is_inside = false;
    list.split(move |c| {
        is_inside = if is_inside { c != ']' } else { c == '[' };
        c == ',' && !is_inside
    })
}

fn check_nodeset(patterns: &[String], expanded: &[Option<Vec<String>>]) {
    let answers = nodeset(&patterns.join("\n"));
    assert_eq!(answers.lines().count(), patterns.len(), "nodeset answers each line");
    for ((list, names), theirs) in patterns.iter().zip(expanded).zip(answers.lines()) {
        if has_digit_or_bracket_beside_bracket(list) || has_sign(list) {
            continue;
        }
        match names {
            // remuda also requires valid host names.
            None if theirs != "!" && !is_of_host_names(theirs) => {}
            None if has_roundabout_number(list) => {}
            None => assert_eq!(theirs, "!", "nodeset accepts `{list}`"),
            Some(names) => {
                let theirs: BTreeSet<&str> = theirs.split(' ').collect();
                let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
                assert_eq!(names, theirs, "for `{list}`");
            }
        }
    }
}

/// ClusterShell includes a digit beside a bracket in the range (it reads `n9[5-12]` as `n[95-912]`), and
/// refuses two adjacent brackets, which Slurm and pdsh accept.
fn has_digit_or_bracket_beside_bracket(list: &str) -> bool {
    list.as_bytes().windows(2).any(|pair| match pair {
        b"][" => true,
        [digit, b'['] | [b']', digit] => digit.is_ascii_digit(),
        _ => false,
    })
}

/// ClusterShell reads the `-12` of `[-12]` and the `-2` of `[1-3,-2]` as negative numbers.
fn has_sign(list: &str) -> bool {
    list.split(['[', ']', ',']).any(|item| item.starts_with('-') || 1 < item.matches('-').count())
}

/// ClusterShell reads `[7/1]` as 7 and `[0-000]` as 0; remuda refuses both.
fn has_roundabout_number(list: &str) -> bool {
    let is_one = |item: &str| {
        let (range, step) = item.split_once('/').unwrap_or((item, ""));
        match range.split_once('-') {
            Some((first, last)) => first.len() != last.len() && range.trim_matches('0') == "-",
            None => step.trim_start_matches('0') == "1",
        }
    };
    list.split(['[', ']', ',']).any(is_one)
}

fn is_of_host_names(names: &str) -> bool {
    names.split(' ').all(|name| remuda::base::HostName::parse(name).is_ok())
}

/// Compares all patterns in one query, with a separator after each.
fn check_in_order(tool: &str, cases: &[(&str, &[String])], ask: impl Fn(&str) -> Vec<String>) {
    if cases.is_empty() {
        return;
    }
    let query: Vec<String> = cases.iter().map(|(list, _)| format!("{list},{MARK}")).collect();
    let answer = ask(&query.join(","));
    let mut answers = answer.split(|name| name == MARK);
    for (list, names) in cases {
        let theirs = answers.next().unwrap_or_default();
        assert_eq!(*names, theirs, "{tool} reads `{list}` differently");
    }
}

/// Compares with pdsh, in portions and without the longest lists, because pdsh truncates its answer at one
/// kilobyte.
fn check_pdsh(cases: &[(&str, &[String])]) {
    const ANSWER_BYTES_MAX: usize = 900;
    let length =
        |names: &[String]| names.iter().map(|name| name.len() + 1).sum::<usize>() + MARK.len() + 1;
    let mut portion = Vec::new();
    let mut bytes = 0;
    for case in cases.iter().filter(|(_, names)| length(names) < ANSWER_BYTES_MAX) {
        if ANSWER_BYTES_MAX < bytes + length(case.1) {
            check_in_order("pdsh", &portion, pdsh);
            portion.clear();
            bytes = 0;
        }
        bytes += length(case.1);
        portion.push(*case);
    }
    check_in_order("pdsh", &portion, pdsh);
}

/// Checks that all tools read the folded lists of remuda as the same hosts.
fn check_folds(cases: &[(&str, &[String])]) {
    let folded: Vec<(String, &[String])> = cases
        .iter()
        .map(|(_, names)| (fold_without_suffix(names.iter().map(String::as_str)), *names))
        .collect();
    let cases: Vec<(&str, &[String])> =
        folded.iter().map(|(list, names)| (list.as_str(), *names)).collect();
    check_in_order("scontrol", &cases, scontrol);
    check_pdsh(&cases);
    let expanded: Vec<_> = cases.iter().map(|(_, names)| Some(names.to_vec())).collect();
    let lists = cases.iter().map(|(_, names)| fold(names.iter().map(String::as_str)));
    check_nodeset(&lists.collect::<Vec<_>>(), &expanded);
    let lists = cases.iter().map(|(_, names)| fold_set(names.iter().map(String::as_str)));
    check_nodeset(&lists.collect::<Vec<_>>(), &expanded);
}

/// Runs a tool with a text as its input; it must succeed.
#[expect(clippy::disallowed_methods, reason = "these tests run other programs")]
fn ask(program: &str, args: &[&str], input: &str, variable: Option<(&str, &Path)>) -> String {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some((name, value)) = variable {
        command.env(name, value);
    }
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{program}: {error}"));
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("the tool reads");
    let output = child.wait_with_output().expect("the tool exits");
    assert!(output.status.success(), "{program} {args:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Runs ClusterShell with the Python of the distribution, which contains it.
fn nodeset(lists: &str) -> String {
    ask("/usr/bin/python3", &["-c", NODESET], lists, None)
}

fn pdsh(list: &str) -> Vec<String> {
    let answer = ask("pdsh", &["-Q", "-w", list], "", None);
    let names = answer.trim_end().lines().next_back().unwrap_or_default();
    names.split(',').map(str::to_owned).collect()
}

/// Slurm's tools require a configuration, even to expand a list.
fn scontrol(list: &str) -> Vec<String> {
    let config = Path::new(env!("CARGO_TARGET_TMPDIR")).join("slurm.conf");
    let text = "ClusterName=test\nSlurmctldHost=localhost\n";
    if fs::read_to_string(&config).ok().as_deref() != Some(text) {
        fs::write(&config, text).expect("the target directory is writable");
    }
    let answer = ask("scontrol", &["show", "hostnames", list], "", Some(("SLURM_CONF", &config)));
    answer.lines().map(str::to_owned).collect()
}
