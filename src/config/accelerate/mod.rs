//! accelerate's settings: the options of `accelerate launch`, the file that `accelerate config` writes, and
//! what that file says about training.

mod file;
mod flags;
mod training;
mod value;

pub(crate) use file::{ConfigFile, Paradigm, parse_config_file};
pub(crate) use flags::{FlagKind, FlagSpec, GROUPS, MISSPELT_BACKEND, NOT_SUPPORTED, all_flags};
pub(super) use training::{AccelerateTree, training_tree};
pub(crate) use value::SettingValue;
