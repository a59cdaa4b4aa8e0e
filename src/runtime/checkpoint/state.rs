//! State of a run besides its tensors, equal on all ranks.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// State of a run between two steps, besides its tensors; equal on all ranks.
///
/// Values of the engine are JSON, so that this file need not change with it. Numbers are read back with the
/// same bits, except for those that are not finite, which JSON does not have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SavedState {
    /// Number of completed steps.
    pub step: u64,
    /// Identity of the model, as text; empty if it is not known.
    pub model: String,
    /// Samples that the steps use, if they are known.
    pub data: Option<DataPosition>,
    /// How the run was divided among ranks, if it is known. Another run can be divided otherwise.
    pub division: Option<Division>,
    /// Name of the optimizer; empty if it is not known.
    pub optimizer: String,
    /// Settings of the optimizer.
    pub optimizer_settings: Value,
    /// Position in the schedule of learning rates.
    pub schedule: Value,
    /// State of the loss scale.
    pub loss_scale: Value,
    /// State of random numbers besides the seed of the data.
    pub random: Value,
    /// State of the user's program.
    pub client: Value,
}

/// Samples that a run uses for each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataPosition {
    /// Number of lanes: micro-batches of all ranks in a step.
    pub lanes: u64,
    /// Number of samples of each micro-batch.
    pub batch_size: u64,
    /// Seed from which the samples are drawn.
    pub seed: u64,
    /// Number of samples that all steps so far have used, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// Fingerprint by which a run recognizes that its data changed, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<u64>,
}

impl DataPosition {
    /// Returns the number of samples of a step.
    pub fn samples_per_step(&self) -> u64 {
        self.lanes.saturating_mul(self.batch_size)
    }
}

impl fmt::Display for DataPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lanes, batch_size, seed, samples, fingerprint: _ } = self;
        let batches = if *lanes == 1 { "micro-batch" } else { "micro-batches" };
        let each = if *batch_size == 1 { "sample" } else { "samples" };
        write!(f, "{lanes} {batches} × {batch_size} {each} a step, seed {seed}")?;
        match samples {
            Some(samples) => write!(f, ", {samples} samples so far"),
            None => Ok(()),
        }
    }
}

/// How a run was divided among its ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Division {
    /// State that every rank holds a part of, such as `none` or `optimizer`.
    pub sharding: String,
    /// Number of ranks.
    pub world_size: u64,
    /// Number of micro-batches of every rank in a step.
    pub accumulate: u64,
    /// Type in which the model computes, such as `bf16`.
    pub precision: String,
}
