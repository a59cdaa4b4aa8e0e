//! [`LrSchedule`]: the learning rate as a function of the number of updates before it.
//!
//! DeepSpeed's schedules are reproduced with their habits: they count from -1, so that the first two updates
//! of a warm-up have the lowest rate (DeepSpeed 0.19.8, `runtime/lr_schedules.py`).

use std::f64::consts::PI;

/// Learning rate of every update; the first update has number 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LrSchedule {
    /// The same rate always.
    Constant {
        /// Rate of every update.
        rate: f64,
    },
    /// A linear warm-up from above zero, then half a cosine: the schedule of `remuda train`.
    WarmupHalfCosine {
        /// Highest rate, reached after the warm-up.
        rate: f64,
        /// Rate at the end and after it.
        rate_min: f64,
        /// Number of updates of the warm-up.
        warmup: u64,
        /// Number of updates.
        steps: u64,
    },
    /// DeepSpeed's `WarmupLR`: a warm-up, then the highest rate.
    Warmup {
        /// Rate at the beginning.
        min: f64,
        /// Rate after the warm-up.
        max: f64,
        /// Number of updates of the warm-up.
        warmup: u64,
        /// Form of the warm-up.
        shape: WarmupShape,
    },
    /// DeepSpeed's `WarmupDecayLR`: a warm-up, then a straight line down to `min`.
    WarmupDecay {
        /// Rate at the beginning and at the end.
        min: f64,
        /// Rate after the warm-up.
        max: f64,
        /// Number of updates of the warm-up.
        warmup: u64,
        /// Form of the warm-up.
        shape: WarmupShape,
        /// Number of all updates.
        total: u64,
    },
    /// DeepSpeed's `WarmupCosineLR`: shares of the optimizer's rate.
    WarmupCosine {
        /// Rate after the warm-up.
        rate: f64,
        /// Share of it at the beginning of the warm-up.
        warmup_min_ratio: f64,
        /// Share of it at the end.
        cos_min_ratio: f64,
        /// Number of updates of the warm-up.
        warmup: u64,
        /// Form of the warm-up.
        shape: WarmupShape,
        /// Number of all updates.
        total: u64,
    },
    /// DeepSpeed's `OneCycle`: up, down, and a decay; the momentum moves the other way.
    OneCycle {
        /// Rate at the beginning and the end of the cycle.
        min: f64,
        /// Rate in the middle.
        max: f64,
        /// Number of updates on the way up.
        first: u64,
        /// Number of updates on the way down.
        second: u64,
        /// Decay of the rate after the cycle, for every `decay_step` updates.
        decay_rate: f64,
        /// Number of updates of a decay; 0: there is none.
        decay_step: u64,
        /// Lowest and highest momentum, and its growth after the cycle, if it is cycled.
        momentum: Option<[f64; 3]>,
    },
    /// DeepSpeed's `LRRangeTest`: a rate that grows without end.
    RangeTest {
        /// Rate at the beginning.
        min: f64,
        /// Number of updates in which it grows by `growth` times `min`.
        step_size: u64,
        /// Factor of `min` by which it grows.
        growth: f64,
        /// Whether it grows in stairs.
        is_staircase: bool,
    },
    /// torch's `CosineAnnealingLR`; the rate rises again after `period` updates.
    CosineAnnealing {
        /// Rate at the beginning.
        rate: f64,
        /// Lowest rate.
        min: f64,
        /// Number of updates from the highest to the lowest rate.
        period: u64,
    },
    /// A linear warm-up from zero, then a straight line to zero, as in Hugging Face's `linear`.
    Linear {
        /// Highest rate.
        rate: f64,
        /// Number of updates of the warm-up.
        warmup: u64,
        /// Number of all updates.
        total: u64,
    },
}

/// Form of a warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WarmupShape {
    /// Logarithm of the number of updates.
    #[default]
    Log,
    /// Number of updates.
    Linear,
}

impl WarmupShape {
    /// Share of the way after `at` updates of `warmup`, from 0 to 1.
    fn share(self, at: u64, warmup: u64) -> f64 {
        let warmup = warmup.max(2) as f64;
        match self {
            Self::Log => ((at + 1) as f64).ln() / warmup.ln(),
            Self::Linear => at as f64 / warmup,
        }
    }
}

