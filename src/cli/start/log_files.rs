//! Files that a job writes: `--enable_each_rank_log`, `--save_pid`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::base::{Rank, Status, clock};
use crate::cli::codes::machine::CANNOT_CREATE;
use crate::cli::error::CliError;
use crate::os::calendar;
use crate::report::text::show_io_error;
use crate::report::{RankFiles, make_dirs};

/// Directory of the file of `--save_pid`, as in DeepSpeed.
const PID_DIRECTORY: &str = "/tmp";

/// Returns the pattern for one file for each rank from `first` on, with the start time in their names, as
/// DeepSpeed names them. No other job has the same names.
pub(super) fn rank_files(
    directory: Option<PathBuf>,
    first: Rank,
) -> Result<Option<RankFiles>, CliError> {
    let Some(directory) = directory else { return Ok(None) };
    let shown = directory.display().to_string();
    let claim = |()| {
        let time = calendar::local_stamp(clock::wall());
        RankFiles::claim(&directory, &time, first)
    };
    make_dirs(&directory, 0o777).and_then(claim).map(Some).map_err(|error| {
        let cannot = |message| CliError::new(Status::CantCreate, CANNOT_CREATE, message);
        if error.kind() == io::ErrorKind::AlreadyExists {
            let message = format!("`--enable_each_rank_log`: `{shown}` is a file");
            return cannot(message).help("name a directory");
        }
        cannot(format!(
            "`--enable_each_rank_log`: cannot create `{shown}`: {}",
            show_io_error(&error)
        ))
        .help("name a directory that you can write: `--enable_each_rank_log DIR`")
    })
}

/// The file with the process id of the launcher; it is removed when this value is dropped.
#[derive(Debug)]
pub(super) struct PidFile(PathBuf);

impl PidFile {
    /// Creates the file; it is named after the process `named_after`, or else after this process.
    pub(in crate::cli) fn write(named_after: Option<u32>) -> Result<Self, CliError> {
        let pid = std::process::id();
        let name = format!("{}.deepspeed", named_after.unwrap_or(pid));
        let path = Path::new(PID_DIRECTORY).join(name);
        create(&path).and_then(|mut file| write!(file, "{pid}")).map_err(|error| {
            let message = format!(
                "--save_pid: cannot create `{}`: {}",
                path.display(),
                show_io_error(&error)
            );
            CliError::new(Status::CantCreate, CANNOT_CREATE, message)
        })?;
        Ok(Self(path))
    }

    /// Returns its path.
    pub(in crate::cli) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Creates the file. Every user may write to the directory, so an existing file or link is never
/// followed. If it belongs to this user, it was left by a killed launcher with the same pid, and is
/// replaced.
fn create(path: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::open(path, flags, Mode::from_raw_mode(0o644)).map(File::from);
    match open() {
        Err(rustix::io::Errno::EXIST) => {
            let found = path.symlink_metadata()?;
            if found.uid() == rustix::process::geteuid().as_raw() {
                fs::remove_file(path)?;
            }
            Ok(open()?)
        }
        other => Ok(other?),
    }
}
