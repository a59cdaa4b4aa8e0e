//! The newest undamaged checkpoint of a directory: the one that [`LoadChoice::NewestValid`] loads, found by one
//! process within a limited time.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::base::clock;
use crate::runtime::checkpoint::directory::{LoadCandidates, LoadChoice, find, is_checkpoint};
use crate::runtime::checkpoint::reader::CheckpointReader;
use crate::runtime::checkpoint::threads::reading_threads;
use crate::runtime::checkpoint::verify::{Verification, verify_until};

/// What was read of a checkpoint that is called undamaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckedBytes {
    /// Every byte.
    All,
    /// The index, and the sizes of the files: there was no time for more.
    Sizes,
}

impl CheckedBytes {
    /// What a message adds to the word "undamaged".
    pub fn caveat(self) -> &'static str {
        match self {
            Self::All => "",
            Self::Sizes => ", as far as the sizes of its files show",
        }
    }
}

/// The newest undamaged checkpoint of a directory.
#[derive(Debug)]
pub struct NewestCheckpoint {
    /// The checkpoint.
    pub reader: CheckpointReader,
    /// What was read of it.
    pub checked: CheckedBytes,
}

/// Finds the newest undamaged checkpoint of a directory, or of the directory in which a checkpoint is; `None` if there
/// is none. It is the one that [`LoadChoice::NewestValid`] loads, as far as the limit of time allows to read them.
pub fn newest_undamaged(path: &Path, limit: Duration) -> Option<NewestCheckpoint> {
    let end = clock::now() + limit;
    let found = find(&directory_of(path), LoadChoice::NewestValid).ok()?;
    let LoadCandidates { dir, names, .. } = found;
    names.iter().find_map(|name| check(&dir.join(name), end))
}

/// Returns the checkpoint if nothing of it that is read before `end` is damaged.
fn check(path: &Path, end: Instant) -> Option<NewestCheckpoint> {
    let is_over = || end <= clock::now();
    let Verification { damage, is_complete } =
        verify_until(path, reading_threads(), &is_over).ok()?;
    if !damage.is_empty() {
        return None;
    }
    let checked = if is_complete { CheckedBytes::All } else { CheckedBytes::Sizes };
    Some(NewestCheckpoint { reader: CheckpointReader::open_one(path).ok()?, checked })
}

/// The directory of checkpoints that a path is, or in which it is.
fn directory_of(path: &Path) -> PathBuf {
    let is_one = !path.is_dir() || is_checkpoint(path);
    match path.parent().filter(|_| is_one) {
        None => path.to_owned(),
        Some(dir) if dir.as_os_str().is_empty() => PathBuf::from("."),
        Some(dir) => dir.to_owned(),
    }
}
