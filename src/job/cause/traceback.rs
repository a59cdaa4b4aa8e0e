//! Parser of printed Python tracebacks: the exception that ended a process, and its place.

use std::borrow::Cow;

use crate::job::cause::code_place::CodePlace;

/// The traceback that ended a process: the last one that was not caught.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traceback {
    /// Offset of its first line in the text.
    pub offset: usize,
    /// The exception that was printed last, with its message.
    pub exception: String,
    /// The first exception of its chain.
    pub root: String,
    /// The innermost frame outside of libraries.
    pub place: Option<CodePlace>,
    /// Whether another process or thread raised it, such as a worker of a DataLoader.
    pub is_carried: bool,
    /// Whether it certainly ended the process: torch's hook prints the rank in front of such a
    /// traceback, while one without a rank may have been logged and survived.
    pub is_final: bool,
}

/// Maximum number of lines of a message that are read.
const MESSAGE_LINES_MAX: usize = 16;

/// Text in front of a traceback that did not end the process.
const NON_FATAL_HEADERS: &[&str] =
    &["Exception ignored", "Exception in thread", "Error in atexit", "Error in sys.excepthook"];
/// Text between a traceback that did not end the process and its repetition: Cython prints both.
const REPETITION_HEADER: &str = "Exception ignored in: '";
/// Line in front of what NCCL reports as the cause, in the message of an exception of torch.
const NCCL_CAUSE: &str = "Last error:";
/// Text between two exceptions of one chain.
const CHAIN_SEPARATORS: &[&str] = &[
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
];

/// First line of a traceback.
const HEAD: &str = "Traceback (most recent call last)";
/// The same of an exception group.
const GROUP_HEAD: &str = "Exception Group Traceback (most recent call last)";
/// First line of the traceback inside the message of an exception that torch raises again: that of
/// a worker of a DataLoader, or of a replica.
const CARRIED_HEAD: &str = "Original Traceback (most recent call last)";
/// Exceptions of code that does not compile: the interpreter prints one of the main script without
/// the first line of a traceback.
const SYNTAX_ERRORS: &[&str] = &["SyntaxError", "IndentationError", "TabError"];
/// Maximum number of lines of the source that are printed with such an exception.
const SYNTAX_LINES_MAX: usize = 8;

/// What the interpreter prints if it cannot open the script.
pub(crate) const CANNOT_OPEN: &str = "can't open file '";
/// What the interpreter prints if it cannot start a program.
const START_FAILURES: &[&str] = &[
    CANNOT_OPEN,
    "No module named ",
    "can't find '__main__' module in ",
    "Error while finding module specification for ",
];

/// One exception with its frames.
struct PrintedException<'a> {
    /// Indices from its first line to the one behind its last.
    lines: std::ops::Range<usize>,
    message: Vec<Cow<'a, str>>,
    /// The message of the first exception of a group.
    member: Option<Vec<Cow<'a, str>>>,
    /// The innermost frame outside of libraries.
    own: Option<CodePlace>,
    innermost: Option<CodePlace>,
    is_carried: bool,
}

impl PrintedException<'_> {
    fn place(&self) -> Option<CodePlace> {
        self.own.as_ref().or(self.innermost.as_ref()).cloned()
    }

    fn has_text_of(&self, other: &Self) -> bool {
        self.message.first() == other.message.first()
    }
}

