//! Suspension with Ctrl-Z: workers and screen stop before the launcher, and the time does not
//! count. Pure.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::base::NodeRank;

/// Time limit of the wait for a node that does not answer or a screen that accepts no output.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// What must have stopped before the launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PauseScope {
    /// The workers of a node.
    Node(NodeRank),
    /// The line about the suspension is on the screen.
    Screen,
}

/// State of a suspension.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    state: State,
    total: Duration,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Running,
    Requested {
        since: Instant,
        waiting: BTreeSet<PauseScope>,
    },
}

impl Pause {
    /// Starts the wait for these; returns false if it has been started already.
    pub(crate) fn start(&mut self, now: Instant, scopes: impl Iterator<Item = PauseScope>) -> bool {
        let is_new = matches!(self.state, State::Running);
        if is_new {
            self.state = State::Requested { since: now, waiting: scopes.collect() };
        }
        is_new
    }

    /// Notes that one of them has stopped, or is gone.
    pub(crate) fn on_stopped(&mut self, scope: PauseScope) {
        if let State::Requested { waiting, .. } = &mut self.state {
            waiting.remove(&scope);
        }
    }

    /// When the launcher stops; `None` if no suspension was requested.
    pub(crate) fn stop_at(&self) -> Option<Instant> {
        match &self.state {
            State::Running => None,
            State::Requested { since, waiting } if waiting.is_empty() => Some(*since),
            State::Requested { since, .. } => Some(*since + WAIT_MAX),
        }
    }

    /// Notes that the launcher was continued after this time.
    pub(crate) fn on_resumed(&mut self, suspended: Duration) {
        self.state = State::Running;
        self.total += suspended;
    }

    /// Total time of all suspensions.
    pub(crate) fn total(&self) -> Duration {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock;

    #[test]
    fn launcher_suspends_after_its_workers_or_after_wait_max() {
        let (mut pause, now) = (Pause::default(), clock::now());
        assert_eq!(pause.stop_at(), None);
        let all =
            [PauseScope::Node(NodeRank(0)), PauseScope::Node(NodeRank(1)), PauseScope::Screen];
        assert!(pause.start(now, all.into_iter()));
        assert!(!pause.start(now, all.into_iter()), "a second Ctrl-Z is no news");
        assert_eq!(pause.stop_at(), Some(now + WAIT_MAX));
        for scope in all {
            pause.on_stopped(scope);
        }
        assert_eq!(pause.stop_at(), Some(now));
        pause.on_resumed(Duration::from_secs(5));
        assert_eq!((pause.stop_at(), pause.total()), (None, Duration::from_secs(5)));
        pause.on_stopped(PauseScope::Screen);
        assert!(pause.start(now, std::iter::empty()));
        pause.on_resumed(Duration::from_secs(2));
        assert_eq!(pause.total(), Duration::from_secs(7));
    }
}
