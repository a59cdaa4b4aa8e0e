//! Start of the workers: what each of them executes, and the request to the shim.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use super::error_files::ErrorFiles;
use super::ports::Listening;
use super::preflight::{OWN_EXECUTABLE, OWN_NAME, Prepared};
use super::rank_link::Welcomes;
use super::shim::{ShimProcess, ShimWorker};
use super::state::StartRequest;
use super::virtual_env;
use crate::base::env_vars;
use crate::inventory;
use crate::runtime::contract;
use crate::wire::{WorkerStart, WorkerStartStep};

/// What stays open from the start of the workers until the next epoch.
pub(super) struct StartedWorkers {
    /// First messages for the workers.
    pub(super) welcomes: Welcomes,
    /// The listeners of node 0, which stay open as long as a worker may run.
    _listening: Option<Listening>,
}

impl StartedWorkers {
    /// Releases the port of rank 0, because rank 0 is about to be started.
    pub(super) fn new(request: &StartRequest, prepared: Prepared) -> Self {
        let mut listening = prepared.listening;
        if let Some(listening) = &mut listening {
            listening.release_port();
        }
        Self { welcomes: Welcomes::new(request), _listening: listening }
    }
}

/// Resolves all workers for the shim.
pub(super) fn resolve_workers(
    request: &StartRequest,
    prepared: &Prepared,
    error_files: Option<&ErrorFiles>,
) -> Vec<ShimWorker> {
    let cwd = &request.prepare.cwd;
    let workers = request.start.workers.iter();
    workers.map(|worker| resolve_worker(worker, cwd, prepared, error_files)).collect()
}

/// Resolves a worker for the shim: the agent's environment, required variables, and defaults.
fn resolve_worker(
    worker: &WorkerStart,
    cwd: &[u8],
    prepared: &Prepared,
    error_files: Option<&ErrorFiles>,
) -> ShimWorker {
    let mut env = prepared.env.clone();
    // An error file in the agent's environment belongs to another job.
    env.remove(env_vars::TORCHELASTIC_ERROR_FILE.as_bytes());
    if let Some(files) = error_files {
        let path = files.path(worker.rank).into_os_string().into_vec();
        env.insert(env_vars::TORCHELASTIC_ERROR_FILE.into(), path);
    }
    let bound = prepared.shares.get(worker.local_rank.index());
    if let Some(share) = bound.filter(|_| prepared.sets_threads) {
        // Variables that the user set are added later and replace this one.
        let threads = share.cpus.len().to_string();
        env.insert(env_vars::OMP_NUM_THREADS.into(), threads.into());
    }
    let without_gpu =
        worker.env_without_gpu.iter().filter(|_| !inventory::has_gpu(Path::new("/dev")));
    for (name, value) in worker.env_default.iter().chain(without_gpu) {
        env.entry(name.clone()).or_insert_with(|| value.clone());
    }
    env.extend(worker.env.iter().cloned());
    if let Some(root) = &prepared.virtual_env {
        virtual_env::activate(root, &mut env);
    }
    let mut argv = worker.argv.clone();
    // The link only locates the agent's executable on a node; process listings should not show it.
    if let Some(own) = argv.first_mut().filter(|own| **own == OWN_EXECUTABLE.as_bytes()) {
        *own = OWN_NAME.to_vec();
    }
    ShimWorker {
        path: prepared.path.as_bytes().to_vec(),
        argv,
        env: env.into_iter().collect(),
        cwd: cwd.to_vec(),
        rank: worker.rank.to_string(),
        stdin: worker.stdin,
        bound: bound.cloned(),
    }
}

/// Why the workers could not be started.
pub(super) struct SpawnError {
    /// The step that failed.
    pub(super) step: WorkerStartStep,
    /// Error of the kernel.
    pub(super) errno: i32,
}

/// Makes the shim start the workers. The shared memory belongs to the workers alone: the agent's own
/// copy of the descriptor is closed as soon as they have it. The exit of a shim is no error here: the
/// reader of its socket detects it.
pub(super) fn spawn(shim: &ShimProcess, workers: &[ShimWorker]) -> Result<(), SpawnError> {
    if shim.pid().is_none() {
        return Ok(());
    }
    let failed = |step| {
        move |error: io::Error| SpawnError { step, errno: error.raw_os_error().unwrap_or(0) }
    };
    let segment = contract::create_segment(workers.len())
        .map_err(|error| failed(WorkerStartStep::SharedMemory)(error.into()))?;
    match shim.spawn(workers, segment.as_fd()) {
        Err(error) if is_disconnected(&error) => Ok(()),
        result => result.map_err(failed(WorkerStartStep::Fork)),
    }
}

/// Whether the error means that the other end of a socket was closed; `ConnectionReset` is returned
/// if that end left packets unread.
fn is_disconnected(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::files::fds;

    #[test]
    fn shim_exit_with_unread_packets_is_a_disconnect() {
        let (agent_end, shim_end) = fds::packet_pair().expect("a pair");
        fds::send_packet(&agent_end, b"unread", &[]).expect("it has room");
        drop(shim_end);
        for _ in 0..2 {
            let error =
                fds::send_packet(&agent_end, b"workers", &[]).expect_err("the other end is closed");
            assert!(is_disconnected(&error), "{error:?}");
        }
    }
}
