//! Throttle of a worker's notes: of steps and phases the newest is forwarded at intervals, of other
//! notes each one once. However many notes a worker writes, they take little memory and no time of other
//! workers. Pure.

use std::collections::BTreeSet;
use std::mem;
use std::time::{Duration, Instant};

use crate::base::{Note, Rank};

/// Minimum interval between two forwarded steps or phases of a worker.
const STEP_PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of peers that one worker may report as lost.
const PEERS_LOST_MAX: usize = 16;

/// The throttle of one worker.
#[derive(Debug, Default)]
pub(super) struct NoteThrottle {
    is_ready: bool,
    peers_lost: BTreeSet<Rank>,
    has_given_up: bool,
    has_failed: bool,
    /// The newest step that is not yet forwarded.
    step: Option<Note>,
    /// The newest phase that is not yet forwarded; the step ended before it.
    phase: Option<Note>,
    newest_at: Option<Instant>,
}

impl NoteThrottle {
    /// Takes a note; returns it if it must be forwarded at once.
    pub(super) fn push(&mut self, note: &Note) -> Option<Note> {
        match *note {
            Note::Ready => (!mem::replace(&mut self.is_ready, true)).then_some(Note::Ready),
            Note::GaveUp { ref reason } => {
                (!mem::replace(&mut self.has_given_up, true)).then(|| Note::gave_up(reason))
            }
            Note::Failed { ref exception } => {
                (!mem::replace(&mut self.has_failed, true)).then(|| Note::failed(exception))
            }
            Note::PeerLost { rank } => (self.peers_lost.len() < PEERS_LOST_MAX
                && self.peers_lost.insert(rank))
            .then_some(Note::PeerLost { rank }),
            Note::Step { step, steps, loss, tokens_per_s } => {
                self.step = Some(Note::Step { step, steps, loss, tokens_per_s });
                None
            }
            Note::Phase { ref name } => {
                self.phase = Some(Note::phase(name.as_deref()));
                None
            }
        }
    }

    /// Returns when the newest step and phase must be forwarded; `None` if there are none.
    pub(super) fn newest_at(&self, now: Instant) -> Option<Instant> {
        self.step.as_ref().or(self.phase.as_ref()).map(|_| self.newest_at.unwrap_or(now))
    }

    /// Takes the newest step and phase; the next ones wait for the interval.
    pub(super) fn take_newest(&mut self, now: Instant) -> Vec<Note> {
        self.newest_at = Some(now + STEP_PAUSE);
        self.step.take().into_iter().chain(self.phase.take()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::clock;

    fn step(step: u64) -> Note {
        Note::Step { step, steps: None, loss: None, tokens_per_s: None }
    }

    #[test]
    fn newest_step_is_forwarded_at_intervals() {
        let (mut throttle, now) = (NoteThrottle::default(), clock::now());
        assert_eq!(throttle.newest_at(now), None);
        assert_eq!(throttle.push(&step(1)), None);
        assert_eq!(throttle.newest_at(now), Some(now), "the first one at once");
        for number in 2..1000 {
            assert_eq!(throttle.push(&step(number)), None);
        }
        assert_eq!(throttle.take_newest(now), [step(999)]);
        assert_eq!(throttle.newest_at(now), None);
        throttle.push(&step(1000));
        assert_eq!(throttle.newest_at(now), Some(now + STEP_PAUSE));
    }

    #[test]
    fn phase_is_forwarded_after_the_step_before_it() {
        let (mut throttle, now) = (NoteThrottle::default(), clock::now());
        for name in [Some("evaluation"), None, Some("checkpoint")] {
            assert_eq!(throttle.push(&Note::phase(name)), None);
        }
        assert_eq!(throttle.newest_at(now), Some(now));
        throttle.push(&step(5));
        assert_eq!(throttle.take_newest(now), [step(5), Note::phase(Some("checkpoint"))]);
        let long = Note::phase(Some(&"x".repeat(1000)));
        throttle.push(&Note::Phase { name: Some("x".repeat(1000)) });
        assert_eq!(throttle.take_newest(now), [long], "it is cut");
    }

    #[test]
    fn notes_other_than_steps_are_forwarded_once() {
        let mut throttle = NoteThrottle::default();
        assert_eq!(throttle.push(&Note::Ready), Some(Note::Ready));
        assert_eq!(throttle.push(&Note::Ready), None);
        let failed = Note::failed("ValueError: bad");
        assert_eq!(throttle.push(&failed), Some(failed.clone()));
        assert_eq!(throttle.push(&failed), None);
        let mut lost = |rank| throttle.push(&Note::PeerLost { rank: Rank(rank) });
        assert_eq!(lost(3), Some(Note::PeerLost { rank: Rank(3) }));
        assert_eq!(lost(3), None);
        let forwarded = (0..1000).filter(|rank| lost(*rank).is_some()).count();
        assert_eq!(1 + forwarded, PEERS_LOST_MAX);
    }
}
