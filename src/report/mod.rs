//! Output: screens, JSON and summaries (layer L4). The only module that writes to standard output and
//! standard error; it decides nothing about the job.
//!
//! * `text`: what remuda says, as text: findings, messages, amounts. Pure.
//! * `emulation`: a terminal emulator for the progress bars of workers. Pure.
//! * `terminal`: standard output and standard error, the status area, writers that never block.
//! * `logs`: the files of a run and their directories.
//! * `output`: from the bytes of workers to lines on the screen and in files.
//! * `documents`: tables and JSON documents for programs.

mod documents;
mod emulation;
mod logs;
mod monitor;
mod output;
mod terminal;
pub mod text;

pub use documents::{
    ElasticSettings, OptionDocument, PlanSettings, StreamSetDocument, StreamSettings, config,
    findings, plan, record, world,
};
pub use logs::{
    AttemptDir, AttemptPlace, LogDir, LogRetention, OPEN_LOGS_MAX, RankFiles, RunClass, RunDir,
    SavedRun, epoch_dir, make_dirs, make_private_dir, with_disk_timeout, write_outer_error_file,
};
pub use output::{
    Consumed, ControlChars, OutputLink, OutputRouter, OutputSender, OutputStreams, PLACEHOLDERS,
    Redirects, Reporter, StreamSet, Style, WorkerLabel, gather, unknown_placeholder,
};
pub use terminal::{
    Charset, ColorChoice, StatusPlace, Terminal, WorkerStep, choose_color, in_locale,
    install_panic_hook, print, print_error, print_message, print_screen, print_with, start_log,
    try_print_error,
};
pub use text::{diagnostic, escape_control, escape_control_into};
