//! Parser of one line: `NAME=value`, optionally after `export`, and common mistakes.

use super::value;
use crate::base::env_vars::{self, RESERVED};
use crate::base::{Diagnostic, Span};
use crate::pool::codes;
use crate::pool::env_file::text::EnvText;

/// Limit of Linux for one `NAME=value`, without its final NUL.
const VARIABLE_BYTES_MAX: usize = 131_071;
/// Variables that select which code a worker runs, whatever its command is.
const LOADS_CODE: [&str; 4] = ["LD_AUDIT", "LD_PRELOAD", "PATH", "PYTHONHOME"];

/// The content of a line, as far as it can be parsed.
#[derive(Debug, Default)]
pub(super) struct EnvLine {
    /// The name and its position; `None` on a line that sets nothing.
    pub(super) name: Option<(String, Span)>,
    /// The value, if it could be read.
    pub(super) value: Option<String>,
    /// All problems of the line.
    pub(super) problems: Vec<Diagnostic>,
}

/// Reads a line that begins at byte `start` of the text.
pub(super) fn parse(line: &str, start: usize) -> EnvLine {
    let text = EnvText { text: line, start }.trim();
    if text.text.is_empty() || text.text.starts_with('#') {
        return EnvLine::default();
    }
    let mut problems = control_bytes(text);
    let assignment = without_export(text);
    let Some(at) = assignment.text.find('=') else {
        problems.push(no_equals(text, assignment));
        return EnvLine { problems, ..EnvLine::default() };
    };
    let name = assignment.part(0, at).trim();
    problems.extend(name_problem(name, assignment.start + at));
    let typed = assignment.part(at + 1, assignment.text.len()).trim();
    let value = value::read(typed, &mut problems);
    problems.extend(value.as_deref().and_then(|value| too_long(name, value)));
    EnvLine { name: Some((name.text.to_owned(), name.span())), value, problems }
}

/// Warns of variables that a file in the working directory should not set: the file may belong to
/// code from another author.
pub fn loads_code_warning(name: &str, span: Span) -> Option<Diagnostic> {
    LOADS_CODE.contains(&name).then(|| {
        let message = format!("`{name}` is set by a file of the working directory");
        Diagnostic::warning(codes::ENV_LOADS_CODE, span, message)
            .label("selects the code that every worker runs")
            .help("if this is intended, move the line to the file in your home directory")
    })
}

/// Removes `export` from `export A=1`: the word has no effect here, and shells need it.
fn without_export(line: EnvText<'_>) -> EnvText<'_> {
    match line.text.strip_prefix("export") {
        Some(rest) if rest.starts_with([' ', '\t']) => {
            line.part(line.text.len() - rest.len(), line.text.len()).trim()
        }
        _ => line,
    }
}

/// Reports a NUL, which a variable cannot contain, and a carriage return inside a line, which is a
/// mistake.
fn control_bytes(line: EnvText<'_>) -> Vec<Diagnostic> {
    let control = line.text.char_indices().find(|(_, c)| matches!(c, '\0' | '\r'));
    let diagnostic = |(at, c): (usize, char)| {
        let at = line.start + at;
        let message = format!("byte 0x{:02x} at byte {at}", u32::from(c));
        Diagnostic::error(codes::ENV_CONTROL_BYTE, Span::new(at, at + 1), message)
            .label("not allowed in a variable")
            .help("remove the byte")
    };
    control.map(diagnostic).into_iter().collect()
}

fn no_equals(line: EnvText<'_>, word: EnvText<'_>) -> Diagnostic {
    let problem = Diagnostic::error(codes::ENV_NO_EQUALS, line.span(), "expected `NAME=value`")
        .label("no `=`");
    if is_name(word.text) {
        return problem
            .help(format!("to pass the launcher's own value, use `--env {}`", word.text));
    }
    problem.help("a comment begins with `#`; commands are not run")
}

/// The problem of a name; `equals` is the position of the sign.
fn name_problem(name: EnvText<'_>, equals: usize) -> Option<Diagnostic> {
    if RESERVED.contains(&name.text) {
        let message = format!("`{}` is set by remuda itself", name.text);
        let help = match name.text {
            env_vars::MASTER_ADDR => "remove the line, and pass `--master_addr`",
            env_vars::MASTER_PORT => "remove the line, and pass `--master_port`",
            _ => "remove the line",
        };
        return Some(
            Diagnostic::error(codes::ENV_RESERVED, name.span(), message)
                .label("cannot be set here")
                .help(help),
        );
    }
    if name.text.is_empty() {
        let sign = Span::new(equals, equals + 1);
        let problem = variable_name_problem("")?.help("a line is `NAME=value`");
        return Some(Diagnostic { span: Some(sign), ..problem });
    }
    let problem = variable_name_problem(name.text)?;
    Some(Diagnostic { span: Some(name.span()), ..problem })
}

/// Returns the problem of the name of a variable without its place, if it is not a name.
pub fn variable_name_problem(name: &str) -> Option<Diagnostic> {
    if is_name(name) {
        return None;
    }
    if name.is_empty() {
        let problem = Diagnostic::whole(codes::ENV_BAD_NAME, "the name before `=` is missing");
        return Some(problem.help("a variable is `NAME=value`"));
    }
    let message = format!("`{}` is not a variable name", name.escape_debug());
    let problem = Diagnostic::whole(codes::ENV_BAD_NAME, message);
    Some(problem.help("a name has letters, digits and `_`, and does not begin with a digit"))
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn too_long(name: EnvText<'_>, value: &str) -> Option<Diagnostic> {
    let bytes = name.text.len() + 1 + value.len();
    (VARIABLE_BYTES_MAX < bytes).then(|| {
        let message = format!(
            "`{}` is {bytes} bytes with its value; the limit of Linux is {VARIABLE_BYTES_MAX}",
            name.text
        );
        Diagnostic::error(codes::ENV_TOO_LONG, name.span(), message)
            .help("put the value into a file and the file's name into the variable")
    })
}
