//! Classifies ssh's output into the reasons why a node has no agent. Pure.

pub(super) use crate::transport::{Fault, FaultKind};

impl Fault {
    /// Fault from the output of an ssh that ended before there was a connection.
    pub(super) fn from_ssh_output(words: &str) -> Self {
        let words = without_verbose_lines(words);
        Self::new(classify(&words), without_frames(&words))
    }

    /// The same fault, or [`FaultKind::OldLibc`] if the loader reports a missing version of glibc.
    pub(super) fn or_old_libc(self, libc: &str) -> Self {
        let Some((major, minor)) = missing_glibc(&self.detail) else { return self };
        let found = if libc.is_empty() { "an older C library" } else { libc };
        let needed = format!("this build of remuda needs glibc {major}.{minor}");
        Self::new(FaultKind::OldLibc, format!("{found} is installed there; {needed}"))
    }

    /// Whether another attempt may succeed: sshd drops connections when too many are being made.
    /// After a refused login there is no further attempt.
    pub(super) fn is_transient(&self) -> bool {
        self.kind == FaultKind::Dropped
    }

    /// Whether the cause may be that the host is not up yet.
    pub(super) fn may_come_up(&self) -> bool {
        use FaultKind::{Dropped, NoAnswer, NoSuchName, Refused};
        matches!(self.kind, NoSuchName | Refused | NoAnswer | Dropped)
    }
}

