//! Options that a file or a variable has, as data. Pure.

use crate::base::{Findings, Span};

/// A file after the checks.
#[derive(Clone, Debug)]
pub(in crate::cli) struct SettingsFile {
    /// Its text, and what is wrong with it.
    pub(in crate::cli) findings: Findings,
    /// The options before the first table.
    pub(super) defaults: Vec<OptionSetting>,
    pub(super) profiles: Vec<SettingsProfile>,
}

/// A table `[profile.NAME]`.
#[derive(Clone, Debug)]
pub(super) struct SettingsProfile {
    pub(super) name: String,
    pub(super) settings: Vec<OptionSetting>,
}

/// An option of a table or of a variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OptionSetting {
    /// First long name of the option.
    pub(super) flag: String,
    /// The name as it is written.
    pub(super) key: String,
    /// Place of the key.
    pub(super) key_span: Span,
    pub(super) words: OptionWords,
}

/// The words of a command line that a setting stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OptionWords {
    /// The option that takes no value, or not: `true`, `false`; and the place of the value.
    Switch(bool, Span),
    /// The option with each of these values.
    Values(Vec<OptionValue>),
}

/// A value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OptionValue {
    pub(super) text: String,
    pub(super) span: Span,
}

impl SettingsFile {
    /// Returns the name of the file.
    pub(super) fn name(&self) -> &str {
        &self.findings.source.name
    }
}
