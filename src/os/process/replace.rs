//! Replacing this process by another program.

use std::ffi::{OsStr, OsString};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::os::process::shell_env::memory_file;

/// The file of this process.
const OWN_FILE: &str = "/proc/self/exe";

/// Returns the first executable file with this name in the directories of `path`, a value of PATH, that is
/// not the program that runs.
pub fn find_other_program(name: &str, path: &OsStr) -> Option<PathBuf> {
    let own = std::fs::metadata(OWN_FILE).ok().map(|own| (own.dev(), own.ino()));
    let is_other = |file: &PathBuf| {
        let Ok(found) = std::fs::metadata(file) else { return false };
        let is_program = found.is_file() && found.permissions().mode() & 0o111 != 0;
        is_program && Some((found.dev(), found.ino())) != own
    };
    std::env::split_paths(path).map(|directory| directory.join(name)).find(is_other)
}

/// Replaces this process by a program with these arguments, and returns only if that fails.
#[expect(clippy::disallowed_methods, reason = "os is where processes are started")]
pub fn replace_process(program: &Path, arguments: &[OsString]) -> io::Error {
    Command::new(program).args(arguments).exec()
}

/// The same for a program that reads this input.
#[expect(clippy::disallowed_methods, reason = "os is where processes are started")]
pub fn replace_process_with_input(program: &Path, arguments: &[&str], text: &[u8]) -> io::Error {
    let input = || -> io::Result<_> {
        let mut input = memory_file()?;
        input.write_all(text)?;
        input.rewind()?;
        Ok(input)
    };
    match input() {
        Ok(input) => Command::new(program).args(arguments).stdin(input).exec(),
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_that_runs_is_not_another_one() {
        let directory = std::env::temp_dir().join(format!("remuda-other-{}", std::process::id()));
        let (first, second) = (directory.join("first"), directory.join("second"));
        for directory in [&first, &second] {
            std::fs::create_dir_all(directory).expect("a directory for the test");
        }
        std::os::unix::fs::symlink(OWN_FILE, first.join("tool")).expect("a link");
        std::fs::write(second.join("tool"), "").expect("a file");
        let path = std::env::join_paths([&first, &second]).expect("a path");
        assert_eq!(find_other_program("tool", &path), None, "not executable");
        let mode = PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(second.join("tool"), mode).expect("permissions");
        assert_eq!(find_other_program("tool", &path), Some(second.join("tool")));
        std::fs::remove_dir_all(directory).expect("removed");
    }
}
