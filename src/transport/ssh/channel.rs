//! The bootstrap command of a host, which runs over the connection that the host's ssh master
//! holds.
//!
//! There are two ways to request it from the master. By default remuda implements the multiplexing
//! protocol itself (the crate `openssh`), which needs no further process and passes the pipes over
//! the master's socket. Otherwise OpenSSH implements it, in a process of its own.

use std::path::Path;
use std::sync::Arc;

use openssh::{Child, Session};

use super::bootstrap;
use super::command_line;
use super::fault::{Fault, FaultKind};
use super::master::SshMaster;
use super::options::Mux;
use crate::base::WorkerExit;
use crate::os::files::fds;
use crate::transport::process::HelperProcess;
use crate::transport::{LinkReader, LinkWriter};

/// Exit status of OpenSSH when the connection or a signal ended the command. The agent never exits
/// with it.
const SSH_FAILED: WorkerExit = WorkerExit::Code(255);

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandEnd {
    /// The command's own exit was received.
    Command(WorkerExit),
    /// The command's exit was not received; this is the exit of the ssh process that should report
    /// it.
    Client(WorkerExit),
    /// The exit is unknown.
    Unknown,
}

/// The running bootstrap command. Dropping it does not end the command; closing the command's input
/// does.
pub(super) enum CommandChannel {
    Native(Child<Arc<Session>>),
    Process(HelperProcess),
}

/// The launcher's ends of a command's pipes.
pub(super) struct Pipes {
    pub(super) writer: LinkWriter,
    pub(super) reader: LinkReader,
    /// Its standard error.
    pub(super) stderr: LinkReader,
}

impl CommandChannel {
    /// Runs the bootstrap command, which is a constant.
    pub(super) async fn open(
        mux: Mux,
        config: &Path,
        master: &SshMaster,
    ) -> Result<(Self, Pipes), Fault> {
        let other = |words: String| Fault::new(FaultKind::Ssh, words);
        let io = |error: std::io::Error| other(format!("cannot make pipes: {error}"));
        let (stdin, to_node) = fds::pipe().map_err(io)?;
        let (from_node, stdout) = fds::pipe().map_err(io)?;
        let (from_stderr, stderr) = fds::pipe().map_err(io)?;
        let channel = match mux {
            Mux::Native => {
                let session = Arc::new(Session::resume_mux(master.socket().into(), None));
                let mut command = session.arc_raw_command(bootstrap::COMMAND);
                command.stdin(stdin).stdout(stdout).stderr(stderr);
                let child = command.spawn().await;
                // Closes the launcher's copies of the node's ends.
                drop(command);
                Self::Native(child.map_err(|error| other(error.to_string()))?)
            }
            Mux::Process => {
                let mut command = command_line::client(config, master.socket(), master.host());
                command.stdin(stdin).stdout(stdout).stderr(stderr);
                Self::Process(HelperProcess::start(&mut command)?)
            }
        };
        let pipes = Pipes {
            writer: LinkWriter::new(to_node).map_err(io)?,
            reader: LinkReader::new(from_node).map_err(io)?,
            stderr: LinkReader::new(from_stderr).map_err(io)?,
        };
        Ok((channel, pipes))
    }

    /// Waits until the command has ended.
    pub(super) async fn wait(self) -> CommandEnd {
        match self {
            Self::Native(child) => match child.wait().await {
                Ok(status) => status.code().map_or(CommandEnd::Unknown, |code| {
                    CommandEnd::Command(WorkerExit::Code(code as u8))
                }),
                // The crate maps exit status 127 to this error.
                Err(openssh::Error::Remote(_)) => CommandEnd::Command(WorkerExit::Code(127)),
                Err(_) => CommandEnd::Unknown,
            },
            Self::Process(client) => match client.wait().await {
                None | Some(SSH_FAILED) => CommandEnd::Unknown,
                Some(exit @ WorkerExit::Code(_)) => CommandEnd::Command(exit),
                Some(exit @ (WorkerExit::Signal { .. } | WorkerExit::Lost)) => {
                    CommandEnd::Client(exit)
                }
            },
        }
    }
}
