//! Parser of a whole environment file, and comparison of two files.

use std::collections::HashMap;

use super::line::{self, EnvLine};
use crate::base::order;
use crate::base::{Diagnostic, Findings, Severity, Span};
use crate::pool::codes;
use crate::pool::hostfile::parse::lines;
use crate::pool::text::decode;

/// Help for a file that is probably not an environment file.
pub(crate) const NAME_AN_ENV_FILE: &str = "name an environment file: its lines are `NAME=value`";

/// Limit of the variables of a file; reading stops there.
const VARIABLES_MAX: usize = 4096;

/// A variable of an environment file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name: letters, digits and `_`.
    pub name: String,
    /// Its value, literal.
    pub value: String,
    /// Its line, counted from 1.
    pub line: usize,
    /// The position of its name.
    pub span: Span,
}

/// Variables of an environment file, each name once: of several lines the last wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvFile {
    /// The variables, in the order of their last lines.
    pub variables: Vec<Variable>,
}

impl EnvFile {
    /// The variable of a name.
    pub fn get(&self, name: &str) -> Option<&Variable> {
        self.variables.iter().find(|variable| variable.name == name)
    }
}

/// Reads the bytes of a file named `name`.
pub fn read_env(name: &str, bytes: &[u8]) -> (EnvFile, Findings) {
    let (source, decoded) = decode(name, bytes);
    let mut diagnostics: Vec<_> = decoded.into_iter().map(not_text).collect();
    let mut reader = Reader::default();
    for (number, line, start) in lines(&source.text) {
        if reader.add_line(number, line::parse(line, start), &mut diagnostics).is_none() {
            break;
        }
    }
    order::sort_by_key(&mut diagnostics, |diagnostic| diagnostic.span.map(|span| span.start));
    let variables = reader.variables.into_iter().flatten().collect();
    (EnvFile { variables }, Findings { source, diagnostics })
}

/// Rewrites a decoder problem, whose message is about hostfiles: an environment file may hold any
/// text in UTF-8.
fn not_text(found: Diagnostic) -> Diagnostic {
    let help = match found.span {
        Some(_) => "save the file as UTF-8; pass other bytes with `--env`".to_owned(),
        None => found.help.unwrap_or_default(),
    };
    Diagnostic { code: codes::ENV_NOT_TEXT, help: Some(help), ..found }
}

#[derive(Default)]
struct Reader {
    /// The variables; if a variable is set again, its earlier entry becomes `None`.
    variables: Vec<Option<Variable>>,
    indices: HashMap<String, usize>,
    entries: usize,
}

impl Reader {
    /// Adds the variable of a line; `None` at the limit, where reading stops.
    fn add_line(
        &mut self,
        number: usize,
        line: EnvLine,
        problems: &mut Vec<Diagnostic>,
    ) -> Option<()> {
        let EnvLine { name, value, problems: mut found } = line;
        let Some((name, span)) = name else {
            problems.append(&mut found);
            return Some(());
        };
        self.entries += 1;
        if VARIABLES_MAX < self.entries {
            problems.push(too_many(span));
            return None;
        }
        let is_usable = found.iter().all(|problem| problem.severity < Severity::Error);
        problems.append(&mut found);
        let (true, Some(value)) = (is_usable, value) else { return Some(()) };
        let variable = Variable { name, value, line: number, span };
        if let Some(index) = self.indices.insert(variable.name.clone(), self.variables.len()) {
            let first =
                self.variables[index].take().expect("the index of a name is that of its variable");
            problems.push(set_twice(&variable, &first));
        }
        self.variables.push(Some(variable));
        Some(())
    }
}

fn set_twice(again: &Variable, first: &Variable) -> Diagnostic {
    let message = format!("`{}` is set twice", again.name);
    Diagnostic::warning(codes::ENV_SET_TWICE, again.span, message)
        .label("this value is used")
        .related(first.span, "first set here")
        .help("keep one of the two")
}

fn too_many(span: Span) -> Diagnostic {
    let message = format!("more than {VARIABLES_MAX} variables");
    Diagnostic::error(codes::ENV_TOO_MANY, span, message)
        .label("reading stops here")
        .help(NAME_AN_ENV_FILE)
}

/// Warnings for variables that `file` sets to another value than `other`, a file named `name` with
/// lower precedence.
pub fn shadowed(file: &EnvFile, other: &EnvFile, name: &str) -> Vec<Diagnostic> {
    let differs = |variable: &&Variable| {
        other.get(&variable.name).is_some_and(|found| found.value != variable.value)
    };
    let warning = |variable: &Variable| {
        let line = other.get(&variable.name).map_or(0, |found| found.line);
        let message = format!("`{}` is also set on line {line} of {name}", variable.name);
        Diagnostic::warning(codes::ENV_IN_BOTH, variable.span, message)
            .label("this value is used")
            .help("the file of the working directory wins; remove one of the two")
    };
    file.variables.iter().filter(differs).map(warning).collect()
}
