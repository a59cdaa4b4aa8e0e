//! `--color`, which every command has.

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, ArgMatches, Command};

use crate::cli::line::CommandLine;
use crate::report::{ColorChoice, choose_color};

const NAME: &str = "color";

const CHOICES: [(&str, &str, ColorChoice); 3] = [
    ("auto", "On a terminal", ColorChoice::Auto),
    ("always", "In pipes and files too", ColorChoice::Always),
    ("never", "Nowhere", ColorChoice::Never),
];

/// Returns the command with the option, also in its subcommands.
pub(in crate::cli) fn with_option(command: Command) -> Command {
    let values = CHOICES.map(|(name, help, _)| PossibleValue::new(name).help(help));
    let option = Arg::new(NAME)
        .long(NAME)
        .value_name("WHEN")
        .value_parser(PossibleValuesParser::new(values))
        .hide_possible_values(true)
        .global(true)
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
    if let Some((_, _, choice)) = CHOICES.iter().find(|(name, ..)| *name == value) {
        choose_color(*choice);
    }
}
