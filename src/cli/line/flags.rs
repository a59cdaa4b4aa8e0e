//! Which options there are: clap's definitions, read once, and which may be abbreviated.

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command};

/// DeepSpeed's long options in the order in which it declares them. These may be abbreviated; an
/// option of ours must be written out, so that it never changes what an abbreviation means.
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

/// Those that only its launcher of one node has.
const NODE_FLAGS: [&str; 1] = ["world_info"];

/// DeepSpeed's short ones.
const DEEPSPEED_SHORTS: &[u8] = b"hHieq";

/// Whose spellings count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionOwner {
    /// All, with `_` or `-`.
    All,
    /// DeepSpeed's alone, as it writes them.
    DeepSpeed,
}

/// One option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct OptionSpec {
    /// Its first long spelling, as clap wants it: `num_gpus`.
    pub(in crate::cli) long: String,
    /// All long spellings, with `_` only.
    names: Vec<String>,
    shorts: Vec<u8>,
    /// What it does with the words after it.
    pub(super) takes: Takes,
    /// Whether every value counts, and not the last one only.
    pub(super) is_list: bool,
    /// Whether help shows it.
    is_hidden: bool,
}

/// See the variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    /// One value.
    Value,
    /// None.
    Nothing,
    /// None, and the rest of the line does not matter.
    Help,
    /// The same.
    Version,
}

/// The options of a command.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Flags {
    options: Vec<OptionSpec>,
    end_at_word: bool,
    /// Words before the options: the name of a command of the command.
    names: usize,
}

impl Flags {
    /// Reads them out of clap's definitions.
    pub(in crate::cli) fn of(command: &mut Command) -> Self {
        // Adds `--help` and `--version`.
        command.build();
        Self {
            options: command.get_arguments().filter(|arg| !arg.is_positional()).map(flag).collect(),
            end_at_word: command.get_positionals().any(Arg::is_trailing_var_arg_set),
            names: 0,
        }
    }

    /// The same for a line that names a command of the command first: `hostfile check`.
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

    /// The option that is spelt like this, without its dashes.
    pub(super) fn exact(&self, name: &str, whose: OptionOwner) -> Option<usize> {
        let name = match whose {
            OptionOwner::All => underscored(name),
            OptionOwner::DeepSpeed if theirs().any(|flag| flag == name) => name.to_owned(),
            OptionOwner::DeepSpeed => return None,
        };
        self.options.iter().position(|flag| flag.names.contains(&name))
    }

    /// The options of DeepSpeed that begin like this, each spelling for itself.
    pub(super) fn abbreviated(
        &self,
        start: &str,
        whose: OptionOwner,
    ) -> Vec<(usize, &'static str)> {
        let start = match whose {
            OptionOwner::All => underscored(start),
            OptionOwner::DeepSpeed => start.to_owned(),
        };
        let begins = theirs().filter(|name| name.starts_with(&start));
        begins.filter_map(|name| Some((self.exact(name, OptionOwner::DeepSpeed)?, name))).collect()
    }

    /// The option of one letter.
    pub(super) fn short(&self, letter: u8, whose: OptionOwner) -> Option<usize> {
        if whose == OptionOwner::DeepSpeed && !DEEPSPEED_SHORTS.contains(&letter) {
            return None;
        }
        self.options.iter().position(|flag| flag.shorts.contains(&letter))
    }

    /// Every option that help shows, by its first long spelling.
    pub(in crate::cli) fn longs(&self) -> impl Iterator<Item = &str> {
        self.options.iter().filter(|flag| !flag.is_hidden).map(|flag| &*flag.long)
    }

    /// The first word that may be an option.
    pub(super) fn first_word(&self) -> usize {
        self.names
    }

    /// Whether options end at the first word that is none.
    pub(super) fn end_at_word(&self) -> bool {
        self.end_at_word
    }
}

/// The options of DeepSpeed's launchers; a command has some of them.
fn theirs() -> impl Iterator<Item = &'static str> {
    DEEPSPEED_FLAGS.into_iter().chain(NODE_FLAGS)
}

/// `-` and `_` are the same in the name of an option.
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
