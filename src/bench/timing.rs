//! The time of one operation, from what every rank has measured.

use std::fmt;
use std::time::Instant;

use crate::base::clock;
use crate::runtime::{Error, Group, ReduceOp};

/// What the operations of a size take together, about, where nobody says how many they are.
const BUDGET_S: f64 = 0.1;
/// Fewer say little; more say nothing new.
const FITTING: (u32, u32) = (20, 5000);

/// Whose time counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Average {
    /// That of rank 0.
    Rank0,
    /// The mean of all.
    Mean,
    /// The least.
    Min,
    /// The greatest.
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

/// How many operations of a size are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Iterations {
    /// So many; 1 or more.
    Exactly(u32),
    /// As many as fit 0.1 s, 20 to 5,000: twenty short ones would time the scheduler.
    Fitting,
}

/// How many are timed where nobody says it, and one takes so long.
fn fitting(seconds: f64) -> u32 {
    // What took no time gives infinity, which the cast bounds.
    ((BUDGET_S / seconds) as u32).clamp(FITTING.0, FITTING.1)
}

impl fmt::Display for Iterations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (least, most) = FITTING;
        match self {
            Self::Exactly(1) => f.write_str("1 iteration"),
            Self::Exactly(times) => write!(f, "{times} iterations"),
            Self::Fitting => {
                write!(f, "as many iterations as fit {BUDGET_S} s ({least} to {most})")
            }
        }
    }
}

/// How often an operation is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repeats {
    pub(super) warmup: u32,
    pub(super) iterations: Iterations,
}

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Timed {
    /// Of one operation.
    pub(super) seconds: f64,
    pub(super) iterations: u32,
}

impl Repeats {
    /// Seconds of one operation, after some that are not counted. `agree` makes the slowest rank's
    /// time of what takes part everybody's, so that all repeat equally often.
    pub(super) fn time(
        self,
        mut operation: impl FnMut() -> Result<(), Error>,
        agree: impl FnOnce(f64) -> Result<f64, Error>,
        meet: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Timed, Error> {
        // Whoever chooses has to know something.
        let warmup = match self.iterations {
            Iterations::Exactly(_) => self.warmup,
            Iterations::Fitting => self.warmup.max(1),
        };
        // The first operation touches memory for the first time, and waits for who comes late.
        let mut least = f64::INFINITY;
        for _ in 0..warmup {
            let start = clock::now();
            operation()?;
            least = least.min(seconds_since(start));
        }
        let iterations = match self.iterations {
            Iterations::Exactly(times) => times,
            Iterations::Fitting => fitting(agree(least)?),
        };
        meet()?;
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

/// Seconds of one operation of all ranks, and how many were timed; the same on all ranks.
pub(super) fn time(
    group: &Group,
    repeats: Repeats,
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
    fn averages() {
        let seconds = [2.0, 1.0, 6.0];
        let of = |average: Average| average.of(&seconds);
        assert_eq!(of(Average::Rank0), 2.0);
        assert_eq!(of(Average::Mean), 3.0);
        assert_eq!(of(Average::Min), 1.0);
        assert_eq!(of(Average::Max), 6.0);
    }

    #[test]
    fn short_operations_are_repeated_more_often() {
        let times = [0.0, 5e-6, 1e-4, 1e-3, 1.0].map(fitting);
        assert_eq!(times, [5000, 5000, 1000, 100, 20]);
    }

    #[test]
    fn all_ranks_repeat_as_often_as_the_slowest_can() -> Result<(), Error> {
        let timed = Group::on_threads(3, |group| {
            let mut runs = 0;
            let repeats = Repeats { warmup: 2, iterations: Iterations::Fitting };
            // Only rank 1 takes time, and nobody waits for it.
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
