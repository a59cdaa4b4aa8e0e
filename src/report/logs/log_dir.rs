//! The directory of a job below `--log_dir`: each job has its own, so that no job overwrites the
//! files of another.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use super::disk::Disk;
use super::run_dir::{link_latest, make_dirs, make_named};
use crate::base::JobId;

/// Longest wait for the disk.
const STALL_LIMIT: Duration = Duration::from_secs(1);

/// `DIR/20261122-173109Z-JOB`, named like the run directory; `DIR/latest` links to the newest.
#[derive(Clone, Debug)]
pub struct LogDir {
    path: PathBuf,
}

impl LogDir {
    /// Makes the directory and its parents. `at` is the time since 1970 of the start of the job. No thread may exist yet.
    pub fn create(parent: &Path, job: &JobId, at: Duration) -> io::Result<Self> {
        make_dirs(parent, 0o777)?;
        let path = make_named(parent, (at, job), 0o777)?;
        Ok(Self { path })
    }

    /// Begins the job: the directory becomes the latest.
    pub fn begin(&self) {
        let path = self.path.clone();
        let _ = Disk::default().run(STALL_LIMIT, move || {
            if let Some(parent) = path.parent() {
                link_latest(parent, &path);
            }
            Ok(())
        });
    }

    /// Removes the empty directory of a job that never began.
    pub fn discard(&self) {
        let path = self.path.clone();
        let _ = Disk::default().run(STALL_LIMIT, move || fs::remove_dir(path));
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
