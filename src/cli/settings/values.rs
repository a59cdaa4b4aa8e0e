//! Checks of the values of a table by the definitions of the commands that have the options.

use std::ffi::OsString;

use clap::error::ErrorKind;

use super::known::{KnownCommand, KnownOptions};
use super::setting::{OptionSetting, OptionValue, OptionWords};
use crate::base::{Diagnostic, Source};
use crate::cli::line::{
    CommandLine, LineOrigin, LineRelation, NotParsed, RefusedInput, SettingPlace, SettingsSource,
    explain, scan_options,
};
use crate::config::codes::BAD_OPTION_VALUE;

/// Returns the problems of the values of a table; each value is reported by one command.
pub(super) fn problems(
    settings: &[OptionSetting],
    source: &Source,
    known: &KnownOptions,
) -> Vec<Diagnostic> {
    let mut found: Vec<Diagnostic> = Vec::new();
    for command in &known.commands {
        let own = settings.iter().filter(|setting| has(command, known, setting));
        let values: Vec<_> = own.flat_map(with_values).collect();
        // One run of the parser for all values: most files have no error.
        if !values.is_empty() && parse(command, &values).is_some() {
            let one = |value: &(&OptionSetting, &OptionValue)| {
                let error = parse(command, &[*value])?;
                problem(&error, *value, source, command)
            };
            found.extend(values.iter().filter_map(one));
        }
    }
    let mut seen = Vec::new();
    found.retain(|problem| {
        let is_first = !seen.contains(&problem.span);
        seen.push(problem.span);
        is_first
    });
    found
}

fn has(command: &KnownCommand, known: &KnownOptions, setting: &OptionSetting) -> bool {
    let option = known.option(&setting.flag);
    option.is_some_and(|option| option.commands.contains(&command.name))
}

fn with_values(setting: &OptionSetting) -> Vec<(&OptionSetting, &OptionValue)> {
    match &setting.words {
        OptionWords::Switch(..) => Vec::new(),
        OptionWords::Values(values) => values.iter().map(|value| (setting, value)).collect(),
    }
}

fn word((setting, value): &(&OptionSetting, &OptionValue)) -> OsString {
    format!("--{}={}", setting.flag, value.text).into()
}

/// Returns the error of the parser about a value. What is missing in the line, or excludes each other, is no
/// error of a value.
fn parse(command: &KnownCommand, values: &[(&OptionSetting, &OptionValue)]) -> Option<clap::Error> {
    let line = std::iter::once(OsString::from("remuda")).chain(values.iter().map(word));
    let error = command.definition.clone().try_get_matches_from(line).err()?;
    let is_of_value = matches!(
        error.kind(),
        ErrorKind::InvalidValue | ErrorKind::ValueValidation | ErrorKind::InvalidUtf8
    );
    is_of_value.then_some(error)
}

/// Returns the error at the place of the value.
fn problem(
    error: &clap::Error,
    (setting, value): (&OptionSetting, &OptionValue),
    source: &Source,
    command: &KnownCommand,
) -> Option<Diagnostic> {
    let program = format!("remuda {}", command.name);
    let place = SettingPlace {
        name: setting.key.clone(),
        flag: setting.flag.clone(),
        span: value.span,
        word: Some(0),
    };
    let source = SettingsSource {
        source: source.clone(),
        values: vec![place],
        code: BAD_OPTION_VALUE,
        input: RefusedInput::File,
    };
    let origin = LineOrigin {
        typed: CommandLine::new(&program, Vec::new()),
        relation: LineRelation::Extended(1),
        sources: vec![source],
        applied: None,
    };
    let mut made = CommandLine::made(&program, vec![word(&(setting, value))], origin);
    scan_options(&mut made, &command.flags);
    match explain(error, &command.flags, &made) {
        NotParsed::Refused(refused) => refused.findings.diagnostics.into_iter().next(),
        NotParsed::Text(_) => None,
    }
}
