//! The hostfile.
//!
//! | file | contents |
//! |---|---|
//! | `parse`, `reader`, `host_table` | a text to hosts and problems |
//! | `line`, `host_line`, `host_word`, `settings` | one line: its words, its host, its settings |
//! | `hosts` | hosts, slots and users |
//! | `lint`, `fix`, `format`, `diff` | what the hostfile tool does with a text |

pub(crate) mod diff;
pub(crate) mod fix;
pub(crate) mod format;
pub(crate) mod host_line;
pub(crate) mod host_table;
pub(crate) mod host_word;
pub(crate) mod hosts;
pub(crate) mod line;
pub(crate) mod lint;
pub(crate) mod parse;
pub(crate) mod reader;
pub(crate) mod settings;
