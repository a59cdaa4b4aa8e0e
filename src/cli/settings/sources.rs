//! Errors that name an option, or its value, after the line was read: the help says which file or variable has
//! the value. Pure.

use crate::base::{Diagnostic, Status};
use crate::cli::error::CliError;
use crate::cli::line::{AppliedOption, CommandLine};

/// Returns the error with the sources of the options that it names.
pub(in crate::cli) fn with_sources(error: CliError, typed: &CommandLine) -> CliError {
    let Some(applied) = typed.applied_settings() else { return error };
    match error {
        CliError::Line { status, code, message, help } => {
            let help = add(&applied.options, &message, help);
            CliError::Line { status, code, message, help }
        }
        CliError::Findings { status, mut findings } => {
            let problems = findings.iter_mut().flat_map(|one| &mut one.diagnostics);
            // One with a place is in the text where the user finds the mistake.
            for problem in problems.filter(|problem| problem.span.is_none()) {
                let Diagnostic { message, help, .. } = problem;
                *help = add(&applied.options, message, help.take());
            }
            CliError::Findings { status, findings }
        }
        CliError::Screen { status, text } => {
            let text = match sources(&applied.options, &text, &text) {
                found if found.is_empty() || status == Status::Success => text,
                found => format!("{text}note: {}\n", found.join("; ")),
            };
            CliError::Screen { status, text }
        }
    }
}

fn add(options: &[AppliedOption], message: &str, help: Option<String>) -> Option<String> {
    let text = format!("{message} {}", help.as_deref().unwrap_or_default());
    let all: Vec<String> = help.into_iter().chain(sources(options, &text, message)).collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// Returns the sources of the options that a text names, or whose value a message names.
fn sources(options: &[AppliedOption], text: &str, message: &str) -> Vec<String> {
    let is_named = |option: &&AppliedOption| {
        let value = option.value.as_ref().map(|value| format!("`{value}`"));
        text.contains(&format!("--{}`", option.name))
            || value.is_some_and(|value| message.contains(&value))
    };
    let named = options.iter().filter(is_named);
    named.map(|option| format!("`{}` is set in {}", option.name, option.origin)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::line::SettingOrigin;

    #[track_caller]
    fn check(message: &str, help: Option<&str>, expect: Option<&str>) {
        let origin = SettingOrigin::File { file: "remuda.toml".into(), line: 2 };
        let value = Some("cluster/hosts".to_owned());
        let option = AppliedOption { name: "hostfile".into(), value, origin };
        let found = add(&[option], message, help.map(str::to_owned));
        assert_eq!(found.as_deref(), expect);
    }

    #[test]
    fn help_names_the_file_of_an_option() {
        let set = "`hostfile` is set in remuda.toml:2";
        check("cannot read `cluster/hosts`", None, Some(set));
        check(
            "no",
            Some("leave `--hostfile` out"),
            Some(&format!("leave `--hostfile` out; {set}")),
        );
        check("cannot read `hosts`", Some("type `--slots`"), Some("type `--slots`"));
        check("cannot read `hosts`", None, None);
    }
}
