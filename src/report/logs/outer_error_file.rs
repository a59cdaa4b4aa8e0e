//! The error file of an outer launcher, which started this one as a worker (`TORCHELASTIC_ERROR_FILE`).

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::disk::Disk;
use super::private_files::replace_private;

/// Longest wait for the disk.
const STALL_LIMIT: Duration = Duration::from_secs(1);

/// Writes the file whole, so that a reader sees nothing or all of it.
pub fn write_outer_error_file(path: PathBuf, bytes: Vec<u8>) -> io::Result<()> {
    Disk::default().run(STALL_LIMIT, move || {
        let mut draft = path.clone().into_os_string();
        draft.push(".new");
        replace_private(&path, draft.as_ref(), &bytes)
    })
}
