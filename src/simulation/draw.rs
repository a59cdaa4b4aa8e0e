//! Draws of the kinds that the simulation needs.

use super::clock::Micros;
use crate::launch::scale::proof::Random;

pub(super) trait Draw {
    /// A time from `low` up to `high`.
    fn between(&mut self, low: Micros, high: Micros) -> Micros;

    /// True once in so many draws.
    fn one_in(&mut self, count: usize) -> bool;
}

impl Draw for Random {
    fn between(&mut self, low: Micros, high: Micros) -> Micros {
        low + self.below((high.saturating_sub(low) + 1) as usize) as Micros
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }
}
