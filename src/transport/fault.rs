//! Why there is no link to a node, for every kind of transport. Pure.

use crate::base::Status;
use crate::plan::help_for_sizes;
use crate::wire::Problem;

/// Why there is no link to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Class of the reason.
    pub kind: FaultKind,
    /// Error text of the program that failed; may have many lines.
    pub detail: String,
    /// Commands with which a user can reproduce or solve the problem.
    pub commands: ManualCommands,
    /// Advice for the user that replaces the one for the kind.
    pub advice: Option<String>,
}

/// Why a node that connects by itself is not a part of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Absence {
    /// There is no link to it.
    Fault(Fault),
    /// The node has reported that it cannot start its workers.
    Unfit(Vec<Problem>),
}

/// Arguments and commands for a shell, with the options for the path to the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManualCommands {
    /// Arguments for `ssh` that log in to the host.
    pub ssh_args: String,
    /// The command that removes the known key of the host.
    pub forget_key: String,
}

impl Default for ManualCommands {
    fn default() -> Self {
        Self { ssh_args: "HOST".to_owned(), forget_key: "ssh-keygen -R HOST".to_owned() }
    }
}

/// The reasons, in the order in which they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// There is no ssh on this machine, or no program of a process manager, or it could not be started.
    NoProgram,
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
    /// The host has no directory in which the agent can be stored and executed.
    NoDirectory,
    /// The binary arrived damaged.
    Damaged,
    /// The process manager did not start the agent, or ended.
    Manager,
    /// The process manager runs, and the agent did not connect in time.
    ManagerTimeout,
    /// The process manager did not reach other hosts, and ended the agent of this one.
    EndedWithOthers,
    /// The node should have joined by itself, and did not.
    NotJoined,
    /// The node tried to join with a key that differs from this node's.
    OtherKey,
    /// The node tried to join with a different plan.
    OtherPlan,
    /// The node tried to join with a different build of remuda.
    OtherBuild,
}

impl Fault {
    /// A fault of this kind, with the default commands for the user.
    pub fn new(kind: FaultKind, words: impl Into<String>) -> Self {
        let commands = ManualCommands::default();
        Self { kind, detail: words.into(), commands, advice: None }
    }

    /// The same fault with advice that replaces the one for the kind.
    #[must_use]
    pub fn with_advice(self, advice: String) -> Self {
        Self { advice: Some(advice), ..self }
    }

    /// Advice for the user.
    pub fn help(&self) -> Option<String> {
        self.advice.clone().or_else(|| self.help_of_kind())
    }

    fn help_of_kind(&self) -> Option<String> {
        self.advice_without_command().map(str::to_owned).or_else(|| self.advice_with_command())
    }