impl LrSchedule {
    /// Returns the rate of the update after `done` updates.
    pub fn rate(&self, done: u64) -> f64 {
        match *self {
            Self::Constant { rate } => rate,
            Self::WarmupHalfCosine { rate, rate_min, warmup, steps } => {
                if done < warmup {
                    return rate * (done + 1) as f64 / (warmup + 1) as f64;
                }
                if steps <= done {
                    return rate_min;
                }
                let share = (done - warmup) as f64 / (steps - warmup) as f64;
                rate_min + half_cosine(share) * (rate - rate_min)
            }
            Self::Warmup { min, max, warmup, shape } => {
                min + (max - min) * warmup_share(done, warmup, shape, |_| 1.0)
            }
            Self::WarmupDecay { min, max, warmup, shape, total } => {
                let decay = |at: u64| remaining_share(at, warmup.max(2), total);
                min + (max - min) * warmup_share(done, warmup, shape, decay)
            }
            Self::WarmupCosine { rate, warmup_min_ratio, cos_min_ratio, warmup, shape, total } => {
                rate * cosine_share(done, (warmup, total), shape, (warmup_min_ratio, cos_min_ratio))
            }
            Self::OneCycle { min, max, first, second, decay_rate, decay_step, .. } => {
                match cycle(done, first, second) {
                    Cycle::Inside(scale) => min + (max - min) * scale,
                    Cycle::After(count) => min / (1.0 + decay_rate * decays(count, decay_step)),
                }
            }
            Self::RangeTest { min, step_size, growth, is_staircase } => {
                let count = done as f64 / step_size.max(1) as f64;
                min * (1.0 + growth * if is_staircase { count.floor() } else { count })
            }
            Self::CosineAnnealing { rate, min, period } => {
                min + (rate - min) * half_cosine(done as f64 / period.max(1) as f64)
            }
            Self::Linear { rate, warmup, total } => {
                if done < warmup {
                    return rate * done as f64 / warmup as f64;
                }
                rate * remaining_share(done, warmup, total)
            }
        }
    }

    /// Returns the momentum of the update after `done` updates, if the schedule sets it.
    pub fn momentum(&self, done: u64) -> Option<f64> {
        let Self::OneCycle { first, second, decay_step, momentum: Some(range), .. } = *self else {
            return None;
        };
        let [min, max, growth] = range;
        Some(match cycle(done, first, second) {
            _ if done == 0 => min,
            Cycle::Inside(scale) => max - (max - min) * scale,
            Cycle::After(count) => max * (1.0 + growth * decays(count, decay_step)),
        })
    }
}

/// From 1 to 0 and back: half a period of a cosine for every unit of `share`.
fn half_cosine(share: f64) -> f64 {
    0.5 * (1.0 + (PI * share).cos())
}

/// Part of the updates after a warm-up that is left.
fn remaining_share(at: u64, warmup: u64, total: u64) -> f64 {
    total.saturating_sub(at) as f64 / total.saturating_sub(warmup).max(1) as f64
}

/// Share of the highest rate during DeepSpeed's warm-up, and `after` it; the count begins at -1.
fn warmup_share(done: u64, warmup: u64, shape: WarmupShape, after: impl Fn(u64) -> f64) -> f64 {
    match done.checked_sub(1) {
        None => 0.0,
        Some(at) if at < warmup.max(2) => shape.share(at, warmup),
        Some(at) => after(at),
    }
}

fn cosine_share(
    done: u64,
    (warmup, total): (u64, u64),
    shape: WarmupShape,
    (warmup_min, cos_min): (f64, f64),
) -> f64 {
    let warmup = warmup.max(2);
    match done.checked_sub(1) {
        None => 0.0,
        Some(at) if at < warmup => warmup_min + (1.0 - warmup_min) * shape.share(at, warmup),
        Some(at) => {
            let after = (at - warmup + 1) as f64 / total.saturating_sub(warmup).max(1) as f64;
            (cos_min + (1.0 - cos_min) * half_cosine(after.min(1.0))).max(0.0)
        }
    }
}

/// Place in a cycle.
enum Cycle {
    /// Height from 0 to 1.
    Inside(f64),
    /// Number of updates after the end.
    After(u64),
}

fn cycle(done: u64, first: u64, second: u64) -> Cycle {
    let length = (first + second).max(1);
    if length < done {
        return Cycle::After(done - length);
    }
    let place = (done % length) as f64 / length as f64;
    let top = first as f64 / length as f64;
    Cycle::Inside(if place <= top { place / top } else { (place - 1.0) / (top - 1.0) })
}

