//! Start of a group.
//!
//! | file | contents |
//! |---|---|
//! | `join` | entry of a worker into its job |
//! | `meet` | entry into a job that another launcher has started, through a store of its program |
//! | `split`, `members` | subgroups: by all ranks of the group, by the members alone |
//! | `subgroup` | what both share: memory and connections of the new group |
//! | `watchdog` | the thread that notices lost ranks |

pub(crate) mod join;
pub(crate) mod meet;
pub(crate) mod members;
pub(crate) mod split;
pub(crate) mod subgroup;
pub(crate) mod watchdog;
