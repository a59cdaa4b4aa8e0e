//! Numbers of the epochs of a job, also of those that earlier launchers began: a launcher that replaces another
//! learns of them from the nodes that join it, possibly after it has begun epochs of its own.

use crate::base::Epoch;

/// The present epoch, and what decides how many restarts count against `--max_restarts`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EpochNumbers {
    current: Epoch,
    /// Number of epochs that this launcher began before the present one.
    own: u32,
    /// Number of own restarts that no failure caused.
    own_free: u32,
    /// The last own epoch in which workers were started.
    started: Option<Epoch>,
    /// The first epoch that no earlier launcher has begun.
    first_unused: Epoch,
    /// Number of restarts of earlier launchers that no failure caused.
    earlier_free: u32,
}

impl EpochNumbers {
    pub(crate) fn current(self) -> Epoch {
        self.current
    }

    /// Number of restarts that do not count against `--max_restarts`.
    pub(crate) fn free_restarts(self) -> u32 {
        self.own_free + self.earlier_free
    }

    /// A node has taken part in epochs before this one, of this launcher or of earlier ones.
    pub(crate) fn on_earlier_epochs(&mut self, first_unused: Epoch, free_restarts: u32) {
        if self.started.is_some_and(|started| first_unused <= started.next()) {
            return;
        }
        if self.first_unused < first_unused {
            (self.first_unused, self.earlier_free) = (first_unused, free_restarts);
        } else if self.first_unused == first_unused {
            self.earlier_free = self.earlier_free.max(free_restarts);
        }
    }

    /// Whether the present epoch must be moved behind those of earlier launchers before workers are started in it.
    pub(crate) fn must_skip(self) -> bool {
        self.current < self.numbered()
    }

    /// Moves the present epoch behind those of earlier launchers. The epochs that this launcher has begun before
    /// are counted too.
    pub(crate) fn skip_used(&mut self) {
        self.current = self.numbered();
    }

    /// The number of the present epoch behind those of earlier launchers.
    fn numbered(self) -> Epoch {
        Epoch(self.first_unused.0 + self.own)
    }

    /// Whether the job may restart once more after a failure in the present epoch, or in the pause after it: the
    /// epoch of a restart has not begun then.
    pub(crate) fn has_restarts_left(self, restarts_max: u32) -> bool {
        self.numbered().0 < restarts_max.saturating_add(self.free_restarts())
    }

    pub(crate) fn on_started(&mut self) {
        self.started = Some(self.current);
    }

    /// A restart is decided on; it does not count if no failure caused it.
    pub(crate) fn count_restart(&mut self, is_free: bool) {
        self.own_free += u32::from(is_free);
    }

    /// The number that the next epoch will have when its workers are started.
    pub(crate) fn next(self) -> Epoch {
        self.numbered().next()
    }

    pub(crate) fn begin_next(&mut self) {
        self.current = self.current.next();
        self.own += 1;
    }
}

#[cfg(test)]
impl EpochNumbers {
    /// A mistake: the last restart counts although no failure caused it.
    pub(crate) fn charge_free_restart(&mut self) {
        self.own_free -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the present epoch, and how many restarts before it count and do not.
    #[track_caller]
    fn check(numbers: EpochNumbers, (current, charged, free): (u32, u32, u32)) {
        assert_eq!((numbers.current(), numbers.free_restarts()), (Epoch(current), free));
        assert!(!numbers.has_restarts_left(charged) && numbers.has_restarts_left(charged + 1));
    }

    fn restarted(mut numbers: EpochNumbers, is_free: bool) -> EpochNumbers {
        numbers.on_started();
        numbers.count_restart(is_free);
        numbers.begin_next();
        numbers
    }

    #[test]
    fn epochs_count_restarts_but_free_ones() {
        let first = EpochNumbers::default();
        check(first, (0, 0, 0));
        check(restarted(first, false), (1, 1, 0));
        check(restarted(restarted(first, true), false), (2, 1, 1));
    }

    #[test]
    fn replacement_of_a_launcher_is_a_charged_restart() {
        let mut numbers = EpochNumbers::default();
        numbers.on_earlier_epochs(Epoch(3), 1);
        numbers.on_earlier_epochs(Epoch(2), 2);
        assert!(numbers.must_skip());
        check(numbers, (0, 2, 1));
        numbers.skip_used();
        check(numbers, (3, 2, 1));
        assert!(!numbers.must_skip());
    }

    #[test]
    fn own_epochs_before_the_news_are_counted() {
        let mut numbers = restarted(EpochNumbers::default(), false);
        numbers.on_started();
        numbers.on_earlier_epochs(Epoch(3), 1);
        numbers.count_restart(true);
        numbers.begin_next();
        check(numbers, (2, 3, 2));
        numbers.skip_used();
        // Epochs 0 to 2 of the earlier launcher, two of this one, and the present one.
        check(numbers, (5, 3, 2));
    }

    #[test]
    fn own_epochs_that_a_node_reports_are_no_news() {
        let mut numbers = restarted(EpochNumbers::default(), false);
        numbers.on_started();
        numbers.on_earlier_epochs(Epoch(2), 0);
        assert!(!numbers.must_skip());
        check(restarted(numbers, false), (2, 2, 0));
    }
}
