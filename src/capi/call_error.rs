//! Errors of the C interface: kind, rank, message, and what to do.

use std::cell::RefCell;
use std::ffi::CStr;

use crate::base::Rank;
use crate::runtime::{Cause, CollectiveError, Error, Operation};

/// Status of a call: 0, or the kind of its error. The codes are those of `remuda.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum CallErrorKind {
    /// A pointer, code, length, rank or name is invalid.
    Argument = 1,
    /// The deadline of an operation passed.
    Deadline = 2,
    /// A rank exited or its connection was lost.
    PeerLost = 3,
    /// Two ranks called different operations.
    Mismatch = 4,
    /// A rank aborted the group.
    Aborted = 5,
    /// The transport between ranks failed.
    Transport = 6,
    /// The system has no more memory, threads or descriptors.
    System = 7,
    /// The environment does not describe a worker, or the job cannot be joined.
    Environment = 8,
    /// A bug in the library.
    Panic = 9,
}

impl CallErrorKind {
    /// All kinds, in the order of their codes, which begin at 1.
    pub(super) const ALL: [Self; 9] = [
        Self::Argument,
        Self::Deadline,
        Self::PeerLost,
        Self::Mismatch,
        Self::Aborted,
        Self::Transport,
        Self::System,
        Self::Environment,
        Self::Panic,
    ];

    /// What to do about an error of this kind.
    pub(super) fn hint(self) -> &'static CStr {
        match self {
            Self::Argument => c"check the arguments against the documentation of the call",
            Self::Deadline => {
                c"look at the named ranks: they did not call the operation; if they compute for longer, increase the timeout"
            }
            Self::PeerLost => {
                c"the output of the named rank has the cause; this error is its consequence"
            }
            Self::Mismatch => {
                c"all ranks of a group must call the same operations in the same order, with equal types and sizes"
            }
            Self::Aborted => c"the named rank gave the reason; its output has the cause",
            Self::Transport => c"check the network between the hosts: `remuda doctor`",
            Self::System => {
                c"check the limits of memory, threads and descriptors: `ulimit -a`, `df /dev/shm`"
            }
            Self::Environment => c"start the program as a worker: `remuda run -n 2 PROGRAM`",
            Self::Panic => c"this is a bug in remuda: report the message and how to reproduce it",
        }
    }
}

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CallError {
    pub(super) kind: CallErrorKind,
    /// The rank in the job that failed, disagreed, aborted, or is the first that was missing.
    pub(super) rank: Option<Rank>,
    pub(super) message: String,
    /// What to do about it.
    pub(super) hint: &'static CStr,
}

/// Hint for two ranks that differ about a message.
const MESSAGE_HINT: &CStr =
    c"a message has one type and one size: its sender and its receiver pass as many elements of the same type";
/// Hint for two ranks that differ about a part of an `all_to_all`.
const PARTS_HINT: &CStr =
    c"the part that a rank sends to another has as many elements of one type as the other receives from it: compare their split sizes";
/// Hint for a process that a worker has started.
const CHILD_HINT: &CStr = c"join the job in the worker itself; processes that it starts meet through a store of their own (`meet`), or that of torch";
/// Hint for a process that joins its job a second time.
const JOINED_HINT: &CStr =
    c"keep the group that the first call returned, or that torch has made, and make further ones of it";

impl CallError {
    /// An error with the hint of its kind.
    pub(super) fn new(kind: CallErrorKind, rank: Option<Rank>, message: String) -> Self {
        Self { kind, rank, message, hint: kind.hint() }
    }

    pub(super) fn argument(message: impl Into<String>) -> Self {
        Self::new(CallErrorKind::Argument, None, message.into())
    }

    /// Error of a group that has failed.
    pub(super) fn of_cause(cause: &Cause, message: String) -> Self {
        let (kind, rank) = match cause {
            Cause::Deadline { waiting_for, .. } => {
                (CallErrorKind::Deadline, waiting_for.first().copied())
            }
            Cause::PeerLost { rank, .. } => (CallErrorKind::PeerLost, Some(*rank)),
            Cause::Mismatch { own_call, peer, peer_call, .. } => {
                let error = Self::new(CallErrorKind::Mismatch, Some(*peer), message);
                let hint = match (own_call.op, peer_call.op) {
                    (Operation::Send | Operation::Recv, _) => MESSAGE_HINT,
                    (Operation::AllToAll, Operation::AllToAll) => PARTS_HINT,
                    _ => error.hint,
                };
                return Self { hint, ..error };
            }
            Cause::FailedFirst { rank, cause, .. } => {
                let error = Self::of_cause(cause, message);
                // Of two other ranks that differ, the one that fewer ranks agree with is named, else that which has
                // found it.
                let is_named =
                    matches!(&**cause, Cause::Mismatch { counts, .. } if counts.own <= counts.peer);
                return if is_named { Self { rank: Some(*rank), ..error } } else { error };
            }
            Cause::Aborted { by, .. } => (CallErrorKind::Aborted, Some(*by)),
            Cause::Argument(_) => (CallErrorKind::Argument, None),
            Cause::Backend(_) => (CallErrorKind::Transport, None),
            Cause::System(_) => (CallErrorKind::System, None),
        };
        Self::new(kind, rank, message)
    }
}

impl From<CollectiveError> for CallError {
    fn from(error: CollectiveError) -> Self {
        Self::of_cause(&error.cause, error.to_string())
    }
}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        let (kind, rank) = match &error {
            Error::Collective(error) => return error.clone().into(),
            Error::NoEnvironment { .. } => {
                // The program of a Python is not the one whose path the error has.
                let message = "this process was not started as a worker".to_owned();
                return Self::new(CallErrorKind::Environment, None, message);
            }
            Error::ChildOfWorker { .. } => {
                let error = Self::new(CallErrorKind::Environment, None, error.to_string());
                return Self { hint: CHILD_HINT, ..error };
            }
            Error::JoinedBefore => {
                let message = "this process has joined its job before".to_owned();
                let error = Self::new(CallErrorKind::Environment, None, message);
                return Self { hint: JOINED_HINT, ..error };
            }
            Error::BadArgument(_) => (CallErrorKind::Argument, None),
            Error::Store { .. } => (CallErrorKind::Transport, None),
            Error::BadEnvironment { .. } | Error::Contract(_) => (CallErrorKind::Environment, None),
            Error::Split { rank, .. } => (CallErrorKind::System, Some(*rank)),
            #[cfg(feature = "nccl")]
            Error::Device(_) => (CallErrorKind::System, None),
            Error::Os { .. } | Error::Segment(_) | Error::OutOfMemory { .. } => {
                (CallErrorKind::System, None)
            }
        };
        Self::new(kind, rank, error.to_string())
    }
}

thread_local! {
    static LAST: RefCell<Option<CallError>> = const { RefCell::new(None) };
}

/// Keeps the error of a call of this thread until the next one.
pub(super) fn set_last(error: CallError) {
    LAST.set(Some(error));
}

/// The last error of this thread.
pub(super) fn last() -> Option<CallError> {
    LAST.with_borrow(Clone::clone)
}
