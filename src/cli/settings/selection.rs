//! The selected profile, and whether files are read.

use super::args::{NO_SETTINGS, PROFILE};
use super::setting::SettingsFile;
use super::variables::{as_source, value_of, variable_of};
use crate::base::{Diagnostic, Findings, Status, show_typed};
use crate::cli::error::CliError;
use crate::cli::line::CommandLine;
use crate::config::codes::UNKNOWN_PROFILE;
use crate::pool::nearest;

/// What is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SettingsSelection {
    /// No file.
    NoFiles,
    /// The defaults of the files.
    Defaults,
    /// A profile, and the defaults.
    Profile {
        name: String,
        /// Whether the line names it; else the variable does.
        is_typed: bool,
    },
}

impl SettingsSelection {
    /// Reads the options of the line, and the variables for those that it does not have.
    pub(super) fn of(typed: &CommandLine) -> Self {
        if typed.last(NO_SETTINGS).is_some() {
            return Self::NoFiles;
        }
        let given = typed.last(PROFILE).and_then(|given| given.value.as_ref());
        if let Some((name, _)) = given {
            return Self::Profile { name: name.to_string_lossy().into_owned(), is_typed: true };
        }
        let is_off = value_of(NO_SETTINGS).is_some_and(|value| value != "0");
        match value_of(PROFILE) {
            _ if is_off => Self::NoFiles,
            Some(name) => Self::Profile { name, is_typed: false },
            None => Self::Defaults,
        }
    }

    /// Returns the name of the profile.
    pub(super) fn profile(&self) -> Option<&str> {
        match self {
            Self::Profile { name, .. } => Some(name),
            Self::NoFiles | Self::Defaults => None,
        }
    }

    /// Checks that a file has the profile.
    pub(super) fn check(
        &self,
        files: &[SettingsFile],
        typed: &CommandLine,
    ) -> Result<(), CliError> {
        let Self::Profile { name, is_typed } = self else { return Ok(()) };
        let mut names = profile_names(files);
        if names.clone().any(|known| known == name) {
            return Ok(());
        }
        let message = format!("there is no profile `{}`", show_typed(name));
        let help = match nearest(name, names.clone()) {
            Some(near) if names.clone().count() == 1 => format!("did you mean `{near}`?"),
            Some(near) => format!("did you mean `{near}`? {}", list(files)),
            None if names.next().is_some() => list(files),
            None if files.is_empty() => {
                "there is no remuda.toml, neither in the working directory nor in ~/.config/remuda"
                    .to_owned()
            }
            None => format!("write `[profile.{name}]` and its options into {}", files[0].name()),
        };
        let problem = Diagnostic::whole(UNKNOWN_PROFILE, message).label("unknown").help(help);
        if *is_typed {
            return Err(typed.refuse_at(typed.value_or_end(PROFILE), problem).into());
        }
        let (source, span) = as_source(&variable_of(PROFILE), name);
        let problem = Diagnostic { span: Some(span), ..problem };
        let findings = vec![Findings { source, diagnostics: vec![problem] }];
        Err(CliError::Findings { status: Status::Config, findings })
    }
}

fn profile_names(files: &[SettingsFile]) -> impl Iterator<Item = &str> + Clone {
    files.iter().flat_map(|file| file.profiles.iter().map(|profile| &*profile.name))
}

/// Lists the profiles of each file.
fn list(files: &[SettingsFile]) -> String {
    let of_file = |file: &SettingsFile| {
        let names = file.profiles.iter().map(|profile| format!("`{}`", show_typed(&profile.name)));
        let names: Vec<String> = names.collect();
        match &names[..] {
            [] => None,
            [only] => Some(format!("the profile of {} is {only}", file.name())),
            _ => Some(format!("the profiles of {} are {}", file.name(), names.join(", "))),
        }
    };
    files.iter().rev().filter_map(of_file).collect::<Vec<_>>().join("; ")
}
