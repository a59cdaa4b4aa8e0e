//! The directory of one run: `run.json` and the files of every rank. Private to the user; how many are
//! kept is decided in `retention`. A disk that hangs is waited for so long and not longer.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use super::disk::Disk;
use super::rank_log::{create_private, epoch_dir, make_private_dir};
use super::retention::{self, RunClass};
use super::saved_run;
use crate::base::{Epoch, JobId, Rank, clock, env_vars};
use crate::os::errand;
use crate::plan;

/// A disk that has not answered by then is not waited for while the job runs.
const STALL_LIMIT: Duration = Duration::from_secs(1);
/// What a job begins with, and how it ended, are worth some more patience.
const PATIENT_LIMIT: Duration = Duration::from_secs(5);
/// Jobs of one name that may begin in one second: those of a machine that is several nodes.
const SAME_NAME_MAX: u32 = 1000;

/// A directory that exists and is ours.
#[derive(Clone, Debug)]
pub struct RunDir {
    path: PathBuf,
    /// Held from the beginning of the job to its end, so that nobody prunes it; the kernel gives it
    /// back whatever ends us. Empty where the file system knows no locks.
    lock: Arc<OnceLock<OwnedFd>>,
    disk: Disk,
    class: RunClass,
    /// Receives once the directories of earlier runs have been looked through.
    pruned: Arc<OnceLock<Mutex<Receiver<()>>>>,
}

impl RunDir {
    /// Makes it below `parent`, or below the first of `--run_dir`'s defaults that can be written:
    /// the user's state directory, the login's runtime directory. It counts once [`Self::begin`] is
    /// called. No thread may exist yet.
    pub fn create(parent: Option<&Path>, job: &JobId, class: RunClass) -> io::Result<Self> {
        let candidates = match parent {
            Some(parent) => vec![parent.to_owned()],
            None => default_parents(),
        };
        let mut verdict = io::Error::new(io::ErrorKind::NotFound, "no home directory");
        for parent in candidates {
            match create_below(&class.below(&parent), job) {
                Ok(path) => {
                    let (lock, disk, pruned) = (Arc::default(), Disk::default(), Arc::default());
                    return Ok(Self { path, lock, disk, class, pruned });
                }
                Err(error) => {
                    let text = format!("`{}`: {error}", parent.display());
                    verdict = io::Error::new(error.kind(), text);
                }
            }
        }
        Err(verdict)
    }

