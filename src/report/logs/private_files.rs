//! Files and directories that only this user can read.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::base::Epoch;

/// Directory for the files of an epoch, below the directory of the run.
pub fn epoch_dir(directory: &Path, epoch: Epoch) -> PathBuf {
    match epoch {
        Epoch(0) => directory.to_owned(),
        Epoch(restart) => directory.join(format!("restart{restart}")),
    }
}

/// Makes a directory that only this user can read, unless it exists.
pub fn make_private_dir(path: &Path) -> io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Makes a directory that only this user can read, with its parents.
pub(super) fn make_private_dirs(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes a file that only this user can read, or empties it; never follows a link at that path.
pub(in crate::report) fn create_private(path: &Path) -> io::Result<File> {
    open_private(path, OFlags::TRUNC)
}

/// Replaces a file that only this user can read, by way of a draft: a reader sees the old or the new one.
pub(super) fn replace_private(path: &Path, draft: &Path, bytes: &[u8]) -> io::Result<()> {
    create_private(draft)?.write_all(bytes)?;
    fs::rename(draft, path)
}

/// Makes a file that only this user can read; an existing file is an error.
pub(super) fn create_new_private(path: &Path) -> io::Result<File> {
    open_private(path, OFlags::EXCL)
}

/// Opens a file again to write; never follows a link at that path.
pub(super) fn reopen_private(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

fn open_private(path: &Path, how: OFlags) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | how;
    Ok(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?.into())
}
