//! Throttle of a worker's notes: of steps the newest is forwarded at intervals, of other notes each
//! one once. However many notes a worker writes, they take little memory and no time of other
//! workers. Pure.

use std::collections::BTreeSet;
use std::mem;
use std::time::{Duration, Instant};

use crate::base::{Note, Rank};

/// Minimum interval between two forwarded steps of a worker.
const STEP_PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of peers that one worker may report as lost.
const PEERS_LOST_MAX: usize = 16;

/// The throttle of one worker.
#[derive(Debug, Default)]
pub(super) struct NoteThrottle {
    is_ready: bool,
    peers_lost: BTreeSet<Rank>,
    has_given_up: bool,
    /// The newest step that is not yet forwarded.
    step: Option<Note>,
    step_at: Option<Instant>,
}

impl NoteThrottle {
    /// Takes a note; returns it if it must be forwarded at once.
    pub(super) fn push(&mut self, note: &Note) -> Option<Note> {
        match *note {
            Note::Ready => (!mem::replace(&mut self.is_ready, true)).then_some(Note::Ready),
            Note::GaveUp { ref reason } => {
                (!mem::replace(&mut self.has_given_up, true)).then(|| Note::gave_up(reason))
            }
            Note::PeerLost { rank } => (self.peers_lost.len() < PEERS_LOST_MAX
                && self.peers_lost.insert(rank))
            .then_some(Note::PeerLost { rank }),
            Note::Step { step, steps, loss, tokens_per_s } => {
                self.step = Some(Note::Step { step, steps, loss, tokens_per_s });
                None
            }
        }
    }

    /// Returns when the newest step must be forwarded; `None` if there is none.
    pub(super) fn step_at(&self, now: Instant) -> Option<Instant> {
        self.step.as_ref().map(|_| self.step_at.unwrap_or(now))
    }

    /// Takes the newest step; the next one waits for the interval.
    pub(super) fn take_step(&mut self, now: Instant) -> Option<Note> {
        self.step_at = Some(now + STEP_PAUSE);
        self.step.take()
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
        assert_eq!(throttle.step_at(now), None);
        assert_eq!(throttle.push(&step(1)), None);
        assert_eq!(throttle.step_at(now), Some(now), "the first one at once");
        for number in 2..1000 {
            assert_eq!(throttle.push(&step(number)), None);
        }
        assert!(matches!(throttle.take_step(now), Some(Note::Step { step: 999, .. })));
        assert_eq!(throttle.step_at(now), None);
        throttle.push(&step(1000));
        assert_eq!(throttle.step_at(now), Some(now + STEP_PAUSE));
    }

    #[test]
    fn notes_other_than_steps_are_forwarded_once() {
        let mut throttle = NoteThrottle::default();
        assert_eq!(throttle.push(&Note::Ready), Some(Note::Ready));
        assert_eq!(throttle.push(&Note::Ready), None);
        let mut lost = |rank| throttle.push(&Note::PeerLost { rank: Rank(rank) });
        assert_eq!(lost(3), Some(Note::PeerLost { rank: Rank(3) }));
        assert_eq!(lost(3), None);
        let forwarded = (0..1000).filter(|rank| lost(*rank).is_some()).count();
        assert_eq!(1 + forwarded, PEERS_LOST_MAX);
    }
}
