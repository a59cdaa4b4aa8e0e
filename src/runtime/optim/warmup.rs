//! Schedules of DeepSpeed (0.19.8) that begin with a warm-up: `WarmupLR`, `WarmupDecayLR`,
//! `WarmupCosineLR`.
//!
//! DeepSpeed's index `i` is -1 at the first step, where the rate is the lowest one by definition, and grows by
//! one after each step. At `i = 0` a warm-up has not grown yet, so the first two steps have the lowest rate.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

/// Warm-up of `N` steps, which the schedules have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warmup {
    /// Number of steps, `N` (`warmup_num_steps`), 1 or more; 1 counts as 2.
    pub steps: u64,
    /// Shape of the growth (`warmup_type`).
    pub kind: WarmupKind,
}

/// How the rate grows during a [`Warmup`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum WarmupKind {
    /// By `ln(i + 1) / ln N`.
    #[default]
    Log,
    /// By `i / N`.
    Linear,
}

/// Warm-up, then a constant rate: DeepSpeed's `WarmupLR`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WarmupLr {
    /// Rate of the first two steps (`warmup_min_lr`, 0 in DeepSpeed).
    pub rate_min: f64,
    /// Rate after the warm-up (`warmup_max_lr`; without it, the rate of the optimizer).
    pub rate_max: f64,
    /// Length and shape of the warm-up.
    pub warmup: Warmup,
}

/// Warm-up, then a linear decay to the lowest rate: DeepSpeed's `WarmupDecayLR`.
///
/// After the warm-up the part `max(0, (T - i) / max(1, T - N))` of the difference of the rates remains.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WarmupDecayLr {
    /// Rate of the first two steps, and at the end (`warmup_min_lr`, 0 in DeepSpeed).
    pub rate_min: f64,
    /// Rate after the warm-up (`warmup_max_lr`; without it, 0.001, whatever the optimizer has).
    pub rate_max: f64,
    /// Length and shape of the warm-up.
    pub warmup: Warmup,
    /// Number of steps of the run, `T` (`total_num_steps`).
    pub total_steps: u64,
}

/// Warm-up, then half a cosine: DeepSpeed's `WarmupCosineLR`.
///
/// The rate is that of the optimizer times a ratio. The first step has ratio 0. The ratio then grows from
/// `warmup_min_ratio` to 1, and falls along `c + (1 - c)·(1 + cos(π·p))/2` with
/// `p = min(1, (i - N + 1) / max(1, T - N))`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct WarmupCosineLr {
    /// Rate of the optimizer.
    pub rate: f64,
    /// Length and shape of the warm-up.
    pub warmup: Warmup,
    /// Ratio of the second step (`warmup_min_ratio`, 0 in DeepSpeed).
    pub warmup_min_ratio: f64,
    /// Ratio at the end, `c` (`cos_min_ratio`, 0.0001 in DeepSpeed).
    pub cos_min_ratio: f64,
    /// Number of steps of the run, `T` (`total_num_steps`).
    pub total_steps: u64,
}

impl Default for Warmup {
    /// DeepSpeed's: 1000 steps.
    fn default() -> Self {
        Self { steps: 1000, kind: WarmupKind::Log }
    }
}

impl Warmup {
    /// Returns `N`, which is 2 or more.
    pub(super) fn whole_steps(self) -> u64 {
        self.steps.max(2)
    }

    /// Part of the growth at index `i`; `None` after the warm-up.
    fn growth(self, index: u64) -> Option<f64> {
        let steps = self.whole_steps() as f64;
        (index < self.whole_steps()).then(|| match self.kind {
            WarmupKind::Log => (1.0 / steps.ln()) * ((index + 1) as f64).ln(),
            WarmupKind::Linear => index as f64 / steps,
        })
    }

    /// Number of steps of a run after the warm-up, 1 or more.
    fn rest(self, total_steps: u64) -> f64 {
        total_steps.saturating_sub(self.whole_steps()).max(1) as f64
    }
}

impl WarmupLr {
    /// Returns the rate of the step that follows `applied` others.
    pub(super) fn rate(&self, applied: u64) -> f64 {
        let Some(index) = applied.checked_sub(1) else { return self.rate_min };
        let part = self.warmup.growth(index).unwrap_or(1.0);
        self.rate_min + (self.rate_max - self.rate_min) * part
    }
}

