//! [`SavedTraining`]: what a checkpoint says about the run that saved it, before any tensor is read.

use std::path::{Path, PathBuf};

use crate::runtime::checkpoint::{CheckpointReader, DataPosition, OpenError, list_checkpoints};
use crate::runtime::engine::saved_schedule;
use crate::runtime::optim::{LrSchedule, Optimizer};
use crate::train::nn::model_id::ModelId;

/// What a checkpoint says about its run.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedTraining {
    /// Path of the checkpoint.
    pub path: PathBuf,
    /// Number of completed steps.
    pub step: u64,
    /// Kind and sizes of the model.
    pub model: ModelId,
    /// Samples of every step, if they are known.
    pub samples: Option<DataPosition>,
    /// Optimizer with its settings, if they are known.
    pub optimizer: Option<Optimizer>,
    /// Schedule of learning rates, and the steps of it that are done, if they are known.
    pub schedule: Option<(LrSchedule, u64)>,
}

/// Reads what a checkpoint says: of the path itself, or of the directory's newest one.
///
/// # Errors
/// If there is none, or it is damaged or of another program.
pub fn inspect(path: &Path) -> Result<SavedTraining, OpenError> {
    let reader = CheckpointReader::open(path)?;
    let (path, state) = (reader.path().to_owned(), reader.state());
    let foreign = || OpenError::OtherModel {
        path: path.clone(),
        differences: vec![format!("`{}` is not a bundled model", state.model)],
    };
    let model: ModelId = state.model.parse().map_err(|()| foreign())?;
    let bytes = reader.files().iter().map(|file| file.bytes).sum();
    if !model.fits(bytes) {
        return Err(foreign());
    }
    let optimizer = serde_json::from_value(state.optimizer_settings.clone()).ok();
    let (step, samples, schedule) = (state.step, state.data, saved_schedule(state));
    Ok(SavedTraining { path: path.clone(), step, model, samples, optimizer, schedule })
}

/// The same for the newest checkpoint of a directory whose files have their sizes.
///
/// # Errors
/// The damage of all checkpoints, if there is no such checkpoint.
pub fn inspect_newest(dir: &Path) -> Result<SavedTraining, OpenError> {
    let (dir, mut damaged) = (dir.to_owned(), Vec::new());
    let (names, _) = list_checkpoints(&dir)?;
    for name in names.iter().rev() {
        match inspect(&dir.join(name)) {
            Err(OpenError::Damaged { path, damage }) => damaged.push((path, damage)),
            found => return found,
        }
    }
    if damaged.is_empty() {
        return Err(OpenError::Empty { dir });
    }
    Err(OpenError::AllDamaged { dir, damaged })
}

/// Returns the newest checkpoint of a directory, complete or damaged.
pub fn newest_in(dir: &Path) -> Option<PathBuf> {
    let (names, _) = list_checkpoints(dir).ok()?;
    Some(dir.join(names.last()?))
}
