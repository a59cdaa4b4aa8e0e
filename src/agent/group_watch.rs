//! Checks, at a slow pace, whether workers that import torch connect to `MASTER_ADDR:MASTER_PORT`.
//! Workers that never connect may each train a model of their own and exit with 0.

use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::alarms::Timer;
use super::serve::{Agent, InternalEvent};
use crate::base::{Epoch, clock, env_vars};
use crate::os::procfs;
use crate::wire::{FromAgent, Start, WorkerStart};

/// Prefix of the file names of torch's own libraries.
const TORCH: &str = "libtorch";
/// Maximum number of checks while some worker has not imported torch.
const CHECKS_MAX: u32 = 180;
/// Number of checks within the limit.
const CHECKS_PER_LIMIT: u32 = 3;
/// Maximum number of workers checked on a node.
const WORKERS_MAX: usize = 16;

/// State of the check on the node of rank 0, until it is decided.
#[derive(Debug)]
pub(super) struct GroupWatch {
    /// `MASTER_ADDR:MASTER_PORT`.
    master: String,
    port: u16,
    /// Time limit for the first connection after all workers have imported torch.
    limit: Duration,
    torch_since: Option<Instant>,
    checks_left: u32,
}

/// Result of one check of the workers.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupCheck {
    /// Number of running workers that were checked.
    workers: usize,
    /// Number of those that have mapped torch.
    with_torch: usize,
    /// Whether a socket has the port of rank 0; also true if that cannot be read.
    has_socket: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupDecision {
    CheckAgain,
    /// The workers have connected, or the job does not use torch.
    Fine,
    /// All workers import torch, and none of them has a connection.
    Ungrouped,
}

impl GroupWatch {
    /// Creates the check for a start: on the node of rank 0, if the job has several workers.
    pub(super) fn for_start(start: &Start) -> Option<Self> {
        let has_rank0 = |worker: &&WorkerStart| variable(worker, env_vars::RANK) == Some("0");
        let rank0 = start.workers.iter().find(has_rank0)?;
        let several = variable(rank0, env_vars::WORLD_SIZE)?.parse::<u32>().ok()? > 1;
        let address = variable(rank0, env_vars::MASTER_ADDR)?;
        let port = variable(rank0, env_vars::MASTER_PORT)?.parse().ok()?;
        let limit = Duration::from_millis(u64::from(start.group_limit_ms));
        (several && !limit.is_zero()).then(|| Self {
            master: format!("{address}:{port}"),
            port,
            limit,
            torch_since: None,
            checks_left: CHECKS_MAX,
        })
    }

    fn interval(&self) -> Duration {
        self.limit / CHECKS_PER_LIMIT
    }

    fn decide(&mut self, now: Instant, check: GroupCheck) -> GroupDecision {
        if check.has_socket {
            return GroupDecision::Fine;
        }
        // Before the workers are forked, their number is 0.
        if check.workers == 0 || check.with_torch < check.workers {
            self.torch_since = None;
            self.checks_left = self.checks_left.saturating_sub(1);
            return if self.checks_left == 0 {
                GroupDecision::Fine
            } else {
                GroupDecision::CheckAgain
            };
        }
        let since = *self.torch_since.get_or_insert(now);
        if now.saturating_duration_since(since) < self.limit {
            return GroupDecision::CheckAgain;
        }
        GroupDecision::Ungrouped
    }
}

fn variable<'a>(worker: &'a WorkerStart, name: &str) -> Option<&'a str> {
    let (_, value) = worker.env.iter().find(|(found, _)| found == name.as_bytes())?;
    std::str::from_utf8(value).ok()
}

/// Checks sockets and processes. If a connection exists, the processes are not checked.
fn check_workers(pids: &[Pid], port: u16) -> GroupCheck {
    let has_socket = procfs::has_tcp_socket(port).unwrap_or(true);
    let maps_torch = |pid: &&Pid| procfs::maps_library(**pid, TORCH).unwrap_or(false);
    let with_torch = if has_socket { 0 } else { pids.iter().filter(maps_torch).count() };
    GroupCheck { workers: pids.len(), with_torch, has_socket }
}

impl Agent {
    /// Starts the check when the workers of an epoch were started.
    pub(super) fn start_group_watch(&mut self, start: &Start) {
        self.group_watch = GroupWatch::for_start(start);
        if let Some(watch) = &self.group_watch {
            self.timers.set(clock::now() + watch.interval(), Timer::GroupCheck);
        }
    }

