//! What the user may say about ssh.

use std::collections::HashMap;
use std::path::PathBuf;

use crate::base::{HostName, UserName};

/// See the fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshOptions {
    /// Port of every host, instead of what the configuration says.
    pub port: Option<u16>,
    /// As whom hosts are reached, instead of what the configuration says.
    pub users: HashMap<HostName, UserName>,
    /// Which configuration is read, as `ssh -F` does.
    pub config: SshConfig,
    /// Key exchange.
    pub kex: Kex,
    /// Who asks a connection for its channel.
    pub mux: Mux,
    /// Connections that are being made at the same time; `None`: as many as is good.
    pub fanout: Option<usize>,
    /// File to execute on the nodes instead of bringing our own.
    pub agent_path: Option<String>,
    /// Whether ssh tells what it sees (`-v`), so that we hear of the server.
    pub verbose: bool,
}

/// Which configuration of ssh is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SshConfig {
    /// The user's and the system's.
    Usual,
    /// This file alone.
    File(PathBuf),
    /// None (`-F none`).
    Nothing,
}

/// Key exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kex {
    /// What the configuration says.
    Users,
    /// Curve25519 first: a fraction of the cost, and no protection against a quantum computer that
    /// reads a recording.
    Fast,
}

/// Who speaks to the master of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mux {
    /// We do.
    Native,
    /// A second process of OpenSSH for each host: for sandboxes that let no descriptor through a
    /// socket, and for an `ssh` that speaks another version of the protocol than we do.
    Process,
}

impl Default for SshOptions {
    fn default() -> Self {
        Self {
            port: None,
            users: HashMap::new(),
            config: SshConfig::Usual,
            kex: Kex::Users,
            mux: Mux::Native,
            fanout: None,
            agent_path: None,
            verbose: false,
        }
    }
}