/// Finds the traceback that ended the process that printed this text: the last one, except those
/// that are printed while a process exits.
pub fn last_traceback(text: &[u8]) -> Option<Traceback> {
    let lines = Lines::of(text);
    let mut chains: Vec<(bool, Vec<PrintedException<'_>>)> = Vec::new();
    let mut at = 0;
    while let Some(printed) = next_exception(&lines, at) {
        at = printed.lines.end;
        let before = lines.before(printed.lines.start);
        let is_chained = CHAIN_SEPARATORS.iter().any(|text| before.starts_with(text));
        if let Some((_, chain)) = chains.last_mut().filter(|_| is_chained) {
            chain.push(printed);
        } else {
            let is_harmless = NON_FATAL_HEADERS.iter().any(|text| before.starts_with(text));
            if before.starts_with(REPETITION_HEADER)
                && let Some((is_first_harmless, first)) = chains.last_mut()
            {
                *is_first_harmless |= first.last().is_some_and(|first| first.has_text_of(&printed));
            }
            chains.push((is_harmless, vec![printed]));
        }
    }
    let index = chains.iter().rposition(|(is_harmless, _)| !is_harmless);
    let (_, chain) = chains.get(index.unwrap_or(chains.len().checked_sub(1)?))?;
    let (first, last) = (chain.first()?, chain.last()?);
    Some(Traceback {
        offset: lines.offsets[first.lines.start],
        exception: text_of(&last.message),
        root: text_of(first.member.as_ref().unwrap_or(&first.message)),
        place: last.place().or_else(|| first.place()),
        is_carried: last.is_carried,
        is_final: lines.has_rank(last.lines.start),
    })
}

/// The text of a message. One about NCCL begins with the cause that NCCL reports, which torch prints last.
fn text_of(message: &[Cow<'_, str>]) -> String {
    let text = message.join("\n").trim_end().to_owned();
    match nccl_cause(message) {
        Some((exception, cause)) => format!("{exception}: NCCL error: {cause}\n{text}"),
        None => text,
    }
}

/// The name of an exception of torch about NCCL, and the cause that NCCL reports.
fn nccl_cause<'a>(message: &'a [Cow<'_, str>]) -> Option<(&'a str, &'a str)> {
    let (exception, _) = message.first()?.split_once(": NCCL error in")?;
    let at = message.iter().position(|line| line.trim_end() == NCCL_CAUSE)?;
    let cause = message.get(at + 1)?.trim();
    (!cause.is_empty()).then_some((exception, cause))
}

/// Finds the reason for which the interpreter did not start a program: its last line.
pub(crate) fn start_failure(text: &[u8]) -> Option<(usize, String)> {
    let lines = Lines::of(text);
    let last = (0..lines.count()).rev().find(|at| !lines.at(*at).trim().is_empty())?;
    let line = lines.at(last);
    let (interpreter, reason) = line.split_once(": ")?;
    let name = interpreter.rsplit('/').next().unwrap_or(interpreter);
    let is_start_failure = START_FAILURES.iter().any(|text| reason.starts_with(text));
    let is_python = ["python", "pypy"].iter().any(|python| name.starts_with(python));
    (is_python && is_start_failure).then(|| (lines.offsets[last], reason.trim_end().to_owned()))
}

/// Finds the innermost place outside of libraries in a stack that Python's faulthandler wrote.
pub fn stack_place(text: &[u8]) -> Option<CodePlace> {
    let lines = Lines::of(text);
    let head = (0..lines.count()).rev().find(|at| {
        let line = lines.at(*at);
        let heads = ["Current thread ", "Stack "];
        let is_head = heads.iter().any(|head| line.starts_with(head));
        is_head && line.ends_with("(most recent call first):")
    })?;
    let frames = (head + 1..lines.count()).map(|at| lines.at(at));
    let frames: Vec<CodePlace> =
        frames.map_while(|line| place_of(&line, "\", line ", " in ")).collect();
    frames.iter().find(|place| !place.is_of_library()).or(frames.first()).cloned()
}

/// A text split into lines as a terminal would show them. A traceback begins a line of its own, also behind
/// a progress bar, which has no line end.
struct Lines<'a> {
    text: &'a [u8],
    offsets: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn of(text: &'a [u8]) -> Self {
        let ends = memchr::memchr_iter(b'\n', text).map(|end| end + 1);
        let heads = memchr::memmem::find_iter(text, HEAD).filter_map(|at| inner_head(text, at));
        let mut offsets: Vec<usize> = std::iter::once(0).chain(ends).chain(heads).collect();
        offsets.sort_unstable();
        offsets.dedup();
        offsets.retain(|offset| *offset < text.len());
        Self { text, offsets }
    }

    fn count(&self) -> usize {
        self.offsets.len()
    }

    /// The line without its end, without a progress bar that it overwrote, and without the rank
    /// that torch prints before it.
    fn at(&self, index: usize) -> Cow<'a, str> {
        String::from_utf8_lossy(without_rank(self.raw(index)))
    }

    /// The line without the margin of an exception group, `  | ` or `  + `, if it has one.
    fn in_group(&self, index: usize) -> Option<Cow<'a, str>> {
        let line = self.at(index);
        let inner = line.strip_prefix("  ")?.trim_start_matches(' ');
        let rest = inner.strip_prefix(['|', '+'])?;
        Some(Cow::Owned(rest.strip_prefix(' ').unwrap_or(rest).to_owned()))
    }

    fn has_rank(&self, index: usize) -> bool {
        let line = self.raw(index);
        without_rank(line).len() < line.len()
    }

    fn raw(&self, index: usize) -> &'a [u8] {
        let end = self.offsets.get(index + 1).map_or(self.text.len(), |next| *next);
        let line = &self.text[self.offsets[index]..end];
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        line.rsplit(|byte| *byte == b'\r').next().unwrap_or(line)
    }

    /// The nearest line above that is not empty.
    fn before(&self, index: usize) -> Cow<'a, str> {
        let above = (0..index).rev().take(3).map(|at| self.at(at));
        above.into_iter().find(|line| !line.trim().is_empty()).unwrap_or_default()
    }
}

