//! Lock of a directory of checkpoints.

use std::fs::File;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// Name of the file that is locked where a directory cannot be.
const LOCK_FILE: &str = ".lock";

/// Lock of a directory of checkpoints: two runs that save in one directory would remove each other's files. It
/// is released when it is dropped, or when the process ends.
#[derive(Debug)]
pub struct DirectoryLock {
    /// `None` if the file system has no locks.
    file: Option<File>,
}

/// A directory is locked by another run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryInUse;

impl DirectoryLock {
    /// Locks a directory. If its file system has no locks, or it cannot be opened, nothing is locked.
    pub fn claim(dir: &Path) -> Result<Self, DirectoryInUse> {
        let Ok(directory) = File::open(dir) else { return Ok(Self { file: None }) };
        match Self::lock(directory)? {
            Some(file) => Ok(Self { file: Some(file) }),
            // NFS locks only what is open for writing, as a directory never is.
            None => Self::claim_file(&dir.join(LOCK_FILE)),
        }
    }

    fn claim_file(path: &Path) -> Result<Self, DirectoryInUse> {
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let Ok(file) = opened else { return Ok(Self { file: None }) };
        Ok(Self { file: Self::lock(file)? })
    }

    /// Locks a file or directory; `None` if it cannot be locked.
    fn lock(file: File) -> Result<Option<File>, DirectoryInUse> {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Err(DirectoryInUse),
            Err(_) => Ok(None),
            Ok(()) => Ok(Some(file)),
        }
    }

    /// Returns whether other runs are excluded.
    pub fn is_held(&self) -> bool {
        self.file.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lock_of_a_directory_has_one_holder() {
        let dir = std::env::temp_dir().join(format!("remuda-lock-{}", std::process::id()));
        std::fs::create_dir(&dir).expect("a new directory");
        for claim in
            [DirectoryLock::claim, |dir: &Path| DirectoryLock::claim_file(&dir.join(LOCK_FILE))]
        {
            let held = claim(&dir).expect("it is free");
            assert!(held.is_held());
            assert_eq!(claim(&dir).expect_err("it is held"), DirectoryInUse);
            drop(held);
            claim(&dir).expect("it is free again");
        }
        std::fs::remove_dir_all(&dir).expect("it is there");
        let missing = DirectoryLock::claim(&dir).expect("there is nothing to lock");
        assert!(!missing.is_held());
    }
}
