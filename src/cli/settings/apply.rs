//! The command line with the options from files and variables.

use std::ffi::OsString;
use std::path::Path;

use super::check::check_settings;
use super::file::{FoundFile, find};
use super::known::{KnownOption, KnownOptions};
use super::layers::{ChosenWord, LayeredSetting, choose};
use super::selection::SettingsSelection;
use super::setting::{OptionSetting, OptionWords, SettingsFile};
use super::variables::{self, SettingVariable};
use crate::base::{Findings, Source, Span, Status, env_vars};
use crate::cli::args::color;
use crate::cli::codes::machine::BAD_VARIABLE;
use crate::cli::command::entry::CommandEntry;
use crate::cli::error::CliError;
use crate::cli::line::{
    AppliedOption, AppliedSettings, CommandLine, LineOrigin, LineRelation, RefusedInput,
    SettingOrigin, SettingPlace, SettingsSource,
};
use crate::cli::resolve::trust::Trust;
use crate::config::codes::BAD_OPTION_VALUE;

/// Returns the line of `command` with the options that files and variables give; `None`: they give none. The
/// options of `typed` are known.
///
/// # Errors
/// All problems of the files and variables.
pub(in crate::cli) fn with_settings(
    typed: &CommandLine,
    command: &str,
    entries: &[CommandEntry],
) -> Result<Option<CommandLine>, CliError> {
    // Errors of the files are printed with the colours that the line selects.
    color::choose_typed(typed);
    let selection = SettingsSelection::of(typed);
    let found = match selection {
        SettingsSelection::NoFiles => Vec::new(),
        SettingsSelection::Defaults | SettingsSelection::Profile { .. } => {
            find(Trust::of(typed.last("allow_insecure_files").is_some()))?
        }
    };
    if found.is_empty() && selection.profile().is_none() && !variables::any_is_set() {
        return Ok(None);
    }
    let known = KnownOptions::of(entries);
    let is_local = found.last().is_some_and(|file| file.is_local);
    let (files, variables) = checked(found, variables::read(command, &known), &known)?;
    selection.check(&files, typed)?;
    let layers = layers(&files, &variables, selection.profile());
    let words: Vec<(&KnownOption, ChosenWord<'_>)> = known
        .of_command(command)
        .flat_map(|option| {
            let values = values_of(typed, &option.long);
            choose(option, &layers, values.as_deref()).into_iter().map(move |word| (option, word))
        })
        .collect();
    let mut sources = sources(&files, &variables);
    let local_file = files.last().filter(|_| is_local).map(|file| {
        let profile =
            selection.profile().map_or_else(String::new, |name| format!(" (profile {name})"));
        format!("./{}{profile}", file.name())
    });
    let mut applied = AppliedSettings { local_file, options: Vec::new() };
    let mut line = Vec::new();
    for (option, chosen) in words {
        let (word, shown) = word(option, &chosen, &sources[chosen.source]);
        let place = place(&chosen, line.len());
        sources[chosen.source].values.push(place);
        line.push(word);
        applied.options.push(shown);
    }
    let relation = LineRelation::Extended(line.len());
    line.extend_from_slice(&typed.words);
    let origin = LineOrigin { typed: typed.clone(), relation, sources, applied: Some(applied) };
    Ok(Some(CommandLine::made(&typed.program, line, origin)))
}

/// Checks the files; returns them with the variables.
fn checked(
    found: Vec<FoundFile>,
    variables: Result<Vec<SettingVariable>, Vec<Findings>>,
    known: &KnownOptions,
) -> Result<(Vec<SettingsFile>, Vec<SettingVariable>), CliError> {
    let files: Vec<_> = found.into_iter().map(|file| check_settings(file.source, known)).collect();
    let wrong = files.iter().filter(|file| file.findings.has_errors());
    let mut findings: Vec<Findings> = wrong.map(|file| file.findings.clone()).collect();
    let status = if findings.is_empty() { Status::Config } else { Status::BadInput };
    match variables {
        Ok(variables) if findings.is_empty() => Ok((files, variables)),
        Ok(_) => Err(CliError::Findings { status, findings }),
        Err(problems) => {
            findings.extend(problems);
            Err(CliError::Findings { status, findings })
        }
    }
}

/// Returns the settings in ascending order of precedence. Their sources are the files, then the variables.
fn layers<'a>(
    files: &'a [SettingsFile],
    variables: &'a [SettingVariable],
    profile: Option<&str>,
) -> Vec<LayeredSetting<'a>> {
    let with_source = |source: usize, settings: &'a [OptionSetting]| {
        settings.iter().map(move |setting| LayeredSetting { source, setting })
    };
    let numbered = || files.iter().enumerate();
    let defaults = numbered().flat_map(|(source, file)| with_source(source, &file.defaults));
    let of_profile = numbered().flat_map(|(source, file)| {
        let own = file.profiles.iter().filter(|own| Some(&*own.name) == profile);
        own.flat_map(move |own| with_source(source, &own.settings))
    });
    let variables = variables.iter().zip(files.len()..);
    let variables =
        variables.map(|(variable, source)| LayeredSetting { source, setting: &variable.setting });
    defaults.chain(of_profile).chain(variables).collect()
}

