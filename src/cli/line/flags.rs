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

/// torchrun's long options, which may be abbreviated.
const TORCHRUN_FLAGS: [&str; 32] = [
    "help",
    "nnodes",
    "nproc_per_node",
    "rdzv_backend",
    "rdzv_endpoint",
    "rdzv_id",
    "rdzv_conf",
    "standalone",
    "max_restarts",
    "monitor_interval",
    "start_method",
    "event_log_handler",
    "role",
    "module",
    "no_python",
    "run_path",
    "log_dir",
    "redirects",
    "tee",
    "log_line_prefix_template",
    "local_ranks_filter",
    "duplicate_stdout_filters",
    "duplicate_stderr_filters",
    "node_rank",
    "master_addr",
    "master_port",
    "local_addr",
    "logs_specs",
    "numa_binding",
    "signals_to_handle",
    "shutdown_timeout",
    "virtual_local_rank",
];

/// Options that only `torch.distributed.launch` has.
const DISTRIBUTED_LAUNCH_FLAGS: [&str; 1] = ["use_env"];

/// torchrun's short options.
const TORCHRUN_SHORTS: &[u8] = b"hmrt";

/// Short options of accelerate.
const ACCELERATE_SHORTS: &[u8] = b"hmqt";

/// The launcher whose options may be abbreviated; remuda's own are written out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum OriginalLauncher {
    DeepSpeed,
    Torchrun,
    /// Its options are written out too.
    Accelerate,
}

impl OriginalLauncher {
    /// Names of its options; a command has only some of them.
    pub(super) fn flags(self) -> impl Iterator<Item = &'static str> {
        let (flags, others): (&'static [_], &'static [_]) = match self {
            Self::DeepSpeed => (&DEEPSPEED_FLAGS, &NODE_FLAGS),
            Self::Torchrun => (&TORCHRUN_FLAGS, &DISTRIBUTED_LAUNCH_FLAGS),
            Self::Accelerate => (&[], &[]),
        };
        flags.iter().chain(others).copied()
    }

    fn shorts(self) -> &'static [u8] {
        match self {
            Self::DeepSpeed => DEEPSPEED_SHORTS,
            Self::Torchrun => TORCHRUN_SHORTS,
            Self::Accelerate => ACCELERATE_SHORTS,
        }
    }

    /// The name in the spelling in which it is looked for: DeepSpeed's options have one spelling.
    fn spelling(self, name: &str) -> String {
        match self {
            Self::DeepSpeed => name.to_owned(),
            Self::Torchrun | Self::Accelerate => underscored(name),
        }
    }
}

/// Set of spellings that are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OptionOwner {
    /// All options, with `_` or `-`.
    All,
    /// Options of the original launcher only, in its spelling.
    Original,
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
    /// Name of its value in the help.
    pub(super) value_name: String,
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
    original: OriginalLauncher,
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
            original: OriginalLauncher::DeepSpeed,
            options: command.get_arguments().filter(|arg| !arg.is_positional()).map(flag).collect(),
            end_at_word: command.get_positionals().any(Arg::is_trailing_var_arg_set),
            names: 0,
            commands: command.get_subcommands().map(|inner| inner.get_name().to_owned()).collect(),
        }
    }

    /// Sets the launcher whose options may be abbreviated.
    pub(super) fn of_launcher(self, original: OriginalLauncher) -> Self {
        Self { original, ..self }
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
            OptionOwner::Original => {
                let name = self.original.spelling(name);
                self.original.flags().find(|flag| *flag == name)?.to_owned()
            }
        };
        self.options.iter().position(|flag| flag.names.contains(&name))
    }

    /// Whether the command has this option and its help shows it.
    pub(super) fn has(&self, name: &str) -> bool {
        self.shown(name).is_some()
    }

    /// Returns an option as the help of the command spells it.
    pub(super) fn shown(&self, name: &str) -> Option<&str> {
        let flag = &self.options[self.exact(name, OptionOwner::All)?];
        (!flag.is_hidden).then_some(flag.long.as_str())
    }

    /// Returns the launcher whose lines the command reads.
    pub(super) fn original(&self) -> OriginalLauncher {
        self.original
    }

    /// Finds the options of the original launcher that begin with this text; each spelling is a result of its
    /// own.
    pub(super) fn abbreviated(
        &self,
        start: &str,
        owner: OptionOwner,
    ) -> Vec<(usize, &'static str)> {
        let start = match owner {
            OptionOwner::All => underscored(start),
            OptionOwner::Original => self.original.spelling(start),
        };
        let begins = self.original.flags().filter(|name| name.starts_with(&start));
        begins.filter_map(|name| Some((self.exact(name, OptionOwner::Original)?, name))).collect()
    }

    /// Finds the option of one letter.
    pub(super) fn short(&self, letter: u8, owner: OptionOwner) -> Option<usize> {
        if owner == OptionOwner::Original && !self.original.shorts().contains(&letter) {
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

/// Replaces `-` by `_`, which are equivalent in the name of an option.
pub(in crate::cli) fn underscored(name: &str) -> String {
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
        value_name: arg
            .get_value_names()
            .and_then(|names| names.first())
            .map_or_else(|| "VALUE".to_owned(), ToString::to_string),
        is_list: matches!(arg.get_action(), ArgAction::Append | ArgAction::Count),
        is_hidden: arg.is_hide_set(),
    }
}
