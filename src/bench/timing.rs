//! The time of one operation, from what every rank has measured.

use crate::base::clock;
use crate::runtime::{Error, Group};

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

/// Seconds of one of `iterations` operations, after some that are not counted; the same on all ranks.
pub(super) fn time(
    group: &Group,
    (warmup, iterations): (u32, u32),
    average: Average,
    mut operation: impl FnMut() -> Result<(), Error>,
) -> Result<f64, Error> {
    for _ in 0..warmup {
        operation()?;
    }
    group.barrier()?;
    let start = clock::now();
    for _ in 0..iterations {
        operation()?;
    }
    let own = start.elapsed().as_secs_f64() / f64::from(iterations);
    let mut all = vec![0.0; group.world_size()];
    group.all_gather(&[own], &mut all)?;
    Ok(average.of(&all))
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
}
