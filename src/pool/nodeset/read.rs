//! Parser of text into [`Pattern`]s.

use crate::base::{HostName, Span};

use super::error::{RangeError, RangeProblem};
use super::pattern::{Pattern, PatternPart, Run};
use crate::pool::nodeset::error::NAMES_MAX;

/// Number of digits that always fit into a `u64`.
const DIGITS_MAX: usize = 18;

/// Whether a word has ranges: `n[1-3]` and `[1-3]n` do, the address `[::1]` does not.
pub fn is_pattern(word: &str) -> bool {
    let Some(inside) = word.strip_prefix('[') else { return word.contains(['[', ']']) };
    let is_range = |inside: &str| inside.bytes().all(|c| b"0123456789-,/".contains(&c));
    inside.split_once(']').is_some_and(|(inside, _)| is_range(inside))
}

/// Parses a list: names between commas, `n[1-3],login`. `start` is its byte in the whole text. The
/// errors of every name are reported; all names together expand to at most [`NAMES_MAX`] names.
pub fn read_list(text: &str, start: usize) -> Result<Vec<(Pattern, Span)>, Vec<RangeProblem>> {
    let mut patterns = Vec::new();
    let mut problems = Vec::new();
    let mut count: u64 = 0;
    for (at, word) in split_list(text) {
        let span = Span::new(start + at, start + at + word.len());
        match read_pattern(word, span.start) {
            Ok(pattern) => {
                count = count.saturating_add(pattern.count());
                patterns.push((pattern, span));
            }
            Err(problem) => problems.push(problem),
        }
    }
    if NAMES_MAX < count {
        let span = Span::new(start, start + text.len());
        problems.push(RangeProblem { error: RangeError::TooManyNames(count), span });
    }
    if problems.is_empty() { Ok(patterns) } else { Err(problems) }
}

/// Splits a list at the commas outside brackets, with the positions of the parts.
fn split_list(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_inside = false;
    let parts = text.split(move |c| {
        match c {
            '[' => is_inside = true,
            ']' => is_inside = false,
            _ => {}
        }
        c == ',' && !is_inside
    });
    parts.map(|part| (part.as_ptr() as usize - text.as_ptr() as usize, part))
}

/// Parses one name with ranges, which begins at byte `start` of the text.
pub fn read_pattern(word: &str, start: usize) -> Result<Pattern, RangeProblem> {
    let mut reader = Reader { word, start };
    let pieces = if is_pattern(word) { reader.parts()? } else { reader.plain_name()? };
    let count = Pattern::count_of(&pieces);
    if NAMES_MAX < count {
        return Err(reader.problem(RangeError::TooManyNames(count), 0, word.len()));
    }
    let pattern = Pattern { parts: pieces };
    // Digits are valid anywhere in a name, so a check of the longest name covers all of them.
    let longest = pattern.longest();
    match HostName::parse(&longest) {
        Ok(_) => Ok(pattern),
        Err(error) => Err(reader.problem(error.into(), 0, word.len())),
    }
}

impl Pattern {
    /// One of the longest of the names.
    fn longest(&self) -> String {
        let longest = |piece: &PatternPart| match piece {
            PatternPart::Text(text) => text.clone(),
            PatternPart::Numbers(runs) => {
                let numbers =
                    runs.iter().map(|run| format!("{:0width$}", run.last, width = run.width));
                numbers.max_by_key(String::len).unwrap_or_default()
            }
        };
        self.parts.iter().map(longest).collect()
    }
}

struct Reader<'a> {
    word: &'a str,
    start: usize,
}

impl<'a> Reader<'a> {
    fn problem(&self, error: RangeError, from: usize, to: usize) -> RangeProblem {
        RangeProblem { error, span: Span::new(self.start + from, self.start + to) }
    }

    fn plain_name(&mut self) -> Result<Vec<PatternPart>, RangeProblem> {
        if self.word.is_empty() {
            return Err(self.problem(RangeError::EmptyName, 0, 0));
        }
        Ok(vec![PatternPart::Text(self.word.to_owned())])
    }

    fn parts(&mut self) -> Result<Vec<PatternPart>, RangeProblem> {
        let mut pieces = Vec::new();
        let mut ranges = 0;
        let mut at = 0;
        while at < self.word.len() {
            let rest = &self.word[at..];
            let text = &rest[..rest.find(['[', ']']).unwrap_or(rest.len())];
            if !text.is_empty() {
                pieces.push(PatternPart::Text(text.to_owned()));
                at += text.len();
                continue;
            }
            if rest.starts_with(']') {
                return Err(self.problem(RangeError::Unopened, at, at + 1));
            }
            let Some(length) = rest.find(']') else {
                return Err(self.problem(RangeError::Unclosed, at, at + 1));
            };
            ranges += 1;
            if Pattern::RANGES_MAX < ranges {
                return Err(self.problem(RangeError::TooManyRanges, at, at + length + 1));
            }
            pieces.push(PatternPart::Numbers(self.runs(at + 1, at + length)?));
            at += length + 1;
        }
        Ok(pieces)
    }

    /// Parses the text between two brackets.
    fn runs(&self, from: usize, to: usize) -> Result<Vec<Run>, RangeProblem> {
        let mut at = from;
        let mut runs = Vec::new();
        for item in self.word[from..to].split(',') {
            runs.push(self.run(item, at)?);
            at += item.len() + 1;
        }
        Ok(runs)
    }

