//! Deliberate mistakes in policy, made between the real state machines and the simulated world. Each
//! must be caught by a check.

/// A mistake that a defective build could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    /// An agent never notices that its launcher is silent.
    AgentIgnoresLease,
    /// An agent does not wait for the lock of its node, which the agent before it still holds.
    AgentIgnoresLock,
    /// The launcher accepts messages of links that it has replaced.
    LauncherAcceptsOldLinks,
    /// The job takes the last failure for the first one.
    JobNamesLastFailure,
    /// A worker that a signal killed counts as a success.
    SignalIsSuccess,
    /// The launcher loses the message that a node has no process left.
    IdleIsLost,
    /// The launcher never gives up a silent node.
    LauncherIgnoresLease,
    /// An agent forwards output although its window is closed.
    AgentIgnoresWindow,
    /// An agent reports twice that its checks have passed.
    AgentAnswersTwice,
    /// An elastic job starts with fewer nodes than it needs.
    JobStartsBelowMin,
    /// The job does not learn that a node was lost before the start.
    LostNodeStaysMember,
    /// The loss of a node without a part in the epoch counts as that of one with a part.
    LossOfSpareIsFailure,
    /// A restart for a newcomer counts as one after a failure.
    ArrivalIsCharged,
    /// The launcher does not greet a node again whose link skips an epoch.
    LauncherGreetsOnce,
    /// A job that cannot start again counts as a success.
    RefusalIsSuccess,
}
