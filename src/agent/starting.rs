//! Start of the workers: preflight checks, epochs, and the requests to the shim.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use std::time::Duration;

use super::alarms::Timer;
use super::error_files::ErrorFiles;
use super::launcher::Terms;
use super::listen::Listening;
use super::place::{self, InstanceLock};
use super::prepare::{self, OWN_EXECUTABLE, OWN_NAME, Prepared};
use super::rank_link::Welcomes;
use super::serve::{Agent, InternalEvent, PreflightDone};
use super::shim::ShimWorker;
use super::shim_lost::ShimState;
use crate::base::{Epoch, clock, env_vars};
use crate::inventory;
use crate::os::code;
use crate::runtime::contract;
use crate::wire::{self, AgentHello, FromAgent, Prepare, PreparedNode, Start, WorkerStart};

/// Progress of the job on this node.
pub(super) enum AgentPhase {
    /// No check was requested in this epoch, or the checks failed.
    Waiting,
    /// The preflight checks are running.
    Preflight,
    /// The preflight checks have passed.
    Ready(Box<(Prepare, Prepared)>),
    /// The workers were started. The listeners of node 0 stay open as long as a worker may run.
    Started { welcomes: Box<Welcomes>, _listening: Option<Listening> },
}

impl Agent {
    /// Begins the next epoch. It is a protocol error if workers of the current epoch are still
    /// running.
    pub(super) fn begin_next_epoch(&mut self) {
        if self.unkillable.take().is_none() {
            self.on_protocol_error("new epoch while workers of the previous one are running");
            return;
        }
        self.begin_epoch(self.outbox.epoch().next());
    }

    /// Skips to a later epoch. It is a protocol error if workers of the current epoch were started.
    pub(super) fn skip_to_epoch(&mut self, epoch: Epoch) {
        if !self.workers.is_empty() || epoch <= self.outbox.epoch() {
            self.on_protocol_error("skipped an epoch that has begun");
            return;
        }
        self.begin_epoch(epoch);
    }

    fn begin_epoch(&mut self, epoch: Epoch) {
        let Some(launcher) = &mut self.launcher else {
            return;
        };
        launcher.decoder.begin_epoch(epoch);
        self.outbox = Arc::new(self.outbox.for_epoch(epoch));
        self.workers.reset(Arc::clone(&self.outbox));
        self.timers.forget_workers();
        self.phase = AgentPhase::Waiting;
    }

    /// Runs the preflight checks on their own thread, so that heartbeats continue: file systems and
    /// resolvers may be slow.
    pub(super) fn start_preflight(&mut self, prepare: Prepare) {
        self.phase = AgentPhase::Preflight;
        let lease = millis(prepare.lease_ms);
        let (beat, grace) = (millis(prepare.heartbeat_ms), millis(prepare.grace_ms));
        self.terms = Terms { lease: Some(lease), heartbeat: beat, grace };
        self.timers.set(clock::now() + beat, Timer::Heartbeat);
        let (job, node, epoch) = (self.job.clone(), self.node, self.outbox.epoch());
        let (events, lock) = (self.event_sender.clone(), self.instance_lock.take());
        self.tasks.spawn_blocking(move || {
            let lock = lock.map_or_else(|| place::acquire(&job, node, &prepare), Ok);
            let (lock, result) = match lock {
                Ok(lock) => (Some(lock), prepare::run_preflight(&job, epoch, &prepare)),
                Err(problem) => (None, Err(vec![problem])),
            };
            let done = PreflightDone { prepare, instance_lock: lock, result };
            let _ = events.send(InternalEvent::PreflightDone(Box::new(done)));
        });
    }

    /// Handles the result of the preflight checks.
    pub(super) fn on_preflight_done(&mut self, done: PreflightDone) {
        let PreflightDone { prepare, instance_lock: lock, result } = done;
        self.keep_instance_lock(lock);
        let answer = match result {
            Ok(mut prepared) => {
                self.hold_gpu_locks(std::mem::take(&mut prepared.gpu_locks));
                let listening = prepared.listening.as_ref();
                let found = PreparedNode {
                    master: listening.map(Listening::master),
                    store: listening.and_then(Listening::store),
                    cpus: inventory::usable_cpus() as u32,
                    notes: prepared.notes.clone(),
                };
                self.phase = AgentPhase::Ready(Box::new((prepare, prepared)));
                FromAgent::Ready(found)
            }
            Err(problems) => {
                self.phase = AgentPhase::Waiting;
                FromAgent::Refused(problems)
            }
        };
        self.outbox.send(&answer);
    }

