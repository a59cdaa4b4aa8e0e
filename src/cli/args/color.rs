//! `--color`, which every command has.

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, ArgMatches, Command};

use crate::cli::line::CommandLine;
use crate::report::{ColorChoice, choose_color};

const NAME: &str = "color";

/// A value of the option.
struct ColorValue {
    name: &'static str,
    help: &'static str,
    choice: ColorChoice,
}

const VALUES: [ColorValue; 3] = [
    ColorValue { name: "auto", help: "On a terminal", choice: ColorChoice::Auto },
    ColorValue { name: "always", help: "In pipes and files too", choice: ColorChoice::Always },
    ColorValue { name: "never", help: "Nowhere", choice: ColorChoice::Never },
];

/// Returns the command with the option, also in its subcommands.
pub(in crate::cli) fn with_option(command: Command) -> Command {
    let values = VALUES.map(|value| PossibleValue::new(value.name).help(value.help));
    let option = Arg::new(NAME)
        .long(NAME)
        .value_name("WHEN")
        .value_parser(PossibleValuesParser::new(values))
        .hide_possible_values(true)
        .global(true)
        // The headings of the command's own options do not apply to it.
        .help_heading(None::<&'static str>)
        .help(
            "Colours in the output of remuda: `auto`, `always` or `never` [default: auto: as set by \
             NO_COLOR, FORCE_COLOR or CLICOLOR_FORCE, else on terminals]",
        );
    command.arg(option)
}

/// Applies the choice of a line that was parsed.
pub(in crate::cli) fn choose(found: &ArgMatches) {
    if let Some(value) = found.get_one::<String>(NAME) {
        choose_named(value);
    }
}

/// Applies the choice of a line that could not be parsed, so that the error is printed with it.
pub(in crate::cli) fn choose_typed(typed: &CommandLine) {
    let value = typed.last(NAME).and_then(|given| given.value.as_ref());
    if let Some(value) = value.and_then(|(value, _)| value.to_str()) {
        choose_named(value);
    }
}

fn choose_named(value: &str) {
    if let Some(known) = VALUES.iter().find(|known| known.name == value) {
        choose_color(known.choice);
    }
}
