//! Reaps the processes that lost local nodes left behind, without blocking.

use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::base::{clock, env_vars};
use crate::os::process::process_tree::{self, Reaper, Stat};

/// Time limit for killing what an agent that exited left behind.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// Processes that are being ended; restarted with every node that is lost.
#[derive(Default)]
pub(in crate::launch) struct OrphanReaper {
    open: Option<(Reaper, Instant)>,
}

impl OrphanReaper {
    /// Starts to end all descendants of this process that are not spared. The first check is due
    /// now.
    pub(in crate::launch) fn start(&mut self, spared: impl Fn(Pid) -> bool + Send + 'static) {
        self.open = Some((Reaper::new(KILL_TIMEOUT, spared), clock::now()));
    }

    /// When to check again; `None` when nothing is left to do.
    pub(in crate::launch) fn next_check_at(&self) -> Option<Instant> {
        self.open.as_ref().map(|(_, at)| *at)
    }

    /// Checks once; returns the processes that could not be ended in time.
    pub(in crate::launch) fn check(&mut self) -> Vec<Pid> {
        let Some((burial, look_at)) = &mut self.open else {
            return Vec::new();
        };
        let Some(left) = burial.scan(|_, _| {}) else {
            *look_at = clock::now() + Reaper::PAUSE;
            return Vec::new();
        };
        self.open = None;
        left
    }
}

/// Whether every orphan of this machine becomes a child of this process (process 1 of a container),
/// also those that have nothing to do with the job.
pub(in crate::launch) fn is_process_1() -> bool {
    rustix::process::getpid() == Pid::INIT
}

/// Whether a process was started by a job, as far as it is visible: by the variable that marks its
/// workers and what they start, or by the session of its agents.
pub(in crate::launch) fn is_of_job(pid: Pid, job: &str, agents: &[Pid]) -> bool {
    process_tree::env_var_of(pid, env_vars::REMUDA_JOB).is_some_and(|value| value == job)
        || Stat::of(pid)
            .is_some_and(|stat| agents.iter().any(|agent| stat.session == agent.as_raw_pid()))
}
