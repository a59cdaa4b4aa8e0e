//! Help pages: `-h` is one screen with the most used options, `--help` lists every option. Both have
//! the same examples, and no line is wider than the terminal.

mod layout;
mod manual;
mod page;
mod topics;

pub(super) use layout::fit;
pub(super) use manual::manual_page;
pub(super) use page::{Length, front_page, page, usage, width};
