//! Parser of what a Rust program prints when it panics.

use crate::job::cause::code_place::CodePlace;

/// What stands between the name of the thread and the place.
const PANICKED: &str = "panicked at ";
/// Lines after the message.
const ENDS: [&str; 2] = ["note: run with `RUST_BACKTRACE", "stack backtrace:"];
/// Maximum number of lines of a message that are read.
const MESSAGE_LINES_MAX: usize = 8;

/// A panic that a program printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RustPanic {
    /// The text with which it panicked.
    pub(crate) message: String,
    /// Its place in the program.
    pub(crate) place: Option<CodePlace>,
}

/// Parses the panic whose first line begins the text: `thread 'main' (7) panicked at src/main.rs:4:9:`, with
/// the message in the lines below.
pub(crate) fn parse_panic(text: &[u8]) -> Option<RustPanic> {
    let text = String::from_utf8_lossy(text);
    let mut lines = text.lines();
    let (thread, place) = lines.next()?.split_once(PANICKED)?;
    if !thread.starts_with("thread '") {
        return None;
    }
    let message = lines.take_while(|line| !ENDS.iter().any(|end| line.starts_with(end)));
    let message: Vec<&str> = message.take(MESSAGE_LINES_MAX).collect();
    Some(RustPanic { message: message.join("\n").trim_end().to_owned(), place: parse_place(place) })
}

/// Parses `src/main.rs:4:9:`.
fn parse_place(place: &str) -> Option<CodePlace> {
    let mut parts = place.trim_end_matches(':').rsplitn(3, ':');
    let (_column, line, file) = (parts.next()?, parts.next()?, parts.next()?);
    let function = String::new();
    Some(CodePlace { file: file.to_owned(), line: line.parse().ok()?, function })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_has_message_and_place() {
        let place = |line| {
            Some(CodePlace { file: "src/main.rs".to_owned(), line, function: String::new() })
        };
        let found = parse_panic(
            b"thread 'main' (71) panicked at src/main.rs:4:9:\nindex out of bounds: the len is 3\n\
              note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n",
        );
        let message = "index out of bounds: the len is 3".to_owned();
        assert_eq!(found, Some(RustPanic { message, place: place(4) }));
        let found = parse_panic(
            b"thread 'a b' panicked at src/main.rs:12:1:\none\ntwo\nstack backtrace:\n",
        );
        assert_eq!(found, Some(RustPanic { message: "one\ntwo".to_owned(), place: place(12) }));
        assert_eq!(parse_panic(b"thread 'x' panicked at somewhere").expect("one").place, None);
        assert_eq!(parse_panic(b"the program panicked at src/main.rs:1:1:\n"), None);
        assert_eq!(parse_panic(b""), None);
    }
}
