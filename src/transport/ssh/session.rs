//! A bootstrap session: the exchange with a host over the bootstrap command until the agent is up.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use super::agent::SshAgent;
use super::binary::Binary;
use super::bootstrap::{BootstrapReply, Scanner, TooMuchNoise};
use super::channel::{CommandChannel, Pipes};
use super::fault::{Fault, FaultKind};
use super::master::SshMaster;
use super::options::Mux;
use super::push::push;
use crate::base::clock;
use crate::transport::stderr::{LineCallback, StderrCapture};
use crate::transport::{Link, LinkReader, LinkWriter, SessionInfo};

const READ_BYTES: usize = 4096;

/// A bootstrap session with a host.
pub(super) struct BootstrapSession {
    master: SshMaster,
    channel: CommandChannel,
    writer: LinkWriter,
    reader: LinkReader,
    scanner: Scanner,
    stderr: StderrCapture,
    /// Time limit of a login shell. While the agent is being sent, it starts again with every
    /// piece.
    limit: Duration,
    deadline: Instant,
}

/// Why no reply of a node will be received.
pub(super) enum NoReply {
    /// The time limit passed; this was the limit.
    Timeout(Duration),
    /// The named process has ended, or the named event cannot happen any more.
    Impossible(&'static str),
}

impl BootstrapSession {
    /// Runs the bootstrap command over the connection; the replies must be received within the
    /// limit.
    pub(super) async fn start(
        (mux, limit): (Mux, Duration),
        config: &Path,
        master: SshMaster,
        on_line: LineCallback,
    ) -> Result<Self, Fault> {
        let deadline = clock::now() + limit;
        let open = CommandChannel::open(mux, config, &master);
        let Ok(opened) = tokio::time::timeout_at(deadline.into(), open).await else {
            let words = format!("no ssh channel within {} s", limit.as_secs_f64());
            return Err(Fault::new(FaultKind::Hangs, words));
        };
        let (channel, Pipes { writer, reader, stderr }) = opened?;
        let (scanner, beside) = (Scanner::default(), StderrCapture::collect(stderr, on_line));
        Ok(Self { master, channel, writer, reader, scanner, stderr: beside, limit, deadline })
    }

    /// Sends a line to the node.
    pub(super) async fn send_line(&self, line: &str) -> io::Result<()> {
        self.writer.write_all(line.as_bytes(), &[]).await
    }

    /// The next reply of the node, or why there will be none.
    pub(super) async fn next_reply(&mut self) -> Result<BootstrapReply, NoReply> {
        loop {
            match self.scanner.next_reply() {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => {}
                Err(TooMuchNoise) => {
                    return Err(NoReply::Impossible("the login shell prints text without end"));
                }
            }
            let room = self.scanner.spare_buffer(READ_BYTES);
            match tokio::time::timeout_at(self.deadline.into(), self.reader.read(room)).await {
                Ok(Ok(1..)) => {}
                Ok(Ok(0) | Err(_)) => {
                    return Err(NoReply::Impossible(
                        "the login shell exited before the agent started",
                    ));
                }
                Err(_) => return Err(NoReply::Timeout(self.limit)),
            }
        }
    }

    /// Sends the executable of this process, and nothing after it.
    pub(super) async fn send_binary(&mut self, binary: &Binary) -> Result<(), Fault> {
        let Self { writer, limit, deadline, .. } = self;
        push(binary, writer, *limit, || *deadline = clock::now() + *limit).await
    }

    /// The fault, with all output about it.
    pub(super) async fn make_fault(&mut self, kind: FaultKind, why: &str) -> Fault {
        let mut words =
            vec![why.to_owned(), self.stderr.output_so_far().await, self.scanner.noise()];
        if !matches!(kind, FaultKind::NoAgent | FaultKind::NotInstalled | FaultKind::Hangs) {
            words.pop();
        }
        words.retain(|word| !word.trim().is_empty());
        let words: Vec<_> = words.iter().map(|word| word.trim()).collect();
        Fault::new(kind, words.join("\n"))
    }

    /// Output of the login shell before the bootstrap command.
    pub(super) fn noise(&self) -> String {
        self.scanner.noise()
    }

    /// Version text of the ssh server, if ssh reports it.
    pub(super) fn server(&self) -> Option<String> {
        self.master.server()
    }

    pub(super) fn into_link(self, session: SessionInfo) -> Link {
        let Self { master, channel, writer, reader, scanner, mut stderr, .. } = self;
        stderr.forward_lines();
        let agent = Box::new(SshAgent::new(master, channel, stderr));
        Link { reader, writer, agent, early: scanner.into_rest(), session }
    }
}
