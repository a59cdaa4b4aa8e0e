//! Parsers of hostfiles, selectors and environment files (layer L1).
//!
//! The parsers use no file, no clock and no environment: bytes in, typed values and
//! [`Diagnostic`](crate::base::Diagnostic)s out. A parser does not stop at the first problem, and
//! its result never contains a host or a slot that is not in the text.

pub mod codes;
pub mod dialect;
mod env_file;
mod host_source;
pub(crate) mod hostfile;
pub mod nodeset;
pub(crate) mod selector;
mod similar_hosts;
mod text;

pub use crate::base::nearest;
pub use dialect::{Dialect, ReadOptions, Reading, read_any};
pub(crate) use env_file::NAME_AN_ENV_FILE;
pub use env_file::{
    EnvFile, Variable, loads_code_warning, read_env, shadowed, variable_name_problem,
};
pub use host_source::HostSource;
pub use hostfile::diff::{Difference, diff};
pub use hostfile::fix::{FixedHostfile, certain_changes, fix};
pub use hostfile::format::{comments, format};
pub use hostfile::hosts::{Host, Hostfile, Pool, SLOTS_MAX, SlotCount, SlotsOption, Users};
pub use hostfile::lint::lint;
pub use hostfile::parse::{LINE_BYTES_MAX, parse, read};
pub use hostfile::reader::HOSTS_MAX;
pub(crate) use hostfile::reader::NAME_A_HOSTFILE;
pub use selector::counts::parse_slot_count;
pub use selector::filter::{Filter, SlotFilter};
pub use selector::selection::{Selected, Selection, SelectorArgs, select};
pub use selector::world_info::{World, read_world};
pub use text::decode;
