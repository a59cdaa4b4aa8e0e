//! Which options there are: clap's definitions, read once, and which may be abbreviated.

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

/// What other launchers and trainers call an option of ours.
const ELSEWHERE: [(&str, &str); 13] = [
    ("nproc_per_node", "num_gpus"),
    ("nnodes", "num_nodes"),
    ("num_processes", "num_gpus"),
    ("num_machines", "num_nodes"),
    ("machine_rank", "node_rank"),
    ("main_process_port", "master_port"),
    ("main_process_ip", "master_addr"),
    ("verbose", "log_level=debug"),
    ("checkpoint_every", "save_every"),
    ("checkpoint_interval", "save_every"),
    ("save_interval", "save_every"),
    ("save_steps", "save_every"),
    ("save_total_limit", "keep"),
];

/// DeepSpeed's short ones.
const DEEPSPEED_SHORTS: &[u8] = b"hHieq";

/// Whose spellings count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// All, with `_` or `-`.
    All,
    /// DeepSpeed's alone, as it writes them.
    DeepSpeed,
}

/// One option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct Flag {
    /// Its first long spelling, as clap wants it: `num_gpus`.
    pub(in crate::cli) long: String,
    /// All long spellings, with `_` only.
    names: Vec<String>,
    shorts: Vec<u8>,
    /// What it does with the words after it.
    pub(super) takes: Takes,
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
pub(in crate::cli) struct Flags(Vec<Flag>);

impl Flags {
    /// Reads them out of clap's definitions.
    pub(in crate::cli) fn of(command: &mut Command) -> Self {
        // Adds `--help` and `--version`.
        command.build();
        Self(command.get_arguments().filter(|arg| !arg.is_positional()).map(flag).collect())
    }

    pub(super) fn get(&self, index: usize) -> &Flag {
        &self.0[index]
    }

    /// The option that is spelt like this, without its dashes.
    pub(super) fn exact(&self, name: &str, whose: Whose) -> Option<usize> {
        let name = match whose {
            Whose::All => underscored(name),
            Whose::DeepSpeed if theirs().any(|flag| flag == name) => name.to_owned(),
            Whose::DeepSpeed => return None,
        };
        self.0.iter().position(|flag| flag.names.contains(&name))
    }

    /// The options of DeepSpeed that begin like this, each spelling for itself.
    pub(super) fn abbreviated(&self, start: &str, whose: Whose) -> Vec<(usize, &'static str)> {
        let start = match whose {
            Whose::All => underscored(start),
            Whose::DeepSpeed => start.to_owned(),
        };
        let begins = theirs().filter(|name| name.starts_with(&start));
        begins.filter_map(|name| Some((self.exact(name, Whose::DeepSpeed)?, name))).collect()
    }

    /// The option of one letter.
    pub(super) fn short(&self, letter: u8, whose: Whose) -> Option<usize> {
        if whose == Whose::DeepSpeed && !DEEPSPEED_SHORTS.contains(&letter) {
            return None;
        }
        self.0.iter().position(|flag| flag.shorts.contains(&letter))
    }

    /// Which of these options is called like this elsewhere.
    pub(super) fn called_elsewhere(&self, name: &str) -> Option<&'static str> {
        let (_, ours) = ELSEWHERE.into_iter().find(|(other, _)| *other == name)?;
        let flag = ours.split('=').next()?;
        self.exact(flag, Whose::All).map(|_| ours)
    }

    /// Every option by its first long spelling.
    pub(in crate::cli) fn longs(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|flag| &*flag.long)
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

fn flag(arg: &Arg) -> Flag {
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
    Flag { long, names, shorts: shorts.map(|letter| letter as u8).collect(), takes }
}
