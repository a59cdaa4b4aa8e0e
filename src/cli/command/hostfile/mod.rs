//! `remuda hostfile …`. Each subcommand has one file.

mod check;
mod convert;
mod diff;
mod fmt;
mod show;
mod subcommands;
mod values;
mod write;

pub use crate::cli::command::output::CommandOutput;
pub use subcommands::{HostfileArgs, run};
pub(in crate::cli) use subcommands::{definition, main};
pub(in crate::cli) use write::{create, probe};

pub use crate::cli::resolve::hostfile::{LoadError, load};
pub use crate::cli::resolve::trust::Trust;
