//! Rank, environment and command line of every worker.
//!
//! | file | contents |
//! |---|---|
//! | `build`, `check`, `launch_plan` | the plan of a job, and its checks |
//! | `epoch` | the plan of an epoch on some of the nodes |
//! | `template`, `env`, `env_value`, `export` | variables: templates, values, where each comes from |
//! | `bind`, `cores` | processor cores and threads of each worker |

pub(crate) mod bind;
pub(crate) mod build;
pub(crate) mod check;
pub(crate) mod cores;
pub(crate) mod env;
pub(crate) mod env_value;
pub(crate) mod epoch;
pub(crate) mod export;
pub(crate) mod launch_plan;
pub(crate) mod numa;
pub(crate) mod template;
