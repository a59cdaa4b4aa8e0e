//! The directory of one run: `run.json` and the files of every rank. Private to the user;
//! `retention` decides how many are kept. All waits for the disk are bounded.

use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::disk::Disk;
use super::private_files::{create_private, epoch_dir, make_private_dir};
use super::retention::{self, RunClass};
use super::run_json::write_run_json;
use super::saved_run;
use crate::base::{Epoch, JobId, Rank, env_vars, show_create_dir_error};
use crate::os::process::io_with_timeout;
use crate::plan;

/// Longest wait for the disk while the job runs.
const STALL_LIMIT: Duration = Duration::from_secs(1);
/// Longest wait for the disk at the start and at the end of a job, whose records matter more.
const LONG_STALL_LIMIT: Duration = Duration::from_secs(5);
/// Most jobs with the same name that may begin within one second: several nodes may be one machine.
pub(super) const SAME_NAME_MAX: u32 = 1000;

/// A directory that exists and belongs to this run.
#[derive(Clone, Debug)]
pub struct RunDir {
    path: PathBuf,
    /// Lock held from the beginning of the job to its end, so that the directory is not pruned; the
    /// kernel releases it however the launcher ends. Empty if the file system has no locks.
    lock: Arc<OnceLock<OwnedFd>>,
    disk: Disk,
    class: RunClass,
    /// Receives once the directories of earlier runs have been scanned.
    prune_done: Arc<OnceLock<Mutex<Receiver<()>>>>,
}

impl RunDir {
    /// Makes the directory below `parent`, or below the first of `--run_dir`'s defaults that can be
    /// written: the user's state directory, the login's runtime directory. It is kept only if
    /// [`Self::begin`] is called. `at` is the time since 1970 of the start of the job. No thread may exist yet.
    pub fn create(
        parent: Option<&Path>,
        job: &JobId,
        class: RunClass,
        at: Duration,
    ) -> io::Result<Self> {
        let candidates = match parent {
            Some(parent) => vec![parent.to_owned()],
            None => default_parents(),
        };
        let mut last_error = io::Error::new(io::ErrorKind::NotFound, "no home directory");
        for parent in candidates {
            match create_below(&class.dir_below(&parent), (at, job)) {
                Ok(path) => {
                    let (lock, disk, pruned) = (Arc::default(), Disk::default(), Arc::default());
                    return Ok(Self { path, lock, disk, class, prune_done: pruned });
                }
                Err(error) => {
                    let text = format!("`{}`: {}", parent.display(), show_create_dir_error(&error));
                    last_error = io::Error::new(error.kind(), text);
                }
            }
        }
        Err(last_error)
    }

    /// Begins the job: writes the first record, makes the directory the latest and removes the
    /// oldest ones. At least this record remains if the launcher is killed; a write error is
    /// reported at the end.
    pub fn begin(&self, json: String) {
        let (path, lock_cell) = (self.path.clone(), Arc::clone(&self.lock));
        let written = self.disk.run(STALL_LIMIT, move || {
            let _ = saved_run::lock(&path).map(|lock| lock_cell.set(lock));
            write_run_json(&path, &json)
        });
        let Some(parent) = self.path.parent().map(Path::to_owned) else {
            return;
        };
        let hangs = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
        if written.is_err_and(|error| hangs(&error)) {
            return;
        }
        let path = self.path.clone();
        let linked = parent.clone();
        // A separate [`Disk`], because the next record must not wait for this.
        let _ = Disk::default().run(STALL_LIMIT, move || {
            link_latest(&linked, &path);
            Ok(())
        });
        self.prune(parent);
    }

    /// Prunes the directories of earlier runs while the job runs; [`Self::end`] waits for the
    /// result.
    fn prune(&self, parent: PathBuf) {
        let (done, pruned) = mpsc::sync_channel(1);
        let (own, class) = (self.path.clone(), self.class);
        let work = move || {
            retention::prune(&parent, &own, class, write_run_json);
            let _ = done.send(());
        };
        if std::thread::Builder::new().name("prune".to_owned()).spawn(work).is_ok() {
            let _ = self.prune_done.set(Mutex::new(pruned));
        }
    }

    /// Removes the directory of a job that never began.
    pub fn discard(&self) {
        let (path, class) = (self.path.clone(), self.class);
        let _ = self.disk.run(STALL_LIMIT, move || {
            fs::remove_dir_all(&path)?;
            match (class, path.parent()) {
                // Fails unless the directory is empty.
                (RunClass::Tool, Some(tools)) => fs::remove_dir(tools),
                _ => Ok(()),
            }
        });
    }

