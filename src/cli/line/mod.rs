//! Command lines: read as DeepSpeed reads them, and shown back with a caret when they make no sense.
//!
//! `flags` is the table, made of clap's definitions; `lex` is the grammar of Python's argparse;
//! `typed` remembers where everything stood; `clap_error` says in our words what clap found wrong
//! with a value. Nothing here asks the world.

mod clap_error;
pub mod codes;
mod elsewhere;
mod flags;
mod lex;
mod number;
mod parse;
mod shlex;
mod typed;

pub use flags::DEEPSPEED_FLAGS;
pub use number::BadValue;
pub use parse::Parsed;
pub use typed::{ArgvSpan, Given, RefusedLine, Typed};

pub(super) use clap_error::{NotParsed, explain, refuse_value};
pub(super) use elsewhere::setting_as_option;
pub(super) use flags::Flags;
pub(super) use number::{python_int, whole};
pub(super) use parse::parse;
pub(super) use shlex::split;
pub(super) use typed::{respelt, scan};
