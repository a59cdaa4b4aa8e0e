//! Atomic writes of files.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Gid, Uid};

/// Replaces a file atomically: a concurrent reader sees either the old text or the new text. Mode
/// and owner are kept, and a symbolic link stays a link.
pub(super) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let path = fs::canonicalize(path)?;
    let draft = temporary_path(&path);
    let written = write_temporary(&path, &draft, text).and_then(|()| fs::rename(&draft, &path));
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written
}

/// Creates or replaces a file atomically; a device or a pipe is written directly.
pub(in crate::cli) fn create(path: &Path, text: &str) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.is_file() => replace(path, text),
        Ok(_) => fs::write(path, text),
        Err(_) => {
            let draft = temporary_path(path);
            let written = fs::write(&draft, text).and_then(|()| fs::rename(&draft, path));
            if written.is_err() {
                let _ = fs::remove_file(&draft);
            }
            written
        }
    }
}

/// Checks whether [`create`] would succeed.
pub(in crate::cli) fn probe(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(found) if !found.is_file() => Ok(()),
        Ok(_) | Err(_) => {
            let draft = temporary_path(path);
            fs::write(&draft, "").and_then(|()| fs::remove_file(&draft))
        }
    }
}

fn temporary_path(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    path.with_file_name(name)
}

fn write_temporary(path: &Path, draft: &Path, text: &str) -> io::Result<()> {
    let old = fs::metadata(path)?;
    // A draft with this name was left by an earlier process with the same pid, so it is not in use.
    let _ = fs::remove_file(draft);
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(draft)?;
    file.write_all(text.as_bytes())?;
    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        let owner = Some(Uid::from_raw(old.uid()));
        rustix::fs::fchown(&file, owner, Some(Gid::from_raw(old.gid())))?;
    }
    file.set_permissions(old.permissions())?;
    file.sync_all()
}
