//! A file that has its name only when it is complete.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

/// Number of names that are tried.
const NAMES_MAX: u32 = 100;

/// File with a temporary name, which is removed when this is dropped.
#[derive(Debug)]
pub(super) struct DraftFile {
    draft: PathBuf,
    target: PathBuf,
}

impl DraftFile {
    /// Creates a file in the directory of `target`.
    pub(super) fn create(target: &Path) -> io::Result<(Self, File)> {
        let Some(name) = target.file_name() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name"));
        };
        let mut number = 0;
        loop {
            let mut draft = OsString::from(".");
            draft.push(name);
            draft.push(format!(".{}-{number}", std::process::id()));
            let draft = target.with_file_name(draft);
            match File::create_new(&draft) {
                Ok(file) => return Ok((Self { draft, target: target.to_owned() }, file)),
                // A process with the same id on another host, or a killed one.
                Err(error)
                    if error.kind() == io::ErrorKind::AlreadyExists && number < NAMES_MAX =>
                {
                    number += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Path that the file will have.
    pub(super) fn target(&self) -> &Path {
        &self.target
    }

    /// Gives the file its name, and replaces a file with this name.
    pub(super) fn replace(self) -> io::Result<()> {
        fs::rename(&self.draft, &self.target)?;
        self.sync_directory()
    }

    /// Gives the file its name; if a file has this name, nothing is changed.
    pub(super) fn publish(self) -> io::Result<()> {
        match renameat_with(CWD, &self.draft, CWD, &self.target, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            // Some file systems have no such rename.
            Err(Errno::INVAL | Errno::NOSYS) => {
                if fs::symlink_metadata(&self.target).is_ok() {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                fs::rename(&self.draft, &self.target)?;
            }
            Err(error) => return Err(error.into()),
        }
        self.sync_directory()
    }

    fn sync_directory(&self) -> io::Result<()> {
        let parent = self.target.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Drop for DraftFile {
    fn drop(&mut self) {
        // After the rename there is none.
        let _ = fs::remove_file(&self.draft);
    }
}
