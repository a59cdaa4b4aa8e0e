//! The options that `remuda.toml` can have: those of the commands with `--profile`, from their definitions.

use clap::{Arg, ArgAction, Command};

use super::args::{NO_SETTINGS, PROFILE, has_settings_options};
use crate::cli::args::color;
use crate::cli::command::entry::CommandEntry;
use crate::cli::line::{Flags, underscored};

/// Options that only a command line can have, with `_` between words.
const ONLY_TYPED: [&str; 8] =
    ["help", "version", "dry_run", "json", "show_env", "print", PROFILE, NO_SETTINGS];
/// Names of the values of options that are paths.
const PATHS: [&str; 2] = ["FILE", "DIR"];

/// What an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum OptionTakes {
    /// Nothing: it is given or not.
    Nothing,
    /// One value.
    One,
    /// Any number of values.
    Many,
}

/// An option of one or several commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct KnownOption {
    /// Its first long name.
    pub(super) long: String,
    /// All long names, with `_` between words.
    names: Vec<String>,
    letters: Vec<char>,
    /// Name of its value in the help.
    pub(super) value_name: String,
    pub(super) takes: OptionTakes,
    /// The commands that have it.
    pub(super) commands: Vec<&'static str>,
}

/// A command that reads the file.
pub(super) struct KnownCommand {
    pub(super) name: &'static str,
    pub(super) definition: Command,
    pub(super) flags: Flags,
}

/// The options of all commands that read the file.
pub(in crate::cli) struct KnownOptions {
    options: Vec<KnownOption>,
    pub(super) commands: Vec<KnownCommand>,
    /// Names of the words of a line that are not options.
    words: Vec<String>,
}

/// What a key of the file is.
pub(super) enum KnownKey<'a> {
    /// An option that the file can have.
    Option(&'a KnownOption),
    /// An option that only a command line can have.
    OnlyTyped(String),
    /// A word of the line that is not an option, such as the program.
    Word,
    /// The letter of this option.
    Letter(&'a KnownOption),
    Unknown,
}

impl KnownOption {
    /// Whether its value is a path.
    pub(super) fn is_path(&self) -> bool {
        PATHS.contains(&&*self.value_name)
    }
}

impl KnownOptions {
    /// Reads the definitions of the commands.
    pub(in crate::cli) fn of(entries: &[CommandEntry]) -> Self {
        let mut known = Self { options: Vec::new(), commands: Vec::new(), words: Vec::new() };
        for entry in entries {
            let definition = entry.help.map(|help| (help.definition)());
            if let Some(definition) = definition.filter(has_settings_options) {
                known.add(entry.name, definition);
            }
        }
        known
    }

    fn add(&mut self, command: &'static str, definition: Command) {
        let mut definition = color::with_option(definition).args_override_self(true);
        let flags = Flags::of(&mut definition);
        for arg in definition.get_arguments() {
            if arg.is_positional() {
                let names = arg.get_value_names().unwrap_or_default().iter();
                let names = names.map(|name| name.to_lowercase());
                self.words.extend(names.chain([arg.get_id().to_string()]));
            } else if !arg.is_hide_set() {
                self.add_option(command, arg);
            }
        }
        self.commands.push(KnownCommand { name: command, definition, flags });
    }

    fn add_option(&mut self, command: &'static str, arg: &Arg) {
        let long = arg.get_long().expect("every option has a long name");
        let name = underscored(long);
        if let Some(known) = self.options.iter_mut().find(|known| underscored(&known.long) == name)
        {
            known.commands.push(command);
            return;
        }
        let aliases = arg.get_all_aliases().unwrap_or_default();
        let value_name = arg.get_value_names().and_then(|names| names.first());
        self.options.push(KnownOption {
            long: long.to_owned(),
            names: [name].into_iter().chain(aliases.into_iter().map(underscored)).collect(),
            letters: arg.get_short().into_iter().collect(),
            value_name: value_name.map_or_else(String::new, ToString::to_string),
            takes: match arg.get_action() {
                ArgAction::Append => OptionTakes::Many,
                action if action.takes_values() => OptionTakes::One,
                _ => OptionTakes::Nothing,
            },
            commands: vec![command],
        });
    }

    /// Returns what a key means.
    pub(super) fn key(&self, key: &str) -> KnownKey<'_> {
        let name = underscored(key);
        if let Some(known) = self.options.iter().find(|known| known.names.contains(&name)) {
            let is_only_typed = ONLY_TYPED.contains(&&*underscored(&known.long));
            return if is_only_typed {
                KnownKey::OnlyTyped(known.long.clone())
            } else {
                KnownKey::Option(known)
            };
        }
        if self.words.contains(&name) || name == "program" {
            return KnownKey::Word;
        }
        let mut letters = key.chars();
        let letter = letters.next().filter(|_| letters.next().is_none());
        let of_letter = |letter| self.options.iter().find(|known| known.letters.contains(&letter));
        letter.and_then(of_letter).map_or(KnownKey::Unknown, KnownKey::Letter)
    }

    /// Returns the option of this name.
    pub(super) fn option(&self, name: &str) -> Option<&KnownOption> {
        self.options.iter().find(|known| known.names.contains(&underscored(name)))
    }

    /// Returns the names that the file can have.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        let names = self.options.iter().map(|known| &*known.long);
        names.filter(|name| !ONLY_TYPED.contains(&&*underscored(name)))
    }

    /// Returns the options that a command has, and that are not only for a typed line.
    pub(super) fn of_command(&self, command: &str) -> impl Iterator<Item = &KnownOption> {
        self.options.iter().filter(move |known| {
            known.commands.contains(&command) && !ONLY_TYPED.contains(&&*underscored(&known.long))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::registry::COMMANDS;

    #[test]
    fn commands_agree_about_what_an_option_takes() {
        let known = KnownOptions::of(COMMANDS);
        assert!(5 <= known.commands.len());
        for command in &known.commands {
            for arg in command.definition.get_arguments().filter(|arg| !arg.is_positional()) {
                let Some(option) = known.option(arg.get_long().expect("a name")) else { continue };
                let takes = match arg.get_action() {
                    ArgAction::Append => OptionTakes::Many,
                    action if action.takes_values() => OptionTakes::One,
                    _ => OptionTakes::Nothing,
                };
                assert_eq!(takes, option.takes, "{} of {}", option.long, command.name);
            }
        }
    }

    #[test]
    fn keys_are_options_in_every_spelling() {
        let known = KnownOptions::of(COMMANDS);
        for key in ["ssh_config", "ssh-config", "num_accelerators", "beat", "partition", "color"] {
            assert!(matches!(known.key(key), KnownKey::Option(_)), "{key}");
        }
        for key in ["dry_run", "dry-run", "help", "version", "profile", "print", "json"] {
            assert!(matches!(known.key(key), KnownKey::OnlyTyped(_)), "{key}");
        }
        for key in ["script", "script_and_args", "collective", "program", "line"] {
            assert!(matches!(known.key(key), KnownKey::Word), "{key}");
        }
        assert!(matches!(known.key("H"), KnownKey::Letter(_)));
        for key in ["autotuning", "", "x", "ssh config"] {
            assert!(matches!(known.key(key), KnownKey::Unknown), "{key}");
        }
    }
}
