//! Parser of what a program prints when it refuses its arguments.

/// Exit status of such a program, by the convention of argparse, click and clap.
pub(crate) const USAGE_STATUS: u8 = 2;

/// Number of lines at the end of an output that are read.
const LINES_MAX: usize = 64;
/// What begins the line with the reason: click, clap.
const HEADS: [&str; 2] = ["Error: ", "error: "];
/// What stands between the name of the program and the reason: argparse.
const AFTER_PROGRAM: &str = ": error: ";

/// Finds the last line of an output that has the reason, and its offset; `None` if the output does not show how
/// the program is used as well.
pub(crate) fn usage_error(text: &[u8]) -> Option<(usize, String)> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let mut ends = memchr::memrchr_iter(b'\n', text);
    let mut offset = ends.nth(LINES_MAX - 1).map_or(0, |end| end + 1);
    let (mut has_usage, mut found) = (false, None);
    for line in text[offset..].split(|byte| *byte == b'\n') {
        let shown = String::from_utf8_lossy(line);
        has_usage |= shown.starts_with("usage: ") || shown.starts_with("Usage: ");
        if HEADS.iter().any(|head| shown.starts_with(head)) || is_of_argparse(&shown) {
            found = Some((offset, shown.trim_end().to_owned()));
        }
        offset += line.len() + 1;
    }
    found.filter(|_| has_usage)
}

/// Whether a line is `train.py: error: unrecognized arguments: --x`.
fn is_of_argparse(line: &str) -> bool {
    line.split_once(AFTER_PROGRAM).is_some_and(|(program, _)| !program.contains(": "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&str>) {
        let found = usage_error(text.as_bytes());
        assert_eq!(found.as_ref().map(|(_, reason)| reason.as_str()), expected);
        if let Some((offset, reason)) = found {
            assert!(text[offset..].starts_with(&reason));
        }
    }

    #[test]
    fn refused_arguments_are_found() {
        let argparse = "loading\nusage: train.py [-h] [--lr LR]\ntrain.py: error: unrecognized arguments: --x\n";
        check(argparse, Some("train.py: error: unrecognized arguments: --x"));
        let click = "Usage: train.py [OPTIONS]\nTry 'train.py --help' for help.\n\nError: No such option: --x\n";
        check(click, Some("Error: No such option: --x"));
        let clap = "error: unexpected argument '--x' found\n\nUsage: train --lr <LR>\n\nFor more information, try '--help'.\n";
        check(clap, Some("error: unexpected argument '--x' found"));
        check("error: no space left\n", None);
        check("usage: train.py [-h]\n", None);
        check("usage: x\nINFO: step 3: error: 0.5\n", None);
        check("", None);
    }
}
