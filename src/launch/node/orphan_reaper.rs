//! Reaps the processes that lost local nodes left behind, without blocking.

use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::nodes::LocalAgents;
use crate::base::{JobId, clock, env_vars};
use crate::os::process::process_tree::{self, Reaper, Stat};
use crate::os::tasks::sleep_until;

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
    pub(in crate::launch) fn start(&mut self, agents: LocalAgents, now: Instant) {
        let exclusion = self.exclusion(agents);
        let reaper = Reaper::new(KILL_TIMEOUT, move |pid| exclusion.covers(pid));
        self.open = Some((reaper, now));
    }

    /// When to check again; `None` when nothing is left to do.
    pub(in crate::launch) fn next_check_at(&self) -> Option<Instant> {
        self.open.as_ref().map(|(_, at)| *at)
    }

    /// Checks once. Returns the processes that could not be ended in time, when all is done.
    pub(in crate::launch) fn check(&mut self, now: Instant) -> Option<Vec<Pid>> {
        let (reaper, _) = self.open.as_ref()?;
        let left = reaper.scan(|_, _| {});
        self.on_scanned(left, now)
    }

    /// Ends all descendants of this process and returns when none is left, or the time limit has passed.
    pub(in crate::launch) async fn end_descendants(&mut self) {
        self.start(LocalAgents::default(), clock::now());
        while let Some(at) = self.next_check_at() {
            sleep_until(Some(at)).await;
            self.check(clock::now());
        }
    }

    /// Handles the result of a scan: `None` if processes remain that may still end in time.
    fn on_scanned(&mut self, left: Option<Vec<Pid>>, now: Instant) -> Option<Vec<Pid>> {
        match &left {
            Some(_) => self.open = None,
            None => {
                if let Some((_, check_at)) = &mut self.open {
                    *check_at = now + Reaper::PAUSE;
                }
            }
        }
        left
    }

    /// Reaps exited children that no other part of the launcher reaps. The tasks that start ssh
    /// reap its processes, and the loop does not know their pids.
    pub(in crate::launch) fn reap_exited_children(&self, by_ssh: bool, agents: LocalAgents) {
        if by_ssh {
            let exclusion = self.exclusion(agents);
            return process_tree::reap_except(|pid| exclusion.covers(pid), |_, _| {});
        }
        process_tree::reap_except(|pid| self.is_known(pid, &agents), |_, _| {});
    }

    /// Whether another part of the launcher reaps a child, or it is no child of remuda's.
    fn is_known(&self, pid: Pid, LocalAgents { living, lost }: &LocalAgents) -> bool {
        living.contains(&pid) || lost.contains(&pid) || self.inherited.contains(&pid)
    }

    fn exclusion(&self, agents: LocalAgents) -> Exclusion {
        let (job, inherited) = (self.job.clone(), self.inherited.clone());
        Exclusion { job, inherited, agents, adopts_strangers: is_process_1() }
    }
}

/// Children that must not be ended as leftovers of lost nodes: living agents, what was there before,
/// and, where every orphan of the machine becomes a child, those that are not of the job.
struct Exclusion {
    job: String,
    inherited: Vec<Pid>,
    agents: LocalAgents,
    /// Whether orphans that have nothing to do with the job become children of this process.
    adopts_strangers: bool,
}

impl Exclusion {
    fn covers(&self, pid: Pid) -> bool {
        self.covers_unless(pid, || is_of_job(pid, &self.job, &self.agents.lost))
    }

    /// `is_of_job` tells whether a stranger is in fact a process of the job.
    fn covers_unless(&self, pid: Pid, is_of_job: impl FnOnce() -> bool) -> bool {
        self.agents.living.contains(&pid)
            || self.inherited.contains(&pid)
            || self.adopts_strangers && !is_of_job()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn pids(numbers: &[i32]) -> Vec<Pid> {
        numbers.iter().map(|number| Pid::from_raw(*number).expect("not 0")).collect()
    }

    fn agents(living: &[i32], lost: &[i32]) -> LocalAgents {
        LocalAgents { living: pids(living), lost: pids(lost) }
    }

    fn reaper(inherited: &[i32]) -> OrphanReaper {
        OrphanReaper { job: "job".to_owned(), inherited: pids(inherited), open: None }
    }

    #[test]
    fn living_agents_and_what_was_there_before_are_left_alone() {
        let exclusion = Exclusion {
            adopts_strangers: false,
            ..reaper(&[30]).exclusion(agents(&[10, 11], &[20]))
        };
        let check = |pid: i32, expect: bool| {
            assert_eq!(exclusion.covers_unless(pids(&[pid])[0], || true), expect, "pid {pid}");
        };
        check(10, true);
        check(11, true);
        check(30, true);
        // The agent of a lost node, and what such an agent has left.
        check(20, false);
        check(40, false);
    }

    #[test]
    fn process_1_ends_only_strangers_that_are_of_the_job() {
        let exclusion =
            Exclusion { adopts_strangers: true, ..reaper(&[30]).exclusion(agents(&[10], &[20])) };
        let stranger = pids(&[40])[0];
        assert!(exclusion.covers_unless(stranger, || false));
        assert!(!exclusion.covers_unless(stranger, || true));
        assert!(exclusion.covers_unless(pids(&[10])[0], || true), "a living agent is of the job");
    }

    #[test]
    fn process_is_of_the_job_by_the_session_of_its_agent() {
        let own = rustix::process::getpid();
        let session = Stat::of(own).expect("this process exists").session;
        assert!(!is_of_job(own, "another job", &[]));
        if let Some(leader) = Pid::from_raw(session) {
            assert!(is_of_job(own, "another job", &[leader]));
        }
    }

    #[test]
    fn lost_agents_are_reaped_by_the_task_that_serves_their_link() {
        let (reaper, agents) = (reaper(&[30]), agents(&[10], &[20]));
        for (pid, expect) in [(10, true), (20, true), (30, true), (40, false)] {
            assert_eq!(reaper.is_known(pids(&[pid])[0], &agents), expect, "pid {pid}");
        }
    }

    #[test]
    fn scans_repeat_until_nothing_is_left_and_again_after_a_loss() {
        let (mut reaper, now) = (reaper(&[]), clock::now());
        assert_eq!((reaper.next_check_at(), reaper.check(now)), (None, None), "no node was lost");
        reaper.start(agents(&[], &[20]), now);
        assert_eq!(reaper.next_check_at(), Some(now), "the first check is due");
        let mut at = now;
        for _ in 0..3 {
            assert_eq!(reaper.on_scanned(None, at), None);
            at = reaper.next_check_at().expect("processes remain");
            assert!(now < at);
        }
        // Another node is lost: what that one left is looked for at once.
        reaper.start(agents(&[], &[20, 21]), at);
        assert_eq!(reaper.next_check_at(), Some(at));
        assert_eq!(reaper.on_scanned(Some(pids(&[40])), at), Some(pids(&[40])));
        assert_eq!(reaper.next_check_at(), None);
    }
}
