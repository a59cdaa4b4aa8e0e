//! Time of one operation, from the measurements of all ranks.

use std::fmt;
use std::time::Instant;

use crate::base::clock;
use crate::runtime::{Error, Group, ReduceOp};

/// Approximate total time of the operations of a size, in seconds, where `-n` is not given.
const BUDGET_S: f64 = 0.1;
/// Bounds of the number of operations where `-n` is not given: fewer are not significant, more add no
/// precision.
const AUTO_ITERATIONS: (u32, u32) = (20, 5000);

/// Combination of the times of the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Average {
    /// Time of rank 0.
    Rank0,
    /// Mean of all ranks.
    Mean,
    /// Shortest time of all ranks.
    Min,
    /// Longest time of all ranks.
    Max,
}

impl Average {
    fn of(self, seconds: &[f64]) -> f64 {
        match self {
            Self::Rank0 => seconds.first().copied().unwrap_or(0.0),
            Self::Mean => seconds.iter().sum::<f64>() / seconds.len() as f64,
            Self::Min => seconds.iter().copied().fold(f64::INFINITY, f64::min),
            Self::Max => seconds.iter().copied().fold(0.0, f64::max),
        }
    }
}

/// Number of timed operations per size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Iterations {
    /// This number; 1 or more.
    Exactly(u32),
    /// As many as fit 0.1 s, 20 to 5,000: with a fixed number of twenty, short operations would
    /// measure the scheduler.
    Auto,
}

/// Returns the number of operations of `seconds` each that fit 0.1 s, between 20 and 5,000.
fn auto_iterations(seconds: f64) -> u32 {
    // For 0 seconds the quotient is infinite, which the cast saturates.
    ((BUDGET_S / seconds) as u32).clamp(AUTO_ITERATIONS.0, AUTO_ITERATIONS.1)
}

impl fmt::Display for Iterations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most) = AUTO_ITERATIONS;
        match self {
            Self::Exactly(1) => f.write_str("1 iteration"),
            Self::Exactly(times) => write!(f, "{times} iterations"),
            Self::Auto => {
                write!(f, "as many iterations as fit {BUDGET_S} s ({least} to {most})")
            }
        }
    }
}

/// Numbers of untimed and timed repetitions of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repetitions {
    pub(super) warmup: u32,
    pub(super) iterations: Iterations,
}

/// Result of timing an operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Timed {
    /// Seconds of one operation.
    pub(super) seconds: f64,
    pub(super) iterations: u32,
}

impl Repetitions {
    /// Times an operation after the warm-up. `agree` returns the longest time of all participating
    /// ranks, so that all of them repeat equally often; `synchronize` is called before the timing.
    pub(super) fn time(
        self,
        mut operation: impl FnMut() -> Result<(), Error>,
        agree: impl FnOnce(f64) -> Result<f64, Error>,
        synchronize: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Timed, Error> {
        // The number of iterations is chosen by the time of the warm-up, so there must be one.
        let warmup = match self.iterations {
            Iterations::Exactly(_) => self.warmup,
            Iterations::Auto => self.warmup.max(1),
        };
        let mut start = clock::now();
        for round in 0..warmup {
            operation()?;
            // The first operation touches memory for the first time and waits for late ranks.
            if round == 0 && 1 < warmup {
                start = clock::now();
            }
        }
        let warm = seconds_since(start) / f64::from(warmup.max(2) - 1);
        let iterations = match self.iterations {
            Iterations::Exactly(times) => times,
            Iterations::Auto => auto_iterations(agree(warm)?),
        };
        synchronize()?;
        let start = clock::now();
        for _ in 0..iterations {
            operation()?;
        }
        Ok(Timed { seconds: seconds_since(start) / f64::from(iterations), iterations })
    }
}

fn seconds_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64()
}

/// Times an operation on all ranks; the result is equal on all of them.
pub(super) fn time(
    group: &Group,
    repeats: Repetitions,
    average: Average,
    operation: impl FnMut() -> Result<(), Error>,
) -> Result<Timed, Error> {
    let slowest = |seconds| {
        let mut slowest = [seconds];
        group.all_reduce(&mut slowest, ReduceOp::Max)?;
        Ok(slowest[0])
    };
    let own = repeats.time(operation, slowest, || Ok(group.barrier()?))?;
    let mut all = vec![0.0; group.world_size()];
    group.all_gather(&[own.seconds], &mut all)?;
    Ok(Timed { seconds: average.of(&all), ..own })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::float_cmp, reason = "the means are exact")]
    fn average_combines_the_times_of_ranks() {
        let seconds = [2.0, 1.0, 6.0];
        let of = |average: Average| average.of(&seconds);
        assert_eq!(of(Average::Rank0), 2.0);
        assert_eq!(of(Average::Mean), 3.0);
        assert_eq!(of(Average::Min), 1.0);
        assert_eq!(of(Average::Max), 6.0);
    }

    #[test]
    fn fitting_repeats_short_operations_more_often() {
        let times = [0.0, 5e-6, 1e-4, 1e-3, 1.0].map(auto_iterations);
        assert_eq!(times, [5000, 5000, 1000, 100, 20]);
    }

    #[test]
    fn iterations_follow_the_slowest_rank() -> Result<(), Error> {
        let timed = Group::on_threads(3, |group| {
            let mut runs = 0;
            let repeats = Repetitions { warmup: 2, iterations: Iterations::Auto };
            // Only rank 1 takes time, and no rank waits for it.
            let operation = || {
                runs += 1;
                if group.rank() == 1 {
                    let start = clock::now();
                    while seconds_since(start) < 2e-3 {}
                }
                Ok(())
            };
            let timed = time(group, repeats, Average::Max, operation)?;
            Ok((timed.iterations, runs - 2))
        })?;
        let (iterations, _) = timed[0];
        assert!((20..=50).contains(&iterations), "2 ms or more fit 0.1 s: {timed:?}");
        assert_eq!(timed, [(iterations, iterations); 3]);
        Ok(())
    }
}
