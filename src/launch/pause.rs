//! Ctrl-Z: everybody stops before we do, and time that we stood still does not count. Pure.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::base::NodeRank;

/// A node that does not answer, or a screen that does not move, holds us up no longer.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// Who must have stopped before we do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PauseScope {
    /// The workers of a node.
    Node(NodeRank),
    /// What we said about it is on the screen.
    Screen,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Pause {
    state: State,
    total: Duration,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Running,
    Asked {
        since: Instant,
        waiting: BTreeSet<PauseScope>,
    },
}

impl Pause {
    /// These are asked to stop; false if they have been already.
    pub(super) fn ask(&mut self, now: Instant, whom: impl Iterator<Item = PauseScope>) -> bool {
        let is_new = matches!(self.state, State::Running);
        if is_new {
            self.state = State::Asked { since: now, waiting: whom.collect() };
        }
        is_new
    }

    /// Somebody has stopped, or is gone.
    pub(super) fn stopped(&mut self, who: PauseScope) {
        if let State::Asked { waiting, .. } = &mut self.state {
            waiting.remove(&who);
        }
    }

    /// When we stop; `None` as long as somebody is waited for whom nobody has given up.
    pub(super) fn stop_at(&self) -> Option<Instant> {
        match &self.state {
            State::Running => None,
            State::Asked { since, waiting } if waiting.is_empty() => Some(*since),
            State::Asked { since, .. } => Some(*since + WAIT_MAX),
        }
    }

    /// We are back, after so long.
    pub(super) fn resumed(&mut self, stood_still: Duration) {
        self.state = State::Running;
        self.total += stood_still;
    }

    /// How long we have stood still in all.
    pub(super) fn total(&self) -> Duration {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock;

    #[test]
    fn we_stop_when_all_have_or_after_a_while() {
        let (mut pause, now) = (Pause::default(), clock::now());
        assert_eq!(pause.stop_at(), None);
        let all =
            [PauseScope::Node(NodeRank(0)), PauseScope::Node(NodeRank(1)), PauseScope::Screen];
        assert!(pause.ask(now, all.into_iter()));
        assert!(!pause.ask(now, all.into_iter()), "a second Ctrl-Z is no news");
        assert_eq!(pause.stop_at(), Some(now + WAIT_MAX));
        for who in all {
            pause.stopped(who);
        }
        assert_eq!(pause.stop_at(), Some(now));
        pause.resumed(Duration::from_secs(5));
        assert_eq!((pause.stop_at(), pause.total()), (None, Duration::from_secs(5)));
        pause.stopped(PauseScope::Screen);
        assert!(pause.ask(now, std::iter::empty()));
        pause.resumed(Duration::from_secs(2));
        assert_eq!(pause.total(), Duration::from_secs(7));
    }
}
