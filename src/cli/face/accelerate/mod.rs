//! The command line of `accelerate launch` 1.15.
//!
//! | file | contents |
//! |---|---|
//! | `options`, `args` | the options and a parsed line |
//! | `config_file` | the place of the file that `accelerate config` writes |
//! | `settings` | the settings of line, file and defaults |
//! | `environment` | the variables from which `Accelerator()` reads its settings |
//! | `hosts` | the number of machines, and their slots for the workers |
//! | `count` | the number of workers, and the GPUs for them |
//! | `machine` | the number of this machine |
//! | `made_lines` | lines of other commands that are made from the settings |
//! | `notes` | notes on settings that have another effect than their values say |
//! | `job` | all of it as a job of remuda |
//!
//! The table of options and the reader of the file are in `config::accelerate`.

pub(in crate::cli) mod args;
mod config_file;
mod count;
mod environment;
mod hosts;
pub(in crate::cli) mod job;
mod machine;
mod made_lines;
mod notes;
mod options;
mod settings;
