//! Why there is no link to a node, for every kind of transport. Pure.

use crate::base::Status;

/// Why there is no link to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Class of the reason.
    pub kind: FaultKind,
    /// Error text of the program that failed; may have many lines.
    pub words: String,
    /// Commands with which a user can reproduce or solve the problem.
    pub by_hand: ByHand,
}

/// Arguments and commands for a shell, with the options for the path to the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByHand {
    /// Arguments for `ssh` that log in to the host.
    pub way: String,
    /// The command that removes the known key of the host.
    pub forget_key: String,
}

impl Default for ByHand {
    fn default() -> Self {
        Self { way: "HOST".to_owned(), forget_key: "ssh-keygen -R HOST".to_owned() }
    }
}

/// The reasons, in the order in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// There is no ssh on this machine, or it could not be started.
    NoSsh,
    /// The host's name does not resolve.
    NoSuchName,
    /// The connection was refused.
    Refused,
    /// The host does not answer, or there is no route to it.
    NoAnswer,
    /// The host has a different key than before.
    HostKeyChanged,
    /// The host's key has not been confirmed.
    HostKeyUnknown,
    /// The host refused the login.
    Denied,
    /// The host refuses connections from this machine for a while because of earlier failures.
    Penalty,
    /// The host closed the connection before authentication.
    Dropped,
    /// Another error that ssh reports.
    Ssh,
    /// There is no agent at the path that the user gave.
    NotInstalled,
    /// The login shell of the host did not start the agent.
    NoAgent,
    /// The login succeeded, and then the host sent nothing.
    Hangs,
    /// The host's processor architecture differs from this machine's.
    OtherArch,
    /// The host's C library is older than the agent needs.
    OldLibc,
    /// The host has no place for the agent.
    NoRoom,
    /// The binary arrived damaged.
    Damaged,
    /// The node should have joined by itself, and did not.
    Absent,
    /// The node joined with a different key, and not with this one's.
    OtherKey,
    /// The node joined with a different plan.
    OtherPlan,
    /// The node joined with a different build of remuda.
    OtherBuild,
}

impl Fault {
    /// A fault of this kind.
    pub fn new(kind: FaultKind, words: impl Into<String>) -> Self {
        Self { kind, words: words.into(), by_hand: ByHand::default() }
    }

    /// Advice for the user.
    pub fn help(&self) -> Option<String> {
        let ByHand { way, forget_key } = &self.by_hand;
        let text = match self.kind {
            FaultKind::NoSsh => "install the OpenSSH client",
            FaultKind::NoSuchName => {
                "correct the name, or give it a HostName in your ssh configuration"
            }
            FaultKind::Refused => "is its sshd running, and on this port? see `--ssh_port`",
            FaultKind::NoAnswer => {
                return Some(format!(
                    "is it up, and is there a way to it? see `ssh -v {way} true`"
                ));
            }
            FaultKind::Ssh => {
                return Some(format!(
                    "`ssh -o BatchMode=yes {way} true` must succeed without a prompt"
                ));
            }
            FaultKind::HostKeyChanged => {
                return Some(format!(
                    "if the host was reinstalled, remove its old key with `{forget_key}`"
                ));
            }
            FaultKind::HostKeyUnknown => {
                // By default ssh may reject the key without a prompt, and a configuration may
                // forbid prompts.
                let ask = "-o BatchMode=no -o StrictHostKeyChecking=ask";
                return Some(format!(
                    "log in once with `ssh {ask} {way}` and compare the fingerprint"
                ));
            }
            FaultKind::Denied => {
                let must =
                    format!("`ssh -o BatchMode=yes {way} true` must succeed without a prompt");
                return Some(must + "; see `ssh-add -l`");
            }
            FaultKind::Penalty => "wait some minutes; sshd's PerSourcePenalties are in force",
            FaultKind::Dropped => {
                let causes = "its sshd may be full (MaxStartups; try a smaller `--fanout`), ban us \
                              (fail2ban, hosts.deny), lack host keys, or be no sshd";
                return Some(format!("{causes}: see `ssh -v {way} true`"));
            }
            FaultKind::OtherArch => "install remuda on that host and give `--agent_path FILE`",
            FaultKind::OldLibc => {
                "install a remuda that was built for that C library there, and give `--agent_path FILE`"
            }
            FaultKind::NoRoom => "give `--agent_path FILE`, a remuda that is installed there",
            FaultKind::NotInstalled => {
                "install this remuda there, or leave `--agent_path` out: it brings itself"
            }
            FaultKind::NoAgent => return Some(format!("see what `ssh {way} true` prints there")),
            FaultKind::Hangs => {
                return Some(format!(
                    "the ssh login succeeded: does `ssh {way} true` end? a start-up file or its home may hang; \
                     `--agent_timeout TIME` waits longer"
                ));
            }
            FaultKind::Absent => {
                "every node is given the same line and key, and a `--node_rank` of its own"
            }
            FaultKind::OtherKey => {
                "give every node the same key file, in pods the same Secret; each node prints the \
                 fingerprint of its own key"
            }
            FaultKind::OtherPlan => {
                "every node is given the same line and hosts; `--node_rank` alone differs"
            }
            FaultKind::OtherBuild => "give every node the same remuda",
            FaultKind::Damaged => return None,
        };
        Some(text.to_owned())
    }
}

