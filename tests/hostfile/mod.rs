//! Hostfiles: the golden files of `hostfiles/`, files that a test creates, and the commands of
//! `remuda hostfile`.
//!
//! `UPDATE_EXPECTED=1 cargo test --test program hostfile::` rewrites the expectations.

mod bytes;
mod commands;
mod files;
mod golden;
mod launch;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use clap::Parser;
use remuda::cli::hostfile::{CommandOutput, HostfileArgs, run};
use remuda::report::diagnostic::Paint;

/// An empty directory for one test, below the target directory.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hostfile").join(name);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).expect("the target directory is writable");
    directory
}

/// Writes a file with mode 0600, independent of the umask.
pub(crate) fn write(path: &Path, text: impl AsRef<[u8]>) {
    fs::write(path, text).expect("written");
    fs::set_permissions(path, Permissions::from_mode(0o600)).expect("the test owns the file");
}

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    hostfile: HostfileArgs,
}

/// Runs `remuda hostfile …` in this process.
#[track_caller]
pub(crate) fn hostfile(words: &[&str]) -> CommandOutput {
    let words = std::iter::once("hostfile").chain(words.iter().copied());
    let args = Command::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
    run(&args.hostfile, Paint::Plain)
}

/// A path as a word of a command line.
pub(crate) fn word(path: &Path) -> &str {
    path.to_str().expect("text")
}
