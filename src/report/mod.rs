//! L4: what people and machines see. Turns values into text and is the only writer of standard
//! output and standard error; decides nothing.

pub mod diagnostic;
mod disk;
mod emulator;
mod files;
pub mod findings;
pub mod gather;
mod lines;
mod monitor;
mod neutral;
mod pages;
pub mod plan;
mod rank_log;
pub mod record;
mod reporter;
mod run_dir;
mod screen;
mod sink;
mod status;
pub mod summary;
mod tail;
mod terminal;
mod text_row;
pub mod world;

pub use lines::Dress;
pub use neutral::{neutral, push_neutral};
pub use pages::{PLACEHOLDERS, Pages, Style, WorkerLabel, unknown_placeholder};
pub use rank_log::{Keep, RankFiles, epoch_dir, make_private_dir};
pub use reporter::{Consumed, OutputSender, Reporter};
pub use run_dir::{RunDir, ask_disk, make_dirs};
pub use status::Step;
pub use terminal::{
    Charset, ColorChoice, StatusPlace, Terminal, choose_color, explain_panics, print, print_error,
    print_error_now, say, start_log,
};
