//! Evidence that a failed worker left behind: an error file, a traceback or a known phrase.

use std::time::{Duration, Instant};

use crate::base::{Rank, WorkerExit};
use crate::job::cause::code_place::CodePlace;
use crate::job::cause::error_file::RecordedException;
use crate::job::cause::known_texts::{FailureClass, classify, missing_ranks};
use crate::job::cause::rust_panic::{RustPanic, parse_panic};
use crate::job::cause::traceback::{
    CANNOT_OPEN, Traceback, last_traceback, stack_place, start_failure,
};
use crate::job::cause::usage_error::{USAGE_STATUS, usage_error};

/// Where the evidence was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvidenceSource {
    /// In the file that torch's `@record` wrote.
    ErrorFile,
    /// In the worker's output.
    Output,
    /// In a note, in which it told remuda why it gave up, or which exception ends it.
    Note,
}

/// A worker's own report of its failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Where it was found.
    pub source: EvidenceSource,
    /// Class of the failure.
    pub class: FailureClass,
    /// When it was written, on the launcher's clock.
    pub at: Instant,
    /// The exception, `Type: message`; `None` where the worker printed only a known phrase.
    pub exception: Option<String>,
    /// The exception that led to it, where that is a different one.
    pub root: Option<String>,
    /// The place in the program.
    pub place: Option<CodePlace>,
    /// Ranks that it names as missing.
    pub missing: Vec<Rank>,
    /// Whether the worker was joining the process group of torch.
    pub is_joining: bool,
    /// Whether it certainly describes what ended the process.
    pub is_final: bool,
    /// Whether it says that a program refused its arguments: the worker, if it exited with 2, or one that the worker
    /// started.
    pub is_usage_error: bool,
    /// The first output that was received at least [`WENT_ON_AFTER`] later: the worker may have
    /// survived an exception that it printed.
    pub later_output: Option<Instant>,
    /// The traceback in the error file.
    pub recorded_stack: Option<String>,
}

/// What a frame of a traceback says of a worker that was joining the process group.
const JOINING: &[u8] = b" in init_process_group";

/// A worker that printed a traceback longer before its exit than this has survived the exception.
pub(crate) const EXIT_AFTER_TRACEBACK_MAX: Duration = Duration::from_secs(60);

/// Output that is received so long after a traceback does not belong to it.
pub const WENT_ON_AFTER: Duration = Duration::from_secs(1);

/// Beginning of the exception of a program of Rust that panicked.
const PANIC: &str = "panic: ";
/// Exit status of such a program.
const PANIC_STATUS: u8 = 101;

/// Number of lines at the end of an output without a traceback in which a known phrase counts.
const PHRASE_LINES_MAX: usize = 64;

/// Exceptions that programs raise and handle in the ordinary course: where the chain begins with
/// one of them, the last exception decides.
const HANDLED_EXCEPTIONS: &[&str] = &[
    "KeyError",
    "IndexError",
    "AttributeError",
    "StopIteration",
    "queue.Empty",
    "_queue.Empty",
    "ImportError",
    "ModuleNotFoundError",
    "FileNotFoundError",
];

impl Evidence {
    /// Evidence of an error file that was written at this instant.
    pub fn of_error_file(recorded: &RecordedException, at: Instant) -> Self {
        let traceback = last_traceback(recorded.call_stack.as_bytes());
        let root = traceback.as_ref().map_or("", |traceback| &traceback.root);
        let carried = traceback.as_ref().filter(|traceback| traceback.is_carried);
        let message = carried.map_or(&recorded.message, |traceback| &traceback.exception);
        Self {
            source: EvidenceSource::ErrorFile,
            class: class_of_chain(root, &recorded.message),
            at,
            missing: missing_ranks(message),
            is_joining: is_joining(recorded.call_stack.as_bytes()),
            exception: Some(message.clone()),
            root: root_of(root, message),
            place: traceback.and_then(|traceback| traceback.place),
            is_final: true,
            is_usage_error: false,
            later_output: None,
            recorded_stack: Some(recorded.call_stack.clone()).filter(|stack| !stack.is_empty()),
        }
    }

