//! Pods: what the platform sets for a pod, and its place in its job.
//!
//! | file | contents |
//! |---|---|
//! | `context` | what the platform sets for a pod, and its place among the pods of a job |
//! | `identity`, `conventions` | the place, from the conventions of operators and schedulers |
//! | `mpi_job` | the hostfile of an MPIJob |

pub(crate) mod context;
pub(crate) mod conventions;
pub(crate) mod identity;
pub(crate) mod mpi_job;
