//! Files that a command will write at its end, looked at before it begins.

use std::fs;
use std::path::Path;

use rustix::fs::Access;

use crate::report::summary::reason;

/// Why a file cannot be made or replaced, if it cannot.
pub(super) fn check_file(file: &Path) -> Result<(), String> {
    match fs::metadata(file) {
        Ok(found) if found.is_dir() => Err("it is a directory".to_owned()),
        Ok(_) => check_writable(file).map_err(|error| reason(&error)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
            check_writable(parent.unwrap_or(Path::new("."))).map_err(|error| reason(&error))
        }
        Err(error) => Err(reason(&error)),
    }
}

/// That something can be written to, as far as its permissions say.
pub(super) fn check_writable(path: &Path) -> std::io::Result<()> {
    Ok(rustix::fs::access(path, Access::WRITE_OK)?)
}
