//! Schedules of DeepSpeed (0.19.8) that test rates: `OneCycle` and `LRRangeTest`.

use serde::{Deserialize, Serialize};

/// Rate that rises, falls and then decays, with a momentum that moves the other way: DeepSpeed's
/// `OneCycle`.
///
/// With `C` the length of the cycle, `b` the number of steps before this one, and `x = b/C mod 1`, the
/// scale is `x / r` up to `r = first_steps / C`, and `(x - 1) / (r - 1)` after it. With stairs it is
/// rounded down to a multiple of one stair. In the cycle
///
/// ```text
/// rate = rate_min + (rate_max - rate_min)·scale
/// β₁   = momentum_max - (momentum_max - momentum_min)·scale
/// ```
///
/// and `d` steps after it `rate = rate_min / (1 + decay_rate·d/decay_steps)` and
/// `β₁ = momentum_max·(1 + decay_rate of the momentum·d/decay_steps)`, which passes 1. β₂ is always 0.99.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OneCycle {
    /// Lowest rate of the cycle (`cycle_min_lr`).
    pub rate_min: f64,
    /// Highest rate (`cycle_max_lr`).
    pub rate_max: f64,
    /// Number of steps of the rise (`cycle_first_step_size`), 1 or more.
    pub first_steps: u64,
    /// Number of steps of the fall (`cycle_second_step_size`; without it, that of the rise).
    pub second_steps: u64,
    /// Number of stairs of the rise (`cycle_first_stair_count`); 0: a line.
    pub first_stairs: u64,
    /// Number of stairs of the fall (`cycle_second_stair_count`; without it, that of the rise).
    pub second_stairs: u64,
    /// Unit of the decay after the cycle, in steps (`decay_step_size`); 0: no decay.
    pub decay_steps: u64,
    /// Decay of the rate in a unit (`decay_lr_rate`).
    pub decay_rate: f64,
    /// Momentum of the cycle (`cycle_momentum`); `None`: the schedule does not set it.
    pub momentum: Option<CycleMomentum>,
}

/// Range of β₁ in a [`OneCycle`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleMomentum {
    /// Lowest β₁, at the highest rate and at the first step (`cycle_min_mom`).
    pub min: f64,
    /// Highest β₁ (`cycle_max_mom`).
    pub max: f64,
    /// Growth of β₁ in a unit after the cycle (`decay_mom_rate`).
    pub decay_rate: f64,
}

/// Rate that grows from a small one until training fails: DeepSpeed's `LRRangeTest`.
///
/// The rate after `n` steps is `rate_min·(1 + growth·n/step_size)`, with the quotient rounded down if it is
/// a staircase.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LrRangeTest {
    /// First rate (`lr_range_test_min_lr`).
    pub rate_min: f64,
    /// Number of steps of an interval (`lr_range_test_step_size`), 1 or more.
    pub step_size: u64,
    /// Growth in an interval, as a part of the first rate (`lr_range_test_step_rate`).
    pub growth: f64,
    /// Whether the rate grows only at the end of an interval (`lr_range_test_staircase`).
    pub staircase: bool,
}

/// β₂ while the schedule sets the momentum.
const BETA2: f64 = 0.99;

impl OneCycle {
    /// Creates the schedule with DeepSpeed's defaults: 2000 steps up, 2000 steps down, β₁ from 0.9 to 0.8
    /// and back, no stairs, no decay.
    pub fn new(rate_min: f64, rate_max: f64) -> Self {
        Self {
            rate_min,
            rate_max,
            first_steps: 2000,
            second_steps: 2000,
            first_stairs: 0,
            second_stairs: 0,
            decay_steps: 0,
            decay_rate: 0.0,
            momentum: Some(CycleMomentum { min: 0.8, max: 0.9, decay_rate: 0.0 }),
        }
    }

    /// Returns the rate of the step that follows `applied` others.
    pub(super) fn rate(&self, applied: u64) -> f64 {
        match self.units_after_cycle(applied) {
            None => self.rate_min + (self.rate_max - self.rate_min) * self.scale(applied),
            Some(units) => self.rate_min / (1.0 + self.decay_rate * units),
        }
    }

    /// Returns β₁ and β₂ of the step that follows `applied` others, if the schedule sets them.
    pub(super) fn betas(&self, applied: u64) -> Option<[f64; 2]> {
        let CycleMomentum { min, max, decay_rate } = self.momentum?;
        // DeepSpeed starts at the lowest momentum although the rate is lowest too.
        let beta1 = match self.units_after_cycle(applied) {
            _ if applied == 0 => min,
            None => max - (max - min) * self.scale(applied),
            Some(units) => max * (1.0 + decay_rate * units),
        };
        Some([beta1, BETA2])
    }

    /// Length of the cycle in steps.
    fn cycle_steps(&self) -> u64 {
        self.first_steps.saturating_add(self.second_steps).max(1)
    }

