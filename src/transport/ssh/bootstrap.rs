//! Starts an agent from an unknown login shell. Pure: the command, the line that it reads, and the
//! node's replies.
//!
//! The command is a constant. It holds no quote, backslash, `!` or newline between its single
//! quotes, so that sh, bash, zsh, fish, csh and tcsh all pass it to `sh` unchanged. What differs
//! between nodes is one line on standard input. The node replies in lines that begin with [`MARK`],
//! after any output of a start-up file. The agent prints the last of these lines, and after it the
//! stream is the link.

use super::digest::Digest;

/// Prefix of every reply line. The command spells it in two parts, because a shell may print the
/// command.
pub(super) const MARK: &[u8] = b"remuda-link:";

/// Most bytes that a start-up file may print before the first reply line.
const NOISE_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of a reply line.
const LINE_BYTES_MAX: usize = 256;

/// The command that the login shell of every node receives.
///
/// The shell looks for the binary in this order: the agent path that the user named, the caches on
/// the node's own disks, the cache in the home, the launcher's own path if the same file is there.
/// If none is found, it requests the binary. The shell enters a cache before it checks the owner,
/// so that the directory cannot be exchanged in between. A file in a cache was complete and had the
/// right digest before it got its name, and is never replaced.
pub(super) const COMMAND: &str = concat!(
    "exec sh -c 'read -r a d n s j k p || exit 76; set -f; IFS=; m=remuda-; m=${m}link:; ",
    "e() { unset PWD OLDPWD; exec $1 agent $j $k link $2; }; ",
    "o() { cd -P $1 2>/dev/null && test -O .; }; ",
    "case $d in any) e $p;; esac; ",
    "u=$(uname -m); case $u in $a) ;; *) echo ${m}arch $u; exit 78;; esac; ",
    "set -- ${XDG_RUNTIME_DIR:+$XDG_RUNTIME_DIR/remuda} /var/tmp/.remuda-$LOGNAME ",
    "${XDG_CACHE_HOME:-$HOME/.cache}/remuda; ",
    "for c do o $c/$d && test -O remuda && test -x remuda && e ./remuda; done; ",
    "test -x $p && case $($p agent $d $s </dev/null 2>/dev/null) in $d) e $p;; esac; ",
    "t=.$(uname -n)-$$; ",
    "for c do mkdir -p -m 700 $c $c/$d; ",
    "o $c/$d || { echo $c: owned by another user >&2; continue; }; ",
    "echo exit 0 >$t && chmod 700 $t && ./$t || ",
    "{ rm -f $t; echo $c: cannot execute files there >&2; continue; }; ",
    "head -c $n /dev/zero >$t || { rm -f $t; echo $c: no space left >&2; continue; }; ",
    "echo ${m}send; head -c $n >$t; ",
    "case $(./$t agent $d - </dev/null) in $d) ;; *) rm -f $t; ",
    "echo ${m}bad $(getconf GNU_LIBC_VERSION 2>/dev/null); exit 74;; esac; ",
    "ln $t remuda 2>/dev/null || test -x remuda || mv $t remuda; rm -f $t; e ./remuda pushed; ",
    "done; echo ${m}nowhere; exit 73'",
);

/// The request to one node: the line that the command reads.
pub(super) struct BootstrapRequest<'a> {
    /// The agent to execute.
    pub(super) agent: AgentFile<'a>,
    /// `job=…`, without blanks.
    pub(super) job: String,
    /// `node=…`, without blanks.
    pub(super) node: String,
}

/// The file to execute.
pub(super) enum AgentFile<'a> {
    /// The file at this path, whatever it holds.
    Path(&'a str),
    /// A copy of the launcher's own binary.
    OwnBinary {
        /// Digest of the binary.
        digest: Digest,
        /// Size of the binary.
        bytes: u64,
        /// Text that is equal only for the same file, see `binary::identity`.
        identity: &'a str,
        /// Path of the binary on the launcher's machine; `None` if other users could have put a
        /// file at that path on a node.
        path: Option<&'a str>,
    },
}

