//! Standard output and standard error: their properties, the status area, and writers that never
//! block.

mod print;
mod properties;
mod screen;
mod sink;
mod status;

pub use print::{
    in_locale, install_panic_hook, print, print_error, print_message, print_screen, print_with,
    start_log, try_print_error,
};
pub(super) use properties::Tty;
pub use properties::{Charset, ColorChoice, StatusPlace, Terminal, choose_color};
pub(super) use screen::Screens;
pub use status::WorkerStep;
pub(super) use status::{Area, RedrawableRows, StatusText};