    /// Writes the current record. A write error is reported at the end.
    pub fn update(&self, json: String) {
        let path = self.path.clone();
        let _ = self.disk.run(STALL_LIMIT, move || write_run_json(&path, &json));
    }

    /// Writes the final record.
    pub fn end(&self, json: String) -> io::Result<()> {
        let path = self.path.clone();
        let written = self.disk.run(LONG_STALL_LIMIT, move || write_run_json(&path, &json));
        if let (Ok(()), Some(pruned)) = (&written, self.prune_done.get()) {
            let pruned = pruned.lock().expect("its thread does not panic while holding it");
            let _ = pruned.recv_timeout(STALL_LIMIT);
        }
        written
    }

    /// Keeps copies of the error files of an epoch, as many as the disk accepts in time.
    pub fn keep_error_files(&self, epoch: Epoch, files: Vec<(Rank, Vec<u8>)>) {
        let directory = epoch_dir(&self.path, epoch);
        let _ = self.disk.run(STALL_LIMIT, move || {
            // The first file of a later epoch makes the directory.
            if !directory.exists() {
                make_private_dir(&directory)?;
            }
            for (rank, bytes) in files {
                create_private(&plan::error_file(&directory, rank))?.write_all(&bytes)?;
            }
            Ok(())
        });
    }

    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn default_parents() -> Vec<PathBuf> {
    let state = env_vars::get(env_vars::XDG_STATE_HOME).map(PathBuf::from);
    let home = env_vars::get(env_vars::HOME).map(|home| Path::new(&home).join(".local/state"));
    let runtime = env_vars::get(env_vars::XDG_RUNTIME_DIR).map(PathBuf::from);
    let named = env_vars::get(env_vars::REMUDA_RUN_DIR).map(PathBuf::from);
    let below = |root: PathBuf| root.join("remuda/runs");
    named.into_iter().chain([state.or(home), runtime].into_iter().flatten().map(below)).collect()
}

/// Makes a directory and its parents unless they exist; the wait for the disk is bounded. No thread
/// may exist yet.
pub fn make_dirs(path: &Path, mode: u32) -> io::Result<()> {
    with_disk_timeout(|| fs::DirBuilder::new().recursive(true).mode(mode).create(path))
}

/// Runs file I/O with a bounded wait. No thread may exist yet.
pub fn with_disk_timeout(operation: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    io_with_timeout::run_with_timeout(LONG_STALL_LIMIT, operation)
}

fn create_below(parent: &Path, start: (Duration, &JobId)) -> io::Result<PathBuf> {
    make_dirs(parent, 0o700)?;
    make_named(parent, start, 0o700)
}

/// Makes a directory with a name that no other job has, by the time since 1970 of the start of this one.
pub(super) fn make_named(
    parent: &Path,
    (at, job): (Duration, &JobId),
    mode: u32,
) -> io::Result<PathBuf> {
    make_unique(parent, &saved_run::run_dir_name(at, job), mode)
}

/// Makes a directory with this name, or with a number behind it if another job has made one.
pub(super) fn make_unique(parent: &Path, name: &str, mode: u32) -> io::Result<PathBuf> {
    let others = (2..=SAME_NAME_MAX).map(|number| format!("{name}-{number}"));
    let mut last_error = io::Error::from(io::ErrorKind::AlreadyExists);
    for path in std::iter::once(name.to_owned()).chain(others).map(|name| parent.join(name)) {
        let make = || fs::DirBuilder::new().mode(mode).create(&path);
        match with_disk_timeout(make) {
            Ok(()) => return Ok(path),
            Err(error) => last_error = error,
        }
        if last_error.kind() != io::ErrorKind::AlreadyExists {
            break;
        }
    }
    Err(last_error)
}

/// Sets the link `latest`. If two runs start together, both may set it, and the last one stays.
pub(super) fn link_latest(parent: &Path, path: &Path) {
    let (draft, latest) =
        (parent.join(format!(".latest-{}", std::process::id())), parent.join("latest"));
    if let Some(name) = path.file_name()
        && std::os::unix::fs::symlink(name, &draft).is_ok()
    {
        let _ = fs::rename(draft, latest);
    }
}