impl BootstrapRequest<'_> {
    /// Formats the line.
    pub(super) fn to_line(&self) -> String {
        // A path that is not executable on any machine, and no option of `test`.
        const NO_PATH: &str = "/dev/null";
        let (job, node) = (&self.job, &self.node);
        match self.agent {
            AgentFile::Path(path) => format!("- any 0 - {job} {node} {path}\n"),
            AgentFile::OwnBinary { digest, bytes, identity, path } => {
                let (arch, path) = (std::env::consts::ARCH, path.unwrap_or(NO_PATH));
                format!("{arch} {digest} {bytes} {identity} {job} {node} {path}\n")
            }
        }
    }
}

/// Whether a path is unchanged by the line: `read` stops at line ends and trims blanks.
pub(super) fn fits_in_line(path: &str) -> bool {
    !path.contains(['\n', '\0']) && path.trim() == path && !path.is_empty()
}

/// A reply of a node before the stream is a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BootstrapReply {
    /// The node requests the binary.
    Send,
    /// The agent runs; every following byte belongs to the link.
    Ready,
    /// The node has a different architecture from the launcher's: `uname -m`.
    OtherArch(String),
    /// The binary arrived damaged, or cannot run on the node.
    CannotRun {
        /// The node's C library, such as `glibc 2.28`, if it could be determined.
        libc: String,
    },
    /// The node has no directory for the binary.
    NoDirectory,
}

/// Finds replies in the output of a node.
#[derive(Default)]
pub(super) struct Scanner {
    buffer: Vec<u8>,
    /// Output before the first reply.
    noise: Vec<u8>,
    found: bool,
}

/// Error: the node printed more than any start-up file prints.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooMuchNoise;

impl Scanner {
    /// Buffer with spare capacity for the next read.
    pub(super) fn spare_buffer(&mut self, bytes: usize) -> &mut Vec<u8> {
        self.buffer.reserve(bytes);
        &mut self.buffer
    }

    /// The next reply, if it has been received.
    pub(super) fn next_reply(&mut self) -> Result<Option<BootstrapReply>, TooMuchNoise> {
        loop {
            let Some(at) = find(&self.buffer, MARK) else {
                return self.keep_noise();
            };
            let line_at = at + MARK.len();
            let Some(length) = self.buffer[line_at..].iter().position(|byte| *byte == b'\n') else {
                let open = self.buffer.len() - line_at;
                return if open <= LINE_BYTES_MAX { Ok(None) } else { Err(TooMuchNoise) };
            };
            let answer = parse(&self.buffer[line_at..line_at + length]);
            if !self.found {
                self.noise.extend_from_slice(&self.buffer[..at]);
            }
            self.buffer.drain(..=line_at + length);
            if answer.is_some() {
                self.found = true;
                return Ok(answer);
            }
        }
    }

    fn keep_noise(&mut self) -> Result<Option<BootstrapReply>, TooMuchNoise> {
        // The end of the buffer may be the beginning of a mark.
        let noise = self.buffer.len().saturating_sub(MARK.len() - 1);
        self.noise.extend(self.buffer.drain(..noise));
        if NOISE_BYTES_MAX < self.noise.len() { Err(TooMuchNoise) } else { Ok(None) }
    }

