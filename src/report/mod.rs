//! Output: screens, JSON and summaries (layer L4). The only module that writes to standard output and
//! standard error; it decides nothing about the job.

pub mod diagnostic;
mod disk;
mod emulator;
mod files;
pub mod findings;
pub mod gather;
mod lines;
mod log_dir;
mod monitor;
mod neutral;
mod pages;
pub mod plan;
mod rank_log;
pub mod record;
mod reporter;
mod retention;
mod run_dir;
mod saved_run;
mod screen;
mod sink;
mod status;
pub mod summary;
mod tail;
mod terminal;
mod text_row;
pub mod world;

pub use lines::ControlChars;
pub use log_dir::LogDir;
pub use neutral::{escape_control, escape_control_into};
pub use pages::{OutputRouter, PLACEHOLDERS, Style, WorkerLabel, unknown_placeholder};
pub use rank_log::{LogRetention, RankFiles, epoch_dir, make_private_dir};
pub use reporter::{Consumed, OutputSender, Reporter};
pub use retention::RunClass;
pub use run_dir::{RunDir, make_dirs, with_disk_timeout};
pub use saved_run::{SavedRun, this_host};
pub use status::WorkerStep;
pub use terminal::{
    Charset, ColorChoice, StatusPlace, Terminal, choose_color, install_panic_hook, print,
    print_error, print_message, print_with, start_log, try_print_error,
};
