//! Command lines: parsing with the rules of DeepSpeed, and errors with a caret.
//!
//! `flags` is the table of options, from clap's definitions; `lex` is the grammar of Python's
//! argparse; `typed` keeps the places of all words; `clap_error` rewrites clap's errors about
//! values. These modules read nothing outside the command line.

mod applied;
mod clap_error;
pub mod codes;
mod conflicts;
mod equivalents;
mod face_options;
mod flags;
mod host_list;
mod known_options;
mod lex;
mod nested_launcher;
mod number;
mod origin;
mod other_launcher;
mod parse;
mod salloc_options;
mod shlex;
mod spelling;
mod typed;
mod unknown_option;
mod version;

pub use flags::DEEPSPEED_FLAGS;
pub use number::BadValue;
pub use parse::Parsed;
pub use typed::{ArgvSpan, CommandLine, GivenOption, RefusedLine};

pub(super) use applied::{AppliedOption, AppliedSettings, SettingOrigin};
pub(super) use clap_error::{NotParsed, explain, refuse_value, refuse_words_after_h};
pub(super) use conflicts::{cannot_combine, needs_other};
pub(super) use flags::{Flags, OriginalLauncher, underscored};
pub(super) use host_list::as_host_list;
pub(super) use known_options::{option_with_meaning, setting_as_option};
pub(super) use lex::NO_SCRIPT_MESSAGE;
pub(super) use nested_launcher::{is_python, launcher_of_python};
pub(super) use number::{parse_whole, python_int};
pub(super) use other_launcher::{Instead, instead_of, is_launcher, launcher_named};
pub(super) use parse::{parse, parse_line_of, scan};
pub(super) use shlex::split;
pub(super) use typed::{
    LineOrigin, LineRelation, RefusedInput, SettingPlace, SettingsSource, in_clap_spelling,
    scan_options,
};
pub(super) use version::version_line;
