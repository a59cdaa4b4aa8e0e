//! Schedules of torch that multiply the rate of the optimizer by a factor: [`TorchFactor`].

use serde::{Deserialize, Serialize};

use crate::runtime::optim::power::power;

/// Factor of a learning rate as a function of the number of steps, as in `torch.optim.lr_scheduler`.
///
/// Torch multiplies the last rate at every step; here the product is in closed form, so that a restart
/// needs no state. The two differ by the rounding of torch's products.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum TorchFactor {
    /// `LinearLR`: `start + (end - start)·min(n, steps)/steps` after `n` steps.
    Linear {
        /// Factor of the first step (`start_factor`).
        start: f64,
        /// Factor after `steps` steps (`end_factor`).
        end: f64,
        /// Number of steps between the two (`total_iters`), 1 or more.
        steps: u64,
    },
    /// `ConstantLR`: `factor` for `steps` steps, then 1. With 0 steps it stays at `factor`, as in torch.
    Constant {
        /// Factor of the first steps.
        factor: f64,
        /// Number of these steps (`total_iters`).
        steps: u64,
    },
    /// `PolynomialLR`: `(1 - min(n, steps)/steps)^power` after `n` steps.
    Polynomial {
        /// Number of steps after which the factor is 0 (`total_iters`), 1 or more.
        steps: u64,
        /// Exponent, 0 or more.
        power: f64,
    },
    /// `StepLR`: `gamma` to the number of whole intervals of `step_size` steps.
    Step {
        /// Number of steps with the same factor, 1 or more.
        step_size: u64,
        /// Factor of an interval, relative to the one before it.
        gamma: f64,
    },
    /// `ExponentialLR`: `gammaⁿ` after `n` steps.
    Exponential {
        /// Factor of a step, relative to the one before it.
        gamma: f64,
    },
}

impl TorchFactor {
    /// Returns the factor of the step that follows `applied` steps; it is never infinite.
    pub fn at(&self, applied: u64) -> f64 {
        match *self {
            Self::Linear { start, end, steps } => start + (end - start) * progress(applied, steps),
            Self::Constant { factor, steps } => {
                if 0 < steps && steps <= applied {
                    1.0
                } else {
                    factor
                }
            }
            Self::Polynomial { steps, power } => (1.0 - progress(applied, steps)).powf(power),
            Self::Step { step_size, gamma } => growth(gamma, applied / step_size.max(1)),
            Self::Exponential { gamma } => growth(gamma, applied),
        }
    }

    /// Returns the number of steps that must not be 0, with its name in torch.
    pub(super) fn divisor(&self) -> Option<(&'static str, u64)> {
        match *self {
            Self::Linear { steps, .. } | Self::Polynomial { steps, .. } => {
                Some(("total_iters", steps))
            }
            Self::Step { step_size, .. } => Some(("step_size", step_size)),
            Self::Constant { .. } | Self::Exponential { .. } => None,
        }
    }
}

/// Part of the steps that are done, from 0 to 1.
fn progress(applied: u64, steps: u64) -> f64 {
    let steps = steps.max(1);
    applied.min(steps) as f64 / steps as f64
}

/// Returns `gammaⁿ`, or the largest number if the power is larger than that.
fn growth(gamma: f64, n: u64) -> f64 {
    if gamma <= 1.0 {
        return power(gamma, n);
    }
    power(gamma.recip(), n).recip().min(f64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected rates are those of the recursions in `get_lr()` of torch 2.15, computed step by step in
    /// f64 by a script, with 12 digits; torch leaves -1.5e-18 where the factor is 0.
    #[test]
    fn factors_match_the_recursions_of_torch() {
        #[track_caller]
        fn check(factor: TorchFactor, expect: &[f64]) {
            for (applied, expect) in expect.iter().enumerate() {
                let found = 0.1 * factor.at(applied as u64);
                let limit = 1e-11 * expect.abs().max(1e-6);
                assert!((found - expect).abs() <= limit, "{found} instead of {expect}: {applied}");
            }
        }
        let linear = |start, end, steps| TorchFactor::Linear { start, end, steps };
        let third = 1.0 / 3.0;
        let up = [
            0.033_333_333_333_3,
            0.046_666_666_666_7,
            0.06,
            0.073_333_333_333_3,
            0.086_666_666_666_7,
            0.1,
            0.1,
        ];
        check(linear(third, 1.0, 5), &up);
        check(linear(1.0, 0.1, 4), &[0.1, 0.0775, 0.055, 0.0325, 0.01, 0.01]);
        let down = [
            0.033_333_333_333_3,
            0.026_666_666_666_7,
            0.02,
            0.013_333_333_333_3,
            0.006_666_666_666_67,
            0.0,
            0.0,
        ];
        check(linear(third, 0.0, 5), &down);
        let constant = |factor, steps| TorchFactor::Constant { factor, steps };
        check(constant(0.5, 3), &[0.05, 0.05, 0.05, 0.1, 0.1]);
        check(constant(0.5, 0), &[0.05, 0.05, 0.05]);
        let polynomial = |steps, power| TorchFactor::Polynomial { steps, power };
        check(polynomial(5, 1.0), &[0.1, 0.08, 0.06, 0.04, 0.02, 0.0, 0.0]);
        let curve = [0.1, 0.048_713_928_962_9, 0.017_677_669_529_7, 0.003_125, 0.0, 0.0];
        check(polynomial(4, 2.5), &curve);
        check(polynomial(4, 0.0), &[0.1; 6]);
        let step = TorchFactor::Step { step_size: 3, gamma: 0.1 };
        check(step, &[0.1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.001, 0.001, 0.001, 0.0001]);
        let exponential = |gamma| TorchFactor::Exponential { gamma };
        let slow = [0.1, 0.09, 0.081, 0.0729, 0.065_61, 0.059_049, 0.053_144_1, 0.047_829_69];
        check(exponential(0.9), &slow);
        check(exponential(1.5), &[0.1, 0.15, 0.225, 0.3375, 0.506_25]);
    }
}
