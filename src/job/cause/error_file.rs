//! Parser of the file that torch's `@record` writes when a worker raises
//! (`TORCHELASTIC_ERROR_FILE`).

use std::time::Duration;

use serde_json::Value;

use crate::base::WorkerExit;

/// Content of such a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedException {
    /// `Type: message`.
    pub message: String,
    /// The traceback, where the file has one.
    pub call_stack: String,
    /// When it was written, in whole seconds since 1970.
    pub timestamp: Option<Duration>,
}

/// Parses an error file. A truncated file still gives the message; any other file that is no error
/// file gives nothing.
pub fn parse_error_file(bytes: &[u8]) -> Option<RecordedException> {
    let Ok(json) = serde_json::from_slice::<Value>(bytes) else {
        let message = cut_message(&String::from_utf8_lossy(bytes))?;
        return Some(RecordedException { message, call_stack: String::new(), timestamp: None });
    };
    let outer = &json["message"];
    let message = outer["message"].as_str().or_else(|| outer.as_str())?;
    let extra = &outer["extraInfo"];
    Some(RecordedException {
        message: message.to_owned(),
        call_stack: extra["py_callstack"].as_str().unwrap_or_default().to_owned(),
        timestamp: seconds(&extra["timestamp"]).or_else(|| seconds(&json["timestamp"])),
    })
}

/// An error file with the exit of its worker as `errorCode`, negative for a signal, as torch's launcher writes
/// it; `None` if it is no whole error file.
pub(crate) fn with_error_code(bytes: &[u8], exit: WorkerExit) -> Option<Vec<u8>> {
    let mut json: Value = serde_json::from_slice(bytes).ok()?;
    let code = match exit {
        WorkerExit::Code(code) => i32::from(code),
        WorkerExit::Signal { signal, .. } => -signal,
        WorkerExit::Lost => 0,
    };
    if let (Some(message), true) = (json["message"].as_object_mut(), code != 0) {
        message.insert("errorCode".to_owned(), code.into());
    }
    serde_json::to_vec(&json).ok()
}

/// Parses a timestamp: torch writes a number in quotes, its C++ side a number.
fn seconds(value: &Value) -> Option<Duration> {
    let seconds = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
    Some(Duration::from_secs(seconds))
}

/// The innermost `"message": "…` of a truncated text.
fn cut_message(text: &str) -> Option<String> {
    const KEY: &str = "\"message\": \"";
    let (_, rest) = text.split_once(KEY)?;
    let mut end = rest.len();
    let mut is_escaped = false;
    for (at, c) in rest.char_indices() {
        match c {
            '"' if !is_escaped => {
                end = at;
                break;
            }
            '\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    // A string that was cut inside an escape sequence is not valid.
    let whole = (0..=6).find_map(|cut| {
        let text = rest.get(..end.checked_sub(cut)?)?;
        serde_json::from_str::<String>(&format!("\"{text}\"")).ok()
    });
    whole.filter(|message| !message.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"{"message": {"message": "ValueError: bad \"batch\"\nrow 3", "extraInfo": {"py_callstack": "Traceback (most recent call last):\n", "timestamp": "1795389874"}}}"#;

    #[test]
    fn file_of_record_is_read() {
        let found = parse_error_file(WHOLE.as_bytes()).expect("it is whole");
        assert_eq!(found.message, "ValueError: bad \"batch\"\nrow 3");
        assert_eq!(found.timestamp, Some(Duration::from_secs(1_795_389_874)));
        assert!(found.call_stack.starts_with("Traceback"));
    }

    #[test]
    fn plain_message_is_read() {
        let found = parse_error_file(br#"{"message": "SIGSEGV in rank 3", "timestamp": 17}"#);
        let found = found.expect("it is whole");
        assert_eq!(
            (found.message.as_str(), found.timestamp),
            ("SIGSEGV in rank 3", Some(Duration::from_secs(17)))
        );
    }

    #[test]
    fn truncated_error_file_gives_its_message() {
        let cut = WHOLE.find("row").expect("it is there") + 2;
        let found = parse_error_file(&WHOLE.as_bytes()[..cut]).expect("a message");
        assert_eq!(found.message, "ValueError: bad \"batch\"\nro");
        let cut = WHOLE.find("\\nrow").expect("it is there") + 1;
        let found = parse_error_file(&WHOLE.as_bytes()[..cut]).expect("a message");
        assert_eq!(found.message, "ValueError: bad \"batch\"");
    }

    #[test]
    fn exit_is_added_for_an_outer_launcher() {
        let code = |text: &str, exit| {
            let bytes = with_error_code(text.as_bytes(), exit)?;
            let json: Value = serde_json::from_slice(&bytes).expect("JSON");
            Some(json["message"]["errorCode"].as_i64())
        };
        assert_eq!(code(WHOLE, WorkerExit::Code(3)), Some(Some(3)));
        assert_eq!(code(WHOLE, WorkerExit::Signal { signal: 11, core: false }), Some(Some(-11)));
        assert_eq!(code(WHOLE, WorkerExit::Lost), Some(None));
        assert_eq!(code(r#"{"message": "plain"}"#, WorkerExit::Code(1)), Some(None));
        assert_eq!(code("{\"message\": {", WorkerExit::Code(1)), None);
    }

    #[test]
    fn malformed_file_gives_nothing() {
        for text in [
            "",
            "{}",
            "[]",
            "{\"message\": 3}",
            "\0\0",
            "{\"message\": {\"x\": 1}}",
            "{\"message\": \"",
        ] {
            assert_eq!(parse_error_file(text.as_bytes()), None, "{text}");
        }
    }

    proptest::proptest! {
        /// A file may be cut anywhere.
        #[test]
        fn error_file_truncated_anywhere_is_parsed(cut in 0..WHOLE.len()) {
            let _ = parse_error_file(&WHOLE.as_bytes()[..cut]);
        }
    }
}
