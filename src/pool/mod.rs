//! Parsers of hostfiles, selectors and environment files (layer L1).
//!
//! The parsers use no file, no clock and no environment: bytes in, typed values and
//! [`Diagnostic`](crate::base::Diagnostic)s out. A parser does not stop at the first problem, and
//! its result never contains a host or a slot that is not in the text.

pub mod codes;
mod counts;
pub mod dialect;
mod diff;
mod env_file;
mod filter;
mod format;
mod host_line;
mod host_source;
mod host_word;
mod hosts;
mod kept;
mod line;
mod lint;
mod mend;
pub mod nodeset;
mod parse;
mod reader;
mod selection;
mod selector;
mod settings;
mod similar;
mod text;
mod world_info;

pub use counts::parse_slot_count;
pub use dialect::{Dialect, ReadOptions, Reading, read_any};
pub use diff::{Difference, diff};
pub use env_file::{
    EnvFile, Variable, loads_code_warning, read_env, shadowed, variable_name_problem,
};
pub use filter::{Filter, SlotFilter};
pub use format::{comments, format};
pub use host_source::HostSource;
pub use hosts::{Host, Hostfile, Pool, SLOTS_MAX, SlotCount, Users};
pub use lint::lint;
pub use mend::{FixedHostfile, certain_changes, fix};
pub use parse::{LINE_BYTES_MAX, parse, read};
pub use reader::HOSTS_MAX;
pub use selection::{Selected, Selection, SelectorArgs, select};
pub use selector::python_int;
pub use similar::nearest;
pub use text::decode;
pub use world_info::{World, read_world};
