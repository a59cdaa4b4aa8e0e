//! [`LrSchedule`]: the learning rate as a function of the number of steps.
//!
//! The argument counts the steps that changed the parameters. A step that was skipped because a gradient
//! overflowed does not move the schedule, and a restart needs no state of its own.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::runtime::optim::one_cycle::{LrRangeTest, OneCycle};
use crate::runtime::optim::torch_factor::TorchFactor;
use crate::runtime::optim::warmup::{WarmupCosineLr, WarmupDecayLr, WarmupLr};

/// Learning rate as a function of the number of steps that changed the parameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum LrSchedule {
    /// The same rate for every step.
    Constant {
        /// Rate of every step.
        rate: f64,
    },
    /// Linear warm-up, then half a cosine, without a step at rate 0.
    HalfCosine(Schedule),
    /// DeepSpeed's `WarmupLR`.
    Warmup(WarmupLr),
    /// DeepSpeed's `WarmupDecayLR`.
    WarmupDecay(WarmupDecayLr),
    /// DeepSpeed's `WarmupCosineLR`.
    WarmupCosine(WarmupCosineLr),
    /// DeepSpeed's `OneCycle`.
    OneCycle(OneCycle),
    /// DeepSpeed's `LRRangeTest`.
    RangeTest(LrRangeTest),
    /// Torch's `CosineAnnealingLR`: `rate_min + (rate - rate_min)·(1 + cos(π·n/steps))/2` after `n` steps.
    /// After `steps` steps it rises, and after twice as many it is at `rate` again.
    CosineAnnealing {
        /// Rate of the first step.
        rate: f64,
        /// Rate after `steps` steps (`eta_min`).
        rate_min: f64,
        /// Length of half a period (`T_max`), 1 or more.
        steps: u64,
    },
    /// Torch's `LinearLR`, `ConstantLR`, `PolynomialLR`, `StepLR` and `ExponentialLR`.
    Scaled {
        /// Rate of the optimizer, which the factor multiplies.
        rate: f64,
        /// Factor of every step.
        factor: TorchFactor,
    },
    /// `get_linear_schedule_with_warmup` of transformers: from 0 to `rate` in `warmup` steps, then to 0.
    LinearWithWarmup {
        /// Highest rate.
        rate: f64,
        /// Number of warm-up steps.
        warmup: u64,
        /// Number of steps after which the rate is 0.
        steps: u64,
    },
    /// `get_cosine_schedule_with_warmup` of transformers: from 0 to `rate` in `warmup` steps, then half a
    /// cosine down to 0. After `steps` steps it rises.
    CosineWithWarmup {
        /// Highest rate.
        rate: f64,
        /// Number of warm-up steps.
        warmup: u64,
        /// Number of steps after which the rate is 0.
        steps: u64,
    },
}

/// Linear warm-up, then half a cosine: the schedule of the bundled trainer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    /// Highest rate, reached after the warm-up.
    pub rate: f64,
    /// Rate at the end.
    pub rate_min: f64,
    /// Number of warm-up steps.
    pub warmup: u64,
    /// Number of steps, after which the rate is `rate_min`.
    pub steps: u64,
}

/// Number of steps that is 0 and must not be. The text is the one that DeepSpeed has for
/// `warmup_num_steps`; with 0 for another number, DeepSpeed and torch divide by 0.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{name} must be a positive integer, got 0")]
pub struct ScheduleError {
    /// Name of the setting in DeepSpeed or torch.
    pub name: &'static str,
}

/// Settings that are valid, and probably a mistake. The text is DeepSpeed's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("total_num_steps {total} is less than warmup_num_steps {warmup}")]
pub struct ScheduleWarning {
    /// Number of steps of the run.
    pub total: u64,
    /// Number of warm-up steps.
    pub warmup: u64,
}

impl LrSchedule {
    /// Returns the rate of the step that follows `applied` steps which changed the parameters.
    pub fn rate(&self, applied: u64) -> f64 {
        match self {
            Self::Constant { rate } => *rate,
            Self::HalfCosine(schedule) => schedule.at(applied),
            Self::Warmup(schedule) => schedule.rate(applied),
            Self::WarmupDecay(schedule) => schedule.rate(applied),
            Self::WarmupCosine(schedule) => schedule.rate(applied),
            Self::OneCycle(schedule) => schedule.rate(applied),
            Self::RangeTest(schedule) => schedule.rate(applied),
            Self::CosineAnnealing { rate, rate_min, steps } => {
                let angle = PI * applied as f64 / (*steps).max(1) as f64;
                rate_min + (rate - rate_min) * (1.0 + angle.cos()) / 2.0
            }
            Self::Scaled { rate, factor } => rate * factor.at(applied),
            Self::LinearWithWarmup { rate, warmup, steps } => {
                let rest = steps.saturating_sub(applied) as f64;
                let factor = rise(applied, *warmup);
                rate * factor.unwrap_or_else(|| rest / decay_steps(*warmup, *steps))
            }
            Self::CosineWithWarmup { rate, warmup, steps } => {
                let progress =
                    applied.saturating_sub(*warmup) as f64 / decay_steps(*warmup, *steps);
                let factor = rise(applied, *warmup);
                rate * factor.unwrap_or_else(|| (0.5 * (1.0 + (PI * progress).cos())).max(0.0))
            }
        }
    }

