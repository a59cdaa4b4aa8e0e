//! The options of `accelerate launch` as options of a command.

use clap::{Arg, ArgAction, Command};

use crate::config::accelerate::{FlagKind, FlagSpec, GROUPS};

/// Adds the options to a command.
pub(super) fn add_to(mut command: Command) -> Command {
    for group in GROUPS {
        command = command.next_help_heading(group.heading);
        for flag in group.flags {
            command = command.arg(arg(flag));
        }
    }
    command
}

fn arg(flag: &FlagSpec) -> Arg {
    let short = match flag.name {
        "module" => Some('m'),
        "tee" => Some('t'),
        "quiet" => Some('q'),
        _ => None,
    };
    let arg = Arg::new(flag.name).long(flag.name).help(flag.help).hide(flag.help.is_empty());
    let arg = short.into_iter().fold(arg, Arg::short);
    let value_name = match flag.kind {
        FlagKind::Switch => return arg.action(ArgAction::SetTrue),
        FlagKind::Words => return arg.action(ArgAction::Append),
        FlagKind::Whole | FlagKind::Float => "N",
        FlagKind::Bool | FlagKind::NotEmpty => "BOOL",
        FlagKind::ThreeBools => "BOOL,BOOL,BOOL",
        FlagKind::Text | FlagKind::OneOf(_) => match flag.name {
            name if name.ends_with("_file") || name.ends_with("_hostfile") => "FILE",
            name if name.ends_with("_dir") || name.ends_with("_path") => "DIR",
            name if name.ends_with("_ip") => "ADDR",
            _ => "TEXT",
        },
    };
    arg.action(ArgAction::Set).value_name(value_name)
}
