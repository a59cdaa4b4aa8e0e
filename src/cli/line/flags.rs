//! Table of options, from clap's definitions, with the options that may be abbreviated.

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};

/// DeepSpeed's long options in the order in which it declares them. These may be abbreviated.
/// Options of remuda must be written out, so that they never change the meaning of an abbreviation.
pub const DEEPSPEED_FLAGS: [&str; 27] = [
    "help",
    "hostfile",
    "include",
    "exclude",
    "num_nodes",
    "num_gpus",
    "num_accelerators",
    "master_port",
    "master_addr",
    "node_rank",
    "launcher",
    "launcher_args",
    "module",
    "no_python",
    "no_local_rank",
    "no_ssh",
    "no_ssh_check",
    "force_multi",
    "save_pid",
    "enable_each_rank_log",
    "autotuning",
    "bind_cores_to_rank",
    "bind_core_list",
    "ssh_port",
    "venv_script",
    "log_level",
    "quiet",
];

/// Options that only DeepSpeed's launcher of one node has.
const NODE_FLAGS: [&str; 1] = ["world_info"];

/// DeepSpeed's short options.
const DEEPSPEED_SHORTS: &[u8] = b"hHieq";

/// Set of spellings that are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionOwner {
    /// All options, with `_` or `-`.
    All,
    /// Options of DeepSpeed only, in DeepSpeed's spelling.
    DeepSpeed,
}

/// One option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct OptionSpec {
    /// Its first long spelling, as clap has it: `num_gpus`.
    pub(in crate::cli) long: String,
    /// All long spellings, with `_` only.
    names: Vec<String>,
    shorts: Vec<u8>,
    /// Whether the option takes a value.
    pub(super) takes: Takes,
    /// Whether all values are kept, and not only the last one.
    pub(super) is_list: bool,
    /// Whether the help shows it.
    is_hidden: bool,
}

/// Arguments and effect of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// It takes one value.
    Value,
    /// It takes no value.
    Nothing,
    /// It takes no value and prints help; the rest of the line is ignored.
    Help,
    /// It takes no value and prints the version; the rest of the line is ignored.
    Version,
}

/// The options of a command.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Flags {
    options: Vec<OptionSpec>,
    end_at_word: bool,
    /// Number of words before the options: names of subcommands.
    names: usize,
    /// The subcommands.
    commands: Vec<String>,
}

impl Flags {
    /// Reads the options from clap's definition.
    pub(in crate::cli) fn of(command: &mut Command) -> Self {
        // Adds `--help` and `--version` to the definition.
        command.build();
        Self {
            options: command.get_arguments().filter(|arg| !arg.is_positional()).map(flag).collect(),
            end_at_word: command.get_positionals().any(Arg::is_trailing_var_arg_set),
            names: 0,
            commands: command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect(),
        }
    }

    /// Reads the options of a line that begins with the name of a subcommand: `hostfile check`.
    pub(in crate::cli) fn of_line(command: &mut Command, words: &[OsString]) -> Self {
        let own = Self::of(command);
        let name = words.first().and_then(|word| word.to_str());
        match name.and_then(|name| command.find_subcommand_mut(name)) {
            Some(inner) => Self { names: 1, ..Self::of(inner) },
            None => own,
        }
    }

    pub(super) fn get(&self, index: usize) -> &OptionSpec {
        &self.options[index]
    }

    /// Finds the option with this spelling, without dashes.
    pub(super) fn exact(&self, name: &str, owner: OptionOwner) -> Option<usize> {
        let name = match owner {
            OptionOwner::All => underscored(name),
            OptionOwner::DeepSpeed if deepspeed_flags().any(|flag| flag == name) => name.to_owned(),
            OptionOwner::DeepSpeed => return None,
        };
        self.options.iter().position(|flag| flag.names.contains(&name))
    }

    /// Whether the command has this option and its help shows it.
    pub(super) fn has(&self, name: &str) -> bool {
        self.exact(name, OptionOwner::All).is_some_and(|flag| !self.options[flag].is_hidden)
    }

    /// Finds the options of DeepSpeed that begin with this text; each spelling is a result of its
    /// own.
    pub(super) fn abbreviated(
        &self,
        start: &str,
        owner: OptionOwner,
    ) -> Vec<(usize, &'static str)> {
        let start = match owner {
            OptionOwner::All => underscored(start),
            OptionOwner::DeepSpeed => start.to_owned(),
        };
        let begins = deepspeed_flags().filter(|name| name.starts_with(&start));
        begins.filter_map(|name| Some((self.exact(name, OptionOwner::DeepSpeed)?, name))).collect()
    }

    /// Finds the option of one letter.
    pub(super) fn short(&self, letter: u8, owner: OptionOwner) -> Option<usize> {
        if owner == OptionOwner::DeepSpeed && !DEEPSPEED_SHORTS.contains(&letter) {
            return None;
        }
        self.options.iter().position(|flag| flag.shorts.contains(&letter))
    }

    /// Returns the first long spelling of every option that the help shows.
    pub(in crate::cli) fn longs(&self) -> impl Iterator<Item = &str> {
        self.options.iter().filter(|flag| !flag.is_hidden).map(|flag| &*flag.long)
    }

    /// Returns the names of the subcommands.
    pub(super) fn commands(&self) -> &[String] {
        &self.commands
    }

    /// Index of the first word that may be an option.
    pub(super) fn first_word(&self) -> usize {
        self.names
    }

    /// Whether the options end at the first word that is not an option.
    pub(super) fn end_at_word(&self) -> bool {
        self.end_at_word
    }
}

/// Names of options of DeepSpeed's launchers; a command has only some of them.
fn deepspeed_flags() -> impl Iterator<Item = &'static str> {
    DEEPSPEED_FLAGS.into_iter().chain(NODE_FLAGS)
}

/// Replaces `-` by `_`, which are equivalent in the name of an option.
pub(super) fn underscored(name: &str) -> String {
    name.replace('-', "_")
}

fn flag(arg: &Arg) -> OptionSpec {
    let long = arg.get_long().expect("every option has a long spelling").to_owned();
    let mut names = vec![underscored(&long)];
    names.extend(arg.get_all_aliases().unwrap_or_default().into_iter().map(underscored));
    names.dedup();
    let shorts = arg.get_short().into_iter().chain(arg.get_all_short_aliases().unwrap_or_default());
    let takes = match arg.get_action() {
        ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong => Takes::Help,
        ArgAction::Version => Takes::Version,
        action if action.takes_values() => Takes::Value,
        _ => Takes::Nothing,
    };
    OptionSpec {
        long,
        names,
        shorts: shorts.map(|letter| letter as u8).collect(),
        takes,
        is_list: matches!(arg.get_action(), ArgAction::Append | ArgAction::Count),
        is_hidden: arg.is_hide_set(),
    }
}
