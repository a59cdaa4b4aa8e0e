//! What rank 0 does with the files of a checkpoint: it begins, completes, removes.

use std::fs;
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::base::clock;
use crate::base::show_io_error;
use crate::os::random::random_bytes;
use crate::runtime::checkpoint::directory::{SavedEntry, latest_text, list};
use crate::runtime::checkpoint::durable::{
    own_files, remove_checkpoint, remove_leftovers, rename_dir, replace_file, sync_dir,
    write_synced,
};
use crate::runtime::checkpoint::index::CheckpointIndex;
use crate::runtime::checkpoint::names::{INDEX, JOB, LATEST, draft_name, removed_name, step_name};
use crate::runtime::checkpoint::settings::SaveStage;

/// Failed work on a file.
#[derive(Debug)]
pub(super) struct FileError {
    /// What failed, and where.
    pub(super) text: String,
    pub(super) source: io::Error,
}

/// Names what failed, for `map_err`.
pub(super) fn failed<'a>(
    action: &'a str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> FileError + 'a {
    move |source| FileError { text: format!("cannot {action} `{}`", path.display()), source }
}

/// Directory in which a checkpoint is written until it is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CheckpointDraft {
    pub(super) dir: PathBuf,
    pub(super) step: u64,
    pub(super) token: u64,
}

impl CheckpointDraft {
    /// Path of the files until the checkpoint is complete.
    pub(super) fn path(&self) -> PathBuf {
        self.dir.join(draft_name(self.step, self.token))
    }

    /// Path of the checkpoint.
    pub(super) fn complete_path(&self) -> PathBuf {
        self.dir.join(step_name(self.step))
    }

    /// Creates the directory. If this process has locked the parent, what interrupted saves have left there is
    /// removed first.
    pub(super) fn begin(&self, is_locked: bool) -> Result<(), FileError> {
        if is_locked {
            remove_leftovers(&self.dir).map_err(failed("list", &self.dir))?;
        }
        let path = self.path();
        fs::create_dir(&path).map_err(failed("create", &path))
    }

    /// Checks that this rank sees the files of all ranks.
    pub(super) fn check_files(&self, index: &CheckpointIndex) -> Result<(), FileError> {
        for file in &index.files {
            let path = self.path().join(&file.name);
            let found = fs::metadata(&path).map_err(failed("find", &path))?.len();
            if found != file.bytes {
                let source = io::Error::other(format!("{found} of {} bytes", file.bytes));
                return Err(failed("find all of", &path)(source));
            }
        }
        Ok(())
    }

    /// Completes the checkpoint: writes the index, and gives the directory its name.
    pub(super) fn complete(
        &self,
        index: &CheckpointIndex,
        on_stage: &dyn Fn(SaveStage),
    ) -> Result<(), FileError> {
        let (path, complete) = (self.path(), self.complete_path());
        let text = index.encode();
        let file = path.join(INDEX);
        write_synced(&file, text.as_bytes()).map_err(failed("write", &file))?;
        sync_dir(&path).map_err(failed("sync", &path))?;
        on_stage(SaveStage::Indexed);
        let has_replaced = rename_dir(&path, &complete).map_err(failed("create", &complete))?;
        sync_dir(&self.dir).map_err(failed("sync", &self.dir))?;
        on_stage(SaveStage::Renamed);
        let latest = latest_text(&step_name(self.step));
        let file = self.dir.join(LATEST);
        replace_file(&self.dir, LATEST, latest.as_bytes(), self.token)
            .map_err(failed("write", &file))?;
        on_stage(SaveStage::Named);
        if has_replaced {
            // The earlier checkpoint of this step is now in the place of the draft. If it remains, the next
            // save removes it.
            let _ = remove_checkpoint(&path);
        }
        Ok(())
    }

    /// Removes the files of a save that has failed; what cannot be removed is left to the next save.
    pub(super) fn abandon(&self) {
        let _ = remove_checkpoint(&self.path());
    }
}

/// Records that a job has saved the checkpoint of this step, for restarts of this job.
pub fn record_job(dir: &Path, step: u64, job: &str) -> io::Result<()> {
    let text = format!("{job} {}\n", step_name(step));
    replace_file(dir, JOB, text.as_bytes(), new_token())
}

/// Returns the path of the last checkpoint that a job has saved in a directory.
pub fn last_of_job(dir: &Path, job: &str) -> Option<PathBuf> {
    let text = fs::read_to_string(dir.join(JOB)).ok()?;
    let (saved_by, name) = text.trim_end().split_once(' ')?;
    (saved_by == job).then(|| dir.join(name))
}

/// Checkpoints that were removed, and those that could not be, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pruned {
    pub(super) removed: Vec<String>,
    /// Names with the reasons.
    pub(super) kept: Vec<(String, String)>,
}

/// Removes the oldest checkpoints up to this step, so that `keep` remain. Those of later steps belong to
/// another run and are kept.
pub(super) fn prune(dir: &Path, step: u64, keep: NonZeroUsize) -> Pruned {
    let mut pruned = Pruned::default();
    let mut old = match list(dir) {
        Ok(found) => found,
        Err(error) => {
            pruned.kept.push((String::new(), show_io_error(&error)));
            return pruned;
        }
    };
    old.retain(|found| found.step <= step);
    old.truncate(old.len().saturating_sub(keep.get()));
    for SavedEntry { step, name } in old {
        match remove(dir, step, &name) {
            Ok(()) => pruned.removed.push(name),
            Err(error) => pruned.kept.push((name, show_io_error(&error))),
        }
    }
    pruned
}

/// Size of all checkpoints of a directory but the newest one.
pub(super) fn older_bytes(dir: &Path) -> u64 {
    let Ok(found) = list(dir) else { return 0 };
    let Some((_, older)) = found.split_last() else { return 0 };
    let size_of = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
    let of_entry = |entry: &SavedEntry| {
        let path = dir.join(&entry.name);
        match fs::read_dir(&path) {
            Ok(files) => files.flatten().map(|file| size_of(&file.path())).sum(),
            Err(_) => size_of(&path),
        }
    };
    older.iter().map(of_entry).sum()
}

/// Removes a checkpoint. A directory gets another name first, so that it is complete or absent.
fn remove(dir: &Path, step: u64, name: &str) -> io::Result<()> {
    let path = dir.join(name);
    if !path.is_dir() {
        return fs::remove_file(path);
    }
    own_files(&path)?;
    let removed = dir.join(removed_name(step, new_token()));
    fs::rename(path, &removed)?;
    remove_checkpoint(&removed)
}

/// Number that no other save has.
pub(super) fn new_token() -> u64 {
    match random_bytes() {
        Ok(bytes) => u64::from_ne_bytes(bytes),
        Err(_) => clock::wall().as_nanos() as u64 ^ u64::from(std::process::id()).rotate_right(24),
    }
}
