//! The one command of a host, over the connection that its master holds.
//!
//! Two ways to ask a master for it. We speak its multiplexing protocol ourselves (the crate
//! `openssh`), which costs no process and hands our pipes over its socket; or OpenSSH speaks it, in a
//! process of its own.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use openssh::{Child, Session};

use super::bootstrap;
use super::fault::{Fault, FaultKind};
use super::master::SshMaster;
use super::options::Mux;
use super::process::SshProcess;
use crate::base::WorkerExit;
use crate::os::fds;
use crate::transport::{LinkReader, LinkWriter};

/// What OpenSSH returns when the connection or a signal ended the command. No agent of ours does.
const LOST: WorkerExit = WorkerExit::Code(255);

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommandEnd {
    /// So.
    Command(WorkerExit),
    /// Its own end was not seen: this is that of the process that was to tell us.
    Client(WorkerExit),
    /// Nobody can know.
    Unknown,
}

/// See the module. Dropping it does not end the command; the end of its input does.
pub(super) enum CommandChannel {
    Native(Child<Arc<Session>>),
    Process(SshProcess),
}

/// Our ends of a command's pipes.
pub(super) struct Pipes {
    pub(super) writer: LinkWriter,
    pub(super) reader: LinkReader,
    /// Its standard error.
    pub(super) beside: LinkReader,
}

impl CommandChannel {
    /// Runs the constant command.
    pub(super) async fn open(
        mux: Mux,
        config: &Path,
        master: &SshMaster,
    ) -> Result<(Self, Pipes), Fault> {
        let other = |words: String| Fault::new(FaultKind::Ssh, words);
        let io = |error: std::io::Error| other(format!("cannot make pipes: {error}"));
        let (stdin, to_node) = fds::pipe().map_err(io)?;
        let (from_node, stdout) = fds::pipe().map_err(io)?;
        let (beside, stderr) = fds::pipe().map_err(io)?;
        let channel = match mux {
            Mux::Native => {
                let session = Arc::new(Session::resume_mux(master.socket().into(), None));
                let mut command = session.arc_raw_command(bootstrap::COMMAND);
                command.stdin(stdin).stdout(stdout).stderr(stderr);
                let child = command.spawn().await;
                // Our copies of the node's ends.
                drop(command);
                Self::Native(child.map_err(|error| other(error.to_string()))?)
            }
            Mux::Process => {
                let mut command = client(config, master);
                command.stdin(stdin).stdout(stdout).stderr(stderr);
                Self::Process(SshProcess::start(&mut command)?)
            }
        };
        let pipes = Pipes {
            writer: LinkWriter::new(to_node).map_err(io)?,
            reader: LinkReader::new(from_node).map_err(io)?,
            beside: LinkReader::new(beside).map_err(io)?,
        };
        Ok((channel, pipes))
    }

    /// Waits for its end.
    pub(super) async fn wait(self) -> CommandEnd {
        match self {
            Self::Native(child) => match child.wait().await {
                Ok(status) => status.code().map_or(CommandEnd::Unknown, |code| {
                    CommandEnd::Command(WorkerExit::Code(code as u8))
                }),
                // The crate's word for 127.
                Err(openssh::Error::Remote(_)) => CommandEnd::Command(WorkerExit::Code(127)),
                Err(_) => CommandEnd::Unknown,
            },
            Self::Process(client) => match client.wait().await {
                None | Some(LOST) => CommandEnd::Unknown,
                Some(exit @ WorkerExit::Code(_)) => CommandEnd::Command(exit),
                Some(exit @ (WorkerExit::Signal { .. } | WorkerExit::Lost)) => {
                    CommandEnd::Client(exit)
                }
            },
        }
    }
}

/// Where its master has gone, ssh would connect on its own: the proxy that always fails keeps it
/// from that. The destination only has to be a word; the socket says where to.
#[expect(clippy::disallowed_methods, reason = "a transport is what starts ssh")]
fn client(config: &Path, master: &SshMaster) -> Command {
    let mut command = Command::new("ssh");
    command.arg("-F").arg(config).arg("-S").arg(master.socket());
    command.args(["-T", "-o", "ControlMaster=no", "-o", "ProxyCommand=false"]);
    command.arg("--").arg(master.host()).arg(bootstrap::COMMAND);
    command
}
