//! Decides, at a slow pace, whether workers that import torch connect to `MASTER_ADDR:MASTER_PORT`.
//! Workers that never connect may each train a model of their own and exit with 0.

use std::time::{Duration, Instant};

use crate::base::env_vars;
use crate::wire::{FromAgent, Start, WorkerStart};

/// Maximum number of checks while some worker has not imported torch.
const CHECKS_MAX: u32 = 180;
/// Number of checks within the limit.
const CHECKS_PER_LIMIT: u32 = 3;
/// Maximum number of workers checked on a node.
pub(super) const WORKERS_CHECKED_MAX: usize = 16;

/// State of the check on the node of rank 0, until it is decided.
#[derive(Debug)]
pub(super) struct GroupWatch {
    /// `MASTER_ADDR:MASTER_PORT`.
    master: String,
    port: u16,
    /// Time limit for the first connection after all workers have imported torch.
    limit: Duration,
    started_at: Instant,
    torch_since: Option<Instant>,
    checks_left: u32,
}

/// Result of one check of the workers.
#[derive(Clone, Copy, Debug)]
pub struct GroupCheck {
    /// Number of running workers that were checked.
    pub workers: usize,
    /// Number of those that have mapped torch.
    pub with_torch: usize,
    /// Whether a socket has the port of rank 0, or had it since the start, or all workers accept
    /// connections; also true if that cannot be read.
    pub has_socket: bool,
}

/// Result of a check, with all checks before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupDecision {
    CheckAgain,
    /// The workers have connected, or the job does not use torch.
    Fine,
    /// All workers import torch, and none of them has a connection.
    Ungrouped,
}

impl GroupWatch {
    /// Creates the check for a start: on the node of rank 0, if the job has several workers.
    pub(super) fn for_start(start: &Start, now: Instant) -> Option<Self> {
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
            started_at: now,
            torch_since: None,
            checks_left: CHECKS_MAX,
        })
    }

    /// Returns the port of rank 0.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the time since the start: connections that were closed earlier are not of the workers.
    pub(super) fn since_start(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started_at)
    }

    /// Returns the time between two checks.
    pub(super) fn interval(&self) -> Duration {
        self.limit / CHECKS_PER_LIMIT
    }

    /// Returns the message about workers without a connection.
    pub(super) fn ungrouped(&self) -> FromAgent {
        FromAgent::Ungrouped { master: self.master.clone(), seconds: self.limit.as_secs() as u32 }
    }

    /// Decides after a check.
    pub(super) fn decide(&mut self, now: Instant, check: GroupCheck) -> GroupDecision {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{LocalRank, Rank, clock};

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
            env_without_gpu: Vec::new(),
            stdin: false,
        };
        Start { workers: vec![worker], store: None, window_bytes: 0, group_limit_ms }
    }

    fn watch(rank: &str, world_size: &str, group_limit_ms: u32) -> Option<GroupWatch> {
        GroupWatch::for_start(&start(rank, world_size, group_limit_ms), clock::now())
    }

    #[test]
    fn group_watch_runs_only_on_node_of_rank_0() {
        assert_eq!(watch("0", "2", 60_000).expect("watched").master, "n1:29500");
        assert!(watch("1", "2", 60_000).is_none());
        assert!(watch("0", "1", 60_000).is_none());
        assert!(watch("0", "2", 0).is_none());
    }

    /// Results of checks at intervals of 20 s: `workers/with torch`, or `+` if a socket exists.
    #[track_caller]
    fn check(checks: &str, expect: &[(u32, GroupDecision)]) {
        let mut watch = watch("0", "4", 60_000).expect("watched");
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
