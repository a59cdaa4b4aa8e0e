//! Errors about options that need each other or contradict each other.

use crate::base::Diagnostic;
use crate::cli::line::{CommandLine, RefusedLine, codes};

/// Returns the error for an option that needs another one.
pub(in crate::cli) fn needs_other(typed: &CommandLine, flag: &str, other: &str) -> RefusedLine {
    let place = typed.name_or_end(flag);
    typed.refuse(&[place], |spans| {
        let message = format!("`--{flag}` needs `--{other}`");
        Diagnostic::error(codes::NEEDS_OTHER, spans[0], message)
            .label("has no effect alone")
            .help(format!("add `--{other}`, or leave `--{flag}` out"))
    })
}

/// Returns the error for two options that contradict each other.
pub(in crate::cli) fn cannot_combine(
    typed: &CommandLine,
    left: &str,
    right: &str,
    why: &str,
) -> RefusedLine {
    let place = |flag| typed.name_or_end(flag);
    typed.refuse(&[place(right), place(left)], |spans| {
        let message = format!("`--{left}` and `--{right}` cannot be combined");
        Diagnostic::error(codes::CANNOT_COMBINE, spans[0], message)
            .label(why)
            .related(spans[1], "")
            .help("keep one of the two")
    })
}
