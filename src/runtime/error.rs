//! Errors of groups and collectives, with the rank, the host and the operation.

use crate::base::{Rank, debug_as_message};
use crate::runtime::comm::core::error::{Cause, CollectiveError};
use crate::runtime::comm::shm::error::{ArenaFull, SegmentError};

/// Result whose error type is [`Error`] by default; uses with two arguments work after a glob import.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of creating or using a group.
///
/// Its debug form is its message, because Rust prints the debug form if `main` returns an error.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The environment does not describe a worker.
    #[error("this process was not started as a worker; type `remuda run -n 2 {program}`")]
    NoEnvironment {
        /// Path with which this program was started.
        program: String,
    },
    /// The environment is that of a worker, which has started this process.
    #[error(
        "this process was started by the worker of rank {rank}, and is not that worker: it has not inherited the \
         descriptors by which the worker joins its job"
    )]
    ChildOfWorker {
        /// `RANK` of the environment.
        rank: String,
    },
    /// This process has joined its job before.
    #[error(
        "environment variable `{}` is already used by an earlier group of this process: clone that group",
        crate::base::env_vars::REMUDA_RANK_FD
    )]
    JoinedBefore,
    /// An environment variable has an invalid value.
    #[error("environment variable `{name}` is {problem}")]
    BadEnvironment {
        /// Name of the variable.
        name: &'static str,
        /// Description of the problem.
        problem: String,
    },
    /// The agent sent an invalid message.
    #[error("invalid message from the agent: {0}")]
    Contract(#[from] crate::runtime::contract::ContractError),
    /// The store refused a request, closed the connection, or timed out.
    #[error("cannot {action} through the store at {address}: {source}")]
    Store {
        /// Address of the store.
        address: std::net::SocketAddr,
        /// Request that failed.
        action: &'static str,
        /// Reason.
        source: crate::runtime::comm::store::ClientError,
    },
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    Os {
        /// Operation that failed.
        action: &'static str,
        /// Error of the kernel.
        source: std::io::Error,
    },
    /// The shared memory of this node cannot be used.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The shared memory is too small.
    #[error("cannot allocate {bytes} bytes of shared memory: {available} bytes are free")]
    OutOfMemory {
        /// Number of bytes requested.
        bytes: usize,
        /// Size of the largest free range.
        available: usize,
    },
    /// A rank failed while a group was split.
    #[error("rank {rank} cannot join the new group: {problem}")]
    Split {
        /// Rank that failed.
        rank: Rank,
        /// Reason that the rank gave.
        problem: String,
    },
    /// A GPU or a library for GPUs cannot be used.
    #[cfg(feature = "nccl")]
    #[error("{0}")]
    Device(String),
    /// Invalid arguments of a layout, sampler or optimizer.
    #[error("{0}")]
    BadArgument(String),
    /// A collective operation failed.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
}

impl From<ArenaFull> for Error {
    fn from(ArenaFull { bytes, available }: ArenaFull) -> Self {
        Self::OutOfMemory { bytes, available }
    }
}

debug_as_message!(Error);

impl Error {
    pub(crate) fn os(action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Os { action, source }
    }
}

impl Error {
    /// Returns whether the cause is the system (a system call, memory, threads) and not the request.
    pub fn is_of_system(&self) -> bool {
        match self {
            Self::Os { .. } | Self::OutOfMemory { .. } | Self::Split { .. } => true,
            Self::Segment(error) => {
                matches!(error, SegmentError::Os { .. })
            }
            Self::Collective(error) => matches!(error.cause, Cause::System(_)),
            Self::NoEnvironment { .. }
            | Self::ChildOfWorker { .. }
            | Self::JoinedBefore
            | Self::BadEnvironment { .. }
            | Self::Contract(_)
            | Self::Store { .. }
            | Self::BadArgument(_) => false,
            #[cfg(feature = "nccl")]
            Self::Device(_) => false,
        }
    }
}