/// Returns the beginning of a traceback, with the rank that torch prints before it, if its first line has
/// other text before it: `at` is the place of [`HEAD`]. Its frames follow; a text that only names a traceback
/// has none.
fn inner_head(text: &[u8], at: usize) -> Option<usize> {
    let line_start = memchr::memrchr(b'\n', &text[..at]).map_or(0, |end| end + 1);
    let line_end = at + memchr::memchr(b'\n', &text[at..])?;
    let below = &text[line_end + 1..];
    let has_frame = without_rank(below).starts_with(b"  File \"");
    if !has_frame || text[line_start..at].ends_with(b"Original ") {
        return None;
    }
    let before = &text[line_start..at];
    let rank = before.windows(5).rposition(|part| part == b"[rank");
    let rank = rank.filter(|rank| without_rank(&before[*rank..]).is_empty());
    Some(rank.map_or(at, |rank| line_start + rank))
}

/// Removes `[rank2]: `, which torch prints in front of every line of a traceback.
fn without_rank(line: &[u8]) -> &[u8] {
    let Some(rest) = line.strip_prefix(b"[rank") else {
        return line;
    };
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    match rest[digits..].strip_prefix(b"]:") {
        Some(rest) if 0 < digits => rest.strip_prefix(b" ").unwrap_or(rest),
        _ => line,
    }
}

fn next_exception<'a>(lines: &Lines<'a>, from: usize) -> Option<PrintedException<'a>> {
    (from..lines.count()).find_map(|at| {
        if is_head(&lines.at(at)) {
            Some(parse_exception(lines, at, at + 1))
        } else if lines.in_group(at).is_some_and(|line| line.starts_with(GROUP_HEAD)) {
            Some(parse_group(lines, at))
        } else if is_syntax_error(lines, at) {
            Some(parse_exception(lines, at, at))
        } else {
            None
        }
    })
}

/// Parses an exception that begins in the line `start` and has its frames from `frames_from` on.
fn parse_exception<'a>(
    lines: &Lines<'a>,
    start: usize,
    frames_from: usize,
) -> PrintedException<'a> {
    let mut frames = Vec::new();
    let mut at = frames_from;
    while at < lines.count() && is_frame(&lines.at(at)) {
        frames.extend(place_of(&lines.at(at), "\", line ", ", in "));
        at += 1;
    }
    let end = at;
    let is_message = |line: &str| {
        let is_other = NON_FATAL_HEADERS.iter().any(|text| line.starts_with(text));
        !is_head(line) && !is_other && !CHAIN_SEPARATORS.contains(&line)
    };
    let message: Vec<_> = (end..lines.count())
        .map(|at| lines.at(at))
        .take(MESSAGE_LINES_MAX)
        .take_while(|line| is_message(line))
        .collect();
    let own = frames.iter().rev().find(|place| !place.is_of_library()).cloned();
    if let Some(head) = message.iter().position(|line| line.starts_with(CARRIED_HEAD)) {
        let original = parse_exception(lines, end + head, end + head + 1);
        let (own, is_carried) = (original.own.or(own), true);
        return PrintedException { lines: start..original.lines.end, own, is_carried, ..original };
    }
    let (lines, innermost) = (start..end.max(start + 1), frames.last().cloned());
    PrintedException { lines, message, member: None, own, innermost, is_carried: false }
}

