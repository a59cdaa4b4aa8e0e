//! Errors of a training.

use std::io;
use std::path::{Path, PathBuf};

use crate::base::Status;
use crate::runtime::engine::EngineError;
use crate::runtime::{self, Cause, CollectiveError};
use crate::train::checkpoint::CheckpointError;
use crate::train::data::corpus::CorpusError;

/// Error of a run.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The training text cannot be used.
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    /// A checkpoint cannot be written or read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A collective operation failed.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// The group cannot be used.
    #[error(transparent)]
    Runtime(#[from] runtime::Error),
    /// The engine failed.
    #[error(transparent)]
    Engine(EngineError),
    /// Metrics or plot cannot be written.
    #[error("cannot write `{}`: {source}", path.display())]
    Output {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The loss is not a finite number.
    #[error("the loss of step {step} is {loss}; give a smaller learning rate (--lr)")]
    Diverged {
        /// Step, from 1.
        step: u64,
        /// Loss of the step.
        loss: f32,
    },
}

impl TrainError {
    /// Returns the exit status of a worker that ends with this error.
    pub fn status(&self) -> Status {
        match self {
            Self::Corpus(CorpusError::Read { .. }) => Status::NoInput,
            Self::Corpus(CorpusError::TooShort { .. }) => Status::BadInput,
            Self::Checkpoint(error) => match error {
                CheckpointError::Read { .. } | CheckpointError::Missing { .. } => Status::NoInput,
                CheckpointError::Write { .. } => Status::Io,
                CheckpointError::Malformed { .. } => Status::BadInput,
                CheckpointError::Mismatch { .. } => Status::Config,
            },
            Self::Collective(CollectiveError { cause: Cause::System(_), .. }) => Status::OsLimit,
            Self::Runtime(error) if error.is_of_system() => Status::OsLimit,
            Self::Collective(_) | Self::Runtime(_) => Status::Protocol,
            Self::Engine(error) => match error {
                EngineError::Diverged { .. } | EngineError::ScaleAtMinimum { .. } => {
                    Status::Findings
                }
                EngineError::Config { .. } => Status::Config,
                _ => Status::Bug,
            },
            Self::Output { .. } => Status::CantCreate,
            Self::Diverged { .. } => Status::Findings,
        }
    }
}

pub(crate) fn output_error(path: &Path) -> impl FnOnce(io::Error) -> TrainError {
    move |source| TrainError::Output { path: path.to_owned(), source }
}
