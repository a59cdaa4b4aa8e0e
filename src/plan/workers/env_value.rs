//! Value of an environment variable of a worker.

use std::ffi::OsString;

/// A value of a variable, which may be known only when the job starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnvValue {
    /// A known value.
    Known(OsString),
    /// The address of rank 0.
    MasterAddr,
    /// The port of rank 0.
    MasterPort,
    /// The name of the job: random, so it is not part of the plan.
    JobId,
    /// The file to which torch's `@record` writes the exception of this worker; the node's agent
    /// chooses it.
    ErrorFile,
    /// CPUs of the node that remuda may use / workers of the node, unless the environment already
    /// sets the variable.
    ThreadShare,
    /// A known value, set only where the environment of the node does not have the variable.
    IfUnset(OsString),
    /// The same, and only on a node without a GPU.
    IfNoGpu(OsString),
}