/// Parses an exception group that begins in the line `start`: its own message, and the first of its
/// exceptions that is no group, whose place is nearer to the cause.
fn parse_group<'a>(lines: &Lines<'a>, start: usize) -> PrintedException<'a> {
    let block: Vec<Cow<'a, str>> =
        (start + 1..lines.count()).map_while(|at| lines.in_group(at)).collect();
    let mut frames = Vec::new();
    let mut messages = vec![Vec::new()];
    for line in &block {
        let message = messages.last_mut().expect("one at least");
        if line.starts_with("-+-") {
            // The exceptions of this group begin.
            messages.push(Vec::new());
        } else if line.starts_with("--") {
            break;
        } else if is_frame(line) {
            frames.extend(place_of(line, "\", line ", ", in "));
        } else if !is_head(line) && !line.starts_with(GROUP_HEAD) {
            message.push(line.clone());
        }
    }
    let own = frames.iter().rev().find(|place| !place.is_of_library()).cloned();
    let message = messages.remove(0);
    PrintedException {
        lines: start..start + 1 + block.len(),
        message,
        member: messages.pop(),
        own,
        innermost: frames.last().cloned(),
        is_carried: false,
    }
}

/// Whether the file and line of code that does not compile begin here.
fn is_syntax_error(lines: &Lines<'_>, at: usize) -> bool {
    let line = lines.at(at);
    let is_file = line.starts_with("  File \"") && line.ends_with(|c: char| c.is_ascii_digit());
    if !is_file || place_of(&line, "\", line ", ", in ").is_none() {
        return false;
    }
    let below = (at + 1..lines.count()).take(SYNTAX_LINES_MAX).map(|at| lines.at(at));
    let message = below.into_iter().find(|line| !is_frame(line));
    message.is_some_and(|line| SYNTAX_ERRORS.iter().any(|name| line.starts_with(name)))
}

fn is_head(line: &str) -> bool {
    line.starts_with(HEAD) || line.starts_with('╭') && line.contains(HEAD)
}

/// Whether a line belongs to a frame: Python indents frames; `rich` draws a box around them.
fn is_frame(line: &str) -> bool {
    line.starts_with([' ', '\t', '│', '╰', '╭', '├'])
}

