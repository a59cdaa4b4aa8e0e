//! [`SavedTraining`]: what a checkpoint says about the run that saved it, before any tensor is read.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::runtime::checkpoint::{
    CheckedBytes, CheckpointReader, DataPosition, NewestCheckpoint, OpenError, list_checkpoints,
    newest_undamaged,
};
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
    inspect_reader(&CheckpointReader::open(path)?)
}

fn inspect_reader(reader: &CheckpointReader) -> Result<SavedTraining, OpenError> {
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

/// Finds the newest undamaged checkpoint of a directory, or of the directory in which a checkpoint is, with what was read
/// of it within the limit; `None` if there is none, or a run could not continue from it.
pub fn find_undamaged(path: &Path, limit: Duration) -> Option<(SavedTraining, CheckedBytes)> {
    let NewestCheckpoint { reader, checked } = newest_undamaged(path, limit)?;
    Some((inspect_reader(&reader).ok()?, checked))
}

/// Returns the newest checkpoint of a directory, complete or damaged.
pub fn newest_in(dir: &Path) -> Option<PathBuf> {
    let (names, _) = list_checkpoints(dir).ok()?;
    Some(dir.join(names.last()?))
}
