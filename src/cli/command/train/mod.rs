//! `remuda train`: the bundled trainer as a job.

mod args;
mod check;
mod codes;
mod config_file;
mod config_places;
mod device;
mod device_choice;
mod engine_config;
mod job;
mod lanes;
mod memory_table;
mod outputs;
mod resume;
mod shard_group;
mod shown_trainer;
mod sizes;
mod typed_line;
mod values;
mod worker;

pub(in crate::cli::command) use args::threads_of_environment;
pub(in crate::cli) use codes::EXPLANATIONS;
pub use engine_config::{NotInEngine, OwnSettings, engine_config};
pub(in crate::cli) use job::{definition, main};
pub(in crate::cli) use worker::{WORKER_COMMAND, worker_main};