/// Parses `  File "train.py", line 13, in main`.
fn place_of(line: &str, before_line: &str, before_function: &str) -> Option<CodePlace> {
    let (file, rest) = line.trim_start().strip_prefix("File \"")?.split_once(before_line)?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let line = rest[..digits].parse().ok()?;
    let function = rest[digits..].strip_prefix(before_function).unwrap_or_default();
    Some(CodePlace { file: file.to_owned(), line, function: function.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(file: &str, line: u32, function: &str) -> CodePlace {
        CodePlace { file: file.to_owned(), line, function: function.to_owned() }
    }

    #[test]
    fn traceback_has_exception_and_place() {
        let text = "epoch 1\nTraceback (most recent call last):\n  File \"train.py\", line 20, in <module>\n    \
                    main()\n    ~~~~^^\n  File \"train.py\", line 13, in main\n    raise E(\"x\")\n\
                    RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\nlater\n";
        let found = last_traceback(text.as_bytes()).expect("there is one");
        assert_eq!((found.offset, found.is_final), (8, false));
        assert!(found.exception.starts_with("RuntimeError: CUDA out of memory."), "{found:?}");
        assert_eq!(found.place, Some(place("train.py", 13, "main")));
        assert_eq!(last_traceback(b"no traceback\n"), None);
        assert_eq!(last_traceback(b""), None);
    }

    #[test]
    fn traceback_with_rank_of_torch_is_read() {
        let text = "[rank2]: Traceback (most recent call last):\n[rank2]:   File \"/x/train.py\", line 7, in step\n\
                    [rank2]:     y = f(x)\n[rank2]:   File \"/v/lib/python3.11/site-packages/torch/nn.py\", line 9, in f\n\
                    [rank2]: ValueError: bad\n";
        let found = last_traceback(text.as_bytes()).expect("there is one");
        assert_eq!(found.exception, "ValueError: bad");
        assert!(found.is_final);
        assert_eq!(found.place, Some(place("/x/train.py", 7, "step")));
    }

    #[test]
    fn traceback_behind_a_progress_bar_is_found() {
        #[track_caller]
        fn check(bar: &str, rank: &str) {
            let text = format!(
                "start\n{bar}{rank}Traceback (most recent call last):\n{rank}  File \"a.py\", line 6, in f\n\
                 {rank}KeyError: 'ids'\n{bar}"
            );
            let found = last_traceback(text.as_bytes()).expect("there is one");
            assert_eq!(found.exception.lines().next(), Some("KeyError: 'ids'"), "{text:?}");
            assert_eq!((found.offset, found.is_final), (6 + bar.len(), !rank.is_empty()));
            assert_eq!(found.place, Some(place("a.py", 6, "f")));
        }
        check("\r 25%|██▌  | 4/16 [00:01<00:02, 2.2it/s]", "");
        check("\r 25%|██▌  | 4/16 [00:01<00:02, 2.2it/s]", "[rank0]: ");
        check("[rank0] loading ", "[rank12]: ");
        check("", "[rank0]: ");
        let named = "see the Traceback (most recent call last):\nKeyError: 1\n";
        assert_eq!(last_traceback(named.as_bytes()), None, "without frames");
    }

    #[test]
    fn traceback_of_an_exit_handler_is_ignored() {
        for harmless in [
            "Exception ignored in atexit callback <function f>:\n",
            "Exception in thread Thread-1 (run):\n",
            "Error in atexit._run_exitfuncs:\n",
        ] {
            let text = format!(
                "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\nValueError: mine\n\
                 {harmless}Traceback (most recent call last):\n  File \"b.py\", line 2, in f\nRuntimeError: Broken pipe\n"
            );
            let found = last_traceback(text.as_bytes()).expect("there is one");
            assert!(found.exception.starts_with("ValueError: mine"), "{found:?}");
        }
    }

    #[test]
    fn traceback_that_cython_ignores_and_repeats_is_no_cause() {
        let ignored = "Traceback (most recent call last):\n  File \"cupy/driver.pyx\", line 247, in unload\n\
                       CUDADriverError: CUDA_ERROR_ILLEGAL_ADDRESS\n";
        let text = format!(
            "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n\
             CUDARuntimeError: an illegal memory access was encountered\n\
             {ignored}Exception ignored in: 'cupy.Module.__dealloc__'\n{ignored}"
        );
        let found = last_traceback(text.as_bytes()).expect("there is one");
        let expected = "CUDARuntimeError: an illegal memory access was encountered";
        assert_eq!(
            (&*found.exception, found.place),
            (expected, Some(place("a.py", 3, "<module>")))
        );
        let other = text.replacen(ignored, "", 1);
        let found = last_traceback(other.as_bytes()).expect("there is one");
        assert_eq!(found.exception, expected, "the traceback above another one is not ignored");
    }

    #[test]
    fn nccl_error_begins_with_the_cause() {
        let text = "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"dup.py\", line 4, in <module>\n\
                    [rank1]: torch.distributed.DistBackendError: NCCL error in: /pytorch/NCCLUtils.cpp:93, \
                    invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.28.9\n\
                    [rank1]: ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n\
                    [rank1]: Last error:\n\
                    [rank1]: Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 60\n";
        let found = last_traceback(text.as_bytes()).expect("there is one");
        let expected = "torch.distributed.DistBackendError: NCCL error: Duplicate GPU detected : rank 1 \
                        and rank 0 both on CUDA device 60\n\
                        torch.distributed.DistBackendError: NCCL error in: /pytorch/NCCLUtils.cpp:93, ";
        assert!(found.exception.starts_with(expected), "{}", found.exception);
        let unknown = text.split_once("[rank1]: Duplicate").expect("it has a cause").0;
        let found = last_traceback(unknown.as_bytes()).expect("there is one");
        assert!(found.exception.starts_with("torch.distributed.DistBackendError: NCCL error in"));
    }

    #[test]
    fn exception_chain_has_a_root() {
        let text = "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nRuntimeError: first\n\n\
                    During handling of the above exception, another exception occurred:\n\n\
                    Traceback (most recent call last):\n  File \"a.py\", line 5, in g\nKeyError: 'second'\n";
        let found = last_traceback(text.as_bytes()).expect("there is one");
        assert_eq!((found.root.lines().next(), found.offset), (Some("RuntimeError: first"), 0));
        assert_eq!(found.exception, "KeyError: 'second'");
    }

    #[test]
    fn traceback_box_of_rich_is_parsed() {
        let text = "╭──── Traceback (most recent call last) ────╮\n│ /x/a.py:3 in main  │\n╰────╯\nValueError: boxed\n";
        assert_eq!(last_traceback(text.as_bytes()).expect("one").exception, "ValueError: boxed");
    }

    #[test]
    fn exception_group_names_its_first_exception() {
        let text = "step 3\n  + Exception Group Traceback (most recent call last):\n  |   File \"a.py\", line 9, in main\n\
                    \u{20} |     raise g\n  | ExceptionGroup: errors in a TaskGroup (2 sub-exceptions)\n\
                    \u{20} +-+---------------- 1 ----------------\n    | Traceback (most recent call last):\n\
                    \u{20}   |   File \"a.py\", line 4, in load\n    |     f(7)\n    | ValueError: shard 7 is corrupt\n\
                    \u{20}   | in data/7.bin\n    +---------------- 2 ----------------\n    | KeyError: 'x'\n\
                    \u{20}   +------------------------------------\n";
        let found = last_traceback(text.as_bytes()).expect("there is one");
        assert_eq!(found.exception, "ExceptionGroup: errors in a TaskGroup (2 sub-exceptions)");
        assert_eq!(found.root, "ValueError: shard 7 is corrupt\nin data/7.bin");
        assert_eq!((found.offset, found.place), (7, Some(place("a.py", 4, "load"))));
        let lines: Vec<String> = text.lines().map(|line| format!("[rank2]: {line}")).collect();
        let of_torch = lines.join("\n") + "\n";
        let found = last_traceback(of_torch.as_bytes()).expect("there is one");
        assert!(found.is_final && found.root.starts_with("ValueError"), "{found:?}");
        let nested = "  + Exception Group Traceback (most recent call last):\n  | ExceptionGroup: a (1 sub-exception)\n\
                      \u{20} +-+---------------- 1 ----------------\n    | ExceptionGroup: b (1 sub-exception)\n\
                      \u{20}   +-+---------------- 1 ----------------\n      | ValueError: x\n\
                      \u{20}     +------------------------------------\n";
        let found = last_traceback(nested.as_bytes()).expect("there is one");
        assert_eq!(
            (&*found.exception, &*found.root),
            ("ExceptionGroup: a (1 sub-exception)", "ValueError: x")
        );
    }

    #[test]
    fn syntax_error_of_the_script_has_a_place() {
        let text = "warning: x\n  File \"syn.py\", line 2\n    def f(:\n          ^\nSyntaxError: invalid syntax\n";
        let found = last_traceback(text.as_bytes()).expect("there is one");
        assert_eq!((found.offset, found.exception.as_str()), (11, "SyntaxError: invalid syntax"));
        assert_eq!(found.place, Some(place("syn.py", 2, "")));
        let text = "  File \"tab.py\", line 3\n    x = 1\nIndentationError: unexpected indent\n";
        let found = last_traceback(text.as_bytes()).expect("there is one");
        assert_eq!(found.exception, "IndentationError: unexpected indent");
        let imported = format!(
            "Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\n{text}"
        );
        let found = last_traceback(imported.as_bytes()).expect("there is one");
        assert_eq!((found.offset, found.place), (0, Some(place("tab.py", 3, ""))));
        assert_eq!(last_traceback(b"  File \"a.py\", line 3\nother\n"), None);
    }

    #[test]
    fn interpreter_names_why_it_cannot_start_a_program() {
        #[track_caller]
        fn check(text: &str, expect: Option<(usize, &str)>) {
            let found = start_failure(text.as_bytes());
            assert_eq!(found.as_ref().map(|(at, reason)| (*at, reason.as_str())), expect);
        }
        check("a\n/usr/bin/python3: No module named x.y\n\n", Some((2, "No module named x.y")));
        let file = "can't open file '/x/a.py': [Errno 2] No such file or directory";
        check(&format!("python3.12: {file}\n"), Some((0, file)));
        check("/usr/bin/python3: No module named x\nlater\n", None);
        check("train.py: No module named x\n", None);
        check("python3: hello\n", None);
        check("", None);
    }

    #[test]
    fn exception_of_a_data_loader_worker_is_the_original_one() {
        let text = "[rank0]: Traceback (most recent call last):\n[rank0]:   File \"/x/mpw.py\", line 8, in <module>\n\
                    [rank0]:   File \"/v/site-packages/torch/_utils.py\", line 7, in reraise\n\
                    [rank0]: IndexError: Caught IndexError in DataLoader worker process 1.\n\
                    [rank0]: Original Traceback (most recent call last):\n\
                    [rank0]:   File \"/v/site-packages/torch/utils/data/worker.py\", line 9, in loop\n\
                    [rank0]:   File \"/x/mpw.py\", line 5, in __getitem__\n[rank0]: IndexError: sample 5 is bad\n";
        let found = last_traceback(text.as_bytes()).expect("there is one");
        assert_eq!((found.exception.as_str(), found.offset), ("IndexError: sample 5 is bad", 0));
        assert_eq!(found.root, found.exception);
        assert_eq!(found.place, Some(place("/x/mpw.py", 5, "__getitem__")));
        assert!(found.is_carried && found.is_final);
        let of_library =
            text.replace("/x/mpw.py\", line 5", "/v/site-packages/collate.py\", line 5");
        let found = last_traceback(of_library.as_bytes()).expect("there is one");
        assert_eq!(found.place.map(|place| place.line), Some(8), "the innermost own code");
    }

    #[test]
    fn generated_code_is_not_the_place() {
        let text = "Traceback (most recent call last):\n  File \"acc.py\", line 3, in <module>\n  File \"<string>\", line 24, in \
                    __init__\nValueError: no such plugin\n";
        let found = last_traceback(text.as_bytes()).expect("there is one");
        assert_eq!(found.place, Some(place("acc.py", 3, "<module>")));
        let command = text.replace("acc.py", "<string>");
        let found = last_traceback(command.as_bytes()).expect("there is one");
        assert_eq!(found.place, Some(place("<string>", 3, "<module>")), "`python -c`");
    }

    #[test]
    fn faulthandler_crash_has_a_place() {
        let text = "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f61 (most recent call first):\n  \
                    File \"/v/lib/python3.11/site-packages/torch/x.py\", line 1 in f\n  File \"a.py\", line 31 in <lambda>\n";
        assert_eq!(stack_place(text.as_bytes()), Some(place("a.py", 31, "<lambda>")));
        assert_eq!(stack_place(b"x"), None);
    }

    proptest::proptest! {
        /// Any bytes are read without a panic, and the result lies in the text.
        #[test]
        fn any_bytes_are_parsed(parts in proptest::collection::vec(0usize..16, 0..24)) {
            const PIECES: [&str; 16] = ["  + Exception Group ", "  | ", "  +-+---- 1 ----\n", "    +----\n","  25%|",
                "Traceback (most recent call last):\n", "  File \"a.py\", line 3, in f\n", "E: x\n", "\n",
                "[rank1]: ", "During handling of the above exception, another exception occurred:\n", "\r", "é",
                "Original Traceback (most recent call last):\n", "  File \"a.py\", line 3\n", "python3: No module named ",
            ];
            let text: String = parts.iter().map(|part| PIECES[*part]).collect();
            if let Some(found) = last_traceback(text.as_bytes()) {
                proptest::prop_assert!(found.offset < text.len());
            }
            let _ = (stack_place(text.as_bytes()), start_failure(text.as_bytes()));
        }
    }
}
