//! Errors of the kernel, as text.

use std::io;

/// The kernel's text for an error, without its number.
pub fn show_io_error(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

/// The reason why a directory could not be created: its path can be that of a file.
pub fn show_create_dir_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AlreadyExists => "a file has this name".to_owned(),
        _ => show_io_error(error),
    }
}
