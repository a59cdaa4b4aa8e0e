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

pub use lines::Dress;
pub use log_dir::LogDir;
pub use neutral::{neutral, push_neutral};
pub use pages::{OutputRouter, PLACEHOLDERS, Style, WorkerLabel, unknown_placeholder};
pub use rank_log::{Keep, RankFiles, epoch_dir, make_private_dir};
pub use reporter::{Consumed, OutputSender, Reporter};
pub use retention::RunClass;
pub use run_dir::{RunDir, ask_disk, make_dirs};
pub use saved_run::{SavedRun, this_host};
pub use status::WorkerStep;
pub use terminal::{
    Charset, ColorChoice, StatusPlace, Terminal, choose_color, explain_panics, print, print_by,
    print_error, print_error_now, say, start_log,
};
