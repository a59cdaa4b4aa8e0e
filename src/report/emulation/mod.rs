//! Terminal emulator for the progress bars of workers. Pure.

mod emulator;
mod final_screen;
mod row;
mod sequence;
mod text_row;

pub(super) use emulator::{COLUMNS_MAX, Emulator};
pub(super) use final_screen::final_screen;
pub(super) use row::FinalLine;
pub(super) use sequence::first_control;
