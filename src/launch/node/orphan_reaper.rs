//! Reaps the processes that lost local nodes left behind, without blocking.

use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::nodes::LocalAgents;
use crate::base::{JobId, clock, env_vars};
use crate::os::process::process_tree::{self, Reaper, Stat};

/// Time limit for killing what an agent that exited left behind.
const KILL_TIMEOUT: Duration = Duration::from_secs(2);

/// Ends what lost nodes left on this machine, and reaps processes that nothing else reaps.
pub(in crate::launch) struct OrphanReaper {
    /// Name of the job, by which its processes are found among those of a container.
    job: String,
    /// Children that the process had before remuda started, left by a program that called `exec`:
    /// they do not belong to the job.
    inherited: Vec<Pid>,
    /// Processes that are being ended, and when to check again; restarted with every node that is
    /// lost.
    open: Option<(Reaper, Instant)>,
}

impl OrphanReaper {
    /// Notes the children that this process has now.
    pub(in crate::launch) fn new(job: &JobId) -> Self {
        let inherited = process_tree::children_of(rustix::process::getpid());
        Self { job: job.to_string(), inherited, open: None }
    }

    /// Starts to end all descendants of this process but living agents and what they have started.
    /// The first check is due now.
    pub(in crate::launch) fn start(&mut self, agents: LocalAgents) {
        let reaper = Reaper::new(KILL_TIMEOUT, self.foreign_process_filter(agents));
        self.open = Some((reaper, clock::now()));
    }

    /// When to check again; `None` when nothing is left to do.
    pub(in crate::launch) fn next_check_at(&self) -> Option<Instant> {
        self.open.as_ref().map(|(_, at)| *at)
    }

    /// Checks once. Returns the processes that could not be ended in time, when all is done.
    pub(in crate::launch) fn check(&mut self) -> Option<Vec<Pid>> {
        let (reaper, check_at) = self.open.as_mut()?;
        let Some(left) = reaper.scan(|_, _| {}) else {
            *check_at = clock::now() + Reaper::PAUSE;
            return None;
        };
        self.open = None;
        Some(left)
    }

    /// Reaps exited children that no other part of the launcher reaps. The tasks that start ssh
    /// reap its processes, and the loop does not know their pids.
    pub(in crate::launch) fn reap_exited_children(&self, by_ssh: bool, agents: LocalAgents) {
        if by_ssh {
            return process_tree::reap_except(self.foreign_process_filter(agents), |_, _| {});
        }
        let LocalAgents { living, lost } = agents;
        let is_known =
            |pid| living.contains(&pid) || lost.contains(&pid) || self.inherited.contains(&pid);
        process_tree::reap_except(is_known, |_, _| {});
    }

    /// Returns a test for children that must not be ended as leftovers of lost nodes.
    fn foreign_process_filter(
        &self,
        LocalAgents { living, lost }: LocalAgents,
    ) -> impl Fn(Pid) -> bool + Send + 'static {
        let (inherited, job) = (self.inherited.clone(), self.job.clone());
        move |pid| {
            living.contains(&pid)
                || inherited.contains(&pid)
                || is_process_1() && !is_of_job(pid, &job, &lost)
        }
    }
}

/// Whether every orphan of this machine becomes a child of this process (process 1 of a container),
/// also those that have nothing to do with the job.
pub(in crate::launch) fn is_process_1() -> bool {
    rustix::process::getpid() == Pid::INIT
}

/// Whether a process was started by a job, as far as it is visible: by the variable that marks its
/// workers and what they start, or by the session of its agents.
fn is_of_job(pid: Pid, job: &str, agents: &[Pid]) -> bool {
    process_tree::env_var_of(pid, env_vars::REMUDA_JOB).is_some_and(|value| value == job)
        || Stat::of(pid)
            .is_some_and(|stat| agents.iter().any(|agent| stat.session == agent.as_raw_pid()))
}
