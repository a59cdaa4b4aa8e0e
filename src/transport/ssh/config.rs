//! Text of the ssh configuration file of a launch. Pure.
//!
//! In ssh's files the first value of an option applies. So the mandatory options are first, then
//! the user's files, then remuda's preferences. Host keys and their checks are left to the user's
//! files.

use std::collections::HashMap;
use std::fmt::Write as _;

use super::options::Kex;
use crate::base::HostName;

/// Mandatory options: no prompts, no forwarding, no local commands, output that can be shown, and
/// an end for dead connections.
const MANDATORY: &str = "\
BatchMode yes
ForwardAgent no
ForwardX11 no
ForwardX11Trusted no
ClearAllForwardings yes
Tunnel no
PermitLocalCommand no
RemoteCommand none
RequestTTY no
LogLevel ERROR
ServerAliveInterval 10
ServerAliveCountMax 3
";

const DEFAULTS: &str = "\
ConnectTimeout 10
ConnectionAttempts 1
";

/// Makes the text of the file; `includes` are paths that need no quoting.
pub(super) fn text(kex: Kex, includes: &[&str], addresses: &HashMap<HostName, String>) -> String {
    let mut text = "# Made by remuda for one launch. Mandatory options:\n".to_owned();
    text += MANDATORY;
    if kex == Kex::Fast {
        // `^` puts these algorithms before the others, which stay in the list.
        text += "KexAlgorithms ^curve25519-sha256,curve25519-sha256@libssh.org\n";
    }
    text += "# Files of the user:\n";
    for include in includes {
        let _ = writeln!(text, "Include {include}");
    }
    text += "# Defaults of remuda:\n";
    text += DEFAULTS;
    for (host, address) in addresses {
        let _ = writeln!(text, "Host {host}\nHostName {address}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_has_guards_before_and_defaults_after_the_user_files() {
        let host = HostName::parse("n1").expect("a name");
        let addresses = [(host, "10.0.0.1".to_owned())].into();
        let text = text(Kex::Configured, &["~/.ssh/config"], &addresses);
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} in {text}"));
        assert!(at("ForwardAgent no") < at("Include ~/.ssh/config"));
        assert!(at("Include ~/.ssh/config") < at("ConnectTimeout"));
        assert!(text.ends_with("ConnectionAttempts 1\nHost n1\nHostName 10.0.0.1\n"), "{text}");
        assert!(!text.contains("KexAlgorithms"), "the key exchange stays the user's");
        assert!(!text.contains("HostKey"), "and so do host keys");
        assert!(!text.contains("KnownHosts"));
    }
}
