//! Errors of a plan.

use crate::base::{HostName, Status};

/// Limit of the workers of a job.
pub const WORKERS_MAX: u32 = 1 << 20;

/// Why a spec has no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A job without hosts.
    #[error("the job has no hosts")]
    NoNodes,
    /// A host without a slot.
    #[error("host `{host}` has no slots")]
    NoSlots {
        /// Name of the host without slots.
        host: HostName,
    },
    /// Two nodes with the same name, which could not be told apart.
    #[error("host `{host}` is listed twice")]
    DuplicateHost {
        /// Name that two nodes have.
        host: HostName,
    },
    /// More than [`WORKERS_MAX`].
    #[error("{workers} workers are more than the limit {WORKERS_MAX}")]
    TooManyWorkers {
        /// The number of workers.
        workers: usize,
    },
    /// The user set a variable that identifies a worker, which only remuda sets.
    #[error("`{name}` is set by remuda itself; it cannot be exported")]
    Reserved {
        /// Name of the variable.
        name: String,
    },
    /// A variable name that is empty, has `=`, or is not text.
    #[error("`{name}` is not a variable name")]
    BadName {
        /// The invalid name.
        name: String,
    },
    /// A value with a NUL byte, which cannot be passed to a process.
    #[error("the value of `{name}` has a NUL byte")]
    NulInValue {
        /// Name of the variable.
        name: String,
    },
    /// A variable too long for the kernel.
    #[error("variable `{name}` is {bytes} bytes with its value; the limit of Linux is 131071")]
    ValueTooLong {
        /// Name of the variable.
        name: String,
        /// Length of name, `=` and value.
        bytes: usize,
    },
    /// An empty program name.
    #[error("the name of the program is empty")]
    EmptyProgram,
    /// An argument with a NUL byte, which cannot be passed to a process.
    #[error("argument {index} has a NUL byte")]
    NulInArgument {
        /// Position in the command; 0 is the program.
        index: usize,
    },
    /// An argument too long for the kernel.
    #[error("argument {index} is {bytes} bytes; the limit of Linux is 131071")]
    ArgumentTooLong {
        /// Position in the command; 0 is the program.
        index: usize,
        /// Length in bytes.
        bytes: usize,
    },
}

impl PlanError {
    /// Returns what the user can do about it, if the message does not say it.
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::EmptyProgram => Some("write a program after `--no_python`"),
            Self::ValueTooLong { .. } | Self::ArgumentTooLong { .. } => {
                Some("write it to a file, and let the script read the file")
            }
            Self::NoNodes
            | Self::NoSlots { .. }
            | Self::DuplicateHost { .. }
            | Self::TooManyWorkers { .. }
            | Self::Reserved { .. }
            | Self::BadName { .. }
            | Self::NulInValue { .. }
            | Self::NulInArgument { .. } => None,
        }
    }

    /// The exit status of remuda after this error.
    pub fn status(&self) -> Status {
        match self {
            Self::TooManyWorkers { .. }
            | Self::ValueTooLong { .. }
            | Self::ArgumentTooLong { .. } => Status::OsLimit,
            Self::NoNodes
            | Self::NoSlots { .. }
            | Self::DuplicateHost { .. }
            | Self::Reserved { .. }
            | Self::BadName { .. }
            | Self::NulInValue { .. }
            | Self::EmptyProgram
            | Self::NulInArgument { .. } => Status::Usage,
        }
    }
}