    /// The job has begun: this is known of it, the directory becomes the latest, and the oldest go.
    /// Whoever kills us leaves at least this; why it cannot be written is told at the end.
    pub fn begin(&self, json: String) {
        let (path, held) = (self.path.clone(), Arc::clone(&self.lock));
        let written = self.disk.ask(STALL_LIMIT, move || {
            let _ = saved_run::lock(&path).map(|lock| held.set(lock));
            write_record(&path, &json)
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
        // Another disk, for the next record does not wait for this.
        let _ = Disk::default().ask(STALL_LIMIT, move || {
            link_latest(&linked, &path);
            Ok(())
        });
        self.prune(parent);
    }

    /// Looks through the directories of earlier runs beside the job; [`Self::end`] waits for it.
    fn prune(&self, parent: PathBuf) {
        let (done, pruned) = mpsc::channel();
        let (own, class) = (self.path.clone(), self.class);
        let work = move || {
            retention::prune(&parent, &own, class, write_record);
            let _ = done.send(());
        };
        if std::thread::Builder::new().name("prune".to_owned()).spawn(work).is_ok() {
            let _ = self.pruned.set(Mutex::new(pruned));
        }
    }

    /// The job never began: there is nothing to keep.
    pub fn discard(&self) {
        let (path, class) = (self.path.clone(), self.class);
        let _ = self.disk.ask(STALL_LIMIT, move || {
            fs::remove_dir_all(&path)?;
            match (class, path.parent()) {
                // Only while it is empty.
                (RunClass::Tool, Some(tools)) => fs::remove_dir(tools),
                _ => Ok(()),
            }
        });
    }

    /// What is known now. Why it cannot be written is told at the end.
    pub fn update(&self, json: String) {
        let path = self.path.clone();
        let _ = self.disk.ask(STALL_LIMIT, move || write_record(&path, &json));
    }

    /// How the job ended.
    pub fn end(&self, json: String) -> io::Result<()> {
        let path = self.path.clone();
        let written = self.disk.ask(PATIENT_LIMIT, move || write_record(&path, &json));
        if let (Ok(()), Some(pruned)) = (&written, self.pruned.get()) {
            let pruned = pruned.lock().expect("its thread does not panic while holding it");
            let _ = pruned.recv_timeout(STALL_LIMIT);
        }
        written
    }

    /// Keeps copies of the error files of an epoch: as many as the disk takes in time.
    pub fn keep_error_files(&self, epoch: Epoch, files: Vec<(Rank, Vec<u8>)>) {
        let directory = epoch_dir(&self.path, epoch);
        let _ = self.disk.ask(STALL_LIMIT, move || {
            // That of a later epoch is made by what needs it first.
            if !directory.exists() {
                make_private_dir(&directory)?;
            }
            for (rank, bytes) in files {
                create_private(&plan::error_file(&directory, rank))?.write_all(&bytes)?;
            }
            Ok(())
        });
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Writes `run.json` so that a reader sees the old or the new one, never half.
fn write_record(directory: &Path, json: &str) -> io::Result<()> {
    let (draft, last) = (directory.join(".run.json"), directory.join("run.json"));
    let mut file: File = create_private(&draft)?;
    file.write_all(json.as_bytes())?;
    fs::rename(draft, last)
}

fn default_parents() -> Vec<PathBuf> {
    let state = env_vars::get(env_vars::XDG_STATE_HOME).map(PathBuf::from);
    let home = env_vars::get(env_vars::HOME).map(|home| Path::new(&home).join(".local/state"));
    let runtime = env_vars::get(env_vars::XDG_RUNTIME_DIR).map(PathBuf::from);
    let named = env_vars::get(env_vars::REMUDA_RUN_DIR).map(PathBuf::from);
    let below = |root: PathBuf| root.join("remuda/runs");
    named.into_iter().chain([state.or(home), runtime].into_iter().flatten().map(below)).collect()
}

/// Makes a directory and those above it, unless they are there; a disk that hangs is not waited for. No
/// thread may exist yet.
pub fn make_dirs(path: &Path, mode: u32) -> io::Result<()> {
    ask_disk(|| fs::DirBuilder::new().recursive(true).mode(mode).create(path))
}

/// A look at a disk, or a word to it, whose answer is not waited for for ever. No thread may exist yet.
pub fn ask_disk(errand: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    errand::run(PATIENT_LIMIT, errand)
}

fn create_below(parent: &Path, job: &JobId) -> io::Result<PathBuf> {
    make_dirs(parent, 0o700)?;
    make_named(parent, job, 0o700)
}

/// Makes a directory for a job that no other job has.
pub(super) fn make_named(parent: &Path, job: &JobId, mode: u32) -> io::Result<PathBuf> {
    let name = saved_run::name(clock::wall(), job);
    let others = (2..=SAME_NAME_MAX).map(|number| format!("{name}-{number}"));
    let mut verdict = io::Error::from(io::ErrorKind::AlreadyExists);
    for path in std::iter::once(name.clone()).chain(others).map(|name| parent.join(name)) {
        let make = || fs::DirBuilder::new().mode(mode).create(&path);
        match ask_disk(make) {
            Ok(()) => return Ok(path),
            Err(error) => verdict = error,
        }
        if verdict.kind() != io::ErrorKind::AlreadyExists {
            break;
        }
    }
    Err(verdict)
}

/// `latest` is a convenience: two runs that start together may both set it, the last one stays.
pub(super) fn link_latest(parent: &Path, path: &Path) {
    let (draft, latest) =
        (parent.join(format!(".latest-{}", std::process::id())), parent.join("latest"));
    if let Some(name) = path.file_name()
        && std::os::unix::fs::symlink(name, &draft).is_ok()
    {
        let _ = fs::rename(draft, latest);
    }
}
