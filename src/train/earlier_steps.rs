//! [`EarlierSteps`]: the steps before a run that resumes. Their batch can differ from its own.

use std::path::PathBuf;

use serde_json::Value;

/// Steps of earlier runs, and the samples that they used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EarlierSteps {
    /// Number of steps.
    pub(crate) steps: u64,
    /// Number of samples of all these steps, if it is known.
    pub(crate) samples: Option<u64>,
}

/// What a run begins with.
pub(crate) struct RestoredState {
    /// The steps before this run.
    pub(crate) earlier: EarlierSteps,
    /// The checkpoint from which it resumes, if it does.
    pub(crate) from: Option<PathBuf>,
    /// What it says beside the state of the engine, for its later checkpoints.
    pub(crate) client: Value,
}

impl RestoredState {
    /// A run that starts from the beginning.
    pub(crate) const NONE: Self =
        Self { earlier: EarlierSteps::NONE, from: None, client: Value::Null };
}

impl EarlierSteps {
    /// A run that starts from the beginning.
    pub(crate) const NONE: Self = Self { steps: 0, samples: Some(0) };

    /// Returns the number of samples that all steps until `step` have used. Only steps after the earlier
    /// ones have the samples of this run.
    pub(crate) fn samples_until(self, step: u64, of_a_step: u64) -> Option<u64> {
        let own = step.saturating_sub(self.steps).saturating_mul(of_a_step);
        self.samples.map(|earlier| earlier.saturating_add(own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_runs_with_different_batches_are_added_up() {
        let first = EarlierSteps::NONE.samples_until(20, 24);
        assert_eq!(first, Some(480));
        let second = EarlierSteps { steps: 20, samples: first }.samples_until(30, 36);
        assert_eq!(second, Some(840));
        let third = EarlierSteps { steps: 30, samples: second }.samples_until(34, 36);
        assert_eq!(third, Some(984));
        assert_eq!(EarlierSteps { steps: 30, samples: None }.samples_until(34, 36), None);
    }
}
