//! The codes of errors in `remuda.toml`, the file of options (`O…`).

use crate::base::{Explanation, explanation};

/// A text that is not TOML.
pub const NOT_TOML: &str = "O001";
/// A key that is not an option.
pub const UNKNOWN_OPTION_KEY: &str = "O002";
/// A value that its option cannot take.
pub const BAD_OPTION_VALUE: &str = "O003";
/// An option that only a command line can have.
pub const NOT_IN_FILES: &str = "O004";
/// An option that a table has twice.
pub const OPTION_TWICE: &str = "O005";
/// A profile that no file has.
pub const UNKNOWN_PROFILE: &str = "O006";
/// A file that other users can write.
pub const SETTINGS_NOT_TRUSTED: &str = "O007";
/// A file that cannot be read.
pub const SETTINGS_UNREADABLE: &str = "O008";

pub(super) const PAGES: &[Explanation] = &[
    explanation(
        NOT_TOML,
        "remuda.toml is not TOML",
        "The file has a key and a value on each line; texts are in quotes, lists in brackets:\n\n    launcher = \
         \"ssh\"\n    max_restarts = 3\n    env = [\"NCCL_DEBUG=WARN\"]\n\n    [profile.cluster]\n    hostfile = \
         \"hosts\"\n\nTo check a file:\n\n    remuda config check remuda.toml",
    ),
    explanation(
        UNKNOWN_OPTION_KEY,
        "remuda.toml has an unknown key",
        "A key is the long name of an option of `remuda run`, `ssh`, `doctor`, `bench`, `train` or `sbatch` \
         without its dashes; `-` and `_` are the same. Keys before the first table are defaults; a table \
         `[profile.NAME]` has the options of a profile. There are no other tables. A key that a command does \
         not have is ignored by that command. To list the options:\n\n    remuda run --help",
    ),
    explanation(
        BAD_OPTION_VALUE,
        "a value of remuda.toml is invalid",
        "The message names the option and what it accepts. An option that takes no value is `true` or `false`; \
         `false` cancels a `true` of the defaults in a profile. An option that can be repeated, such as `env`, \
         is a list of texts. Every other value is a text or a number, as on the command line.",
    ),
    explanation(
        NOT_IN_FILES,
        "the option is only for the command line",
        "The program, `--help`, `--version`, `--dry-run`, `--json`, `--show_env`, `--print`, `--profile` and \
         `--no_settings` say what one command does. In a file they would change every command, so they are \
         refused there. A profile is selected by `--profile NAME` or REMUDA_PROFILE.",
    ),
    explanation(
        OPTION_TWICE,
        "remuda.toml has an option twice",
        "A table has a key twice, or two spellings of one option, such as `ssh-config` and `ssh_config`, or \
         `num_gpus` and `num_accelerators`. Remove one of them. A profile can have an option of the defaults: \
         the value of the profile is used.",
    ),
    explanation(
        UNKNOWN_PROFILE,
        "there is no such profile",
        "`--profile` or REMUDA_PROFILE names a profile that neither `remuda.toml` in the working directory nor \
         that of the user has. A profile is a table:\n\n    [profile.cluster]\n    hostfile = \"hosts\"\n\nIf \
         REMUDA_PROFILE is set for another project, `unset` it.",
    ),
    explanation(
        SETTINGS_NOT_TRUSTED,
        "other users can write remuda.toml",
        "The file can choose the hosts, the interpreter and the environment of a job, so a user who can write \
         it decides what you execute. It must belong to you or to root, and only its owner may have the right to \
         write it:\n\n    chmod go-w remuda.toml\n\nTo accept the file as it is, for example as root in a \
         container, add `--allow_insecure_files` to the command line; `--no_settings` ignores it.",
    ),
    explanation(
        SETTINGS_UNREADABLE,
        "remuda.toml cannot be read",
        "The file exists, but it is not a regular file, is larger than 1 MiB, is not UTF-8, or the operating system \
         returns the error that the message names. Correct it, or add `--no_settings` to the command line.",
    ),
];