impl WarmupDecayLr {
    /// Returns the rate of the step that follows `applied` others.
    pub(super) fn rate(&self, applied: u64) -> f64 {
        let Some(index) = applied.checked_sub(1) else { return self.rate_min };
        let rest =
            || self.total_steps.saturating_sub(index) as f64 / self.warmup.rest(self.total_steps);
        let part = self.warmup.growth(index).unwrap_or_else(rest);
        self.rate_min + (self.rate_max - self.rate_min) * part
    }
}

impl WarmupCosineLr {
    /// Returns the rate of the step that follows `applied` others.
    pub(super) fn rate(&self, applied: u64) -> f64 {
        applied.checked_sub(1).map_or(0.0, |index| self.rate * self.ratio(index))
    }

    fn ratio(&self, index: u64) -> f64 {
        if let Some(growth) = self.warmup.growth(index) {
            return self.warmup_min_ratio + growth * (1.0 - self.warmup_min_ratio);
        }
        let done = (index - self.warmup.whole_steps() + 1) as f64;
        let progress = (done / self.warmup.rest(self.total_steps)).min(1.0);
        let weight = 0.5 * (1.0 + (PI * progress).cos());
        (self.cos_min_ratio + (1.0 - self.cos_min_ratio) * weight).max(0.0)
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

    const LOG: Warmup = Warmup { steps: 4, kind: WarmupKind::Log };
    const LINEAR: Warmup = Warmup { steps: 4, kind: WarmupKind::Linear };

    #[test]
    fn warmup_takes_two_steps_at_the_lowest_rate() {
        let log = WarmupLr { rate_min: 0.0, rate_max: 0.1, warmup: LOG };
        check(|applied| log.rate(applied), &[0.0, 0.0, 0.05, 0.079_248_125, 0.1, 0.1, 0.1]);
        let linear = WarmupLr { rate_min: 0.02, rate_max: 0.1, warmup: LINEAR };
        check(|applied| linear.rate(applied), &[0.02, 0.02, 0.04, 0.06, 0.08, 0.1, 0.1]);
    }

    #[test]
    fn warmup_of_one_step_counts_as_two() {
        let warmup = Warmup { steps: 1, ..LINEAR };
        let one = WarmupLr { rate_min: 0.0, rate_max: 0.1, warmup };
        check(|applied| one.rate(applied), &[0.0, 0.0, 0.05, 0.1]);
    }

    #[test]
    fn warmup_decay_matches_deepspeed() {
        let schedule =
            WarmupDecayLr { rate_min: 0.0, rate_max: 0.1, warmup: LINEAR, total_steps: 10 };
        let sixths = (0..=6).rev().map(|rest| 0.1 / 6.0 * f64::from(rest));
        let expect = [0.0, 0.0, 0.025, 0.05, 0.075].into_iter().chain(sixths).chain([0.0]);
        check(|applied| schedule.rate(applied), &expect.collect::<Vec<_>>());
    }

    #[test]
    fn warmup_cosine_matches_deepspeed() {
        let linear = WarmupCosineLr {
            rate: 0.1,
            warmup: LINEAR,
            warmup_min_ratio: 0.0,
            cos_min_ratio: 1e-4,
            total_steps: 10,
        };
        let fall = [0.093_301_940_1, 0.075_002_5, 0.050_005, 0.025_007_5, 0.006_708_059_94, 1e-5];
        let expect = [0.0, 0.0, 0.025, 0.05, 0.075].into_iter().chain(fall).chain([1e-5]);
        check(|applied| linear.rate(applied), &expect.collect::<Vec<_>>());
        let log =
            WarmupCosineLr { warmup: LOG, warmup_min_ratio: 0.1, cos_min_ratio: 0.1, ..linear };
        let rise = [0.0, 0.01, 0.055, 0.081_323_312_5, 0.1];
        let fall = [0.093_971_143_2, 0.077_5, 0.055, 0.032_5, 0.016_028_856_8, 0.01];
        check(|applied| log.rate(applied), &[&rise[..], &fall[..]].concat());
    }
}
