//! Jobs whose nodes are started one by one, and pods.
//!
//! | file | contents |
//! |---|---|
//! | `leader`, `member` | node 0, which accepts the others; each of the others |
//! | `own_line` | what a node executes that has no secret in common with the others |
//! | `probes`, `metrics` | what a supervisor of the pod asks while the job runs |
//! | `termination_log` | how the pod's part in the job ended |

pub(in crate::launch) mod leader;
pub(in crate::launch) mod member;
pub(in crate::launch) mod metrics;
mod own_line;
pub(in crate::launch) mod probes;
pub(in crate::launch) mod termination_log;
