//! The configuration that ssh is given: one file for a launch. Pure.
//!
//! In ssh's files the first value of an option wins. So what must be comes first, then what the user
//! says, then what we would like. Host keys and how they are checked are the user's and are not
//! mentioned.

use std::fmt::Write as _;

use super::options::Kex;

/// No questions, nothing forwarded, nothing run here, words that can be shown, an end for a dead
/// connection.
const GUARDS: &str = "\
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

const PREFERENCES: &str = "\
ConnectTimeout 10
ConnectionAttempts 1
";

/// The text of the file; `includes` are paths that need no quoting.
pub(super) fn text(kex: Kex, includes: &[&str]) -> String {
    let mut text = "# Made by remuda for one launch. What must be:\n".to_owned();
    text += GUARDS;
    if kex == Kex::Fast {
        // `^` puts it before the others, which stay.
        text += "KexAlgorithms ^curve25519-sha256,curve25519-sha256@libssh.org\n";
    }
    text += "# What the user says:\n";
    for include in includes {
        let _ = writeln!(text, "Include {include}");
    }
    text += "# What we would like:\n";
    text + PREFERENCES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_come_before_the_user_and_preferences_after() {
        let text = text(Kex::Users, &["~/.ssh/config"]);
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} in {text}"));
        assert!(at("ForwardAgent no") < at("Include ~/.ssh/config"));
        assert!(at("Include ~/.ssh/config") < at("ConnectTimeout"));
        assert!(!text.contains("KexAlgorithms"), "the key exchange stays the user's");
        assert!(!text.contains("HostKey"), "and so do host keys");
        assert!(!text.contains("KnownHosts"));
    }
}
