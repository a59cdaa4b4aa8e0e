//! What lost nodes left on this machine: it has become ours to end, and nobody waits for it.

use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::base::{clock, env_vars};
use crate::os::family::{self, Reaper, Stat};

/// What an agent that died left to us is killed within this time, or given up.
const LIMIT: Duration = Duration::from_secs(2);

/// Everything that is being ended; opened once more with every node that is lost.
#[derive(Default)]
pub(super) struct OrphanReaper {
    open: Option<(Reaper, Instant)>,
}

impl OrphanReaper {
    /// Ends whatever is below us and not spared. The first look is now.
    pub(super) fn open(&mut self, spared: impl Fn(Pid) -> bool + Send + 'static) {
        self.open = Some((Reaper::new(LIMIT, spared), clock::now()));
    }

    /// When to look again; `None` when there is nothing to look at.
    pub(super) fn look_at(&self) -> Option<Instant> {
        self.open.as_ref().map(|(_, at)| *at)
    }

    /// Looks once; returns what could not be ended in time.
    pub(super) fn look(&mut self) -> Vec<Pid> {
        let Some((burial, look_at)) = &mut self.open else {
            return Vec::new();
        };
        let Some(left) = burial.look(|_, _| {}) else {
            *look_at = clock::now() + Reaper::PAUSE;
            return Vec::new();
        };
        self.open = None;
        left
    }
}

/// Whether every orphan of this machine becomes our child (process 1 of a container), also those
/// that have nothing to do with us.
pub(super) fn is_everybodys_parent() -> bool {
    rustix::process::getpid() == Pid::INIT
}

/// Whether a process was started by a job, as far as it can be seen: by the variable that marks its
/// workers and what they start, or by the session of its agents.
pub(super) fn is_of_job(pid: Pid, job: &str, agents: &[Pid]) -> bool {
    family::variable_of(pid, env_vars::REMUDA_JOB).is_some_and(|value| value == job)
        || Stat::of(pid)
            .is_some_and(|stat| agents.iter().any(|agent| stat.session == agent.as_raw_pid()))
}
