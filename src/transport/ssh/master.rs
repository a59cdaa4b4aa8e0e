//! One ssh process that holds the connection to one host.
//!
//! It stays in the foreground, our child and in nobody else's session: the kernel ends it when we
//! die, and its end is an event. The crate's own way, a master in the background, knows neither.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::JoinHandle;

use super::fault::{Fault, FaultKind};
use crate::base::UserName;
use crate::os::{family, fds, fork, signals, watch};
use crate::transport::LinkReader;

/// What ssh may say; more is dropped.
const WORDS_BYTES_MAX: usize = 64 * 1024;
/// A master that was asked to end is killed after this time.
const END_LIMIT: Duration = Duration::from_millis(500);
/// What it started may hold its pipe after its end; that is waited for so long.
const HELD_LIMIT: Duration = Duration::from_millis(200);
const READ_BYTES: usize = 4096;

/// See the module. Dropping it ends the process without waiting.
pub(super) struct Master {
    pid: Pid,
    socket: PathBuf,
    /// Readable when the process has ended.
    ended: AsyncFd<OwnedFd>,
    words: Words,
}

/// Where a master goes to, and by which rules.
pub(super) struct Destination<'a> {
    pub(super) config: &'a Path,
    pub(super) socket: PathBuf,
    pub(super) port: Option<u16>,
    pub(super) user: Option<&'a UserName>,
    /// Without the brackets of an IPv6 address.
    pub(super) host: &'a str,
}

impl Master {
    /// Starts it; must be called inside a runtime, from the thread that lives as long as we do.
    pub(super) fn start(to: Destination<'_>) -> Result<Self, Fault> {
        let started = Self::spawn(&to).map_err(|error| {
            let words = match error.kind() {
                io::ErrorKind::NotFound => "there is no `ssh` in PATH".to_owned(),
                _ => format!("cannot start `ssh`: {error}"),
            };
            Fault::new(FaultKind::NoSsh, words)
        });
        let (mut child, stderr) = started?;
        let pid = Pid::from_child(&child);
        let ended = rustix::process::pidfd_open(pid, PidfdFlags::empty())
            .map_err(io::Error::from)
            .and_then(|pidfd| watch::watch(pidfd, Interest::READABLE));
        match (ended, Words::collect(stderr)) {
            (Ok(ended), Ok(words)) => Ok(Self { pid, socket: to.socket, ended, words }),
            (Err(error), _) | (_, Err(error)) => {
                let _ = child.kill();
                Err(Fault::new(FaultKind::NoSsh, format!("cannot watch `ssh`: {error}")))
            }
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a transport is what starts ssh")]
    fn spawn(to: &Destination<'_>) -> io::Result<(Child, OwnedFd)> {
        let (ours, theirs) = fds::pipe()?;
        let mut command = Command::new("ssh");
        command.arg("-F").arg(to.config).arg("-S").arg(&to.socket);
        command.args(["-M", "-N", "-T", "-o", "ControlPersist=no"]);
        if let Some(port) = to.port {
            command.arg("-p").arg(port.to_string());
        }
        if let Some(user) = to.user {
            command.arg("-l").arg(user.as_str());
        }
        command.arg("--").arg(to.host);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::from(theirs));
        Ok((fork::tied_to_us(&mut command).spawn()?, ours))
    }

    /// Where it listens.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns when it has ended.
    pub(super) async fn end(&self) {
        let _ = self.ended.readable().await;
    }

    /// Everything it said, once it has ended.
    pub(super) async fn last_words(&mut self) -> String {
        self.words.all().await
    }

    /// Ends it and waits until it has.
    pub(super) async fn dismiss(self) {
        signals::send_to_held(self.ended.get_ref(), libc::SIGTERM);
        if tokio::time::timeout(END_LIMIT, self.end()).await.is_err() {
            signals::send_to_held(self.ended.get_ref(), libc::SIGKILL);
            self.end().await;
        }
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        signals::send_to_held(self.ended.get_ref(), libc::SIGTERM);
        family::reap_one(self.pid);
    }
}

/// What a process says, read until it and its children have ended.
struct Words {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Words {
    fn collect(pipe: OwnedFd) -> io::Result<Self> {
        let pipe = LinkReader::new(pipe)?;
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&bytes);
        let reader = tokio::spawn(async move {
            let mut buffer = Vec::with_capacity(READ_BYTES);
            while let Ok(1..) = pipe.read(&mut buffer).await {
                let mut words = shared.lock().expect("nobody panics while holding the lock");
                let room = WORDS_BYTES_MAX.saturating_sub(words.len()).min(buffer.len());
                words.extend_from_slice(&buffer[..room]);
                drop(words);
                buffer.clear();
            }
        });
        Ok(Self { bytes, reader })
    }

    /// A process that it started, such as a jump, may hold the pipe a little longer.
    async fn all(&mut self) -> String {
        let _ = tokio::time::timeout(HELD_LIMIT, &mut self.reader).await;
        let words = self.bytes.lock().expect("nobody panics while holding the lock");
        String::from_utf8_lossy(&words).into_owned()
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        self.reader.abort();
    }
}