fn decays(count: u64, step: u64) -> f64 {
    if step == 0 { 0.0 } else { count as f64 / step as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(schedule: LrSchedule, expected: &[f64]) {
        for (done, expected) in (0..).zip(expected) {
            let found = schedule.rate(done);
            assert!((found - expected).abs() < 1e-8, "{found} after {done}, not {expected}");
        }
    }

    /// Rates of DeepSpeed 0.19.8, torch 2.15 and transformers 5.23.
    #[test]
    fn schedules_match_their_originals() {
        use WarmupShape::{Linear, Log};
        check(
            LrSchedule::Warmup { min: 0.0, max: 0.1, warmup: 4, shape: Log },
            &[0.0, 0.0, 0.05, 0.079_248_125, 0.1, 0.1],
        );
        check(
            LrSchedule::Warmup { min: 0.02, max: 0.1, warmup: 4, shape: Linear },
            &[0.02, 0.02, 0.04, 0.06, 0.08, 0.1],
        );
        check(
            LrSchedule::WarmupDecay { min: 0.0, max: 0.1, warmup: 4, shape: Linear, total: 10 },
            &[
                0.0,
                0.0,
                0.025,
                0.05,
                0.075,
                0.1,
                0.083_333_333,
                0.066_666_667,
                0.05,
                0.033_333_333,
                0.016_666_667,
                0.0,
                0.0,
            ],
        );
        let cosine = |warmup_min_ratio, cos_min_ratio, shape| LrSchedule::WarmupCosine {
            rate: 0.1,
            warmup_min_ratio,
            cos_min_ratio,
            warmup: 4,
            shape,
            total: 10,
        };
        check(
            cosine(0.0, 1e-4, Linear),
            &[
                0.0,
                0.0,
                0.025,
                0.05,
                0.075,
                0.093_301_940,
                0.075_002_5,
                0.050_005,
                0.025_007_5,
                0.006_708_06,
                1e-5,
                1e-5,
            ],
        );
        check(
            cosine(0.1, 0.1, Log),
            &[
                0.0,
                0.01,
                0.055,
                0.081_323_312,
                0.1,
                0.093_971_143,
                0.077_5,
                0.055,
                0.032_5,
                0.016_028_857,
                0.01,
            ],
        );
        check(
            LrSchedule::RangeTest { min: 0.01, step_size: 3, growth: 1.0, is_staircase: false },
            &[0.01, 0.013_333_333, 0.016_666_667, 0.02, 0.023_333_333],
        );
        check(
            LrSchedule::RangeTest { min: 0.01, step_size: 3, growth: 1.0, is_staircase: true },
            &[0.01, 0.01, 0.01, 0.02, 0.02, 0.02, 0.03],
        );
        let annealing = LrSchedule::CosineAnnealing { rate: 0.1, min: 0.01, period: 10 };
        check(annealing, &[0.1, 0.097_797_543, 0.091_405_764, 0.081_450_336, 0.068_905_765, 0.055]);
        assert!((annealing.rate(11) - 0.012_202_457).abs() < 1e-8);
        assert!((annealing.rate(20) - 0.1).abs() < 1e-12);
        check(
            LrSchedule::Linear { rate: 0.1, warmup: 4, total: 10 },
            &[
                0.0,
                0.025,
                0.05,
                0.075,
                0.1,
                0.083_333_333,
                0.066_666_667,
                0.05,
                0.033_333_333,
                0.016_666_667,
                0.0,
            ],
        );
    }

    #[test]
    fn one_cycle_moves_rate_and_momentum() {
        let one = |second| LrSchedule::OneCycle {
            min: 0.01,
            max: 0.1,
            first: 4,
            second,
            decay_rate: 0.5,
            decay_step: 2,
            momentum: Some([0.8, 0.9, 0.1]),
        };
        check(
            one(4),
            &[
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
                0.006_666_667,
                0.005_714_286,
                0.005,
            ],
        );
        check(one(2), &[0.01, 0.032_5, 0.055, 0.077_5, 0.1, 0.055, 0.01]);
        let expected =
            [0.8, 0.875, 0.85, 0.825, 0.8, 0.825, 0.85, 0.875, 0.9, 0.945, 0.99, 1.035, 1.08];
        for (done, expected) in (0..).zip(expected) {
            let found = one(4).momentum(done).expect("it is cycled");
            assert!((found - expected).abs() < 1e-9, "{found} after {done}, not {expected}");
        }
    }

    #[test]
    fn warmup_half_cosine_matches_known_points() {
        let schedule =
            LrSchedule::WarmupHalfCosine { rate: 1.0, rate_min: 0.1, warmup: 9, steps: 109 };
        for (done, expected) in [(0, 0.1), (8, 0.9), (9, 1.0), (59, 0.55), (109, 0.1), (500, 0.1)] {
            assert!((schedule.rate(done) - expected).abs() < 1e-12, "{done}");
        }
        let short =
            LrSchedule::WarmupHalfCosine { rate: 1.0, rate_min: 0.1, warmup: 10, steps: 10 };
        assert!((0..20).all(|done| short.rate(done).is_finite()));
    }
}
