//! Settings of a job: the line, then the configuration file, then the defaults.

use std::collections::BTreeMap;

use clap::ArgMatches;

use super::args::AccelerateArgs;
use crate::base::{Diagnostic, Findings, Span, Status};
use crate::cli::error::CliError;
use crate::cli::line::{BadValue, CommandLine, codes, python_int, refuse_value};
use crate::config::accelerate::{ConfigFile, FlagKind, FlagSpec, SettingValue, all_flags};
use crate::config::codes::BAD_CONFIG_VALUE;

/// The settings of a job.
pub(super) struct Settings {
    values: BTreeMap<String, SettingValue>,
}

impl Settings {
    /// Collects the settings.
    ///
    /// # Errors
    /// If a value of the line has the wrong type.
    pub(super) fn collect(
        args: &AccelerateArgs,
        typed: &CommandLine,
        file: Option<&ConfigFile>,
    ) -> Result<Self, CliError> {
        let defaults = all_flags().map(|flag| (flag.name.to_owned(), flag.default.value()));
        let mut settings = Self { values: defaults.collect() };
        if let Some(file) = file {
            settings.add_file(file);
        }
        for flag in all_flags().filter(|flag| args.is_typed(flag.name)) {
            let value = typed_value(typed, &args.matches, flag)?;
            settings.values.insert(flag.name.to_owned(), value);
        }
        Ok(settings)
    }

    fn add_file(&mut self, file: &ConfigFile) {
        for setting in file.settings.iter().filter(|setting| !setting.value.is_none()) {
            self.values.insert(setting.name.clone(), setting.value.clone());
        }
    }

    /// Returns the value of a setting.
    pub(super) fn get(&self, name: &str) -> &SettingValue {
        self.values.get(name).unwrap_or(&SettingValue::None)
    }

    /// Returns a whole number; `None` if the setting has no value.
    pub(super) fn whole(&self, name: &str) -> Option<i64> {
        match self.get(name) {
            SettingValue::Whole(number) => Some(*number),
            SettingValue::Text(text) => python_int(text),
            _ => None,
        }
    }

    /// Returns the value as text; `None` if the setting has no value.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let value = self.get(name);
        (!value.is_none()).then(|| value.show())
    }

    /// Whether a setting is on.
    pub(super) fn is_on(&self, name: &str) -> bool {
        self.get(name).is_true()
    }

    /// Returns the names of the settings that begin with `prefix`, sorted.
    pub(super) fn names_with_prefix(&self, prefix: &str) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str).filter(move |name| name.starts_with(prefix))
    }
}

/// The place of the value of a setting.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ValuePlace {
    Line,
    File,
}

impl ValuePlace {
    /// Returns the code of an error about a value at this place.
    pub(super) fn code(self) -> &'static str {
        match self {
            Self::Line => codes::BAD_VALUE,
            Self::File => BAD_CONFIG_VALUE,
        }
    }

    /// Returns the name of a setting as it is written at this place.
    pub(super) fn name(self, setting: &str) -> String {
        match self {
            Self::Line => format!("--{setting}"),
            Self::File => setting.to_owned(),
        }
    }
}

/// Returns an error about the value of a setting, at the place of the value: in the line, in the file, or
/// at the end of the line if neither has it.
pub(super) fn refuse_setting(
    typed: &CommandLine,
    file: Option<&ConfigFile>,
    name: &str,
    problem: impl FnOnce(Span, ValuePlace) -> Diagnostic,
) -> CliError {
    let is_typed = typed.options.iter().any(|given| given.flag == name);
    let of_file = file.filter(|_| !is_typed).and_then(|file| {
        let setting = file.settings.iter().find(|setting| setting.name == name)?;
        Some((file.source.clone(), setting.span))
    });
    let Some((source, span)) = of_file else {
        let place = typed.value_or_end(name);
        return typed.refuse(&[place], |spans| problem(spans[0], ValuePlace::Line)).into();
    };
    let findings = Findings { source, diagnostics: vec![problem(span, ValuePlace::File)] };
    CliError::Findings { status: Status::BadInput, findings: vec![findings] }
}

fn typed_value(
    typed: &CommandLine,
    matches: &ArgMatches,
    flag: &FlagSpec,
) -> Result<SettingValue, CliError> {
    if flag.kind == FlagKind::Switch {
        return Ok(SettingValue::Bool(true));
    }
    if flag.kind == FlagKind::Words {
        let words = matches.get_many::<String>(flag.name).into_iter().flatten().cloned();
        return Ok(SettingValue::List(words.collect()));
    }
    let text = matches.get_one::<String>(flag.name).expect("an option with one value");
    parse(flag.kind, text).map_err(|bad| {
        let place = typed.value_or_end(flag.name);
        refuse_value(typed, place, flag.name, text, &bad).into()
    })
}

fn parse(kind: FlagKind, text: &str) -> Result<SettingValue, BadValue> {
    match kind {
        FlagKind::Whole => {
            let number = python_int(text).map(SettingValue::Whole);
            number.ok_or_else(|| BadValue::new("expected a whole number"))
        }
        FlagKind::Float => {
            let number = text.trim().parse().ok().map(SettingValue::Float);
            number.ok_or_else(|| BadValue::new("expected a number"))
        }
        FlagKind::OneOf(words) if !words.contains(&text) => {
            Err(BadValue::new(format!("expected one of {}", words.join(", "))))
        }
        FlagKind::Bool => python_bool(text).map(SettingValue::Bool),
        FlagKind::NotEmpty => Ok(SettingValue::Bool(!text.is_empty())),
        FlagKind::ThreeBools => {
            let all: Vec<bool> = text.split(',').map(python_bool).collect::<Result<_, _>>()?;
            match all.len() {
                3 => Ok(SettingValue::Bools(all)),
                _ => Err(BadValue::new("expected three of `true` and `false`")),
            }
        }
        FlagKind::Text | FlagKind::OneOf(_) | FlagKind::Switch | FlagKind::Words => {
            Ok(SettingValue::Text(text.to_owned()))
        }
    }
}

/// Reads a truth value as accelerate does.
fn python_bool(text: &str) -> Result<bool, BadValue> {
    match text.to_lowercase().as_str() {
        "y" | "yes" | "t" | "true" | "on" | "1" => Ok(true),
        "n" | "no" | "f" | "false" | "off" | "0" => Ok(false),
        _ => Err(BadValue::new("expected `true` or `false`")),
    }
}
