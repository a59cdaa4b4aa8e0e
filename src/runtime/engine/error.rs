//! [`EngineError`]: why a step, a save or a load failed.

use std::io;
use std::path::{Path, PathBuf};

use crate::base::debug_as_message;
use crate::runtime::comm::core::error::CollectiveError;
use crate::runtime::engine::model::PassError;
use crate::runtime::engine::outcome::StepOutcome;
use crate::runtime::error::Error;

/// Error of an engine. Its debug form is its message.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// A pass of the model failed; the group was aborted with this message, so all ranks fail.
    #[error(transparent)]
    Pass(#[from] PassError),
    /// A collective operation failed.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// The group cannot be used, or there is not enough memory.
    #[error(transparent)]
    Runtime(#[from] Error),
    /// The device failed, or the engine cannot train on it as it is set.
    #[cfg(feature = "nccl")]
    #[error(transparent)]
    Device(#[from] crate::cuda::device::DeviceError),
    /// The methods of the engine were called in another order than forward, backward, step.
    #[error("{called} was called {when}; call {instead}")]
    Order {
        /// Method that was called.
        called: &'static str,
        /// State of the engine.
        when: String,
        /// What to call.
        instead: &'static str,
    },
    /// State cannot be moved to files of a directory.
    #[error("cannot use `{}` for offloaded state: {}", dir.display(), source)]
    Offload {
        /// The directory.
        dir: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The configuration contradicts itself or the model.
    #[error("{problem}; {instead}")]
    Config {
        /// Contradiction.
        problem: String,
        /// What to set.
        instead: String,
    },
    /// The gradient is not a finite number, and the precision has no loss scale that could be reduced.
    #[error(
        "the gradient of step {} is not finite (norm {}); {}",
        outcome.step,
        outcome.norm,
        cure_of_divergence(outcome.step)
    )]
    Diverged {
        /// The step.
        outcome: StepOutcome,
    },
    /// The loss scale cannot be reduced further. The text is that of DeepSpeed, with the cure.
    #[error(
        "step {}: the gradients overflow at loss scale {scale}: current loss scale already at minimum - \
         cannot decrease scale anymore; give a smaller learning rate, or compute in bf16",
        outcome.step
    )]
    ScaleAtMinimum {
        /// The step.
        outcome: StepOutcome,
        /// The smallest scale.
        scale: f64,
    },
}

debug_as_message!(EngineError);

/// What to do about numbers that are not finite.
pub(crate) fn cure_of_divergence(step: u64) -> &'static str {
    match step {
        // No update was made yet.
        1 => "check the inputs and the initial weights",
        _ => "give a smaller learning rate",
    }
}

impl EngineError {
    /// Makes errors of the system about a directory for offloaded state.
    pub(crate) fn offload(dir: &Path) -> impl Fn(io::Error) -> Self {
        |source| Self::Offload { dir: dir.to_owned(), source }
    }
}
