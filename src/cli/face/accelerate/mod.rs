//! The command line of `accelerate launch` 1.15.
//!
//! | file | contents |
//! |---|---|
//! | `flags` | the options, as a table |
//! | `args` | a parsed line |
//! | `yaml`, `config_file` | the file that `accelerate config` writes |
//! | `value`, `settings` | the settings of line, file and defaults |
//! | `environment` | the variables from which `Accelerator()` reads its settings |
//! | `job` | all of it as a job of remuda |
//! | `codes` | codes of errors in the file |

pub(in crate::cli) mod args;
pub(in crate::cli) mod codes;
mod config_file;
mod environment;
mod flags;
pub(in crate::cli) mod job;
mod settings;
mod value;
mod yaml;
