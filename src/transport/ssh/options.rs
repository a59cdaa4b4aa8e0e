//! The user's options for ssh.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::base::shell::quoted;
use crate::base::{HostName, UserName};

/// Options for the connections to all hosts of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SshOptions {
    /// Port of every host; overrides the configuration.
    pub port: Option<u16>,
    /// Login name for a host; overrides the configuration.
    pub users: HashMap<HostName, UserName>,
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

impl SshOptions {
    /// Arguments for `ssh` that reach the host with the same options.
    pub fn ssh_args(&self, name: &HostName) -> String {
        let bare = without_brackets(name);
        let mut words = Vec::new();
        match &self.config {
            SshConfig::Default => {}
            SshConfig::File(file) => words.push(format!("-F {}", quoted(file))),
            SshConfig::Nothing => words.push("-F none".to_owned()),
        }
        words.extend(self.port.map(|port| format!("-p {port}")));
        let user = self.users.get(name).map(|user| format!("{user}@"));
        words.push(quoted(user.unwrap_or_default() + bare));
        words.join(" ")
    }
}

/// The destination as ssh expects it: an IPv6 address without brackets.
pub(super) fn without_brackets(host: &HostName) -> &str {
    let text = host.as_str();
    text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text)
}

impl Default for SshOptions {
    fn default() -> Self {
        Self {
            port: None,
            users: HashMap::new(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(options: &SshOptions, host: &str, expect: &str) {
        let name = HostName::parse(host).expect("a name");
        assert_eq!(options.ssh_args(&name), expect);
    }

    #[test]
    fn ssh_arguments_contain_port_user_and_config() {
        check(&SshOptions::default(), "n1", "n1");
        let users = [("n1", "ada"), ("[fe80::1]", "bob")].map(|(host, user)| {
            let host = HostName::parse(host).expect("a name");
            (host, UserName::parse(user).expect("a name"))
        });
        let all = SshOptions {
            port: Some(2222),
            users: users.into(),
            config: SshConfig::File("my files/config".into()),
            ..SshOptions::default()
        };
        check(&all, "n1", "-F 'my files/config' -p 2222 ada@n1");
        check(&all, "n2", "-F 'my files/config' -p 2222 n2");
        check(&all, "[fe80::1]", "-F 'my files/config' -p 2222 bob@fe80::1");
        let none = SshOptions { config: SshConfig::Nothing, ..SshOptions::default() };
        check(&none, "n1", "-F none n1");
    }
}
