//! Decoder of the bytes of a hostfile.

use crate::base::{Diagnostic, NotUtf8, Source, decode_text};

use super::codes::NOT_TEXT;

/// The text of a file. Bytes that are not text become U+FFFD and one diagnostic, so that the rest
/// of the file can still be read; a byte order mark is dropped.
pub fn decode(name: &str, bytes: &[u8]) -> (Source, Vec<Diagnostic>) {
    let (text, problem) = decode_text(bytes);
    let source = Source { name: name.to_owned(), text };
    (source, problem.map(not_text).into_iter().collect())
}

fn not_text(problem: NotUtf8) -> Diagnostic {
    let message = problem.message();
    match problem {
        NotUtf8::Utf16 => {
            let help = "type `iconv -f UTF-16 -t UTF-8 FILE > NEW`, and use NEW";
            Diagnostic::whole(NOT_TEXT, message).help(help)
        }
        NotUtf8::Byte { byte, span, .. } => Diagnostic::error(NOT_TEXT, span, message)
            .label(format!("byte 0x{byte:02x}"))
            .help("save the file as UTF-8; host names and slots are plain ASCII"),
    }
}
