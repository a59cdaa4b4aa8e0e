//! Jobs whose nodes are started one by one, and pods.
//!
//! | file | contents |
//! |---|---|
//! | `leader`, `member` | node 0, which accepts the others; each of the others |
//! | `member_options` | options of each of the others, and its connecting side |
//! | `unfit` | a node that cannot start its workers, and reports that to node 0 |
//! | `own_line` | what a node executes that has no secret in common with the others |
//! | `probes`, `metrics` | what a supervisor of the pod asks while the job runs |
//! | `termination_log` | how the pod's part in the job ended |

pub(in crate::launch) mod leader;
pub(in crate::launch) mod member;
pub(in crate::launch) mod member_options;
pub(in crate::launch) mod metrics;
mod own_line;
pub(in crate::launch) mod probes;
pub(in crate::launch) mod termination_log;
mod unfit;
