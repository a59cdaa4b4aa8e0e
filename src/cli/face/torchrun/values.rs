//! Values of torchrun's options: the command line, then the variable `PET_…`, then the default.

use crate::base::env_vars;
use crate::cli::codes::machine::BAD_VARIABLE;
use crate::cli::error::CliError;
use crate::cli::line::{BadValue, CommandLine, python_int, refuse_value};

/// Origin of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ValueOrigin {
    Typed,
    /// The variable with this name.
    Variable(String),
    Default,
}

/// A value of an option as text, with what is needed to refuse it.
pub(super) struct OptionText<'a> {
    /// The long name of the option.
    flag: &'static str,
    pub(super) text: String,
    origin: ValueOrigin,
    typed: &'a CommandLine,
}

impl OptionText<'_> {
    /// Whether it is not the default.
    pub(super) fn is_given(&self) -> bool {
        self.origin != ValueOrigin::Default
    }

    /// The option or the variable with its value, as the user gave it.
    pub(super) fn shown(&self) -> String {
        match &self.origin {
            ValueOrigin::Variable(name) => format!("{name}={}", self.text.escape_debug()),
            ValueOrigin::Typed | ValueOrigin::Default => {
                format!("{} {}", self.typed.option_name(self.flag), self.text.escape_debug())
            }
        }
    }

    /// The value, parsed; its error shows the place of the value.
    pub(super) fn parse<T>(
        &self,
        parse: impl FnOnce(&str) -> Result<T, BadValue>,
    ) -> Result<T, CliError> {
        parse(&self.text).map_err(|bad| self.refuse(&bad))
    }

    /// The error of this value.
    pub(super) fn refuse(&self, bad: &BadValue) -> CliError {
        match &self.origin {
            ValueOrigin::Variable(name) => {
                let message = format!("{name} is `{}`: {}", self.text.escape_debug(), bad.label);
                let help = bad.help.clone();
                let option = self.typed.option_name(self.flag);
                let option = format!("correct the variable, or give `{option}`");
                CliError::usage(BAD_VARIABLE, message).help(help.unwrap_or(option))
            }
            ValueOrigin::Typed | ValueOrigin::Default => {
                let place = self.typed.value_or_end(self.flag);
                refuse_value(self.typed, place, self.flag, &self.text, bad).into()
            }
        }
    }
}

/// Where values of options are looked for.
#[derive(Clone, Copy)]
pub(super) struct Values<'a> {
    pub(super) typed: &'a CommandLine,
}

impl<'a> Values<'a> {
    /// The value of an option.
    pub(super) fn text(
        self,
        flag: &'static str,
        typed: Option<&str>,
        default: &str,
    ) -> OptionText<'a> {
        let name = variable(flag);
        let (text, origin) = match (typed, env_vars::get_text(&name)) {
            (Some(text), _) => (text.to_owned(), ValueOrigin::Typed),
            (None, Some(text)) => (text, ValueOrigin::Variable(name)),
            (None, None) => (default.to_owned(), ValueOrigin::Default),
        };
        OptionText { flag, text, origin, typed: self.typed }
    }

    /// The value of an option whose default another variable may set.
    pub(super) fn text_or_variable(
        self,
        flag: &'static str,
        typed: Option<&str>,
        variable: &'static str,
        default: &str,
    ) -> OptionText<'a> {
        let found = self.text(flag, typed, default);
        match env_vars::get_text(variable) {
            Some(text) if !found.is_given() => {
                OptionText { text, origin: ValueOrigin::Variable(variable.to_owned()), ..found }
            }
            _ => found,
        }
    }

    /// The value of an option without a default.
    pub(super) fn optional(
        self,
        flag: &'static str,
        typed: Option<&str>,
    ) -> Option<OptionText<'a>> {
        let value = self.text(flag, typed, "");
        (value.is_given() && !value.text.is_empty()).then_some(value)
    }

    /// The value of an option that is a number, without a default; empty text is a wrong number.
    pub(super) fn number(self, flag: &'static str, typed: Option<&str>) -> Option<OptionText<'a>> {
        let value = self.text(flag, typed, "");
        value.is_given().then_some(value)
    }

    /// Whether a switch is on. Its variable is a number, as for Python's `bool(int(…))`.
    pub(super) fn switch(self, flag: &'static str, is_typed: bool) -> Result<bool, CliError> {
        let name = variable(flag);
        let Some(text) = env_vars::get_text(&name) else { return Ok(is_typed) };
        let value =
            OptionText { flag, text, origin: ValueOrigin::Variable(name), typed: self.typed };
        let is_set = value.parse(|text| {
            let number = python_int(text).map(|number| number != 0);
            number.ok_or_else(|| {
                BadValue::new("expected 0 or 1").help("a switch is on with 1, off with 0")
            })
        })?;
        Ok(is_typed || is_set)
    }
}

/// Name of the variable of an option: `PET_NPROC_PER_NODE`.
pub(super) fn variable(flag: &str) -> String {
    format!("PET_{}", flag.replace('-', "_").to_uppercase())
}