    /// Returns the number of steps in which the rate falls to its end, if that is the length of a run.
    pub fn steps(&self) -> Option<u64> {
        match self {
            Self::HalfCosine(Schedule { steps, .. })
            | Self::WarmupDecay(WarmupDecayLr { total_steps: steps, .. })
            | Self::WarmupCosine(WarmupCosineLr { total_steps: steps, .. })
            | Self::LinearWithWarmup { steps, .. }
            | Self::CosineWithWarmup { steps, .. } => Some(*steps),
            Self::Constant { .. }
            | Self::Warmup(_)
            | Self::OneCycle(_)
            | Self::RangeTest(_)
            | Self::CosineAnnealing { .. }
            | Self::Scaled { .. } => None,
        }
    }

    /// Returns the betas of the step that follows `applied` steps, if the schedule sets them
    /// ([`Optimizer::with_betas`](super::optimizer::Optimizer::with_betas)).
    pub fn betas(&self, applied: u64) -> Option<[f64; 2]> {
        match self {
            Self::OneCycle(schedule) => schedule.betas(applied),
            Self::Constant { .. }
            | Self::HalfCosine(_)
            | Self::Warmup(_)
            | Self::WarmupDecay(_)
            | Self::WarmupCosine(_)
            | Self::RangeTest(_)
            | Self::CosineAnnealing { .. }
            | Self::Scaled { .. }
            | Self::LinearWithWarmup { .. }
            | Self::CosineWithWarmup { .. } => None,
        }
    }

    /// Returns whether all settings are in their ranges. Without this, the rate of a setting out of range
    /// is that of the nearest one in range.
    pub fn check(&self) -> Result<(), ScheduleError> {
        let positive = |name, value: u64| match value {
            0 => Err(ScheduleError { name }),
            _ => Ok(()),
        };
        match self {
            Self::Warmup(WarmupLr { warmup, .. })
            | Self::WarmupDecay(WarmupDecayLr { warmup, .. })
            | Self::WarmupCosine(WarmupCosineLr { warmup, .. }) => {
                positive("warmup_num_steps", warmup.steps)
            }
            Self::OneCycle(cycle) => positive("cycle_first_step_size", cycle.first_steps),
            Self::RangeTest(test) => positive("lr_range_test_step_size", test.step_size),
            Self::CosineAnnealing { steps, .. } => positive("T_max", *steps),
            Self::Scaled { factor, .. } => {
                factor.divisor().map_or(Ok(()), |(name, value)| positive(name, value))
            }
            Self::Constant { .. }
            | Self::HalfCosine(_)
            | Self::LinearWithWarmup { .. }
            | Self::CosineWithWarmup { .. } => Ok(()),
        }
    }

    /// Returns a warning if the warm-up is longer than the run.
    pub fn warning(&self) -> Option<ScheduleWarning> {
        let (total, warmup) = match self {
            Self::WarmupDecay(WarmupDecayLr { total_steps, warmup, .. })
            | Self::WarmupCosine(WarmupCosineLr { total_steps, warmup, .. }) => {
                (*total_steps, warmup.whole_steps())
            }
            Self::Constant { .. }
            | Self::HalfCosine(_)
            | Self::Warmup(_)
            | Self::OneCycle(_)
            | Self::RangeTest(_)
            | Self::CosineAnnealing { .. }
            | Self::Scaled { .. }
            | Self::LinearWithWarmup { .. }
            | Self::CosineWithWarmup { .. } => return None,
        };
        (total < warmup).then_some(ScheduleWarning { total, warmup })
    }
}

/// Factor during the warm-up of transformers; `None` after it.
fn rise(applied: u64, warmup: u64) -> Option<f64> {
    (applied < warmup).then(|| applied as f64 / warmup as f64)
}

