//! The user's options for ssh.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::base::{HostName, UserName};

/// Options for the connections to all hosts of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshOptions {
    /// Port of every host; overrides the configuration.
    pub port: Option<u16>,
    /// Login name for a host; overrides the configuration.
    pub users: HashMap<HostName, UserName>,
    /// Addresses of hosts whose names do not resolve; the configuration overrides them.
    pub addresses: HashMap<HostName, String>,
    /// The configuration that ssh reads, as with `ssh -F`.
    pub config: SshConfig,
    /// Key exchange.
    pub kex: Kex,
    /// The process that speaks the multiplexing protocol.
    pub mux: Mux,
    /// Limit for connections that are being made at the same time; `None`: remuda chooses one.
    pub fanout: Option<usize>,
    /// File to execute on the nodes instead of a copy of this binary.
    pub agent_path: Option<String>,
    /// Time limit between the login to a host and the start of its agent; while the agent is being
    /// sent, the limit holds for each piece.
    pub agent_limit: Duration,
    /// Longest wait for a host name that does not resolve yet, or an sshd that does not answer.
    pub wait_limit: Duration,
    /// Whether ssh runs with `-v`, so that it reports the server's version.
    pub verbose: bool,
}

/// Time that start-up files and home directories of healthy clusters need at worst, with a margin.
pub const AGENT_LIMIT: Duration = Duration::from_secs(120);

/// The configuration that ssh reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SshConfig {
    /// The user's and the system's files.
    Default,
    /// This file alone.
    File(PathBuf),
    /// None (`-F none`).
    Nothing,
}

/// Key exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kex {
    /// As configured.
    Configured,
    /// Curve25519 first: costs a fraction, but does not protect recorded traffic against a quantum
    /// computer.
    Fast,
}

/// The process that speaks to the master of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mux {
    /// The launcher itself.
    Native,
    /// A second process of OpenSSH for each host: for sandboxes in which no descriptor can be
    /// passed over a socket, and for an `ssh` with another version of the protocol.
    Process,
}

impl Default for SshOptions {
    fn default() -> Self {
        Self {
            port: None,
            users: HashMap::new(),
            addresses: HashMap::new(),
            config: SshConfig::Default,
            kex: Kex::Configured,
            mux: Mux::Native,
            fanout: None,
            agent_path: None,
            agent_limit: AGENT_LIMIT,
            wait_limit: Duration::ZERO,
            verbose: false,
        }
    }
}
