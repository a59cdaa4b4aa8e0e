//! Options that a command line has from files and variables, for screens. Pure.

use std::fmt;

/// The options that a line has from files and variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::cli) struct AppliedSettings {
    /// The file of the working directory and the profile, as the first screen of a job names them; `None`:
    /// there is no file.
    pub(in crate::cli) local_file: Option<String>,
    /// The options, in the order in which the line has them.
    pub(in crate::cli) options: Vec<AppliedOption>,
}

/// An option that a file or a variable gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct AppliedOption {
    /// Its name, without dashes.
    pub(in crate::cli) name: String,
    /// Its value, if it takes one.
    pub(in crate::cli) value: Option<String>,
    /// Where the value is.
    pub(in crate::cli) origin: SettingOrigin,
}

/// The place that gives the value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) enum SettingOrigin {
    /// A line of a file.
    File {
        /// The file, as it is shown.
        file: String,
        /// The line, counted from 1.
        line: usize,
    },
    /// A variable of the environment.
    Variable(String),
    /// A line of another launcher, which was translated: its option, its file, or the launcher itself.
    Launcher(String),
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, line } => write!(f, "{file}:{line}"),
            Self::Variable(name) | Self::Launcher(name) => f.write_str(name),
        }
    }
}
