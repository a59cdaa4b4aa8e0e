//! Goal: a cut link is reported correctly at both ends, and no process is left at either. Method: the
//! real program, OpenSSH's own sshd, every host in a network namespace of its own; the kernel takes
//! links down, drops one direction, and slows links down. Only the leases wait for time to pass.
//!
//! | fault | where |
//! |---|---|
//! | a node without power, a cable pulled (F25, F26, F30) | `cut` |
//! | one direction of a link is lost (F28) | `cut` |
//! | a link that heals before the lease is over (F27) | `cut` |
//! | a lost node is reached again, or not, when the job is restarted | `cut` |
//! | workers flood a slow link (F31), or one that loses packets (F32) | `slow` |
//! | the first session of a new user with eight hosts | `newcomer` |

mod cut;
pub(crate) mod hosts;
mod newcomer;
mod slow;