    /// Number of units of decay after the cycle; `None` in the cycle, whose last step starts another one.
    fn units_after_cycle(&self, applied: u64) -> Option<f64> {
        let after = applied.checked_sub(self.cycle_steps()).filter(|after| *after != 0)?;
        Some(if self.decay_steps == 0 { 0.0 } else { after as f64 / self.decay_steps as f64 })
    }

    /// Position between the lowest rate, 0, and the highest one, 1.
    fn scale(&self, applied: u64) -> f64 {
        let cycle = self.cycle_steps() as f64;
        let steps = applied as f64;
        let x = 1.0 + steps / cycle - (1.0 + steps / cycle).floor();
        let top = self.first_steps.max(1) as f64 / cycle;
        let (line, stairs) = if x <= top {
            (x / top, self.first_stairs)
        } else {
            ((x - 1.0) / (top - 1.0), self.second_stairs)
        };
        if stairs == 0 { line } else { self.stair(applied, stairs as f64) }
    }

    /// Scale rounded down to a stair. It starts from whole steps, so that the top is a stair.
    fn stair(&self, applied: u64, stairs: f64) -> f64 {
        let step = applied % self.cycle_steps();
        let position = if step <= self.first_steps {
            step as f64 * stairs / self.first_steps.max(1) as f64
        } else {
            (self.cycle_steps() - step) as f64 * stairs / self.second_steps as f64
        };
        position.floor() / stairs
    }
}

impl Default for LrRangeTest {
    fn default() -> Self {
        Self { rate_min: 1e-3, step_size: 2000, growth: 1.0, staircase: false }
    }
}

impl LrRangeTest {
    /// Returns the rate of the step that follows `applied` others.
    pub(super) fn rate(&self, applied: u64) -> f64 {
        let intervals = applied as f64 / self.step_size.max(1) as f64;
        let intervals = if self.staircase { intervals.floor() } else { intervals };
        self.rate_min * (1.0 + self.growth * intervals)
    }
}

/// Values of DeepSpeed 0.19.8.
#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rate: impl Fn(u64) -> f64, expect: &[f64]) {
        for (applied, expect) in expect.iter().enumerate() {
            let found = rate(applied as u64);
            assert!((found - expect).abs() <= 1e-9, "{found} instead of {expect} at {applied}");
        }
    }

    fn cycle() -> OneCycle {
        OneCycle {
            first_steps: 4,
            second_steps: 4,
            decay_steps: 2,
            decay_rate: 0.5,
            momentum: Some(CycleMomentum { min: 0.8, max: 0.9, decay_rate: 0.1 }),
            ..OneCycle::new(0.01, 0.1)
        }
    }

    #[test]
    fn one_cycle_matches_deepspeed() {
        let rates = [
            0.01,
            0.032_5,
            0.055,
            0.077_5,
            0.1,
            0.077_5,
            0.055,
            0.032_5,
            0.01,
            0.008,
            0.01 / 1.5,
            0.01 / 1.75,
            0.005,
        ];
        check(|applied| cycle().rate(applied), &rates);
        let betas =
            [0.8, 0.875, 0.85, 0.825, 0.8, 0.825, 0.85, 0.875, 0.9, 0.945, 0.99, 1.035, 1.08];
        check(|applied| cycle().betas(applied).expect("it has a momentum")[0], &betas);
        check(|applied| cycle().betas(applied).expect("it has a momentum")[1], &[0.99; 13]);
        let silent = OneCycle { momentum: None, ..cycle() };
        assert_eq!(silent.betas(3), None);
    }

    #[test]
    fn one_cycle_may_fall_faster_than_it_rises() {
        let short = OneCycle { second_steps: 2, decay_steps: 0, ..cycle() };
        let rates = [0.01, 0.032_5, 0.055, 0.077_5, 0.1, 0.055, 0.01, 0.01, 0.01];
        check(|applied| short.rate(applied), &rates);
    }

    #[test]
    fn one_cycle_with_stairs_matches_deepspeed() {
        let stairs = OneCycle { first_stairs: 2, second_stairs: 2, decay_steps: 0, ..cycle() };
        check(
            |applied| stairs.rate(applied),
            &[0.01, 0.01, 0.055, 0.055, 0.1, 0.055, 0.055, 0.01, 0.01, 0.01],
        );
        let uneven = OneCycle { first_steps: 5, second_steps: 3, first_stairs: 3, ..stairs };
        check(
            |applied| uneven.rate(applied),
            &[0.01, 0.01, 0.04, 0.04, 0.07, 0.1, 0.055, 0.01, 0.01, 0.01],
        );
    }

    #[test]
    fn range_test_matches_deepspeed() {
        let line = LrRangeTest { rate_min: 0.01, step_size: 3, growth: 1.0, staircase: false };
        let third = 0.01 / 3.0;
        let rates = [0.01, 0.01 + third, 0.01 + 2.0 * third, 0.02, 0.02 + third];
        check(|applied| line.rate(applied), &rates);
        let stairs = LrRangeTest { staircase: true, ..line };
        let rates = [0.01, 0.01, 0.01, 0.02, 0.02, 0.02, 0.03];
        check(|applied| stairs.rate(applied), &rates);
    }
}
