//! Help pages: `-h` is one screen with the most used options, `--help` lists every option. Both have
//! the same examples, and no line is wider than the terminal.

mod layout;
mod page;
mod topics;

pub(super) use layout::fit;
pub(super) use page::{Length, examples_of, front_page, page, width};
