//! Selection of hosts and slots: `--include`, `--exclude`, counts, and `--world_info`.

pub(crate) mod counts;
pub(crate) mod filter;
pub(crate) mod filter_parse;
pub(crate) mod selection;
pub(crate) mod world_info;
