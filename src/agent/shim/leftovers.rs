//! What workers leave behind: processes that go on after the exit of the worker that started them. The shim
//! finds their worker, reports them, and ends them.

use std::time::Duration;

use rustix::process::Pid;

use super::message::{FromShim, LEFTOVERS_MAX, describe};
use super::run::{AgentGone, ShimLoop, State, Worker};
use crate::base::{clock, env_vars};
use crate::os::process::process_tree::{self, ProcessRef, Stat};

/// Number of scans without a result after which a sweep beside running workers ends.
const EMPTY_SCANS_MAX: u32 = 20;
/// Time limit of one sweep of everything, during which other requests wait.
const SWEEP_LIMIT: Duration = Duration::from_millis(100);
/// Maximum number of scans in a row, for processes that keep forking.
const SCANS_MAX: usize = 16;

impl ShimLoop {
    /// Reports each worker that has left processes behind, once they are found. A scan may miss
    /// processes that fork and exit fast, but each of their exits causes another scan.
    pub(super) fn report_leftovers(&mut self) -> Result<(), AgentGone> {
        if self.unreported.is_empty() {
            return Ok(());
        }
        for pid in process_tree::children_of(rustix::process::getpid()) {
            let Some(owner) = self.owner_of(pid) else {
                continue;
            };
            if self.unreported.remove(&owner) {
                self.reported.insert(owner);
                self.send(&FromShim::Leftovers { worker: owner as u32 }, &[])?;
            }
        }
        Ok(())
    }

    /// Sends SIGTERM to the processes that a worker left behind, and reports them to the agent. A
    /// scan may miss processes that fork and exit fast, so there are several; if none finds a
    /// process, the next exit of a child causes another.
    pub(super) fn terminate_leftovers(
        &mut self,
        worker: usize,
        unless_busy: bool,
    ) -> Result<(), AgentGone> {
        let mut scans = (0..SCANS_MAX).map(|_| self.leftovers_of(worker));
        let leftovers = scans.find(|found| !found.is_empty()).unwrap_or_default();
        let is_busy =
            |process: &ProcessRef| Stat::of(process.pid()).is_none_or(|stat| !stat.is_waiting());
        if unless_busy && leftovers.iter().any(is_busy) {
            return self.send(&FromShim::Leftovers { worker: worker as u32 }, &[]);
        }
        let pids = leftovers.iter().take(LEFTOVERS_MAX).map(ProcessRef::pid);
        let processes: Vec<_> = pids.filter_map(describe).collect();
        for process in &leftovers {
            process.signal(libc::SIGTERM);
        }
        self.send(&FromShim::LeftoversSignalled { worker: worker as u32, processes }, &[])?;
        if !leftovers.is_empty() {
            return Ok(());
        }
        self.reported.remove(&worker);
        self.unreported.insert(worker);
        self.report_leftovers()
    }

    /// Returns the exited worker that left an orphan behind: the one with its rank or its session.
    /// When no worker runs, the orphans of unknown origin belong to one of the reported workers, or
    /// else to the one that exited last.
    fn owner_of(&self, orphan: Pid) -> Option<usize> {
        let living = self.live_pids();
        let stat = Stat::of(orphan).filter(|stat| !stat.has_exited())?;
        if living.contains(&orphan) {
            return None;
        }
        let rank = process_tree::env_var_of(orphan, env_vars::RANK);
        let is_of = |worker: &Worker| match (&rank, &worker.state) {
            (Some(rank), _) => *rank == worker.rank,
            (None, State::Alive(leader) | State::Exited(leader)) => {
                stat.session == leader.as_raw_pid()
            }
            (None, State::Failed) => false,
        };
        let known = self.workers.iter().position(is_of);
        let is_counted =
            |index: &usize| self.unreported.contains(index) || self.reported.contains(index);
        known.filter(is_counted).or_else(|| {
            let last = self.reported.last().copied().or(self.last_exit);
            last.filter(|_| living.is_empty())
        })
    }

    /// Returns the processes that a worker left behind when it exited: its orphans and all their
    /// descendants.
    fn leftovers_of(&self, index: usize) -> Vec<ProcessRef> {
        let mut found = process_tree::hold_children(rustix::process::getpid());
        found.retain(|orphan| self.owner_of(orphan.pid()) == Some(index));
        process_tree::hold_descendants(&mut found);
        found
    }

    /// Scans again for the leftovers that are being killed.
    pub(super) fn continue_sweeps(&mut self) -> Result<(), AgentGone> {
        // The leftovers of other workers may still have time to exit by themselves.
        let is_last = self.reported.iter().all(|worker| self.sweeping.contains_key(worker));
        if !self.sweeping.is_empty() && is_last && self.live_pids().is_empty() {
            return self.sweep_all();
        }
        for (worker, mut sweep) in std::mem::take(&mut self.sweeping) {
            let left = self.kill_leftovers_of(worker);
            sweep.empty_scans = if left.is_empty() { sweep.empty_scans + 1 } else { 0 };
            if sweep.empty_scans < EMPTY_SCANS_MAX && clock::now() < sweep.deadline {
                self.sweeping.insert(worker, sweep);
            } else {
                self.reported.remove(&worker);
            }
        }
        Ok(())
    }

    /// Sweeps when no worker runs: every descendant is a leftover, and the kernel reports when
    /// none is left.
    fn sweep_all(&mut self) -> Result<(), AgentGone> {
        let left = process_tree::kill_descendants(SWEEP_LIMIT, |_, _| {});
        self.reap()?;
        if !self.is_empty_reported
            && self.sweeping.values().all(|sweep| sweep.deadline <= clock::now())
        {
            self.report_empty(left.into_iter().take(LEFTOVERS_MAX).filter_map(describe).collect())?;
        }
        if self.is_empty_reported {
            self.sweeping.clear();
        }
        Ok(())
    }

    /// Kills the processes that a worker left behind, until a scan finds none or the maximum of
    /// scans is reached; returns the result of the last scan.
    fn kill_leftovers_of(&self, worker: usize) -> Vec<ProcessRef> {
        let mut leftovers = Vec::new();
        for _ in 0..SCANS_MAX {
            leftovers = self.leftovers_of(worker);
            if leftovers.is_empty() {
                break;
            }
            for process in &leftovers {
                process.signal(libc::SIGKILL);
            }
        }
        leftovers
    }
}
