//! Options from `remuda.toml` and from REMUDA_ variables, for the commands that have `--profile`.
//!
//! A value becomes a word of the command line, before those that were typed, and keeps its place for
//! messages; after that, no code distinguishes it from a typed option. Precedence: the typed line, a variable,
//! the profile, the defaults of the file in the working directory, those of the user's file.
//!
//! | file | contents |
//! |---|---|
//! | `args` | `--profile` and `--no_settings` |
//! | `toml_tree` | the syntax, into a tree in which every key and value has its place |
//! | `setting` | the options of a file or a variable, as data |
//! | `known` | the options of all commands, from their definitions |
//! | `check`, `values` | a tree against the options |
//! | `file` | which files are read, and whether they are trusted |
//! | `selection` | the profile |
//! | `layers` | which value of an option wins |
//! | `apply` | the line with the values |
//! | `sources` | errors that name an option |
//! | `show` | the screen of `remuda config check` |

mod apply;
mod args;
mod check;
mod file;
mod known;
mod layers;
mod selection;
mod setting;
mod show;
mod sources;
mod toml_tree;
mod values;
mod variables;

pub(super) use apply::with_settings;
pub(super) use args::{SELECTION_OPTIONS, with_settings_options};
pub(super) use check::check_settings;
pub(super) use file::{check_trust, is_settings_file};
pub(super) use known::KnownOptions;
pub(super) use show::show_settings;
pub(super) use sources::with_sources;
