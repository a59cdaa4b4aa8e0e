//! `--profile` and `--no_settings`.

use clap::{Arg, ArgAction, Command};

/// Id and name of the option that selects a profile.
pub(super) const PROFILE: &str = "profile";
/// Id and name of the option that ignores the files.
pub(super) const NO_SETTINGS: &str = "no_settings";

/// The options that select what is read.
pub(in crate::cli) const SELECTION_OPTIONS: [&str; 2] = [PROFILE, NO_SETTINGS];

/// Heading of the options on help pages.
const HEADING: &str = "Settings";

/// Returns the command with the options. Those that have them read `remuda.toml`.
pub(in crate::cli) fn with_settings_options(command: Command) -> Command {
    let profile = Arg::new(PROFILE)
        .long(PROFILE)
        .value_name("NAME")
        .help_heading(HEADING)
        .conflicts_with(NO_SETTINGS)
        .help(
            "Use the options of this profile of remuda.toml, a file with values of options in the working \
             directory or in ~/.config/remuda [default: $REMUDA_PROFILE, else only the defaults of the file]",
        );
    let no_settings = Arg::new(NO_SETTINGS)
        .long(NO_SETTINGS)
        .action(ArgAction::SetTrue)
        .help_heading(HEADING)
        .help("Do not read remuda.toml");
    command.arg(profile).arg(no_settings)
}

/// Whether a command has the options.
pub(super) fn has_settings_options(command: &Command) -> bool {
    command.get_arguments().any(|arg| arg.get_id() == NO_SETTINGS)
}