/// The highest version of glibc that a loader did not find, from lines such as
/// ``libc.so.6: version `GLIBC_2.34' not found (required by ./remuda)``.
fn missing_glibc(words: &str) -> Option<(u32, u32)> {
    let version = |line: &str| {
        let (_, rest) = line.split_once("version `GLIBC_")?;
        let (major, minor) = rest.split_once("' not found")?.0.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    words.lines().filter_map(version).max()
}

/// Messages of OpenSSH, most specific first: the message about the end of a connection often
/// follows that about the reason.
const MESSAGES: &[(&str, FaultKind)] = &[
    ("REMOTE HOST IDENTIFICATION HAS CHANGED", FaultKind::HostKeyChanged),
    ("Host key verification failed", FaultKind::HostKeyUnknown),
    ("Not allowed at this time", FaultKind::Penalty),
    ("Permission denied", FaultKind::Denied),
    ("Too many authentication failures", FaultKind::Denied),
    ("Could not resolve hostname", FaultKind::NoSuchName),
    ("Connection refused", FaultKind::Refused),
    ("Connection timed out", FaultKind::NoAnswer),
    ("Operation timed out", FaultKind::NoAnswer),
    ("No route to host", FaultKind::NoAnswer),
    ("Network is unreachable", FaultKind::NoAnswer),
    ("kex_exchange_identification", FaultKind::Dropped),
    ("ssh_exchange_identification", FaultKind::Dropped),
    ("banner exchange", FaultKind::Dropped),
    ("Connection reset by", FaultKind::Dropped),
    ("Connection closed by", FaultKind::Dropped),
];

fn classify(words: &str) -> FaultKind {
    let sign = MESSAGES.iter().find(|(sign, _)| words.contains(sign));
    sign.map_or(FaultKind::Ssh, |(_, kind)| *kind)
}

/// Prefixes of the lines in which ssh reports its steps (`-v`).
const VERBOSE_PREFIXES: [&str; 5] =
    ["debug1: ", "OpenSSH_", "Authenticated to ", "Transferred: ", "Bytes per second: "];

fn without_verbose_lines(words: &str) -> String {
    let is_talk = |line: &str| VERBOSE_PREFIXES.iter().any(|talk| line.starts_with(talk));
    words.split_inclusive('\n').filter(|line| !is_talk(line)).collect()
}

/// Removes the frames of `@` that ssh draws around a warning, and terminal line ends.
fn without_frames(words: &str) -> String {
    let frame = |line: &&str| !line.trim().is_empty() && !line.starts_with('@');
    words.lines().map(str::trim_end).filter(frame).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(words: &str, kind: FaultKind) {
        assert_eq!(Fault::from_ssh_output(words).kind, kind, "for `{words}`");
    }

    #[test]
    fn fault_names_the_missing_version_of_glibc() {
        let why = "the binary does not run there, or arrived damaged";
        let loader = "./.n1-7: /lib64/libc.so.6: version `GLIBC_2.32' not found (required by ./.n1-7)\n\
                      ./.n1-7: /lib64/libc.so.6: version `GLIBC_2.34' not found (required by ./.n1-7)\n\
                      ./.n1-7: /lib64/libm.so.6: version `GLIBC_2.9' not found (required by ./.n1-7)";
        let fault = |words: &str| Fault::new(FaultKind::Damaged, format!("{why}\n{words}"));
        let old = fault(loader).or_old_libc("glibc 2.28");
        let words = "glibc 2.28 is installed there; this build of remuda needs glibc 2.34";
        assert_eq!(old, Fault::new(FaultKind::OldLibc, words));
        let unnamed = fault(loader).or_old_libc("");
        assert!(unnamed.detail.starts_with("an older C library is installed there; "));
        for other in ["", "./.n1-7: not found", "./.n1-7: cannot execute binary file"] {
            assert_eq!(fault(other).or_old_libc("glibc 2.28"), fault(other));
        }
    }

    #[test]
    fn fault_kind_is_read_from_the_output_of_openssh() {
        check(
            "ssh: Could not resolve hostname n3: Name or service not known\r\n",
            FaultKind::NoSuchName,
        );
        check("ssh: connect to host n3 port 22: Connection refused\r\n", FaultKind::Refused);
        check("ssh: connect to host n3 port 22: Connection timed out\r\n", FaultKind::NoAnswer);
        check("alice@n3: Permission denied (publickey).\r\n", FaultKind::Denied);
        check(
            "kex_exchange_identification: Connection closed by remote host\r\n",
            FaultKind::Dropped,
        );
        check(
            "kex_exchange_identification: read: Connection reset by peer\r\n\
             Connection reset by 10.0.0.1 port 22\r\n",
            FaultKind::Dropped,
        );
        check(
            "No ED25519 host key is known for n3 and you have requested strict checking.\r\n\
             Host key verification failed.\r\n",
            FaultKind::HostKeyUnknown,
        );
        check(
            "@@@\r\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r\n@@@\r\n\
             Offending ED25519 key in /home/a/.ssh/known_hosts:3\r\nHost key verification failed.\r\n",
            FaultKind::HostKeyChanged,
        );
        check(
            "Not allowed at this time\r\nConnection reset by 10.0.0.1 port 22\r\n",
            FaultKind::Penalty,
        );
        check("Bad owner or permissions on /home/a/.ssh/config\r\n", FaultKind::Ssh);
        check("", FaultKind::Ssh);
    }

    #[test]
    fn fault_ignores_the_verbose_lines_of_ssh() {
        let words = "OpenSSH_9.2p1 Debian-2, OpenSSL 3.0.15\r\n\
                     debug1: Authentications that can continue: publickey. Permission denied\r\n\
                     ssh: connect to host n3 port 22: Connection refused\r\n";
        let fault = Fault::from_ssh_output(words);
        assert_eq!(fault.kind, FaultKind::Refused);
        assert_eq!(fault.detail, "ssh: connect to host n3 port 22: Connection refused");
    }

    #[test]
    fn refused_login_is_not_tried_again() {
        assert!(!Fault::from_ssh_output("a@n3: Permission denied (publickey).").is_transient());
        assert!(!Fault::from_ssh_output("Host key verification failed.").is_transient());
        assert!(
            !Fault::from_ssh_output("Not allowed at this time\r\nConnection reset by a")
                .is_transient()
        );
        assert!(Fault::from_ssh_output("Connection reset by 10.0.0.1 port 22").is_transient());
    }

    #[test]
    fn fault_omits_the_frames_of_warnings() {
        let fault =
            Fault::from_ssh_output("@@@@@\r\n@ WARNING @\r\n@@@@@\r\nIt is also possible\r\n");
        assert_eq!(fault.detail, "It is also possible");
    }
}
