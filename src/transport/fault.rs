//! Why there is no link to a node, in whichever way it was to be reached. Pure.

use crate::base::Status;

/// Why there is no link to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What kind of reason.
    pub kind: FaultKind,
    /// Whoever said it, in their own words; may have many lines.
    pub words: String,
    /// What a user would type to meet it, or to be rid of it.
    pub by_hand: ByHand,
}

/// Words for a shell, with everything that we were told about the way there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByHand {
    /// What stands behind `ssh` to log in there.
    pub way: String,
    /// The command that removes the key that is known of it.
    pub forget_key: String,
}

impl Default for ByHand {
    fn default() -> Self {
        Self { way: "HOST".to_owned(), forget_key: "ssh-keygen -R HOST".to_owned() }
    }
}

/// The kinds, in the order in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// There is no ssh on this machine, or it could not be started.
    NoSsh,
    /// Its name does not resolve.
    NoSuchName,
    /// The connection was refused.
    Refused,
    /// No answer, or no way there.
    NoAnswer,
    /// It has another key than it had.
    HostKeyChanged,
    /// Nobody has said that its key is right.
    HostKeyUnknown,
    /// It does not let us in.
    Denied,
    /// It refuses us for a while because of earlier failures.
    Penalty,
    /// It ended the connection before it knew who we are.
    Dropped,
    /// Something else that ssh says.
    Ssh,
    /// There is no agent where the user says that one is.
    NotInstalled,
    /// Its login shell did not come to our agent.
    NoAgent,
    /// It let us in, and then nothing came.
    Hangs,
    /// Its processor is another than ours.
    OtherArch,
    /// Its C library is older than the agent needs.
    OldLibc,
    /// There is no place for the agent.
    NoRoom,
    /// The binary did not arrive as it was sent.
    Damaged,
    /// It was to come by itself, and did not.
    Absent,
    /// It came with another key, and did not come with ours.
    OtherKey,
    /// It came with another plan than ours.
    OtherPlan,
    /// It came with another build of remuda.
    OtherBuild,
}

impl Fault {
    /// One of a kind.
    pub fn new(kind: FaultKind, words: impl Into<String>) -> Self {
        Self { kind, words: words.into(), by_hand: ByHand::default() }
    }

    /// What to do about it.
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
                // Whatever refused may not ask by itself, and a configuration may forbid it to.
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
    /// The heading over its hosts.
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

    /// The exit status it leads to.
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

    /// Whether it was reached, and what was found there is why it has no part.
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

    /// Whether it is started by somebody else, and comes by itself.
    pub fn comes_by_itself(self) -> bool {
        matches!(self, Self::Absent | Self::OtherKey | Self::OtherPlan | Self::OtherBuild)
    }
}
