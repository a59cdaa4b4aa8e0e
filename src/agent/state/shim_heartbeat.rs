//! The heartbeat between agent and shim: decides when a shim that does not answer is continued, and
//! when it is killed. Pure; the agent calls it at every heartbeat of its own.

use std::time::{Duration, Instant};

/// Maximum time of a running shim for one pass of its loop: the slowest one kills everything, see
/// [`crate::os::process::process_tree::KILL_LIMIT`].
const STEP_LIMIT: Duration = Duration::from_secs(10);

/// What the agent does next with the shim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ShimAction {
    /// Nothing: an answer is pending, or was received in time.
    Wait,
    /// Send a ping.
    Ping,
    /// Send SIGCONT: the shim may have been stopped by mistake.
    Continue,
    /// Kill the shim and its workers.
    Kill,
}

/// State of pings and answers, and the actions taken for missing answers.
#[derive(Debug, Default)]
pub(super) struct ShimHeartbeat {
    /// The ping that has no answer yet. At most one is pending, so that a stopped shim never fills
    /// the socket.
    pending: Option<Ping>,
    /// Whether SIGCONT was sent once.
    was_continued: bool,
    /// Whether the agent killed the shim because it did not answer.
    was_killed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Ping {
    since: Instant,
    /// SIGCONT was sent while this ping waited.
    was_continued: bool,
}

impl ShimHeartbeat {
    /// Records a message of the shim; `is_pong` if it is the answer to the ping.
    pub(super) fn on_message(&mut self, now: Instant, is_pong: bool) {
        match &mut self.pending {
            Some(_) if is_pong => self.pending = None,
            Some(ping) => ping.since = now,
            None => {}
        }
    }

    /// Decides at a heartbeat of the agent. `late`: the time for which the agent itself did not
    /// run. `is_suspended`: whether the kernel lists the shim as stopped; a running one may need
    /// time for its pass.
    pub(super) fn tick(
        &mut self,
        now: Instant,
        late: Duration,
        lease: Duration,
        is_suspended: bool,
    ) -> ShimAction {
        let Some(ping) = &mut self.pending else {
            self.pending = Some(Ping { since: now, was_continued: false });
            return ShimAction::Ping;
        };
        ping.since = now.min(ping.since + late);
        let limit = match (is_suspended, ping.was_continued) {
            // The shim was stopped again before it could answer.
            (true, true) => Duration::ZERO,
            (true, false) => lease,
            (false, _) => lease + STEP_LIMIT,
        };
        if now - ping.since <= limit {
            return ShimAction::Wait;
        }
        if self.was_continued {
            self.was_killed = true;
            return ShimAction::Kill;
        }
        self.was_continued = true;
        ping.was_continued = true;
        ShimAction::Continue
    }

    /// Records that the agent killed a stopped shim that was asked to kill its workers.
    pub(super) fn record_kill(&mut self) {
        self.was_killed = true;
    }

    /// Whether the agent killed the shim because it did not answer.
    pub(super) fn was_killed(&self) -> bool {
        self.was_killed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock;

    const LEASE: Duration = Duration::from_secs(30);
    const BEAT: Duration = Duration::from_secs(3);
    const NONE: Duration = Duration::ZERO;

    #[test]
    fn stopped_shim_is_continued_once_then_killed() {
        let (mut heartbeat, start) = (ShimHeartbeat::default(), clock::now());
        assert_eq!(heartbeat.tick(start, NONE, LEASE, true), ShimAction::Ping);
        assert_eq!(heartbeat.tick(start + LEASE, NONE, LEASE, true), ShimAction::Wait);
        let late = start + LEASE + BEAT;
        assert_eq!(heartbeat.tick(late, NONE, LEASE, true), ShimAction::Continue);
        heartbeat.on_message(late, true);
        // The shim answers, and is stopped once more.
        assert_eq!(heartbeat.tick(late + BEAT, NONE, LEASE, true), ShimAction::Ping);
        let again = late + BEAT + LEASE;
        assert_eq!(heartbeat.tick(again, NONE, LEASE, true), ShimAction::Wait);
        assert!(!heartbeat.was_killed());
        assert_eq!(heartbeat.tick(again + BEAT, NONE, LEASE, true), ShimAction::Kill);
        assert!(heartbeat.was_killed());
    }

    #[test]
    fn shim_stopped_again_at_once_is_killed() {
        let (mut heartbeat, start) = (ShimHeartbeat::default(), clock::now());
        heartbeat.tick(start, NONE, LEASE, true);
        let late = start + LEASE + BEAT;
        assert_eq!(heartbeat.tick(late, NONE, LEASE, true), ShimAction::Continue);
        assert_eq!(heartbeat.tick(late + BEAT, NONE, LEASE, true), ShimAction::Kill);
    }

    #[test]
    fn busy_shim_gets_time_to_answer() {
        let (mut heartbeat, start) = (ShimHeartbeat::default(), clock::now());
        let lease = Duration::from_millis(100);
        heartbeat.tick(start, NONE, lease, false);
        assert_eq!(heartbeat.tick(start + STEP_LIMIT, NONE, lease, false), ShimAction::Wait);
        heartbeat.on_message(start + STEP_LIMIT, false);
        let later = start + STEP_LIMIT + STEP_LIMIT;
        assert_eq!(heartbeat.tick(later, NONE, lease, false), ShimAction::Wait);
        heartbeat.on_message(later, true);
        assert_eq!(heartbeat.tick(later, NONE, lease, false), ShimAction::Ping);
    }

    #[test]
    fn shim_timeout_excludes_time_agent_was_stopped() {
        let (mut heartbeat, start) = (ShimHeartbeat::default(), clock::now());
        heartbeat.tick(start, NONE, LEASE, false);
        let hour = Duration::from_secs(3600);
        assert_eq!(heartbeat.tick(start + BEAT + hour, hour, LEASE, true), ShimAction::Wait);
    }
}