impl FaultKind {
    /// The heading over the hosts with this fault.
    pub fn title(self) -> &'static str {
        match self {
            Self::NoSsh => "ssh cannot be started here",
            Self::NoSuchName => "the name does not resolve",
            Self::Refused => "connection refused",
            Self::NoAnswer => "no answer",
            Self::HostKeyChanged => "the host key has changed",
            Self::HostKeyUnknown => "the host key is not known",
            Self::Denied => "permission denied",
            Self::Penalty => "refused for a while after earlier failures",
            Self::Dropped => "the connection was dropped before authentication, several times",
            Self::Ssh => "ssh failed",
            Self::NotInstalled => "the agent of `--agent_path` did not come up",
            Self::NoAgent => "the agent did not come up",
            Self::Hangs => "the host hangs after the ssh login",
            Self::OtherArch => "another processor than ours",
            Self::OldLibc => "the C library is too old for the agent",
            Self::NoRoom => "no place for the agent",
            Self::Damaged => "the agent cannot run there",
            Self::Absent => "did not come",
            Self::OtherKey => "came with another key",
            Self::OtherPlan => "came with another plan",
            Self::OtherBuild => "came with another remuda",
        }
    }

    /// The exit status for this fault.
    pub fn status(self) -> Status {
        match self {
            Self::NoSuchName
            | Self::Refused
            | Self::NoAnswer
            | Self::Penalty
            | Self::Dropped
            | Self::Absent
            | Self::Hangs
            | Self::Ssh => Status::Unreachable,
            Self::HostKeyChanged | Self::HostKeyUnknown | Self::Denied | Self::OtherKey => {
                Status::Permission
            }
            Self::NoSsh => Status::NotFound,
            Self::NotInstalled | Self::NoAgent | Self::OtherBuild => Status::Protocol,
            Self::OtherArch | Self::OtherPlan => Status::Config,
            Self::NoRoom => Status::CantCreate,
            Self::Damaged | Self::OldLibc => Status::NotExecutable,
        }
    }

    /// Whether the node was reached and refused for a reason that was found there.
    pub fn was_reached(self) -> bool {
        matches!(
            self,
            Self::NotInstalled
                | Self::NoAgent
                | Self::Hangs
                | Self::OtherArch
                | Self::OldLibc
                | Self::NoRoom
                | Self::Damaged
                | Self::OtherKey
                | Self::OtherPlan
                | Self::OtherBuild
        )
    }

    /// Whether the node is started from outside the launcher and joins by itself.
    pub fn comes_by_itself(self) -> bool {
        matches!(self, Self::Absent | Self::OtherKey | Self::OtherPlan | Self::OtherBuild)
    }
}
