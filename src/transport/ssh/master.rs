//! One ssh process that holds the connection to one host.
//!
//! It stays in the foreground, our child and in nobody else's session: the kernel ends it when we
//! die, and its end is an event. The crate's own way, a master in the background, knows neither.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinHandle;

use super::fault::{Fault, FaultKind};
use super::process::SshProcess;
use crate::base::{UserName, WorkerExit};
use crate::os::fds;
use crate::transport::LinkReader;

/// What ssh may say; more is dropped.
const WORDS_BYTES_MAX: usize = 64 * 1024;
/// A master that was asked to end is killed after this time.
const END_LIMIT: Duration = Duration::from_millis(500);
/// What it started may hold its pipe after its end; that is waited for so long.
const HELD_LIMIT: Duration = Duration::from_millis(200);
const READ_BYTES: usize = 4096;

/// See the module. Dropping it ends the process without waiting.
pub(super) struct SshMaster {
    process: SshProcess,
    socket: PathBuf,
    host: String,
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
    /// Whether it tells what it sees.
    pub(super) verbose: bool,
}

impl SshMaster {
    /// Starts it; must be called inside a runtime, from the thread that lives as long as we do.
    pub(super) fn start(to: Destination<'_>) -> Result<Self, Fault> {
        let cannot = |error: io::Error| {
            Fault::new(FaultKind::NoSsh, format!("cannot hear what `ssh` says: {error}"))
        };
        let (ours, theirs) = fds::pipe().map_err(cannot)?;
        let mut command = command(&to);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::from(theirs));
        let process = SshProcess::start(&mut command)?;
        // It holds our copy of the other end.
        drop(command);
        let words = Words::collect(ours).map_err(cannot)?;
        Ok(Self { process, socket: to.socket, host: to.host.to_owned(), words })
    }

    /// Where it listens.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The destination, as ssh was given it.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Returns when it has ended.
    pub(super) async fn end(&self) {
        self.process.end().await;
    }

    /// Returns how it ended; `None` if somebody else has buried it.
    pub(super) async fn wait(&self) -> Option<WorkerExit> {
        self.process.wait().await
    }

    /// Everything it said, once it has ended.
    pub(super) async fn last_words(&mut self) -> String {
        self.words.all().await
    }

    /// What the server calls itself, if ssh tells what it sees. The last one that it told of is the
    /// host's own; those before it are on the way.
    pub(super) fn server(&self) -> Option<String> {
        const SIGN: &str = "remote software version ";
        let words = self.words.bytes.lock().expect("no thread panics while it holds the lock");
        let words = String::from_utf8_lossy(&words);
        let line = words.lines().rev().find_map(|line| Some(line.split_once(SIGN)?.1))?;
        Some(line.trim().to_owned())
    }

    /// Ends it and waits until it has.
    pub(super) async fn dismiss(self) {
        self.process.signal(libc::SIGTERM);
        if tokio::time::timeout(END_LIMIT, self.end()).await.is_err() {
            self.process.signal(libc::SIGKILL);
            self.end().await;
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a transport is what starts ssh")]
fn command(to: &Destination<'_>) -> Command {
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
                let mut words = shared.lock().expect("no thread panics while it holds the lock");
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
        let words = self.bytes.lock().expect("no thread panics while it holds the lock");
        String::from_utf8_lossy(&words).into_owned()
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        self.reader.abort();
    }
}
