//! What the user may say about ssh.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::base::shell::quoted;
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
    /// A host that has let us in, and on which no agent comes up within this time, is given up; while
    /// the agent is being sent it is that much for each piece.
    pub agent_limit: Duration,
    /// How long a host is waited for that has no name yet, or whose sshd does not answer.
    pub patience: Duration,
    /// Whether ssh tells what it sees (`-v`), so that we hear of the server.
    pub verbose: bool,
}

/// What start-up files and homes of healthy clusters need at worst, with room.
pub const AGENT_LIMIT: Duration = Duration::from_secs(120);

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

impl SshOptions {
    /// What stands behind `ssh` on a line that reaches a host as we do.
    pub fn way(&self, name: &HostName) -> String {
        let bare = bare(name);
        let mut words = Vec::new();
        match &self.config {
            SshConfig::Usual => {}
            SshConfig::File(file) => words.push(format!("-F {}", quoted(file))),
            SshConfig::Nothing => words.push("-F none".to_owned()),
        }
        words.extend(self.port.map(|port| format!("-p {port}")));
        let user = self.users.get(name).map(|user| format!("{user}@"));
        words.push(quoted(user.unwrap_or_default() + bare));
        words.join(" ")
    }
}

/// The destination as ssh wants it: an IPv6 address without its brackets.
pub(super) fn bare(host: &HostName) -> &str {
    let text = host.as_str();
    text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text)
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
            agent_limit: AGENT_LIMIT,
            patience: Duration::ZERO,
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
        assert_eq!(options.way(&name), expect);
    }

    #[test]
    fn a_line_for_ssh_says_what_we_were_told() {
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
