//! Checks of output files before a command starts.

use std::path::Path;
use std::{fs, io};

use rustix::fs::Access;

use crate::report::text::show_io_error;
use crate::report::with_disk_timeout;

/// Checks that a file can be created or replaced; if not, the error is the reason.
pub(in crate::cli) fn check_file(file: &Path) -> Result<(), String> {
    with_disk_timeout(|| check_path(file)).map_err(|error| match error.raw_os_error() {
        Some(libc::EISDIR) => "it is a directory".to_owned(),
        _ => show_io_error(&error),
    })
}

fn check_path(file: &Path) -> io::Result<()> {
    match fs::metadata(file) {
        Ok(found) if found.is_dir() => Err(io::Error::from_raw_os_error(libc::EISDIR)),
        Ok(_) => check_writable(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
            check_writable(parent.unwrap_or(Path::new(".")))
        }
        Err(error) => Err(error),
    }
}

/// Checks that the permissions of a file or directory allow writing.
pub(in crate::cli) fn check_writable(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::access(path, Access::WRITE_OK)?)
}