    /// Evidence of a worker's output; `at` returns when the byte at an offset was received.
    pub fn of_output(text: &[u8], at: impl Fn(usize) -> Instant) -> Option<Self> {
        if let Some(traceback) = last_traceback(text) {
            let Traceback { offset, exception, root, place, is_carried, is_final } = traceback;
            // A worker of a DataLoader takes part in no collective.
            let class =
                if is_carried { FailureClass::Own } else { class_of_chain(&root, &exception) };
            return Some(Self {
                root: root_of(&root, &exception),
                missing: missing_ranks(&exception),
                is_joining: is_joining(&text[offset..]),
                exception: Some(exception).filter(|text| !text.is_empty()),
                place,
                is_final,
                ..Self::printed(class, at(offset))
            });
        }
        if let Some((offset, reason)) = start_failure(text) {
            let printed = Self::printed(FailureClass::Own, at(offset));
            return Some(Self { exception: Some(reason), ..printed });
        }
        let Some((offset, class, line)) = last_phrase(text) else {
            let (offset, reason) = usage_error(text)?;
            let printed = Self::printed(FailureClass::Own, at(offset));
            return Some(Self { exception: Some(reason), is_usage_error: true, ..printed });
        };
        if let Some(RustPanic { message, place }) = parse_panic(&text[offset..]) {
            // A program that unwraps an error panics with its message.
            let class = classify(&message).unwrap_or(FailureClass::Own);
            let missing = missing_ranks(&message);
            let exception = Some(format!("{PANIC}{message}"));
            return Some(Self { exception, place, missing, ..Self::printed(class, at(offset)) });
        }
        let (place, missing) = (stack_place(text), missing_ranks(&line));
        Some(Self { place, missing, ..Self::printed(class, at(offset)) })
    }

    /// Evidence of the reason for which a worker aborted the collectives of all ranks: the ranks for which
    /// it waited until its timeout. Other reasons may be a consequence of what it does not know.
    pub fn of_note(reason: &str, at: Instant) -> Option<Self> {
        let class = classify(reason).filter(|class| *class == FailureClass::TimedOut)?;
        let missing = missing_ranks(reason);
        Some(Self { source: EvidenceSource::Note, missing, ..Self::printed(class, at) })
    }

    /// Evidence of the exception in a note of a worker, `Type: message`.
    pub fn of_exception(exception: &str, at: Instant) -> Self {
        let class = class_of_chain("", exception);
        Self {
            source: EvidenceSource::Note,
            missing: missing_ranks(exception),
            exception: Some(exception.to_owned()),
            is_final: true,
            ..Self::printed(class, at)
        }
    }

    /// Evidence of an output of which only the class is known.
    pub(crate) fn printed(class: FailureClass, at: Instant) -> Self {
        Self {
            source: EvidenceSource::Output,
            class,
            at,
            exception: None,
            root: None,
            place: None,
            missing: Vec::new(),
            is_joining: false,
            is_final: false,
            is_usage_error: false,
            later_output: None,
            recorded_stack: None,
        }
    }

    /// Whether the worker printed more a while after this report and before an instant: it has
    /// survived an exception that does not certainly describe its end.
    pub(crate) fn is_survived_by(&self, until: Option<Instant>) -> bool {
        let is_before = |at: Instant| until.is_none_or(|until| at <= until);
        !self.is_final && self.later_output.is_some_and(is_before)
    }

    /// Whether it describes how a process exited that exited like this then. A traceback that was
    /// logged looks like the one that ended a process, after which the interpreter exits with 1.
    pub fn describes_exit(&self, exit: WorkerExit, at: Instant) -> bool {
        let is_late = EXIT_AFTER_TRACEBACK_MAX < at.saturating_duration_since(self.at);
        let is_start_failure =
            self.exception.as_ref().is_some_and(|reason| reason.starts_with(CANNOT_OPEN));
        if self.is_final || self.exception.is_none() {
            return true;
        }
        match exit {
            WorkerExit::Code(1) | WorkerExit::Signal { .. } => !is_late,
            WorkerExit::Code(PANIC_STATUS) => {
                self.exception.as_ref().is_some_and(|reason| reason.starts_with(PANIC))
            }
            WorkerExit::Code(USAGE_STATUS) if self.is_usage_error => true,
            WorkerExit::Code(_) => is_start_failure,
            WorkerExit::Lost => true,
        }
    }

    /// Merges both reports. The error file outranks the output, which may be of any part of the
    /// program.
    pub fn merge(file: Option<Self>, output: Option<Self>) -> Option<Self> {
        match (file, output) {
            (Some(file), Some(output)) => Some(Self { place: file.place.or(output.place), ..file }),
            (file, output) => file.or(output),
        }
    }
}

/// Whether a traceback went through the function of torch that joins the process group.
fn is_joining(traceback: &[u8]) -> bool {
    memchr::memmem::find(traceback, JOINING).is_some()
}

/// Class of the exception that ended a process. The first exception of its chain decides, unless it
/// is of a kind that is handled in the ordinary course. An exception of no known component is a
/// failure of the process itself.
fn class_of_chain(root: &str, exception: &str) -> FailureClass {
    let decides = if is_handled(root) { exception } else { root };
    classify(decides).unwrap_or(FailureClass::Own)
}

