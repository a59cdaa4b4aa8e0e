//! Stopping: asked, asked again, killed, given up.

use std::time::{Duration, Instant};

use super::event::{Effect, StopReason};
use super::state::{Job, Phase, Stage};

pub(super) const SIGINT: i32 = 2;
pub(super) const SIGTERM: i32 = 15;

/// A kill that is not confirmed after this time is given up and said so.
const UNDEAD_LIMIT: Duration = Duration::from_secs(10);

impl Job {
    /// First signal: ask. Second: kill. Third: leave.
    pub(super) fn signalled(&mut self, now: Instant, signal: i32) -> Vec<Effect> {
        self.signals += 1;
        match &self.phase {
            Phase::Preparing => {
                self.phase = Phase::Done(self.verdict_of(StopReason::Signal(signal)));
                Vec::new()
            }
            Phase::Running => self.stop(now, StopReason::Signal(signal), signal),
            // The job is being stopped already, but not because of the user.
            Phase::Stopping { stage, .. } if self.signals == 1 => match stage {
                Stage::Killed { .. } => Vec::new(),
                Stage::Interrupted { .. } | Stage::Terminated { .. } => {
                    vec![Effect::Stopping(StopReason::Signal(signal)), Effect::Signal(signal)]
                }
            },
            Phase::Stopping { stage, .. } if self.signals == 2 => match stage {
                Stage::Killed { .. } => Vec::new(),
                Stage::Interrupted { .. } | Stage::Terminated { .. } => self.kill(now),
            },
            Phase::Stopping { reason, .. } => {
                self.phase = Phase::Done(self.verdict_of(*reason));
                Vec::new()
            }
            Phase::Done(_) => Vec::new(),
        }
    }

    pub(super) fn timed_out(&mut self, now: Instant) -> Vec<Effect> {
        if matches!(self.phase, Phase::Preparing) {
            self.phase = Phase::Done(self.verdict_of(StopReason::Timeout));
        }
        self.stop(now, StopReason::Timeout, SIGTERM)
    }

    /// Asks every worker to stop, once; later reasons change nothing.
    pub(super) fn stop(&mut self, now: Instant, reason: StopReason, signal: i32) -> Vec<Effect> {
        if !matches!(self.phase, Phase::Running) {
            return Vec::new();
        }
        let kill_at = now + self.policy.grace;
        let stage = if signal == SIGINT {
            Stage::Interrupted { term_at: now + self.policy.grace / 2, kill_at }
        } else {
            Stage::Terminated { kill_at }
        };
        self.phase = Phase::Stopping { reason, stage };
        vec![Effect::Stopping(reason), Effect::Signal(signal)]
    }

