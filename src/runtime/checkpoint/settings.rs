//! [`SaveSettings`]: what is the same for all saves of a writer.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;

/// Function that is called at the stages of a save.
pub type StageObserver = dyn Fn(SaveStage) + Send + Sync;

/// Stage of a save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveStage {
    /// The directory for the files exists.
    Begun,
    /// This rank's file is written, but not synced.
    Written,
    /// This rank's file is synced.
    Synced,
    /// Rank 0: the index is written and synced.
    Indexed,
    /// Rank 0: the directory has the name of the checkpoint, which is now complete.
    Renamed,
    /// Rank 0: `latest` names the checkpoint.
    Named,
    /// Rank 0: older checkpoints are removed.
    Pruned,
}

/// Settings of the saves of a writer.
pub(super) struct SaveSettings {
    pub(super) dir: PathBuf,
    pub(super) is_locked: bool,
    pub(super) keep: Option<NonZeroUsize>,
    pub(super) job: Option<String>,
    pub(super) block_bytes: u64,
    pub(super) observer: Option<Arc<StageObserver>>,
}

impl SaveSettings {
    pub(super) fn on_stage(&self, stage: SaveStage) {
        if let Some(observer) = &self.observer {
            observer(stage);
        }
    }
}