fn is_handled(root: &str) -> bool {
    root.is_empty() || HANDLED_EXCEPTIONS.iter().any(|name| root.starts_with(name))
}

/// The first exception of a chain, where it adds information to the last one.
fn root_of(root: &str, exception: &str) -> Option<String> {
    let is_other = root.lines().next() != exception.lines().next();
    (is_other && !root.is_empty()).then(|| root.to_owned())
}

/// The first known phrase of the last lines: what follows it is a result of it.
fn last_phrase(text: &[u8]) -> Option<(usize, FailureClass, String)> {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let mut offset = start_of_last_lines(text);
    for line in text[offset..].split(|byte| *byte == b'\n') {
        let shown = String::from_utf8_lossy(line);
        if let Some(class) = classify(&shown) {
            return Some((offset, class, shown.into_owned()));
        }
        offset += line.len() + 1;
    }
    None
}

/// Where the last lines begin in which a known phrase counts. The frames of a stack are not counted: one of many threads
/// may follow the phrase.
fn start_of_last_lines(text: &[u8]) -> usize {
    let (mut lines_left, mut end) = (PHRASE_LINES_MAX, text.len());
    loop {
        let start = memchr::memrchr(b'\n', &text[..end]).map_or(0, |before| before + 1);
        lines_left -= usize::from(!text[start..end].starts_with(b"  File \""));
        if lines_left == 0 || start == 0 {
            return start;
        }
        end = start - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock;
    use crate::job::cause::error_file::parse_error_file;

    fn class_of(text: &str) -> Option<FailureClass> {
        let now = clock::now();
        Evidence::of_output(text.as_bytes(), |_| now).map(|evidence| evidence.class)
    }

    #[test]
    fn first_phrase_of_an_abort_decides() {
        let text = "step 7\n[rank1]:[E1122 ProcessGroupNCCL.cpp:685] [Rank 1] Watchdog caught collective operation \
                    timeout: WorkNCCL(SeqNum=3)\nterminate called after throwing an instance of \
                    'c10::DistBackendError'\n  what():  NCCL error: remote process exited or there was a network error\n\
                    Fatal Python error: Aborted\n";
        assert_eq!(class_of(text), Some(FailureClass::TimedOut));
        assert_eq!(class_of("Segmentation fault (core dumped)\n"), Some(FailureClass::Own));
        assert_eq!(class_of("nothing known\n"), None);
        assert_eq!(class_of(""), None);
    }

    #[test]
    fn panic_of_rust_is_an_exception() {
        let now = clock::now();
        let panic = |message: &str| {
            let text =
                format!("step 3\nthread 'main' (7) panicked at src/main.rs:4:9:\n{message}\n");
            Evidence::of_output(text.as_bytes(), |_| now).expect("known")
        };
        let own = panic("index out of bounds");
        assert_eq!(own.exception.as_deref(), Some("panic: index out of bounds"));
        assert_eq!(own.place.as_ref().map(|place| place.line), Some(4));
        assert_eq!(own.class, FailureClass::Own);
        assert!(own.describes_exit(WorkerExit::Code(101), now));
        assert!(!own.describes_exit(WorkerExit::Code(3), now));
        let unwrapped = panic(
            "called `Result::unwrap()` on an `Err` value: rank 1 (n2) exited before it took part",
        );
        assert_eq!(unwrapped.class, FailureClass::LostPeer);
    }

    #[test]
    fn old_phrase_without_a_traceback_is_no_evidence() {
        let later = "line\n".repeat(PHRASE_LINES_MAX);
        assert_eq!(class_of(&format!("CUDA error: x\n{later}")), None);
        assert_eq!(
            class_of(&format!("line\nCUDA error: x\n{}", &later[5..])),
            Some(FailureClass::Own)
        );
        let frames = "  File \"a.py\", line 3 in f\n".repeat(2 * PHRASE_LINES_MAX);
        let lost = "what(): Connection closed by peer\nFatal Python error: Aborted\n";
        assert_eq!(
            class_of(&format!("{lost}{frames}{}", &later[30..])),
            Some(FailureClass::LostPeer)
        );
    }

    #[test]
    fn root_of_a_chain_decides() {
        let chain = |first: &str, last: &str| {
            class_of(&format!(
                "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n{first}\n\n\
                 During handling of the above exception, another exception occurred:\n\n\
                 Traceback (most recent call last):\n  File \"a.py\", line 5, in g\n{last}\n"
            ))
        };
        let lost = "RuntimeError: [gloo/transport/tcp/pair.cc:1] Connection closed by peer";
        assert_eq!(chain(lost, "OSError: cannot save"), Some(FailureClass::LostPeer));
        assert_eq!(chain("ValueError: bad", lost), Some(FailureClass::Own));
        assert_eq!(chain("KeyError: 'cache'", lost), Some(FailureClass::LostPeer));
    }

    #[test]
    fn root_of_a_chain_is_kept_where_it_adds_information() {
        #[track_caller]
        fn check(root: &str, exception: &str, expect: Option<&str>) {
            assert_eq!(root_of(root, exception).as_deref(), expect);
        }
        check("ValueError: a", "ValueError: a\nmore", None);
        check("KeyError: 'a'", "ValueError: a", Some("KeyError: 'a'"));
        check("FileNotFoundError: x", "OSError: y", Some("FileNotFoundError: x"));
        check("", "ValueError: a", None);
        check("OSError: disk", "RuntimeError: cannot load", Some("OSError: disk"));
    }

    #[test]
    fn logged_traceback_does_not_describe_the_exit() {
        #[track_caller]
        fn check(text: &str, exit: WorkerExit, seconds: u64, expect: bool) {
            let now = clock::now();
            let evidence = Evidence::of_output(text.as_bytes(), |_| now).expect("a report");
            let at = now + Duration::from_secs(seconds);
            assert_eq!(evidence.describes_exit(exit, at), expect, "{text} {exit:?} {seconds}");
        }
        let logged =
            "Traceback (most recent call last):\n  File \"a.py\", line 3, in f\nKeyError: 'k'\n";
        check(logged, WorkerExit::Code(1), 1, true);
        check(logged, WorkerExit::Code(1), 61, false);
        check(logged, WorkerExit::Code(9), 1, false);
        check(logged, WorkerExit::Signal { signal: 6, core: false }, 1, true);
        let of_torch = format!("[rank0]: {}", logged.replace('\n', "\n[rank0]: "));
        check(&of_torch, WorkerExit::Code(9), 61, true);
        check("python3: can't open file 'a.py': [Errno 2]\n", WorkerExit::Code(2), 1, true);
        check("python3: No module named a\n", WorkerExit::Code(1), 1, true);
        check("CUDA error: x\n", WorkerExit::Code(9), 1, true);
    }

    #[test]
    fn error_file_gives_the_original_exception_of_a_data_loader() {
        let file = br#"{"message": {"message": "IndexError: Caught IndexError in DataLoader worker process 0.\nOriginal", "extraInfo": {"py_callstack": "Traceback (most recent call last):\n  File \"a.py\", line 8, in f\nIndexError: Caught IndexError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n  File \"a.py\", line 5, in g\nIndexError: bad\n"}}}"#;
        let file = parse_error_file(file).expect("whole");
        let evidence = Evidence::of_error_file(&file, clock::now());
        assert_eq!(evidence.exception.as_deref(), Some("IndexError: bad"));
        assert_eq!(
            (evidence.place.map(|place| place.line), evidence.class),
            (Some(5), FailureClass::Own)
        );
    }

    #[test]
    fn exception_of_a_note_is_classified() {
        let of = |text| Evidence::of_exception(text, clock::now());
        let own = of("ValueError: bad");
        assert_eq!((own.class, own.source), (FailureClass::Own, EvidenceSource::Note));
        assert_eq!(own.exception.as_deref(), Some("ValueError: bad"));
        let late =
            of("remuda.errors.Deadline: barrier (operation 1, 0 bytes) failed on rank 2: the \
                       deadline passed while waiting for rank 1, after 1.5 s");
        assert_eq!((late.class, late.missing), (FailureClass::TimedOut, vec![Rank(1)]));
    }

    #[test]
    fn error_file_outranks_output() {
        let now = clock::now();
        let file =
            parse_error_file(br#"{"message": {"message": "ValueError: bad"}}"#).expect("whole");
        let file = Evidence::of_error_file(&file, now);
        let text =
            b"Traceback (most recent call last):\n  File \"a.py\", line 3, in f\nKeyError: 1\n";
        let output = Evidence::of_output(text, |_| now);
        let merged = Evidence::merge(Some(file), output.clone()).expect("both");
        assert_eq!(merged.exception.as_deref(), Some("ValueError: bad"));
        assert_eq!((merged.place.map(|place| place.line), merged.root), (Some(3), None));
        assert_eq!(Evidence::merge(None, output.clone()), output);
        assert_eq!(Evidence::merge(None, None), None);
    }
}
