//! The settings that ssh derives from its configuration for one host (`ssh -G`).

use std::path::Path;

use super::command_line;
use crate::base::UserName;

/// The settings that remuda uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SshSettings {
    /// Whether connections go through another host or program.
    pub(super) has_jump: bool,
    /// Whether the first key exchange costs several times as much as curve25519.
    pub(super) slow_kex: bool,
}

/// Runs `ssh -G`. If it fails, the defaults are returned, because the connection will report the
/// reason.
pub(super) async fn read(config: &Path, user: Option<&UserName>, host: &str) -> SshSettings {
    let (config, user, host) = (config.to_owned(), user.cloned(), host.to_owned());
    let output = tokio::task::spawn_blocking(move || run_ssh_g(&config, user.as_ref(), &host));
    output.await.ok().flatten().map_or_else(SshSettings::default, |text| parse(&text))
}

fn run_ssh_g(config: &Path, user: Option<&UserName>, host: &str) -> Option<String> {
    let output = command_line::settings(config, user, host).output().ok()?;
    String::from_utf8(output.stdout).ok()
}

fn parse(text: &str) -> SshSettings {
    let mut settings = SshSettings::default();
    for (name, value) in text.lines().filter_map(|line| line.split_once(' ')) {
        match name {
            "proxyjump" | "proxycommand" => settings.has_jump |= value != "none",
            "kexalgorithms" => settings.slow_kex = !value.starts_with("curve25519-"),
            _ => {}
        }
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_show_a_slow_key_exchange() {
        let both = "sntrup761x25519-sha512@openssh.com,curve25519-sha256";
        assert!(parse(&format!("kexalgorithms {both}\n")).slow_kex);
        assert!(!parse("kexalgorithms curve25519-sha256,ecdh-sha2-nistp256\n").slow_kex);
    }

    #[test]
    fn settings_show_a_jump() {
        assert!(!parse("user a\nhostname n3\nport 22\n").has_jump);
        assert!(!parse("proxyjump none\n").has_jump);
        assert!(parse("port 22\nproxyjump bastion\n").has_jump);
        assert!(parse("proxycommand nc %h %p\n").has_jump);
    }
}