    /// Advice that is the same for every host.
    fn advice_without_command(&self) -> Option<&'static str> {
        Some(match self.kind {
            FaultKind::NoProgram if self.detail.contains("`ssh`") => "install the OpenSSH client",
            FaultKind::NoProgram => {
                "start remuda where that program is, or give another `--launcher`"
            }
            FaultKind::NoSuchName => {
                "correct the name, or add a HostName for it to your ssh configuration (`--ssh_config FILE` names another one)"
            }
            FaultKind::Refused => {
                "check that its sshd runs and listens on this port (`--ssh_port`)"
            }
            FaultKind::Penalty => {
                "wait some minutes: the PerSourcePenalties of its sshd are in force"
            }
            FaultKind::OtherArch | FaultKind::NoDirectory => {
                "install remuda on that host and give `--agent_path FILE`"
            }
            FaultKind::OldLibc => {
                "install a remuda built for that C library on that host, and give `--agent_path FILE`"
            }
            FaultKind::NotInstalled => {
                "install this remuda on that host, or leave out `--agent_path`: remuda then copies itself"
            }
            FaultKind::NotJoined => {
                "start every node with the same command line; only the number of the node differs, where the \
                 line has one"
            }
            FaultKind::OtherKey => {
                "give every node the same key file (in pods: the same Secret); each node prints the \
                 fingerprint of its own key"
            }
            FaultKind::OtherPlan => help_for_sizes(&self.detail)
                .unwrap_or("start every node with the same command line and hosts"),
            FaultKind::OtherBuild => "install the same remuda on every node",
            _ => return None,
        })
    }

    /// Advice with a command for this host.
    fn advice_with_command(&self) -> Option<String> {
        let ManualCommands { ssh_args: way, forget_key } = &self.commands;
        let must = || format!("`ssh -o BatchMode=yes {way} true` must succeed without a prompt");
        Some(match self.kind {
            FaultKind::NoAnswer => {
                format!("check that the host is up and reachable: `ssh -v {way} true`")
            }
            FaultKind::Ssh => must(),
            FaultKind::HostKeyChanged => {
                format!("if the host was reinstalled, remove its old key with `{forget_key}`")
            }
            FaultKind::HostKeyUnknown => {
                // By default ssh may reject the key without a prompt, and a configuration may
                // forbid prompts.
                let ask = "-o BatchMode=no -o StrictHostKeyChecking=ask";
                format!("log in once with `ssh {ask} {way}` and compare the fingerprint")
            }
            FaultKind::Denied => must() + "; see `ssh-add -l`",
            FaultKind::Dropped => format!(
                "possible causes: too many connections (MaxStartups; try a smaller `--fanout`), \
                 a ban of this machine (fail2ban, hosts.deny), missing host keys, another \
                 service on this port; see `ssh -v {way} true`"
            ),
            FaultKind::NoAgent => format!("see what `ssh {way} true` prints"),
            FaultKind::Hangs => format!(
                "check that `ssh {way} true` ends: a start-up file or the home directory may hang; \
                 `--agent_timeout TIME` waits longer"
            ),
            _ => return None,
        })
    }
}

impl FaultKind {
    /// The heading over the hosts with this fault.
    pub fn title(self) -> &'static str {
        match self {
            Self::NoProgram => "a program that remuda needs cannot be started on this machine",
            Self::NoSuchName => "the name does not resolve",
            Self::Refused => "connection refused",
            Self::NoAnswer => "no answer",
            Self::HostKeyChanged => "the host key has changed",
            Self::HostKeyUnknown => "the host key is not known",
            Self::Denied => "permission denied",
            Self::Penalty => "refused for a while after earlier failures",
            Self::Dropped => "the connection was dropped before authentication, several times",
            Self::Ssh => "ssh failed",
            Self::NotInstalled => "the agent of `--agent_path` did not start",
            Self::NoAgent => "the agent did not start",
            Self::Hangs => "no response after the ssh login",
            Self::OtherArch => "the processor architecture differs",
            Self::OldLibc => "the C library is too old for the agent",
            Self::NoDirectory => "no usable directory for the agent",
            Self::Damaged => "the agent cannot run on the host",
            Self::Manager => "the agent was not started",
            Self::ManagerTimeout => "the agent was not started in time",
            Self::EndedWithOthers => "ended because of other hosts",
            Self::NotJoined => "did not join",
            Self::OtherKey => "has a different key",
            Self::OtherPlan => "was started with another line",
            Self::OtherBuild => "has a different remuda",
        }
    }

    /// The exit status for this fault.
    pub fn status(self) -> Status {
        match self {
            Self::NoSuchName
            | Self::Manager
            | Self::ManagerTimeout
            | Self::EndedWithOthers
            | Self::Refused
            | Self::NoAnswer
            | Self::Penalty
            | Self::Dropped
            | Self::NotJoined
            | Self::Hangs
            | Self::Ssh => Status::Unreachable,
            Self::HostKeyChanged | Self::HostKeyUnknown | Self::Denied | Self::OtherKey => {
                Status::Permission
            }
            Self::NoProgram => Status::NotFound,
            Self::NotInstalled | Self::NoAgent | Self::OtherBuild => Status::Protocol,
            Self::OtherArch | Self::OtherPlan => Status::Config,
            Self::NoDirectory => Status::CantCreate,
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
                | Self::NoDirectory
                | Self::Damaged
                | Self::OtherKey
                | Self::OtherPlan
                | Self::OtherBuild
        )
    }

    /// Whether the node is started from outside the launcher and joins by itself.
    pub fn joins_by_itself(self) -> bool {
        matches!(self, Self::NotJoined | Self::OtherKey | Self::OtherPlan | Self::OtherBuild)
    }
}
