//! Error files of this node's workers: torch's `@record` writes them into a private directory in
//! memory, and the agent reads them when a worker exits. Beside them lie the stacks of workers that were stopped.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags};

use crate::base::{Rank, clock};
use crate::job::parse_error_file;
use crate::os::files::input_file;
use crate::plan;
use crate::wire::{ERROR_FILE_BYTES_MAX, STACK_BYTES_MAX};

/// Parent directories, in order of preference: memory first, which never hangs.
const PARENTS: [&str; 2] = ["/dev/shm", "/tmp"];
/// Prefix of the directory names; the user's number follows.
const PREFIX: &str = "remuda-errors-";
/// The directory of an agent that was killed is removed by a later one after this time.
const ABANDONED_AFTER: Duration = Duration::from_secs(60);

/// Directory of error files, removed when this is dropped. Without a directory, workers get no
/// `TORCHELASTIC_ERROR_FILE`.
pub(super) struct ErrorFiles {
    path: PathBuf,
    /// Locked, so that no other agent removes it.
    _lock: OwnedFd,
}

/// The error file of a worker.
pub(super) struct WrittenError {
    /// The content of the file, or its beginning.
    pub(super) bytes: Vec<u8>,
    /// When the failure was recorded, on the agent's clock.
    pub(super) at_us: u64,
}

impl ErrorFiles {
    /// Creates the directory.
    pub(super) fn create() -> Option<Self> {
        PARENTS.iter().find_map(|parent| Self::create_below(Path::new(parent)).ok())
    }

    fn create_below(parent: &Path) -> io::Result<Self> {
        let prefix = format!("{PREFIX}{}-", rustix::process::geteuid().as_raw());
        remove_abandoned(parent, &prefix);
        let pid = rustix::process::getpid().as_raw_pid();
        let path = parent.join(format!("{prefix}{pid}-{:x}", clock::machine_us()));
        // It must be new: a directory of another user would not be private.
        DirBuilder::new().mode(0o700).create(&path)?;
        let lock = lock(&path).inspect_err(|_| drop(fs::remove_dir(&path)))?;
        Ok(Self { path, _lock: lock })
    }

    /// Returns the path of a worker's error file.
    pub(super) fn path(&self, rank: Rank) -> PathBuf {
        plan::error_file(&self.path, rank)
    }

    /// Reads the file of a worker and removes it; `None` if the worker wrote nothing.
    pub(super) fn take(&self, rank: Rank) -> Option<WrittenError> {
        let path = self.path(rank);
        let written = read(&path, ERROR_FILE_BYTES_MAX).ok();
        let _ = fs::remove_file(path);
        written.filter(|written| !written.bytes.is_empty())
    }

    /// Reads the stack of a worker and removes it; `None` if there is none.
    pub(super) fn take_stack(&self, rank: Rank) -> Option<Vec<u8>> {
        let path = plan::stack_file(&self.path(rank));
        let written = read(&path, STACK_BYTES_MAX).ok();
        let _ = fs::remove_file(path);
        written.map(|written| written.bytes).filter(|text| !text.is_empty())
    }
}

impl Drop for ErrorFiles {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn lock(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty())?;
    rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
    Ok(directory)
}

