//! Command line: one file or folder for each command; the only module that uses clap (layer L6).
//!
//! `line` reads words, `args` has the options that several commands share, `resolve` turns them into
//! hosts, devices and a transport, and `start` starts the job. `registry` is the list of commands,
//! from which `dispatch`, help pages, completions and manual pages are made.

pub mod args;
mod codes;
mod command;
mod dispatch;
mod error;
mod executable;
mod face;
mod help;
pub mod line;
mod output_files;
mod random;
mod registry;
mod resolve;
mod settings;
mod start;

pub use args::values;
#[cfg(feature = "train")]
pub use command::train::{NotInEngine, OwnSettings, engine_config};
pub use command::{config, explain, hostfile, launch, pod, run, torchrun};
pub use dispatch::main;
