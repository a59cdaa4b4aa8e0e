//! Reader of Hjson, as Python's `hjson` 3.1 reads it for DeepSpeed. Pure.
//!
//! Hjson is JSON with comments (`//`, `#`, `/* */`), without the need of quotes and commas, and with text of
//! several lines (`'''`). Text without quotes reaches to the end of its line, commas and brackets included.
//! Any text gives a tree or a diagnostic; a key that an object has twice is an error, too.

mod cursor;
mod parse;
mod quoted;
mod unquoted;

pub use parse::{DEPTH_MAX, HjsonDocument, parse_hjson};