    /// Parses one item: `7`, `01-03`, `1-9/2`.
    fn run(&self, item: &'a str, at: usize) -> Result<Run, RangeProblem> {
        let end = at + item.len();
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (range, self.number(step, at + range.len() + 1)?),
            None => (item, 1),
        };
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let run = Run {
            first: self.number(first, at)?,
            last: self.number(last, at + range.len() - last.len())?,
            step,
            width: if is_padded(first) { first.len() } else { 0 },
        };
        let as_written = || (first.to_owned(), last.to_owned());
        if step == 0 || item.contains('/') && !range.contains('-') {
            return Err(self.problem(RangeError::BadStep, at + range.len(), end));
        }
        if run.last < run.first {
            let (first, last) = as_written();
            return Err(self.problem(RangeError::Reversed { first, last }, at, at + range.len()));
        }
        if (is_padded(first) || is_padded(last)) && first.len() != last.len() {
            let (first, last) = as_written();
            return Err(self.problem(RangeError::Padding { first, last }, at, at + range.len()));
        }
        // The last number that the run reaches, so that equal patterns are equal values.
        let last = run.first + (run.count() - 1) * run.step;
        Ok(Run { last, step: if last == run.first { 1 } else { step }, ..run })
    }

    fn number(&self, text: &str, at: usize) -> Result<u64, RangeProblem> {
        let error = if text.is_empty() {
            RangeError::EmptyItem
        } else if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            RangeError::NotANumber(text.to_owned())
        } else if DIGITS_MAX < text.len() {
            RangeError::TooLarge
        } else {
            return Ok(text.bytes().fold(0, |sum, byte| sum * 10 + u64::from(byte - b'0')));
        };
        Err(self.problem(error, at, at + text.len()))
    }
}

/// Whether a number has leading zeros: `01`, `00`; not `0`.
fn is_padded(text: &str) -> bool {
    1 < text.len() && text.starts_with('0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(list: &str, expect: &str) {
        let found = match read_list(list, 0) {
            Ok(patterns) => {
                let hosts = patterns.iter().flat_map(|(pattern, _)| pattern.hosts());
                hosts.map(|host| host.to_string()).collect::<Vec<_>>().join(" ")
            }
            Err(problems) => {
                let Span { start, end } = problems[0].span;
                format!("{} at `{}`", problems[0].error, &list[start..end])
            }
        };
        assert_eq!(found, expect, "for `{list}`");
    }

    #[test]
    fn list_expands_to_names() {
        check("n1", "n1");
        check("n[1-3]", "n1 n2 n3");
        check("n[01-03,7]", "n01 n02 n03 n7");
        check("n[08-11]", "n08 n09 n10 n11");
        check("a[1,01,001]", "a1 a01 a001");
        check("r[0-1]n[00-02]", "r0n00 r0n01 r0n02 r1n00 r1n01 r1n02");
        check("n[1-3]-ib", "n1-ib n2-ib n3-ib");
        check("gpu-[1-2]-[08-10]", "gpu-1-08 gpu-1-09 gpu-1-10 gpu-2-08 gpu-2-09 gpu-2-10");
        check("n[1-10/3]", "n1 n4 n7 n10");
        check("n[1-2/5]", "n1");
        check("n[1-2],login,n[1-2]", "n1 n2 login n1 n2");
        check("10.0.0.[1-2]", "10.0.0.1 10.0.0.2");
        check("[1-2]n", "1n 2n");
        check("[::1]", "[::1]");
        check("[fe80::1],n1", "[fe80::1] n1");
    }

    #[test]
    fn error_has_position() {
        check("n[1-3", "`[` is not closed at `[`");
        check("n1]", "`]` without `[` at `]`");
        check("n[]", "a number is missing in the range at ``");
        check("n[1,,2]", "a number is missing in the range at ``");
        check("n[-3]", "a number is missing in the range at ``");
        check("n[a]", "`a` is not a number at `a`");
        check("n[1-2-3]", "`2-3` is not a number at `2-3`");
        check("n[3-1]", "descending range: 1 is below 3 at `3-1`");
        check("n[01-3]", "`01` and `3` are padded differently at `01-3`");
        check("n[1-03]", "`1` and `03` are padded differently at `1-03`");
        check("n[1-9/0]", "a step follows a range and is at least 1 at `/0`");
        check("n[1/2]", "a step follows a range and is at least 1 at `/2`");
        check("n[1-9/]", "a number is missing in the range at ``");
        check("n[9999999999999999999]", "the number is too large at `9999999999999999999`");
        check("n[0-99999999]", "100000000 hosts exceed the limit 65536 at `n[0-99999999]`");
        assert!(read_list("a[1-65536]", 0).is_ok());
        check(
            "a[1-40000],b[1-40000]",
            "80000 hosts exceed the limit 65536 at `a[1-40000],b[1-40000]`",
        );
        check("a,,b", "a host name is missing at ``");
        check("", "a host name is missing at ``");
        check("-o[1-2]", "host names may not begin with `-` at `-o[1-2]`");
        check("a;[1-2]", "character `;` is not allowed in a host name at `a;[1-2]`");
        check("n[1-2][", "`[` is not closed at `[`");
        check(&"[1]".repeat(9), &format!("more than 8 ranges in one name at `{}`", "[1]"));
    }
}
