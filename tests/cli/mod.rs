//! Command lines: parsing, help pages, completions, and screens of errors.

mod codes;
mod compat;
mod completion;
mod help;
mod host_lists;
mod lines;
mod links;
mod man;
mod screens;