    /// Output before the first reply line.
    pub(super) fn noise(&self) -> String {
        let bytes = if self.found { self.noise.clone() } else { self.all_output() };
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn all_output(&self) -> Vec<u8> {
        [&self.noise[..], &self.buffer].concat()
    }

    /// Bytes of the link that were received with the last reply.
    pub(super) fn into_rest(self) -> Vec<u8> {
        self.buffer
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, what)
}

/// Parses a reply line; `None` for a line that only begins like one.
fn parse(line: &[u8]) -> Option<BootstrapReply> {
    let line = std::str::from_utf8(line).ok()?;
    match line.split_once(' ') {
        None => match line {
            "send" => Some(BootstrapReply::Send),
            "up" => Some(BootstrapReply::Ready),
            "bad" => Some(BootstrapReply::CannotRun { libc: String::new() }),
            "nowhere" => Some(BootstrapReply::NoDirectory),
            _ => None,
        },
        Some(("arch", arch)) => Some(BootstrapReply::OtherArch(arch.to_owned())),
        Some(("bad", libc)) => Some(BootstrapReply::CannotRun { libc: libc.trim().to_owned() }),
        Some(_) => None,
    }
}

/// The line that the agent prints first.
pub(super) const UP: &[u8] = b"remuda-link:up\n";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Feeds the pieces to a scanner; returns all replies, the remaining bytes and the noise.
    fn scan(pieces: &[&[u8]]) -> (Vec<BootstrapReply>, Vec<u8>, String) {
        let mut scanner = Scanner::default();
        let mut answers = Vec::new();
        for piece in pieces {
            scanner.spare_buffer(piece.len()).extend_from_slice(piece);
            while answers.last() != Some(&BootstrapReply::Ready) {
                match scanner.next_reply().expect("little noise") {
                    Some(answer) => answers.push(answer),
                    None => break,
                }
            }
        }
        let noise = scanner.noise();
        (answers, scanner.into_rest(), noise)
    }

    #[test]
    fn command_has_no_characters_that_login_shells_interpret() {
        let inner = COMMAND.strip_prefix("exec sh -c '").and_then(|rest| rest.strip_suffix('\''));
        let inner = inner.expect("one word in single quotes");
        assert_eq!(inner.find(['\'', '"', '\\', '!', '\n', '`']), None, "{inner}");
        assert!(
            !inner.contains("remuda-link:"),
            "a shell that prints the command would send a reply"
        );
    }

    #[test]
    fn scanner_finds_a_reply_after_a_banner() {
        let (answers, rest, noise) = scan(&[b"Welcome to n3! ", b"remuda-link:up\n\x05\0\0\0x"]);
        assert_eq!(answers, [BootstrapReply::Ready]);
        assert_eq!(rest, b"\x05\0\0\0x");
        assert_eq!(noise, "Welcome to n3! ");
    }

    #[test]
    fn scanner_parses_every_reply() {
        let (answers, rest, _) =
            scan(&[b"remuda-link:send\n", b"remuda-link:up\nremuda-link:up\n"]);
        assert_eq!(answers, [BootstrapReply::Send, BootstrapReply::Ready]);
        assert_eq!(rest, b"remuda-link:up\n", "bytes after the last reply belong to the link");
        let (answers, _, _) = scan(&[b"remuda-link:arch aarch64\n"]);
        assert_eq!(answers, [BootstrapReply::OtherArch("aarch64".to_owned())]);
        for (line, libc) in [("bad", ""), ("bad ", ""), ("bad glibc 2.28", "glibc 2.28")] {
            let (answers, _, _) = scan(&[format!("remuda-link:{line}\n").as_bytes()]);
            assert_eq!(answers, [BootstrapReply::CannotRun { libc: libc.to_owned() }]);
        }
    }

    #[test]
    fn scanner_limits_the_noise() {
        let mut scanner = Scanner::default();
        let line = [b'x'; 1024];
        let mut fed = 0;
        loop {
            scanner.spare_buffer(line.len()).extend_from_slice(&line);
            fed += line.len();
            match scanner.next_reply() {
                Ok(None) => assert!(fed <= NOISE_BYTES_MAX + 2 * line.len()),
                Ok(Some(answer)) => panic!("{answer:?}"),
                Err(TooMuchNoise) => return,
            }
        }
    }

    #[test]
    fn path_that_the_line_would_change_is_rejected() {
        assert!(fits_in_line("/home/a b/remuda"));
        for bad in ["", " /a", "/a\n/b", "/a\t"] {
            assert!(!fits_in_line(bad), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn scanner_accepts_any_division_into_pieces(noise in "[a-z:\n-]{0,40}", cut in 0usize..60) {
            let text = format!("{noise}remuda-link:up\nrest");
            let cut = cut.min(text.len());
            let (head, tail) = text.as_bytes().split_at(cut);
            let (answers, rest, found) = scan(&[head, tail]);
            prop_assert_eq!(answers, vec![BootstrapReply::Ready]);
            prop_assert_eq!(rest, b"rest".to_vec());
            prop_assert_eq!(found, noise);
        }
    }
}
