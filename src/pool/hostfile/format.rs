//! Formatter of a hostfile in its canonical form: one blank between words, two before a comment
//! behind a host, one empty line at most, no zeros before a number. Comments and the order of lines
//! stay.

use crate::pool::dialect::Dialect;
use crate::pool::hostfile::host_line::HostToken;
use crate::pool::hostfile::line::words;
use crate::pool::hostfile::parse::lines;

/// Formats a text that has no errors. Formatting twice changes nothing, and the hosts stay the
/// same.
pub fn format(text: &str, dialect: Dialect) -> String {
    let mut out = String::with_capacity(text.len());
    let mut is_gap = false;
    for (_, line, _) in lines(text) {
        let formatted = format_line(line, dialect);
        if formatted.is_empty() {
            is_gap = !out.is_empty();
            continue;
        }
        if std::mem::take(&mut is_gap) {
            out.push('\n');
        }
        out.push_str(&formatted);
        out.push('\n');
    }
    out
}

/// The number of lines with a comment.
pub fn comments(text: &str, dialect: Dialect) -> usize {
    lines(text).filter(|(_, line, _)| !split_comment(line, dialect).1.is_empty()).count()
}

fn format_line(line: &str, dialect: Dialect) -> String {
    let (content, comment) = split_comment(line, dialect);
    let mut parts: Vec<String> = words(content, 0).iter().map(format_word).collect();
    if dialect == Dialect::OpenMpi {
        join_equals(&mut parts);
    }
    let content = parts.join(" ");
    match comment.trim_end() {
        "" => content,
        comment if content.is_empty() => comment.to_owned(),
        comment => format!("{content}  {comment}"),
    }
}

/// Splits a line into its content and its comment with the mark.
fn split_comment(line: &str, dialect: Dialect) -> (&str, &str) {
    let slashes = || crate::pool::dialect::slashes_at(line);
    let hash = hash_at(line);
    let at = if dialect == Dialect::OpenMpi { hash.min(slashes()) } else { hash };
    line.split_at(at)
}

/// The byte where a `#` begins a comment: anywhere except inside the host name.
fn hash_at(line: &str) -> usize {
    let start = line.len() - line.trim_start().len();
    let first = line[start..].find(char::is_whitespace).map_or(line.len(), |at| start + at);
    let from = if line[start..].starts_with('#') { start } else { first };
    line[from..].find('#').map_or(line.len(), |at| from + at)
}

/// Formats one word: `slots=04` → `slots=4`.
fn format_word(word: &HostToken<'_>) -> String {
    let Some((key, number)) = word.text.split_once('=') else { return word.text.to_owned() };
    let is_count = matches!(key, "slots" | "max_slots" | "max-slots");
    let digits = number.trim_start_matches('0');
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_count && is_number { format!("{key}={digits}") } else { word.text.to_owned() }
}

/// Joins the words of a setting: `slots`, `=`, `4` → `slots=4`.
fn join_equals(parts: &mut Vec<String>) {
    let mut at = 1;
    while at < parts.len() {
        let is_open = parts[at - 1].ends_with('=') && !parts[at].contains('=');
        if 1 < at && (is_open || parts[at].starts_with('=')) {
            let part = parts.remove(at);
            parts[at - 1].push_str(&part);
            let word = std::mem::take(&mut parts[at - 1]);
            parts[at - 1] = format_word(&HostToken::new(&word, 0));
        } else {
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::pool::{ReadOptions, read_any};

    #[track_caller]
    fn check(dialect: Dialect, text: &str, expect: &str) {
        assert_eq!(format(text, dialect), expect);
        assert_eq!(format(expect, dialect), expect, "twice");
    }

    #[test]
    fn format_is_canonical() {
        let text = "\n\n  # rack 1  \na\tslots=04\t# fast \r\n\n\n\nb  slots=8#x\n#end\n\n";
        check(Dialect::DeepSpeed, text, "# rack 1\na slots=4  # fast\n\nb slots=8  #x\n#end\n");
        check(Dialect::DeepSpeed, "a slots=1", "a slots=1\n");
        check(Dialect::DeepSpeed, "", "");
        let text = "a slots = 4 max_slots= 8 // x\n b slots =02\nc\n";
        check(Dialect::OpenMpi, text, "a slots=4 max_slots=8  // x\nb slots=2\nc\n");
        check(Dialect::Hydra, " a:4   ifname=x\n", "a:4 ifname=x\n");
    }

    fn text() -> impl Strategy<Value = String> {
        let word = proptest::sample::select(vec![
            "a",
            "b",
            "c1",
            "slots=4",
            "slots=04",
            "slots",
            "=",
            "4",
            "max_slots=8",
            "#",
            "# x",
            "//",
            "\n",
            "\n",
            "\n",
            " ",
            " ",
            "\t",
            "\r\n",
            "d:2",
            "n[1-2]",
            "e:1,f:2",
        ]);
        proptest::collection::vec(word, 0..30).prop_map(|words| words.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1024, ..ProptestConfig::default() })]

        #[test]
        fn format_keeps_hosts_and_comments_and_is_idempotent(text in text()) {
            let reading = read_any("hosts", text.as_bytes(), ReadOptions::default());
            if !reading.findings.has_errors() {
                let once = format(&text, reading.dialect);
                prop_assert_eq!(&format(&once, reading.dialect), &once);
                let again = read_any("hosts", once.as_bytes(), ReadOptions::default());
                let key = |reading: &crate::pool::Reading| -> Vec<_> {
                    reading.hostfile.hosts().iter().map(|host| (host.name.clone(), host.slots)).collect()
                };
                prop_assert_eq!(key(&again), key(&reading));
                let comments = |text: &str| text.matches(['#', 'x']).count();
                prop_assert_eq!(comments(&once), comments(&text));
            }
        }
    }
}