    pub(super) fn escalate(&mut self, now: Instant) -> Vec<Effect> {
        let Phase::Stopping { reason, stage } = &mut self.phase else {
            return Vec::new();
        };
        match *stage {
            Stage::Interrupted { term_at, kill_at } if term_at <= now => {
                *stage = Stage::Terminated { kill_at };
                vec![Effect::Signal(SIGTERM)]
            }
            Stage::Terminated { kill_at } if kill_at <= now => self.kill(now),
            Stage::Killed { give_up_at } if give_up_at <= now => {
                let reason = *reason;
                self.phase = Phase::Done(self.verdict_of(reason));
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    pub(super) fn put_off(&mut self, time: Duration) -> Vec<Effect> {
        if let Phase::Stopping { stage, .. } = &mut self.phase {
            match stage {
                Stage::Interrupted { term_at, kill_at } => {
                    *term_at += time;
                    *kill_at += time;
                }
                Stage::Terminated { kill_at: at } | Stage::Killed { give_up_at: at } => *at += time,
            }
        }
        Vec::new()
    }

    pub(super) fn kill(&mut self, now: Instant) -> Vec<Effect> {
        if let Phase::Stopping { stage, .. } = &mut self.phase {
            *stage = Stage::Killed { give_up_at: now + UNDEAD_LIMIT };
        }
        vec![Effect::Killing, Effect::Kill]
    }

    pub(super) fn next_wake(&self) -> Option<Instant> {
        match self.phase {
            Phase::Stopping { stage, .. } => Some(match stage {
                Stage::Interrupted { term_at, .. } => term_at,
                Stage::Terminated { kill_at } => kill_at,
                Stage::Killed { give_up_at } => give_up_at,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{NodeRank, Status, WorkerExit, clock};
    use crate::job::Event;
    use crate::job::testing::{GRACE, exit, preparing, running};

    #[test]
    fn a_worker_that_ignores_term_is_killed_after_the_grace() {
        let now = clock::now();
        let mut job = running(1, now);
        job.step(now, exit(0, WorkerExit::Code(1), now, &[]));
        assert_eq!(job.step(now + GRACE / 2, Event::Timer), [Effect::Wake(now + GRACE)]);
        let effects = job.step(now + GRACE, Event::Timer);
        assert_eq!(effects[..2], [Effect::Killing, Effect::Kill]);
    }

    #[test]
    fn an_interrupt_becomes_term_at_half_the_grace() {
        let now = clock::now();
        let mut job = running(1, now);
        let effects = job.step(now, Event::Signal(SIGINT));
        assert_eq!(effects[1..], [Effect::Signal(SIGINT), Effect::Wake(now + GRACE / 2)]);
        let effects = job.step(now + GRACE / 2, Event::Timer);
        assert_eq!(effects, [Effect::Signal(SIGTERM), Effect::Wake(now + GRACE)]);
    }

    #[test]
    fn time_that_everybody_stood_still_is_no_part_of_the_grace() {
        let now = clock::now();
        let mut job = running(1, now);
        job.step(now, Event::Signal(SIGINT));
        let (pause, later) = (3 * GRACE, now + 3 * GRACE);
        let effects = job.step(later, Event::StoodStill(pause));
        assert_eq!(effects, [Effect::Wake(later + GRACE / 2)]);
        let effects = job.step(later + GRACE / 2, Event::Timer);
        assert_eq!(effects, [Effect::Signal(SIGTERM), Effect::Wake(later + GRACE)]);
        assert_eq!(running(1, now).step(now, Event::StoodStill(pause)), []);
    }

    #[test]
    fn a_second_signal_kills_and_a_third_leaves_naming_who_is_not_confirmed() {
        let now = clock::now();
        let mut job = running(2, now);
        job.step(now, Event::Signal(SIGINT));
        assert_eq!(job.step(now, Event::Signal(SIGINT))[..2], [Effect::Killing, Effect::Kill]);
        job.step(now, Event::Idle(NodeRank(0)));
        job.step(now, Event::Signal(SIGINT));
        let verdict = job.verdict().expect("over");
        assert_eq!(verdict.status, Status::Interrupted(SIGINT));
        assert_eq!(verdict.unconfirmed, [NodeRank(1)]);
    }

    #[test]
    fn the_first_signal_during_a_stop_is_passed_on_and_the_second_kills() {
        let now = clock::now();
        let mut job = running(1, now);
        job.step(now, exit(0, WorkerExit::Code(1), now, &[]));
        let effects = job.step(now, Event::Signal(SIGINT));
        assert_eq!(
            effects[..2],
            [Effect::Stopping(StopReason::Signal(SIGINT)), Effect::Signal(SIGINT)]
        );
        assert_eq!(job.step(now, Event::Signal(SIGINT))[..2], [Effect::Killing, Effect::Kill]);
    }

    #[test]
    fn the_time_may_run_out_before_anything_starts() {
        let mut job = preparing(2);
        job.step(clock::now(), Event::TimedOut);
        assert_eq!(job.verdict().expect("over").status, Status::Timeout);
    }

    #[test]
    fn what_cannot_be_killed_does_not_hold_us_for_ever() {
        let now = clock::now();
        let mut job = running(1, now);
        job.step(now, Event::TimedOut);
        job.step(now + GRACE, Event::Timer);
        job.step(now + GRACE + UNDEAD_LIMIT, Event::Timer);
        let verdict = job.verdict().expect("over");
        assert_eq!(verdict.status, Status::Timeout);
        assert_eq!(verdict.unconfirmed, [NodeRank(0)]);
    }
}
