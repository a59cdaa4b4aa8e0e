//! Errors of a training.

use std::io;
use std::path::{Path, PathBuf};

use crate::base::Status;
use crate::base::shell::quoted;
use crate::runtime::checkpoint::{OpenError, SaveError};
use crate::runtime::engine::{EngineError, StepOutcome, cure_of_divergence};
use crate::runtime::{self, Cause, CollectiveError};
use crate::train::data::corpus::CorpusError;
use crate::train::data::shards::ShardError;
#[cfg(feature = "nccl")]
use crate::train::device_memory::{DeviceMemoryError, SettingNames};
use crate::train::report::skipped_steps::SkippedSteps;

/// What to do if no checkpoint of the directory can be used.
pub const ALL_DAMAGED_HELP: &str = "use another `--checkpoint_dir`, where the run starts at step 1, or continues from an undamaged copy with \
     `--resume PATH`; `remuda checkpoint verify DIR` reports every damage";
/// What to do if the one checkpoint that was named cannot be used, and there is no other.
const DAMAGED_HELP: &str = "there is no undamaged checkpoint beside it: use a copy of it, or leave `--resume` out to \
                            start a new run; `remuda checkpoint verify DIR` reports every damage";

/// Error of a run.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The training text cannot be used.
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    /// Shards of tokens cannot be used.
    #[error(transparent)]
    Shards(#[from] ShardError),
    /// A checkpoint cannot be read.
    #[error(transparent)]
    Load(#[from] OpenError),
    /// The checkpoint that was named is damaged.
    #[error("{error}")]
    Damaged {
        /// Damage of its files.
        error: OpenError,
        /// The newest undamaged checkpoint beside it.
        newest: Option<UndamagedCheckpoint>,
    },
    /// A checkpoint cannot be written.
    #[error(transparent)]
    Save(#[from] SaveError),
    /// A collective operation failed.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// The group cannot be used.
    #[error(transparent)]
    Runtime(#[from] runtime::Error),
    /// The engine failed.
    #[error(transparent)]
    Engine(EngineError),
    /// A device has too little memory that is free.
    #[cfg(feature = "nccl")]
    #[error(transparent)]
    DeviceMemory(Box<DeviceMemoryError>),
    /// Metrics or plot cannot be written.
    #[error("cannot write `{}`: {source}", path.display())]
    Output {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The loss is not a finite number.
    #[error("the loss of step {} is {}; {}", outcome.step, outcome.loss, cure_of_divergence(outcome.step))]
    Diverged {
        /// The step.
        outcome: StepOutcome,
    },
    /// Steps are skipped, so the parameters do not change any more.
    #[error("{}", .0.message())]
    NoUpdates(Box<SkippedSteps>),
}

/// Checkpoint from which a run can continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndamagedCheckpoint {
    /// The directory of its files, or the file of an earlier build.
    pub path: PathBuf,
    /// Number of completed steps.
    pub step: u64,
    /// Whether `--resume auto` finds it.
    pub is_found_by_auto: bool,
}

impl UndamagedCheckpoint {
    fn help(&self) -> String {
        let Self { path, step, is_found_by_auto } = self;
        let (shown, found) =
            (path.display(), format!("the newest undamaged checkpoint has step {step}"));
        if *is_found_by_auto {
            format!("{found}, `{shown}`: `--resume auto` continues from it")
        } else {
            format!("{found}: `--resume {}` continues from it", quoted(path))
        }
    }
}

#[cfg(feature = "nccl")]
impl From<DeviceMemoryError> for TrainError {
    fn from(error: DeviceMemoryError) -> Self {
        Self::DeviceMemory(Box::new(error))
    }
}

impl TrainError {
    /// Returns what the user can do about it, if there is something.
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Save(error) => error.help(),
            Self::Load(OpenError::AllDamaged { .. }) => Some(ALL_DAMAGED_HELP.to_owned()),
            Self::Damaged { newest: Some(newest), .. } => Some(newest.help()),
            Self::Damaged { newest: None, .. } => Some(DAMAGED_HELP.to_owned()),
            Self::NoUpdates(skipped) => Some(skipped.help().to_owned()),
            #[cfg(feature = "nccl")]
            Self::DeviceMemory(error) => Some(error.help(SettingNames::Options)),
            _ => None,
        }
    }

    /// Returns the step that has failed, if it has ended.
    pub(crate) fn failed_step(&self) -> Option<StepOutcome> {
        match self {
            Self::Diverged { outcome }
            | Self::Engine(
                EngineError::Diverged { outcome } | EngineError::ScaleAtMinimum { outcome, .. },
            ) => Some(*outcome),
            _ => None,
        }
    }

    /// Returns whether every rank of the group has an error at this place, so that one of them can report it.
    pub fn is_of_all_ranks(&self) -> bool {
        match self {
            Self::Load(error) | Self::Damaged { error, .. } => {
                !matches!(error, OpenError::Group(_))
            }
            Self::Save(error) => !matches!(error, SaveError::Group(_)),
            Self::Engine(error) => matches!(
                error,
                EngineError::Diverged { .. }
                    | EngineError::ScaleAtMinimum { .. }
                    | EngineError::Config { .. }
            ),
            Self::Diverged { .. } | Self::NoUpdates(_) => true,
            #[cfg(feature = "nccl")]
            Self::DeviceMemory(_) => true,
            Self::Corpus(_)
            | Self::Shards(_)
            | Self::Collective(_)
            | Self::Runtime(_)
            | Self::Output { .. } => false,
        }
    }

    /// Returns the exit status of a worker that ends with this error.
    pub fn status(&self) -> Status {
        match self {
            Self::Corpus(CorpusError::Read { .. }) | Self::Shards(ShardError::Read { .. }) => {
                Status::NoInput
            }
            Self::Corpus(CorpusError::TooShort { .. }) | Self::Shards(_) => Status::BadInput,
            Self::Load(error) | Self::Damaged { error, .. } => match error {
                OpenError::Read { .. } | OpenError::Empty { .. } | OpenError::Ranks { .. } => {
                    Status::NoInput
                }
                OpenError::NotCheckpoint { .. }
                | OpenError::Newer { .. }
                | OpenError::Damaged { .. }
                | OpenError::AllDamaged { .. }
                | OpenError::Request { .. } => Status::BadInput,
                OpenError::OtherModel { .. } => Status::Config,
                OpenError::Group(error) => status_of_group(error),
            },
            Self::Save(error) => match error {
                SaveError::Failed { .. } => Status::Io,
                SaveError::InUse { .. } | SaveError::NotShared { .. } => Status::Config,
                SaveError::Group(error) => status_of_group(error),
            },
            Self::Collective(CollectiveError { cause: Cause::System(_), .. }) => Status::OsLimit,
            Self::Runtime(error) => status_of_group(error),
            Self::Collective(_) => Status::Protocol,
            Self::Engine(error) => match error {
                EngineError::Diverged { .. } | EngineError::ScaleAtMinimum { .. } => {
                    Status::Findings
                }
                EngineError::Config { .. } => Status::Config,
                EngineError::Offload { .. } => Status::CantCreate,
                _ => Status::Bug,
            },
            #[cfg(feature = "nccl")]
            Self::DeviceMemory(_) => Status::OsLimit,
            Self::Output { .. } => Status::CantCreate,
            Self::Diverged { .. } | Self::NoUpdates(_) => Status::Findings,
        }
    }
}

fn status_of_group(error: &runtime::Error) -> Status {
    if error.is_of_system() { Status::OsLimit } else { Status::Protocol }
}

pub(crate) fn output_error(path: &Path) -> impl FnOnce(io::Error) -> TrainError {
    move |source| TrainError::Output { path: path.to_owned(), source }
}