fn sources(files: &[SettingsFile], variables: &[SettingVariable]) -> Vec<SettingsSource> {
    let source = |source: &Source, code, input| SettingsSource {
        source: source.clone(),
        values: Vec::new(),
        code,
        input,
    };
    let files = files
        .iter()
        .map(|file| source(&file.findings.source, BAD_OPTION_VALUE, RefusedInput::File));
    let variables = variables
        .iter()
        .map(|variable| source(&variable.source, BAD_VARIABLE, RefusedInput::Variable));
    files.chain(variables).collect()
}

/// Returns the values of an option of the typed line; `None`: the line does not have the option.
fn values_of(typed: &CommandLine, flag: &str) -> Option<Vec<String>> {
    let given: Vec<_> = typed.options.iter().filter(|given| given.flag == flag).collect();
    let value = |value: &OsString| value.to_string_lossy().into_owned();
    let values = given.iter().filter_map(|given| given.value.as_ref()).map(|(text, _)| value(text));
    (!given.is_empty()).then(|| values.collect())
}

/// Returns the word of an option, and how screens show it.
fn word(
    option: &KnownOption,
    chosen: &ChosenWord<'_>,
    source: &SettingsSource,
) -> (OsString, AppliedOption) {
    let name = option.long.clone();
    let origin = match source.input {
        RefusedInput::File | RefusedInput::Line => SettingOrigin::File {
            file: source.source.name.clone(),
            line: source.source.line_of(value_span(chosen).start),
        },
        RefusedInput::Variable => SettingOrigin::Variable(chosen.setting.key.clone()),
    };
    let value = chosen
        .value
        .map(|value| if option.is_path() { with_home(&value.text) } else { value.text.clone() });
    let word = match &value {
        Some(value) => format!("--{name}={value}"),
        None => format!("--{name}"),
    };
    (word.into(), AppliedOption { name, value, origin })
}

fn value_span(chosen: &ChosenWord<'_>) -> Span {
    match (chosen.value, &chosen.setting.words) {
        (Some(value), _) => value.span,
        (None, OptionWords::Switch(_, span)) => *span,
        (None, OptionWords::Values(_)) => chosen.setting.key_span,
    }
}

fn place(chosen: &ChosenWord<'_>, word: usize) -> SettingPlace {
    SettingPlace {
        name: chosen.setting.key.clone(),
        flag: chosen.setting.flag.clone(),
        span: value_span(chosen),
        word: Some(word),
    }
}

/// Replaces `~/` at the start of a path, as a shell does on a command line.
fn with_home(path: &str) -> String {
    let rest = path.strip_prefix("~/");
    let home = rest.and_then(|rest| Some(Path::new(&env_vars::get(env_vars::HOME)?).join(rest)));
    home.map_or_else(|| path.to_owned(), |home| home.to_string_lossy().into_owned())
}
