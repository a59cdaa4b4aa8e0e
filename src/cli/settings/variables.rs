//! Variables of the environment that give values of options: `REMUDA_LAUNCHER` is `--launcher`.

use super::known::{KnownOption, KnownOptions, OptionTakes};
use super::setting::{OptionSetting, OptionValue, OptionWords};
use crate::base::{Diagnostic, Findings, Source, Span, env_vars};
use crate::cli::codes::machine::BAD_VARIABLE;
use crate::cli::line::underscored;

/// Beginning of the names.
const PREFIX: &str = "REMUDA_";
/// Name of the environment in messages.
const ENVIRONMENT: &str = "environment";

/// Variables that have their own meaning: the place of run directories, and those by which `remuda pod` gets
/// the place of a pod in its job, which other commands in the pod must not take for theirs.
const OTHER_MEANING: [&str; 13] = [
    env_vars::REMUDA_RUN_DIR,
    env_vars::REMUDA_NODES,
    env_vars::REMUDA_NODE_RANK,
    env_vars::REMUDA_MASTER_ADDR,
    env_vars::REMUDA_MASTER_PORT,
    env_vars::REMUDA_LOCAL_ADDR,
    env_vars::REMUDA_KEY_FILE,
    env_vars::REMUDA_JOB_ID,
    env_vars::REMUDA_JOIN_TIMEOUT,
    env_vars::REMUDA_MIN_NODES,
    env_vars::REMUDA_SPARES,
    env_vars::REMUDA_EXCLUDE_FAILING,
    env_vars::REMUDA_LAST_CALL,
];

/// A variable that is set, as a text with the value of an option.
#[derive(Clone, Debug)]
pub(super) struct SettingVariable {
    pub(super) source: Source,
    pub(super) setting: OptionSetting,
}

/// Returns the name of the variable of an option.
pub(super) fn variable_of(option: &str) -> String {
    format!("{PREFIX}{}", underscored(option).to_uppercase())
}

/// Returns the value of the variable of an option that has a value of its own meaning, such as `profile`.
pub(super) fn value_of(option: &str) -> Option<String> {
    env_vars::get_text(&variable_of(option))
}

/// Whether a variable is set that may be that of an option.
pub(super) fn any_is_set() -> bool {
    let may_be = |name: &Vec<u8>| {
        let is_other = OTHER_MEANING.iter().any(|other| name == other.as_bytes());
        name.starts_with(PREFIX.as_bytes()) && !is_other
    };
    env_vars::all().keys().any(may_be)
}

/// Returns the variable as a source of messages, with the place of its value.
pub(super) fn as_source(name: &str, value: &str) -> (Source, Span) {
    let text = format!("{name}={value}");
    let span = Span::new(name.len() + 1, text.len());
    (Source { name: ENVIRONMENT.to_owned(), text }, span)
}

/// Reads the variables of the options of a command.
///
/// # Errors
/// The variables of switches that are neither 1 nor 0.
pub(super) fn read(
    command: &str,
    known: &KnownOptions,
) -> Result<Vec<SettingVariable>, Vec<Findings>> {
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    for option in known.of_command(command) {
        let name = variable_of(&option.long);
        let is_own = !OTHER_MEANING.contains(&&*name);
        let Some(value) = env_vars::get_text(&name).filter(|_| is_own) else { continue };
        match setting(option, &name, &value) {
            Ok(variable) => found.push(variable),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() { Ok(found) } else { Err(problems) }
}

fn setting(option: &KnownOption, name: &str, value: &str) -> Result<SettingVariable, Findings> {
    let (source, span) = as_source(name, value);
    let words = match option.takes {
        OptionTakes::One | OptionTakes::Many => {
            OptionWords::Values(vec![OptionValue { text: value.to_owned(), span }])
        }
        OptionTakes::Nothing => match value {
            "1" | "true" | "yes" => OptionWords::Switch(true, span),
            "0" | "false" | "no" => OptionWords::Switch(false, span),
            _ => {
                let message = format!("`{name}` cannot be `{value}`");
                let problem = Diagnostic::error(BAD_VARIABLE, span, message)
                    .label("expected 1 or 0")
                    .help(format!("correct {name}, or unset it"));
                return Err(Findings { source, diagnostics: vec![problem] });
            }
        },
    };
    let setting =
        OptionSetting { flag: option.long.clone(), key: name.to_owned(), key_span: span, words };
    Ok(SettingVariable { source, setting })
}
