//! The start of one worker: its pipes, its environment, its process.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::process::Pid;

use super::message::ShimWorker;
use crate::agent::affinity::memory_policy;
use crate::base::env_vars;
use crate::os::cpu::affinity::Binding;
use crate::os::files::fds;
use crate::os::process::start_programs::{CStrings, ChildFds, Exec, StartingChildren};

/// Creates the pipes and the environment of a worker and starts it. Returns the agent's ends of the pipes and
/// sockets.
pub(super) fn start_worker(
    worker: ShimWorker,
    shared: Option<&OwnedFd>,
    children: &mut StartingChildren,
    index: u32,
) -> io::Result<(Pid, Vec<OwnedFd>)> {
    let (out_read, out_write) = fds::output_pipe()?;
    let (err_read, err_write) = fds::output_pipe()?;
    let (rank_socket, worker_rank_socket) = fds::stream_pair()?;
    let mut agent_ends = vec![out_read, err_read, rank_socket];
    let input = if worker.stdin {
        let (read, write) = fds::pipe()?;
        agent_ends.push(write);
        read
    } else {
        fds::null()?
    };
    // The worker of an outer job that starts this one has descriptors of its own.
    let is_of_outer_job = |name: &[u8]| {
        [env_vars::REMUDA_RANK_FD, env_vars::REMUDA_SHM_FD].iter().any(|own| own.as_bytes() == name)
    };
    let mut env = worker.env;
    env.retain(|(name, _)| !is_of_outer_job(name));
    env.push(descriptor_variable(env_vars::REMUDA_RANK_FD, &worker_rank_socket));
    let mut inherited = vec![worker_rank_socket];
    if let Some(shared) = shared {
        let copy = shared.try_clone()?;
        env.push(descriptor_variable(env_vars::REMUDA_SHM_FD, &copy));
        inherited.push(copy);
    }
    let exec = Exec {
        path: CString::new(worker.path)?,
        argv: CStrings::new(worker.argv)?,
        envp: CStrings::new(env.into_iter().map(|(name, value)| [name, value].join(&b'=')))?,
        cwd: CString::new(worker.cwd)?,
        binding: worker
            .bound
            .map(|share| Binding::new(&share.cpus, share.memory.as_ref().map(memory_policy))),
    };
    let fds = ChildFds { stdio: [input, out_write, err_write], inherited };
    Ok((children.spawn(exec, &fds, index)?, agent_ends))
}

fn descriptor_variable(name: &str, fd: &OwnedFd) -> (Vec<u8>, Vec<u8>) {
    (name.as_bytes().to_vec(), fd.as_raw_fd().to_string().into_bytes())
}
