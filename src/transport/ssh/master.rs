//! The ssh process that holds the connection to one host.
//!
//! The master runs in the foreground, as a child of the launcher in a session of its own: the
//! kernel ends it when the launcher exits, and its exit is an event. The crate's default, a master
//! in the background, has neither property.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinHandle;

use super::command_line::{self, Destination};
use super::fault::{Fault, FaultKind};
use crate::base::WorkerExit;
use crate::os::files::fds;
use crate::transport::LinkReader;
use crate::transport::process::HelperProcess;

/// Most bytes of ssh's output that are kept; the rest is dropped.
const WORDS_BYTES_MAX: usize = 64 * 1024;
/// Time after which a master that was sent SIGTERM is killed.
const END_LIMIT: Duration = Duration::from_millis(500);
/// Time to wait for the end of the pipe after the master's exit, because a process that it started
/// may hold it.
const PIPE_CLOSE_LIMIT: Duration = Duration::from_millis(200);
const READ_BYTES: usize = 4096;

/// A running ssh master. Dropping it ends the process without waiting.
pub(super) struct SshMaster {
    process: HelperProcess,
    socket: PathBuf,
    host: String,
    words: OutputCapture,
}

impl SshMaster {
    /// Starts the master. Must be called inside a runtime, from a thread that lives as long as the
    /// launcher.
    pub(super) fn start(to: Destination<'_>) -> Result<Self, Fault> {
        let cannot = |error: io::Error| {
            Fault::new(FaultKind::NoProgram, format!("cannot read the output of `ssh`: {error}"))
        };
        let (read_end, write_end) = fds::pipe().map_err(cannot)?;
        let mut command = command_line::master(&to);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::from(write_end));
        let process = HelperProcess::start(&mut command)?;
        // The command holds the launcher's copy of the other end.
        drop(command);
        let words = OutputCapture::collect(read_end).map_err(cannot)?;
        Ok(Self { process, socket: to.socket, host: to.host.to_owned(), words })
    }

    /// Path of the control socket.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The destination as it was passed to ssh.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Returns when the master has ended.
    pub(super) async fn wait_for_exit(&self) {
        self.process.wait_for_exit().await;
    }

    /// Waits until the master has ended and returns its exit; `None` if it was reaped elsewhere.
    pub(super) async fn wait(&self) -> Option<WorkerExit> {
        self.process.wait().await
    }

    /// All output of the master after it has ended.
    pub(super) async fn final_output(&mut self) -> String {
        self.words.read_all().await
    }

    /// Version text of the server, if ssh runs with `-v`. The last one in the output is that of the
    /// host itself; those before it are of jump hosts.
    pub(super) fn server(&self) -> Option<String> {
        const SIGN: &str = "remote software version ";
        let words = self.words.bytes.lock().expect("no thread panics while it holds the lock");
        let words = String::from_utf8_lossy(&words);
        let line = words.lines().rev().find_map(|line| Some(line.split_once(SIGN)?.1))?;
        Some(line.trim().to_owned())
    }

    /// Ends the master and waits until it has ended.
    pub(super) async fn terminate(self) {
        self.process.signal(libc::SIGTERM);
        if tokio::time::timeout(END_LIMIT, self.wait_for_exit()).await.is_err() {
            self.process.signal(libc::SIGKILL);
            self.wait_for_exit().await;
        }
    }
}

/// Output of a process, read until the process and its children have ended.
struct OutputCapture {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl OutputCapture {
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

    /// Waits a little longer for a process that the master started, such as a jump, and may hold
    /// the pipe.
    async fn read_all(&mut self) -> String {
        let _ = tokio::time::timeout(PIPE_CLOSE_LIMIT, &mut self.reader).await;
        let words = self.bytes.lock().expect("no thread panics while it holds the lock");
        String::from_utf8_lossy(&words).into_owned()
    }
}

impl Drop for OutputCapture {
    fn drop(&mut self) {
        self.reader.abort();
    }
}
