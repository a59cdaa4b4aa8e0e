//! Wrapping of text to a width. Pure.

/// First character of the escape sequences of colours, which end with an `m`.
const ESCAPE: char = '\u{1b}';

/// Wraps paragraphs to at most `width` columns. A line that begins with a blank is kept as it is;
/// other consecutive lines are one paragraph.
pub(super) fn paragraphs(text: &str, width: usize) -> String {
    let mut blocks: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in text.lines() {
        let is_kept = line.is_empty() || line.starts_with(' ');
        match blocks.last_mut().filter(|_| is_open && !is_kept) {
            Some(block) => *block = format!("{block} {line}"),
            None => blocks.push(line.to_owned()),
        }
        is_open = !is_kept;
    }
    let lines = blocks.iter().flat_map(|block| {
        if block.starts_with(' ') { vec![block.clone()] } else { wrap(block, width, 0) }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Formats a shell line with indentation; a long line is continued after a backslash.
pub(super) fn shell_line(line: &str, width: usize) -> String {
    const INDENT: &str = "  ";
    let room = width.saturating_sub(INDENT.len() + 2);
    let mut lines = wrap(line, room, 4);
    let last = lines.pop().unwrap_or_default();
    let lines = lines.iter().map(|line| format!("{INDENT}{line} \\\n"));
    lines.collect::<String>() + INDENT + &last
}

/// Wraps every line that is wider than `width`. A long line is broken at a blank, and its
/// continuation has the same indentation.
pub(in crate::cli) fn fit(text: &str, width: usize) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (content, end) = line.strip_suffix('\n').map_or((line, ""), |content| (content, "\n"));
        if columns(content) <= width {
            out += content;
        } else {
            let indent = (content.len() - content.trim_start().len()).min(width / 2);
            let room = width.saturating_sub(indent).max(1);
            let lines = wrap(content.trim_start(), room, 4.min(room / 2));
            let lines = lines.iter().map(|line| format!("{:indent$}{line}", ""));
            out += &lines.collect::<Vec<_>>().join("\n");
        }
        out += end;
    }
    out
}

/// Wraps one line; all lines but the first are indented by `hanging` blanks.
fn wrap(line: &str, width: usize, hanging: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    let mut is_first = true;
    for word in line.split(' ') {
        for (number, part) in parts(word, width.saturating_sub(hanging).max(1)).iter().enumerate() {
            let wide = columns(part);
            if 0 < number || !is_first && width < used + 1 + wide {
                lines.push(" ".repeat(hanging));
                used = hanging;
            } else if !is_first {
                lines.last_mut().expect("one line at least").push(' ');
                used += 1;
            }
            lines.last_mut().expect("one line at least").push_str(part);
            used += wide;
            is_first = false;
        }
    }
    lines
}

/// Splits a word into pieces of at most `width` columns.
fn parts(word: &str, width: usize) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = word;
    while width < columns(rest) {
        let mut cut = rest.len();
        for (at, _) in rest.char_indices() {
            if columns(&rest[..at]) == width {
                cut = at;
                break;
            }
        }
        found.push(&rest[..cut]);
        rest = &rest[cut..];
    }
    found.push(rest);
    found
}

/// Number of characters outside escape sequences: each takes one column.
fn columns(text: &str) -> usize {
    let mut is_escape = false;
    let counts = |letter: char| {
        if letter == ESCAPE {
            is_escape = true;
            return false;
        }
        let was = is_escape;
        is_escape &= letter != 'm';
        !was
    };
    text.chars().map(counts).filter(|counts| *counts).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paragraphs_are_joined_and_wrapped() {
        let text = "One two\nthree four.\n\n  kept as it is\n\nFive.";
        assert_eq!(paragraphs(text, 12), "One two\nthree four.\n\n  kept as it is\n\nFive.");
        assert_eq!(paragraphs(text, 40), "One two three four.\n\n  kept as it is\n\nFive.");
    }

    #[test]
    fn shell_lines_are_continued_after_a_backslash() {
        assert_eq!(shell_line("remuda run -n 4 x.py", 40), "  remuda run -n 4 x.py");
        assert_eq!(shell_line("remuda run -n 4 x.py", 20), "  remuda run -n 4 \\\n      x.py");
    }

    #[test]
    fn long_lines_keep_their_indentation() {
        assert_eq!(fit("short\n", 8), "short\n");
        assert_eq!(fit("  aaaa bbbb cccc\nx", 10), "  aaaa\n      bbbb\n      cccc\nx");
        assert_eq!(fit("\u{1b}[1maaaa\u{1b}[0m bbbb", 9), "\u{1b}[1maaaa\u{1b}[0m bbbb");
        assert_eq!(fit("abcdefgh", 4), "ab\n  cd\n  ef\n  gh");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn lines_fit_the_width_and_keep_all_letters(text in "[a-z ]{0,60}(\n {0,6}[a-z]{0,30}){0,3}", width in 12usize..60) {
            let fitted = fit(&text, width);
            prop_assert!(fitted.lines().all(|line| columns(line) <= width), "{fitted}");
            let letters = |text: &str| text.split_whitespace().collect::<String>();
            prop_assert_eq!(letters(&fitted), letters(&text));
        }
    }
}
