//! Learning-rate schedule: a linear warm-up, then half a cosine.

/// Learning rate as a function of the step.
#[derive(Clone, Copy, Debug, PartialEq)]
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
        let weight = 0.5 * (1.0 + (std::f64::consts::PI * done).cos());
        self.rate_min + weight * (self.rate - self.rate_min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(step: u64, expected: f64) {
        let schedule = Schedule { rate: 1.0, rate_min: 0.1, warmup: 9, steps: 109 };
        assert!((schedule.at(step) - expected).abs() < 1e-12, "{}", schedule.at(step));
    }

    #[test]
    fn learning_rate_matches_known_points() {
        check(0, 0.1);
        check(8, 0.9);
        check(9, 1.0);
        check(59, 0.55);
        check(109, 0.1);
        check(500, 0.1);
    }

    #[test]
    fn warmup_longer_than_the_run_is_finite() {
        let schedule = Schedule { rate: 1.0, rate_min: 0.1, warmup: 10, steps: 10 };
        assert!((0..20).all(|step| schedule.at(step).is_finite()));
    }
}