    /// Holds the lock of this node, and makes the shim hold it too: a replacement agent then waits
    /// until the workers have exited, even if this agent was killed.
    fn keep_instance_lock(&mut self, lock: Option<InstanceLock>) {
        self.instance_lock = lock;
        let (Some(lock), false) = (&self.instance_lock, self.shim_has_lock) else {
            return;
        };
        if let ShimState::Alive(shim) = &self.shim {
            shim.hold(std::slice::from_ref(lock));
            self.shim_has_lock = true;
        }
    }

    /// Holds GPU locks until both the agent and the shim have exited.
    fn hold_gpu_locks(&mut self, locks: Vec<OwnedFd>) {
        if let ShimState::Alive(shim) = &self.shim {
            shim.hold(&locks);
        }
        self.gpu_locks.extend(locks);
    }

    /// Starts the workers; does nothing unless the preflight checks have passed.
    pub(super) fn start_workers(&mut self, start: &Start) {
        let phase = std::mem::replace(&mut self.phase, AgentPhase::Waiting);
        let AgentPhase::Ready(ready) = phase else {
            self.phase = phase;
            return;
        };
        let Some(roster) = self.roster.take() else {
            self.on_protocol_error("start request without a list of nodes");
            return;
        };
        let (prepare, mut prepared) = *ready;
        if let Some(listening) = &mut prepared.listening {
            listening.release_port();
        }
        self.workers.open_window(start.window_bytes);
        self.workers.add_workers(&start.workers);
        self.start_group_watch(start);
        self.error_files = self.error_files.take().or_else(ErrorFiles::create);
        let files = self.error_files.as_ref();
        let workers = start.workers.iter();
        let workers: Vec<_> =
            workers.map(|worker| resolve_worker(worker, &prepare, &prepared, files)).collect();
        let (job, epoch) = (self.job.clone(), self.outbox.epoch());
        let welcomes = Welcomes::new(job, epoch, &prepare, start.store, roster);
        let welcomes = Box::new(welcomes);
        self.phase = AgentPhase::Started { welcomes, _listening: prepared.listening };
        match self.spawn_workers(&workers) {
            // The end of a shim that has just exited is detected by the reader of its socket.
            Err(error) if is_disconnected(&error) => {}
            Err(error) => self.report_all_failed(&error),
            Ok(()) => {}
        }
    }

    /// Starts the workers. The shared memory belongs to the workers alone: the agent's own copy of
    /// the descriptor is closed as soon as they have it.
    fn spawn_workers(&self, workers: &[ShimWorker]) -> io::Result<()> {
        let ShimState::Alive(shim) = &self.shim else {
            return Ok(()); // The exit of the shim was already reported.
        };
        let segment = contract::create_segment(workers.len()).map_err(io::Error::other)?;
        shim.spawn(workers, Some(segment.as_fd()))?;
        code::unmap_text_pages();
        Ok(())
    }

    /// Reports that no worker could be started.
    fn report_all_failed(&mut self, error: &io::Error) {
        let errno = error.raw_os_error().unwrap_or(0);
        for index in self.workers.indices() {
            self.workers.record_start_failure(index, wire::WorkerStartStep::Fork, errno);
        }
        self.unkillable = Some(Vec::new());
        self.report_if_idle();
    }
}

/// Whether the error means that the other end of a socket was closed; `ConnectionReset` is returned
/// if that end left packets unread.
fn is_disconnected(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// Returns the first message to the launcher.
pub(super) fn agent_hello() -> AgentHello {
    AgentHello {
        version: wire::VERSION,
        build: env!("CARGO_PKG_VERSION").to_owned(),
        pid: rustix::process::getpid().as_raw_pid() as u32,
        clock_us: clock::machine_us(),
    }
}

/// Resolves a worker for the shim: the agent's environment, required variables, and defaults.
fn resolve_worker(
    worker: &WorkerStart,
    prepare: &Prepare,
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
    if let Some(share) = bound {
        // Variables that the user set are added later and replace this one.
        let threads = share.cpus.len().to_string();
        env.insert(env_vars::OMP_NUM_THREADS.into(), threads.into());
    }
    for (name, value) in &worker.env_default {
        env.entry(name.clone()).or_insert_with(|| value.clone());
    }
    env.extend(worker.env.iter().cloned());
    let mut argv = worker.argv.clone();
    // The link only locates the agent's executable on a node; process listings should not show it.
    if let Some(own) = argv.first_mut().filter(|own| **own == OWN_EXECUTABLE.as_bytes()) {
        *own = OWN_NAME.to_vec();
    }
    ShimWorker {
        path: prepared.path.as_bytes().to_vec(),
        argv,
        env: env.into_iter().collect(),
        cwd: prepare.cwd.clone(),
        rank: worker.rank.to_string(),
        stdin: worker.stdin,
        bound: bound.cloned(),
    }
}

fn millis(ms: u32) -> Duration {
    Duration::from_millis(u64::from(ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::fds;

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
