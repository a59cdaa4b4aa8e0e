//! The command lines of ssh: those that the launcher runs, and the one that it shows to the user.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::bootstrap;
use super::options::{SshConfig, SshOptions};
use crate::base::shell::quoted;
use crate::base::{HostName, UserName};

/// The destination of a master and its configuration.
pub(super) struct Destination<'a> {
    pub(super) config: &'a Path,
    pub(super) socket: PathBuf,
    pub(super) port: Option<u16>,
    pub(super) user: Option<&'a UserName>,
    /// Host name; an IPv6 address has no brackets.
    pub(super) host: &'a str,
    /// Whether ssh reports its steps (`-v`).
    pub(super) verbose: bool,
}

/// Opens the connection to a host and holds it.
#[expect(clippy::disallowed_methods, reason = "a transport is what starts ssh")]
pub(super) fn master(to: &Destination<'_>) -> Command {
    let mut command = Command::new("ssh");
    command.arg("-F").arg(to.config).arg("-S").arg(&to.socket);
    command.args(["-M", "-N", "-T", "-o", "ControlPersist=no"]);
    if to.verbose {
        command.arg("-v");
    }
    if let Some(port) = to.port {
        command.arg("-p").arg(port.to_string());
    }
    if let Some(user) = to.user {
        command.arg("-l").arg(user.as_str());
    }
    command.arg("--").arg(to.host);
    command
}

/// Runs the bootstrap command over the connection that a master holds.
///
/// If the master has exited, ssh would open a connection of its own: a proxy command that always
/// fails prevents that. The destination can be any word, because the socket determines the host.
#[expect(clippy::disallowed_methods, reason = "a transport is what starts ssh")]
pub(super) fn client(config: &Path, socket: &Path, host: &str) -> Command {
    let mut command = Command::new("ssh");
    command.arg("-F").arg(config).arg("-S").arg(socket);
    command.args(["-T", "-o", "ControlMaster=no", "-o", "ProxyCommand=false"]);
    command.arg("--").arg(host).arg(bootstrap::COMMAND);
    command
}

/// Prints the settings that ssh derives from its configuration for a host.
#[expect(clippy::disallowed_methods, reason = "a transport is what starts ssh")]
pub(super) fn settings(config: &Path, user: Option<&UserName>, host: &str) -> Command {
    let mut command = Command::new("ssh");
    command.arg("-G").arg("-F").arg(config);
    if let Some(user) = user {
        command.arg("-l").arg(user.as_str());
    }
    command.arg("--").arg(host);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command
}

impl SshOptions {
    /// Arguments for `ssh` that reach the host with the same options.
    pub fn shown_args(&self, name: &HostName) -> String {
        let bare = without_brackets(name);
        let mut words = Vec::new();
        match &self.config {
            SshConfig::Default => {}
            SshConfig::File(file) => words.push(format!("-F {}", quoted(file))),
            SshConfig::Nothing => words.push("-F none".to_owned()),
        }
        words.extend(self.port.map(|port| format!("-p {port}")));
        words.extend(self.addresses.get(name).map(|address| format!("-o HostName={address}")));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(options: &SshOptions, host: &str, expect: &str) {
        let name = HostName::parse(host).expect("a name");
        assert_eq!(options.shown_args(&name), expect);
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
        let addresses = [(HostName::parse("n1").expect("a name"), "10.0.0.1".to_owned())];
        let known = SshOptions { addresses: addresses.into(), ..SshOptions::default() };
        check(&known, "n1", "-o HostName=10.0.0.1 n1");
        let none = SshOptions { config: SshConfig::Nothing, ..SshOptions::default() };
        check(&none, "n1", "-F none n1");
    }
}