/// Number of steps after the warm-up, 1 or more.
fn decay_steps(warmup: u64, steps: u64) -> f64 {
    steps.saturating_sub(warmup).max(1) as f64
}

impl Schedule {
    /// Returns the rate of step `step`, counted from 0.
    pub fn at(&self, step: u64) -> f64 {
        if step < self.warmup {
            return self.rate * (step + 1) as f64 / (self.warmup + 1) as f64;
        }
        if self.steps <= step {
            return self.rate_min;
        }
        let done = (step - self.warmup) as f64 / (self.steps - self.warmup) as f64;
        let weight = 0.5 * (1.0 + (PI * done).cos());
        self.rate_min + weight * (self.rate - self.rate_min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::optim::warmup::{Warmup, WarmupKind};
    use proptest::prelude::*;

    #[track_caller]
    fn check(schedule: LrSchedule, expect: &[f64]) {
        for (applied, expect) in expect.iter().enumerate() {
            let found = schedule.rate(applied as u64);
            assert!((found - expect).abs() <= 1e-10, "{found} instead of {expect} at {applied}");
        }
    }

    #[test]
    fn half_cosine_matches_known_points() {
        let schedule = Schedule { rate: 1.0, rate_min: 0.1, warmup: 9, steps: 109 };
        let rates = [(0, 0.1), (8, 0.9), (9, 1.0), (59, 0.55), (109, 0.1), (500, 0.1)];
        for (step, expect) in rates {
            let found = LrSchedule::HalfCosine(schedule).rate(step);
            assert!((found - expect).abs() < 1e-12, "{found} instead of {expect} at {step}");
        }
    }

    #[test]
    fn warmup_longer_than_the_run_is_finite() {
        let schedule = Schedule { rate: 1.0, rate_min: 0.1, warmup: 10, steps: 10 };
        assert!((0..20).all(|step| schedule.at(step).is_finite()));
    }

    /// Values of torch 2.15: they rise after half a period.
    #[test]
    fn cosine_annealing_matches_torch() {
        let schedule = LrSchedule::CosineAnnealing { rate: 0.1, rate_min: 0.01, steps: 10 };
        let down = [
            0.1,
            0.097_797_543_2,
            0.091_405_764_7,
            0.081_450_336_4,
            0.068_905_764_7,
            0.055,
            0.041_094_235_3,
            0.028_549_663_6,
            0.018_594_235_3,
            0.012_202_456_8,
            0.01,
        ];
        let up = down.iter().rev().skip(1);
        check(schedule, &down.iter().chain(up).copied().collect::<Vec<_>>());
    }

    /// Values of transformers 5.23.
    #[test]
    fn schedules_of_transformers_match() {
        let (rate, warmup, steps) = (0.1, 4, 10);
        let sixth = 0.1 / 6.0;
        let linear = LrSchedule::LinearWithWarmup { rate, warmup, steps };
        let down = (0..=6).rev().map(|rest| sixth * f64::from(rest));
        let rates: Vec<f64> = [0.0, 0.025, 0.05, 0.075].into_iter().chain(down).collect();
        check(linear, &rates);
        assert_eq!(linear.rate(1000).to_bits(), 0);
        let cosine = LrSchedule::CosineWithWarmup { rate, warmup, steps };
        let rates = [
            0.0,
            0.025,
            0.05,
            0.075,
            0.1,
            0.093_301_270_2,
            0.075,
            0.05,
            0.025,
            0.006_698_729_81,
            0.0,
            0.006_698_729_81,
        ];
        check(cosine, &rates);
    }

    #[test]
    fn settings_out_of_range_have_the_words_of_deepspeed() {
        #[track_caller]
        fn check(schedule: LrSchedule, expect: &str) {
            let error = schedule.check().map_or_else(|error| error.to_string(), |()| "-".into());
            assert_eq!(error, expect);
        }
        let with = |warmup| WarmupLr { rate_min: 0.0, rate_max: 1e-3, warmup };
        let without = Warmup { steps: 0, ..Warmup::default() };
        let positive = "warmup_num_steps must be a positive integer, got 0";
        check(LrSchedule::Warmup(with(without)), positive);
        check(LrSchedule::Warmup(with(Warmup::default())), "-");
        check(
            LrSchedule::OneCycle(OneCycle { first_steps: 0, ..OneCycle::new(0.01, 0.1) }),
            "cycle_first_step_size must be a positive integer, got 0",
        );
        check(
            LrSchedule::RangeTest(LrRangeTest { step_size: 0, ..LrRangeTest::default() }),
            "lr_range_test_step_size must be a positive integer, got 0",
        );
        let annealing = LrSchedule::CosineAnnealing { rate: 0.1, rate_min: 0.0, steps: 0 };
        check(annealing, "T_max must be a positive integer, got 0");
        let scaled = |factor| LrSchedule::Scaled { rate: 0.1, factor };
        let total = "total_iters must be a positive integer, got 0";
        check(scaled(TorchFactor::Linear { start: 1.0, end: 0.0, steps: 0 }), total);
        check(scaled(TorchFactor::Polynomial { steps: 0, power: 1.0 }), total);
        let step = TorchFactor::Step { step_size: 0, gamma: 0.1 };
        check(scaled(step), "step_size must be a positive integer, got 0");
        check(scaled(TorchFactor::Constant { factor: 0.5, steps: 0 }), "-");
        check(scaled(TorchFactor::Exponential { gamma: 0.0 }), "-");
    }

    #[test]
    fn warmup_longer_than_the_run_has_a_warning() {
        let warmup = Warmup::default();
        let long = WarmupDecayLr { rate_min: 0.0, rate_max: 1e-3, warmup, total_steps: 10 };
        let warning = LrSchedule::WarmupDecay(long).warning().map(|warning| warning.to_string());
        let expect = "total_num_steps 10 is less than warmup_num_steps 1000";
        assert_eq!(warning.as_deref(), Some(expect));
        let fitting = WarmupDecayLr { total_steps: 1000, ..long };
        assert_eq!(LrSchedule::WarmupDecay(fitting).warning(), None);
    }

    /// All schedules, also with settings that [`LrSchedule::check`] rejects.
    fn any_schedule() -> impl Strategy<Value = LrSchedule> {
        let numbers = (0u64..20, 0u64..50, 0u64..30, any::<bool>());
        (numbers, 0usize..15).prop_map(|((warmup, steps, size, flag), kind)| {
            let shape = if flag { WarmupKind::Linear } else { WarmupKind::Log };
            let warm = Warmup { steps: warmup, kind: shape };
            let (rate, rate_min) = (0.1, 0.01);
            match kind {
                0 => LrSchedule::Constant { rate },
                1 => LrSchedule::HalfCosine(Schedule { rate, rate_min, warmup, steps }),
                2 => LrSchedule::Warmup(WarmupLr { rate_min, rate_max: rate, warmup: warm }),
                3 => LrSchedule::WarmupDecay(WarmupDecayLr {
                    rate_min,
                    rate_max: rate,
                    warmup: warm,
                    total_steps: steps,
                }),
                4 => LrSchedule::WarmupCosine(WarmupCosineLr {
                    rate,
                    warmup: warm,
                    warmup_min_ratio: 0.1,
                    cos_min_ratio: 1e-4,
                    total_steps: steps,
                }),
                5 => LrSchedule::OneCycle(OneCycle {
                    first_steps: warmup,
                    second_steps: size,
                    first_stairs: steps % 4,
                    decay_steps: size,
                    decay_rate: 0.5,
                    ..OneCycle::new(0.01, 0.1)
                }),
                6 => LrSchedule::RangeTest(LrRangeTest {
                    step_size: size,
                    staircase: flag,
                    ..LrRangeTest::default()
                }),
                7 => LrSchedule::CosineAnnealing { rate, rate_min, steps },
                8 => LrSchedule::LinearWithWarmup { rate, warmup, steps },
                10.. => LrSchedule::Scaled { rate, factor: factor_of(kind, steps) },
                _ => LrSchedule::CosineWithWarmup { rate, warmup, steps },
            }
        })
    }

    /// A factor of torch for each number from 10.
    fn factor_of(kind: usize, steps: u64) -> TorchFactor {
        match kind {
            10 => TorchFactor::Linear { start: 1.0 / 3.0, end: 0.0, steps },
            11 => TorchFactor::Constant { factor: 0.5, steps },
            12 => TorchFactor::Polynomial { steps, power: steps as f64 / 10.0 },
            13 => TorchFactor::Step { step_size: steps, gamma: 1.5 },
            _ => TorchFactor::Exponential { gamma: steps as f64 / 25.0 },
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        #[test]
        fn rates_are_never_negative_nor_infinite(
            schedule in any_schedule(),
            applied in prop_oneof![0u64..200, any::<u64>()],
        ) {
            let rate = schedule.rate(applied);
            prop_assert!(rate.is_finite() && 0.0 <= rate, "{rate}");
            let betas = schedule.betas(applied).unwrap_or_default();
            prop_assert!(betas.iter().all(|beta| beta.is_finite()));
        }
    }
}
