//! Errors of the kernel, as text.

use std::io;

/// The kernel's text for an error, without its number.
pub fn show_io_error(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}
