//! The shim's view of the agent: decides when an agent that sends no ping is lost. Pure; the shim calls
//! it after every wait.

use std::time::{Duration, Instant};

/// Time that an agent gets beyond its lease: the launcher, which counts from the agent's last heartbeat,
/// then has declared the node lost.
const MARGIN: Duration = Duration::from_secs(2);
/// Number of checks within the limit.
const CHECKS: u32 = 8;

/// Time since the last ping of the agent. There is no limit before the first ping: an agent without a
/// lease sends none.
pub(super) struct AgentWatch {
    limit: Option<Duration>,
    /// Time without a ping, as far as this process was running.
    silence: Duration,
    checked_at: Instant,
}

impl AgentWatch {
    /// A watch that waits for the first ping.
    pub(super) fn new(now: Instant) -> Self {
        Self { limit: None, silence: Duration::ZERO, checked_at: now }
    }

    /// Records a ping of an agent with this lease.
    pub(super) fn on_ping(&mut self, now: Instant, lease: Duration) {
        *self = Self { limit: Some(lease + MARGIN), silence: Duration::ZERO, checked_at: now };
    }

    /// Time until the next check.
    pub(super) fn check_interval(&self) -> Option<Duration> {
        self.limit.map(|limit| limit / CHECKS)
    }

    /// Returns whether the agent is lost. If more time has passed than one interval, this process was
    /// suspended or busy, and the agent may have been suspended with it.
    pub(super) fn check(&mut self, now: Instant) -> bool {
        let interval = self.check_interval().unwrap_or_default();
        self.silence += (now - self.checked_at).min(interval);
        self.checked_at = now;
        self.is_lost()
    }

    /// Whether the agent is lost.
    pub(super) fn is_lost(&self) -> bool {
        self.limit.is_some_and(|limit| limit <= self.silence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock;

    const LEASE: Duration = Duration::from_secs(30);
    const INTERVAL: Duration = Duration::from_secs(4);

    #[test]
    fn agent_without_a_ping_in_its_lease_is_lost() {
        let start = clock::now();
        let mut watch = AgentWatch::new(start);
        assert!(!watch.check(start + 100 * LEASE), "no ping has come yet");
        watch.on_ping(start, LEASE);
        assert_eq!(watch.check_interval(), Some(INTERVAL));
        let lost_at = (1..100).find(|checks| watch.check(start + *checks * INTERVAL));
        assert_eq!(lost_at, Some(CHECKS));
        watch.on_ping(start + LEASE, LEASE);
        assert!(!watch.check(start + LEASE + INTERVAL), "a ping renews the time");
    }

    #[test]
    fn time_in_which_the_shim_was_suspended_does_not_count() {
        let start = clock::now();
        let mut watch = AgentWatch::new(start);
        watch.on_ping(start, LEASE);
        for hours in 1..CHECKS {
            assert!(!watch.check(start + hours * Duration::from_secs(3600)));
        }
    }
}
