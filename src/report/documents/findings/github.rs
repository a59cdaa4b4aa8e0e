//! Annotations of a pull request, as workflow commands of GitHub Actions.

use std::fmt::Write as _;

use super::located::{CheckedFile, locate_diagnostics};
use crate::base::Severity;

/// Formats a line for each diagnostic.
pub fn show_github(files: &[CheckedFile<'_>]) -> String {
    let mut out = String::new();
    for placed in locate_diagnostics(files) {
        let level = match placed.diagnostic.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "notice",
        };
        write!(out, "::{level} file={}", property(placed.file))
            .expect("writing to a String cannot fail");
        if let Some(place) = placed.region {
            let (line, column, end) = (place.line, place.column, place.end_column);
            write!(out, ",line={line},col={column},endColumn={end}")
                .expect("writing to a String cannot fail");
        }
        let help =
            placed.diagnostic.help.as_ref().map_or(String::new(), |help| format!("\nhelp: {help}"));
        let message = data(&format!("{}{help}", placed.diagnostic.message));
        writeln!(out, ",title={}::{message}", placed.diagnostic.code)
            .expect("writing to a String cannot fail");
    }
    out
}

fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
