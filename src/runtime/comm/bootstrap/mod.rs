//! Start of a group.
//!
//! | file | contents |
//! |---|---|
//! | `join` | entry of a worker into its job |
//! | `split` | subgroups |
//! | `watchdog` | the thread that notices lost ranks |

pub(crate) mod join;
pub(crate) mod split;
pub(crate) mod watchdog;
