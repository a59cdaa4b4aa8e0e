//! Detection of files that are not hostfiles at all.

use crate::base::Diagnostic;
use crate::pool::codes;

const LINES: &str = "a hostfile has a line for each host: `worker-0 slots=8`";
const SCRIPT: &str = "put the script after the options, and name a hostfile with -H";
const INVENTORY: &str = "`ansible all --list-hosts` prints the hosts of an inventory; write \
                         `slots=8` after each";

/// The error for a text that has errors in every dialect and is certainly not a hostfile.
pub(super) fn not_a_hostfile(text: &str) -> Option<Diagnostic> {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next()?;
    let (what, help) = match first {
        _ if is_binary(text) => ("a program or other binary data", LINES),
        _ if first.starts_with("#!") => ("a script", SCRIPT),
        _ if text.lines().any(is_python) => ("a script of Python", SCRIPT),
        _ if is_json(first) => ("JSON", LINES),
        _ if first == "---" || is_yaml_key(first) => ("YAML", LINES),
        _ if is_section(first) => ("an inventory or INI file", INVENTORY),
        _ if is_prose(text) => ("a log or another text", LINES),
        _ => return None,
    };
    let message = format!("this is {what}, not a hostfile");
    Some(Diagnostic::whole(codes::NOT_A_HOSTFILE, message).help(help))
}

/// Whether at least 8 characters, and at least 1 in 100, are control or replacement characters; a
/// typing error produces one.
fn is_binary(text: &str) -> bool {
    let start = text.chars().take(4096);
    let is_odd = |c: &char| {
        *c == char::REPLACEMENT_CHARACTER || c.is_control() && !matches!(c, '\n' | '\r' | '\t')
    };
    let odd = start.clone().filter(is_odd).count();
    8 <= odd && start.count() <= 100 * odd
}

/// Whether a line can only be Python: `import os`, `from x import y`, `def main():`.
fn is_python(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    match &*words {
        ["import", ..] | ["from", _, "import", ..] => true,
        ["def" | "class", ..] => line.ends_with(':'),
        _ => false,
    }
}

fn is_json(first: &str) -> bool {
    first.starts_with('{') || first == "[" || first.starts_with("[{") || first.starts_with("[\"")
}

/// Whether a line is `hosts:` or `- name: a`; `n1: 4` may be a host and its slots.
fn is_yaml_key(first: &str) -> bool {
    let item = first.strip_prefix("- ");
    let (key, value) = item.unwrap_or(first).split_once(':').unwrap_or_default();
    let is_word = !key.is_empty() && key.bytes().all(|c| c.is_ascii_alphabetic() || c == b'_');
    is_word && (value.is_empty() || item.is_some() && value.starts_with(' '))
}

/// Whether a line is a section such as `[workers]`, and not an address.
fn is_section(first: &str) -> bool {
    let inside = first.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inside.is_some_and(|name| {
        name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"_.:- ".contains(&c))
            && name.parse::<std::net::Ipv6Addr>().is_err()
    })
}

/// Whether at least half of the lines, and at least 3, are sentences: three words or more, and none of them is a
/// setting or a number as in the lines of hostfiles.
fn is_prose(text: &str) -> bool {
    let is_word = |word: &str| !word.contains('=') && word.bytes().any(|c| !c.is_ascii_digit());
    let is_sentence =
        |line: &&str| 2 < line.split_whitespace().count() && line.split_whitespace().all(is_word);
    let lines = || text.lines().filter(|line| !line.trim().is_empty());
    let sentences = lines().filter(is_sentence).count();
    3 <= sentences && lines().count() <= 2 * sentences
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: Option<&str>) {
        let found = not_a_hostfile(text).map(|problem| problem.message);
        let expect = expect.map(|what| format!("this is {what}, not a hostfile"));
        assert_eq!(found, expect, "for {text:?}");
    }

    #[test]
    fn other_files_are_detected_by_first_line() {
        check("{\n  \"version\": 1,", Some("JSON"));
        check("\n[{\"host\": \"a\"}]\n", Some("JSON"));
        check("---\nhosts:\n- a\n", Some("YAML"));
        check("hosts:\n  - a\n", Some("YAML"));
        check("- host: a\n  slots: 4\n", Some("YAML"));
        check("#!/bin/sh\nexport A=1\n", Some("a script"));
        check("# Trains.\nimport os, sys\nrank, world = 0, 1\n", Some("a script of Python"));
        check("\"\"\"Trains.\"\"\"\nfrom torch import nn\n", Some("a script of Python"));
        check("x = 1\ndef main():\n    pass\n", Some("a script of Python"));
        check("[workers]\nn1\n", Some("an inventory or INI file"));
        check(&"\u{fffd}\u{1}x".repeat(20), Some("a program or other binary data"));
        let log = "rank 1 starts here\nTraceback (most recent call last):\n  File \"a.py\", line 3, in f\n";
        check(&format!("{log}ValueError: no such layer\n"), Some("a log or another text"));
        for text in [
            "",
            "# a\n",
            "[::1] slots=4x",
            "[fe80::1]",
            "n1: 4\u{1}",
            "n1:4 x",
            "n[1-",
            "a\u{7}b",
            "def x",
            "n1 slots = 4\nn2 slots = 4\nn3 slots = 4\n",
            "n1 8 gpus\nn2 8 gpus\nn3 8 gpus\n",
            "a log of one line",
        ] {
            check(text, None);
        }
    }
}