    /// Runs one check on its own thread, because the files of a process can be slow to read.
    pub(super) fn check_group(&mut self) {
        let Some(watch) = &self.group_watch else { return };
        let (port, epoch, events) = (watch.port, self.outbox.epoch(), self.event_sender.clone());
        let pids: Vec<Pid> = self.workers.live_pids().take(WORKERS_MAX).collect();
        self.tasks.spawn_blocking(move || {
            let _ = events.send(InternalEvent::GroupChecked(epoch, check_workers(&pids, port)));
        });
    }

    /// Handles the result of a check; results of earlier epochs are discarded.
    pub(super) fn on_group_checked(&mut self, epoch: Epoch, check: GroupCheck) {
        let is_current = epoch == self.outbox.epoch();
        let Some(watch) = self.group_watch.as_mut().filter(|_| is_current) else { return };
        let now = clock::now();
        match watch.decide(now, check) {
            GroupDecision::CheckAgain => self.timers.set(now + watch.interval(), Timer::GroupCheck),
            GroupDecision::Fine => self.group_watch = None,
            GroupDecision::Ungrouped => {
                let (master, seconds) = (watch.master.clone(), watch.limit.as_secs() as u32);
                self.group_watch = None;
                self.outbox.send(&FromAgent::Ungrouped { master, seconds });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{LocalRank, Rank};

    fn start(rank: &str, world_size: &str, group_limit_ms: u32) -> Start {
        let env = [
            (env_vars::RANK, rank),
            (env_vars::WORLD_SIZE, world_size),
            (env_vars::MASTER_ADDR, "n1"),
            (env_vars::MASTER_PORT, "29500"),
        ];
        let worker = WorkerStart {
            rank: Rank(0),
            local_rank: LocalRank(0),
            argv: Vec::new(),
            env: env.map(|(name, value)| (name.into(), value.into())).to_vec(),
            env_default: Vec::new(),
            stdin: false,
        };
        Start { workers: vec![worker], store: None, window_bytes: 0, group_limit_ms }
    }

    #[test]
    fn group_watch_runs_only_on_node_of_rank_0() {
        assert_eq!(
            GroupWatch::for_start(&start("0", "2", 60_000)).expect("watched").master,
            "n1:29500"
        );
        assert!(GroupWatch::for_start(&start("1", "2", 60_000)).is_none());
        assert!(GroupWatch::for_start(&start("0", "1", 60_000)).is_none());
        assert!(GroupWatch::for_start(&start("0", "2", 0)).is_none());
    }

    /// Results of checks at intervals of 20 s: `workers/with torch`, or `+` if a socket exists.
    #[track_caller]
    fn check(checks: &str, expect: &[(u32, GroupDecision)]) {
        let mut watch = GroupWatch::for_start(&start("0", "4", 60_000)).expect("watched");
        let begin = clock::now();
        let decisions = checks.split(' ').zip(1..).map(|(check, count)| {
            let number = |text: &str| text.parse().expect("a number");
            let check = match check.split_once('/') {
                None => GroupCheck { workers: 4, with_torch: 0, has_socket: true },
                Some((workers, with_torch)) => GroupCheck {
                    workers: number(workers),
                    with_torch: number(with_torch),
                    has_socket: false,
                },
            };
            (count, watch.decide(begin + watch.interval() * count, check))
        });
        let decided = decisions.filter(|(_, decision)| *decision != GroupDecision::CheckAgain);
        assert_eq!(decided.collect::<Vec<_>>(), expect, "{checks}");
    }

    #[test]
    fn group_watch_warns_after_torch_limit() {
        check("4/4 4/4 4/4 4/4", &[(4, GroupDecision::Ungrouped)]);
        check("4/0 4/2 4/4 4/4 4/4 4/4", &[(6, GroupDecision::Ungrouped)]);
        check("4/4 4/4 4/4", &[]);
        check("4/4 4/4 +", &[(3, GroupDecision::Fine)]);
        check("+", &[(1, GroupDecision::Fine)]);
        check("0/0 4/4 4/4 4/4 4/4", &[(5, GroupDecision::Ungrouped)]);
        check("4/4 4/4 4/4 0/0 4/4 4/4 4/4", &[]);
        let never = ["4/3"; CHECKS_MAX as usize].join(" ");
        check(&never, &[(CHECKS_MAX, GroupDecision::Fine)]);
    }
}
