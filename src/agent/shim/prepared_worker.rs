//! A worker that is ready to be forked.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::process::Pid;

use super::message::ShimWorker;
use crate::agent::affinity::memory_policy;
use crate::base::env_vars;
use crate::os::cpu::affinity::Binding;
use crate::os::files::fds;
use crate::os::process::fork::{CStrings, ChildFds, Exec};

/// Variables that name descriptors: the rank socket and the shared memory.
const DESCRIPTOR_VARIABLES: usize = 2;

/// A worker with all strings that its exec needs, but for the numbers of descriptors.
pub(super) struct PreparedWorker {
    /// Its rank as text.
    pub(super) rank: String,
    /// Whether it gets a pipe as standard input.
    stdin: bool,
    exec: io::Result<Exec>,
}

impl PreparedWorker {
    pub(super) fn new(worker: ShimWorker) -> Self {
        Self { rank: worker.rank.clone(), stdin: worker.stdin, exec: exec_of(worker) }
    }

    /// Creates the pipes of the worker and forks it. Returns the agent's ends of the pipes and
    /// sockets.
    pub(super) fn fork(
        &mut self,
        shared: Option<&OwnedFd>,
        report: &OwnedFd,
        tag: u32,
    ) -> io::Result<(Pid, Vec<OwnedFd>)> {
        let exec =
            self.exec.as_mut().map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
        let (out_read, out_write) = fds::output_pipe()?;
        let (err_read, err_write) = fds::output_pipe()?;
        let (rank_socket, worker_rank_socket) = fds::stream_pair()?;
        let mut agent_ends = vec![out_read, err_read, rank_socket];
        let input = if self.stdin {
            let (read, write) = fds::pipe()?;
            agent_ends.push(write);
            read
        } else {
            fds::null()?
        };
        exec.envp.push(descriptor_variable(env_vars::REMUDA_RANK_FD, &worker_rank_socket))?;
        let mut inherited = vec![worker_rank_socket];
        if let Some(shared) = shared {
            let copy = shared.try_clone()?;
            exec.envp.push(descriptor_variable(env_vars::REMUDA_SHM_FD, &copy))?;
            inherited.push(copy);
        }
        let child = ChildFds { stdio: [input, out_write, err_write], inherited };
        let pid = exec.spawn(&child, report.as_fd(), tag, rustix::process::getpid())?;
        Ok((pid, agent_ends))
    }
}

fn exec_of(worker: ShimWorker) -> io::Result<Exec> {
    let variables = worker.env.into_iter().map(|(name, value)| [name, value].join(&b'='));
    Ok(Exec {
        path: CString::new(worker.path)?,
        argv: CStrings::new(worker.argv, 0)?,
        envp: CStrings::new(variables, DESCRIPTOR_VARIABLES)?,
        cwd: CString::new(worker.cwd)?,
        binding: worker
            .bound
            .map(|share| Binding::new(&share.cpus, share.memory.as_ref().map(memory_policy))),
    })
}

fn descriptor_variable(name: &str, fd: &OwnedFd) -> Vec<u8> {
    format!("{name}={}", fd.as_raw_fd()).into_bytes()
}