/// Removes the directories of this user's agents that were killed.
fn remove_abandoned(parent: &Path, prefix: &str) {
    let Ok(entries) = fs::read_dir(parent) else {
        return;
    };
    let now = clock::wall().as_secs();
    let is_old = |entry: &fs::DirEntry| {
        let changed = entry.metadata().map_or(i64::MAX, |metadata| metadata.mtime());
        u64::try_from(changed).is_ok_and(|changed| changed + ABANDONED_AFTER.as_secs() < now)
    };
    let has_prefix = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(prefix);
    for entry in entries.flatten().filter(has_prefix).filter(is_old) {
        if lock(&entry.path()).is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Reads the beginning of a regular file without blocking; any other kind of file in its place is an error.
fn read(path: &Path, bytes_max: usize) -> io::Result<WrittenError> {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if let Some(kind) = input_file::irregular_kind(&metadata) {
        return Err(input_file::not_regular(kind));
    }
    let mut bytes = Vec::new();
    file.take(bytes_max as u64).read_to_end(&mut bytes)?;
    let seconds = Duration::from_secs(metadata.mtime().try_into().unwrap_or_default());
    let written =
        seconds + Duration::from_nanos(metadata.mtime_nsec().try_into().unwrap_or_default());
    let at_us = to_machine_us(recorded_at(written, &bytes), clock::wall(), clock::machine_us());
    Ok(WrittenError { bytes, at_us })
}

/// Returns when a failure was recorded. A launcher that ran under this one copies the file of its
/// worker later; the copy contains the time of the failure in whole seconds.
fn recorded_at(written: Duration, bytes: &[u8]) -> Duration {
    let timestamp = parse_error_file(bytes).and_then(|recorded| recorded.timestamp);
    timestamp.map_or(written, |timestamp| written.min(timestamp + Duration::from_millis(999)))
}

/// Converts a time of the wall clock to the clock of the machine.
fn to_machine_us(recorded: Duration, now: Duration, now_us: u64) -> u64 {
    let age = now.saturating_sub(recorded);
    now_us.saturating_sub(u64::try_from(age.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &[u8] = br#"{"message": {"message": "E: x", "extraInfo": {"timestamp": "100"}}}"#;

    #[test]
    fn error_file_is_taken_once() {
        let files = ErrorFiles::create().expect("a writable directory");
        let mode = fs::metadata(&files.path).expect("made").mode();
        assert_eq!(mode & 0o777, 0o700);
        assert!(files.take(Rank(3)).is_none());
        fs::write(files.path(Rank(3)), JSON).expect("a file");
        assert_eq!(files.take(Rank(3)).expect("it is there").bytes, JSON);
        assert!(files.take(Rank(3)).is_none());
        let path = files.path.clone();
        drop(files);
        assert!(!path.exists());
    }

    #[test]
    fn error_file_is_truncated_and_must_be_regular() {
        let files = ErrorFiles::create().expect("a writable directory");
        fs::write(files.path(Rank(0)), vec![b'x'; ERROR_FILE_BYTES_MAX + 1]).expect("a file");
        assert_eq!(files.take(Rank(0)).expect("cut").bytes.len(), ERROR_FILE_BYTES_MAX);
        rustix::fs::mkfifoat(rustix::fs::CWD, files.path(Rank(1)), Mode::RWXU).expect("a FIFO");
        assert!(files.take(Rank(1)).is_none());
        std::os::unix::fs::symlink("/etc/passwd", files.path(Rank(2))).expect("a link");
        assert!(files.take(Rank(2)).is_none());
    }

    #[test]
    fn time_of_a_copied_file_is_that_of_the_failure() {
        let seconds = Duration::from_secs;
        assert_eq!(recorded_at(seconds(100), JSON), seconds(100));
        assert_eq!(recorded_at(seconds(107), JSON), Duration::from_millis(100_999));
        assert_eq!(recorded_at(seconds(107), b"no JSON"), seconds(107));
        assert_eq!(to_machine_us(seconds(100), seconds(103), 10_000_000), 7_000_000);
        assert_eq!(to_machine_us(seconds(104), seconds(103), 10_000_000), 10_000_000);
        assert_eq!(to_machine_us(seconds(1), seconds(103), 10_000_000), 0);
    }

    #[test]
    fn directory_of_a_killed_agent_is_removed_later() {
        let parent = ErrorFiles::create().expect("a writable directory");
        let (old, young) = (parent.path.join("p-old"), parent.path.join("p-young"));
        for path in [&old, &young] {
            fs::create_dir(path).expect("a directory");
        }
        let past = std::time::UNIX_EPOCH + Duration::from_secs(1);
        File::open(&old).and_then(|file| file.set_modified(past)).expect("writable");
        let held = lock(&old).expect("free");
        remove_abandoned(&parent.path, "p-");
        assert!(old.exists(), "its agent is running");
        drop(held);
        remove_abandoned(&parent.path, "p-");
        assert!(!old.exists() && young.exists());
    }
}
