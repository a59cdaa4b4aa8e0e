//! Reads configuration files.

use std::io::{self, Read};
use std::path::Path;

use crate::base::shell::quoted;
use crate::base::{Diagnostic, Findings, Source};
use crate::config::codes::CONFIG_UNREADABLE;
use crate::os::files::input_file::{InputReader, irregular_kind, is_pipe, open};
use crate::report::text::show_io_error;

/// Maximum size of a configuration, in bytes; most have some hundred.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Reads the bytes of a file, or of standard input for `-`.
///
/// # Errors
/// If the file cannot be read, is of another kind, or is too large.
pub(in crate::cli::command) fn read_bytes(path: &Path) -> Result<Vec<u8>, Findings> {
    if path.as_os_str() == "-" {
        return read_all(io::stdin().lock()).map_err(|problem| refused(path, problem));
    }
    open_file(path).and_then(read_all).map_err(|problem| refused(path, problem))
}

/// A message, and help.
type Problem = (String, String);

fn open_file(path: &Path) -> Result<InputReader, Problem> {
    let unreadable = |error: &io::Error| match error.kind() {
        io::ErrorKind::NotFound => {
            ("does not exist".to_owned(), "correct the path; `-` is standard input".to_owned())
        }
        _ => (
            format!("cannot be read: {}", show_io_error(error)),
            format!("make it readable: `chmod u+r {}`", quoted(path)),
        ),
    };
    let file = open(path).map_err(|error| unreadable(&error))?;
    let found = file.metadata().map_err(|error| unreadable(&error))?;
    // A shell replaces `<(command)` with the path of a pipe.
    if let Some(kind) = irregular_kind(&found).filter(|_| !is_pipe(&found)) {
        let message = format!("is not a regular file: it is {kind}");
        return Err((message, "name the file itself".to_owned()));
    }
    InputReader::new(file).map_err(|error| unreadable(&error))
}

fn read_all(input: impl Read) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::new();
    input.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| {
        (format!("cannot be read: {}", show_io_error(&error)), "correct the path".to_owned())
    })?;
    if FILE_BYTES_MAX < bytes.len() as u64 {
        return Err((
            "is larger than 4 MiB".to_owned(),
            "name a `ds_config.json`, or the YAML of `accelerate config`".to_owned(),
        ));
    }
    Ok(bytes)
}

fn refused(path: &Path, (message, help): Problem) -> Findings {
    let name = path.display().to_string();
    let message = format!("configuration `{name}` {message}");
    let problem = Diagnostic::whole(CONFIG_UNREADABLE, message).help(help);
    Findings { source: Source { name, text: String::new() }, diagnostics: vec![problem] }
}
