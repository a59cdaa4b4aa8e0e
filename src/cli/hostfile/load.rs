//! Hostfiles from disk, for every command that takes one.

use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::values::ReadArgs;
use crate::base::{Diagnostic, Findings, HostName, Severity, Source, Status};
use crate::os::input_file::{InputReader, is_pipe, open, other_kind};
use crate::pool::{self, ReadOptions, Reading, codes};
use crate::report::diagnostic::{Paint, show_findings};

/// Bytes of a hostfile; [`pool::HOSTS_MAX`] hosts with long names and comments fit.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Whose files are good enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Not those that everybody can write.
    Owner,
    /// Any (`--allow_insecure_files`).
    Anyone,
}

/// Why there is no hostfile.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Nothing there, where a job was to run.
    #[error("hostfile `{}` does not exist", .0.display())]
    Missing(PathBuf),
    /// Nothing there, and no job is started.
    #[error("hostfile `{}` does not exist", .0.display())]
    NothingToRead(PathBuf),
    /// A directory, a pipe, a device.
    #[error("hostfile `{}` is not a regular file: it is {kind}", .path.display())]
    NotAFile {
        /// Path of the file.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// The system refused.
    #[error("cannot read hostfile `{}`", .path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Everybody decides where the job runs.
    #[error("hostfile `{}` is writable by everyone", .0.display())]
    WritableByAll(PathBuf),
    /// More than any hostfile has.
    #[error("hostfile `{}` is larger than 64 MiB", .0.display())]
    TooLarge(PathBuf),
    /// It was to be changed.
    #[error("cannot write hostfile `{}`", .path.display())]
    NotWritten {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// It was read, and has errors.
    #[error("hostfile `{}` has errors", .0.source.name)]
    Malformed(Findings),
}

impl LoadError {
    /// The exit status of a launch that ends because of it.
    pub fn status(&self) -> Status {
        match self {
            Self::Missing(_)
            | Self::NothingToRead(_)
            | Self::NotAFile { .. }
            | Self::Unreadable { .. } => Status::NoInput,
            Self::WritableByAll(_) => Status::Permission,
            Self::TooLarge(_) | Self::Malformed(_) => Status::BadInput,
            Self::NotWritten { .. } => Status::Io,
        }
    }

    /// The exit status of `hostfile check`: 2 where the file could not be looked into.
    pub(super) fn check_status(&self) -> Status {
        match self {
            Self::WritableByAll(_) | Self::TooLarge(_) | Self::Malformed(_) => Status::Findings,
            Self::Missing(_)
            | Self::NothingToRead(_)
            | Self::NotAFile { .. }
            | Self::Unreadable { .. }
            | Self::NotWritten { .. } => Status::Usage,
        }
    }

    /// What the user sees.
    pub fn screen(&self, paint: Paint) -> String {
        match self {
            Self::Malformed(findings) => show_findings(findings, paint),
            _ => show_findings(&self.as_findings(), paint),
        }
    }

    pub(super) fn as_findings(&self) -> Findings {
        let (code, path, help) = match self {
            Self::Malformed(findings) => return findings.clone(),
            // What looks like the names of hosts perhaps is.
            Self::Missing(path) if are_host_names(&path.to_string_lossy()) => (
                codes::FILE_MISSING,
                path,
                "correct the path, or say a host's slots: `-H HOST:4`; without -H it is this machine",
            ),
            Self::Missing(path) => (
                codes::FILE_MISSING,
                path,
                "correct the path, or leave -H out to run on this machine",
            ),
            Self::NothingToRead(path) => {
                (codes::FILE_MISSING, path, "correct the path; `-` is standard input")
            }
            // Where DeepSpeed's users say that there is no hostfile.
            Self::NotAFile { path, .. } if path == Path::new("/dev/null") => {
                (codes::NOT_A_FILE, path, "it names no host; a job without -H runs on this machine")
            }
            Self::NotAFile { path, .. } => {
                (codes::NOT_A_FILE, path, "write the hosts to a file and give that")
            }
            Self::Unreadable { path, source } if source.raw_os_error() == Some(libc::ELOOP) => {
                (codes::UNREADABLE, path, "the link leads back to itself; name the file")
            }
            Self::Unreadable { path, .. } => {
                (codes::UNREADABLE, path, "make it readable for yourself: `chmod u+r`")
            }
            Self::WritableByAll(path) => (
                codes::WRITABLE_BY_ALL,
                path,
                "`chmod o-w` the file, or pass --allow_insecure_files",
            ),
            Self::NotWritten { path, .. } => {
                (codes::NOT_WRITTEN, path, "its directory must be writable: it is written anew")
            }
            Self::TooLarge(path) => (codes::FILE_TOO_LARGE, path, "is this a hostfile?"),
        };
        let message = match self {
            Self::Unreadable { source, .. } | Self::NotWritten { source, .. } => {
                format!("{self}: {source}")
            }
            _ => self.to_string(),
        };
        let source = Source { name: path.display().to_string(), text: String::new() };
        Findings { source, diagnostics: vec![Diagnostic::whole(code, message).help(help)] }
    }
}

/// The hostfile of a launch: without errors, perhaps with warnings.
pub fn load(path: &Path, trust: Trust, options: ReadOptions) -> Result<Reading, LoadError> {
    let loaded = read_file(path, trust, options)?;
    if loaded.findings.has_errors() {
        return Err(LoadError::Malformed(loaded.findings));
    }
    Ok(loaded)
}

/// A file, or standard input for `-`, whatever is wrong with its text.
pub(super) fn read(path: &Path, args: &ReadArgs) -> Result<Reading, LoadError> {
    read_as(path, args.trust(), args.options())
}

/// The same, with other options.
pub(super) fn read_as(
    path: &Path,
    trust: Trust,
    options: ReadOptions,
) -> Result<Reading, LoadError> {
    if path.as_os_str() == "-" {
        read_from(io::stdin().lock(), path, options)
    } else {
        read_file(path, trust, options).map_err(|error| match error {
            LoadError::Missing(path) => LoadError::NothingToRead(path),
            other => other,
        })
    }
}

fn read_file(path: &Path, trust: Trust, options: ReadOptions) -> Result<Reading, LoadError> {
    let file = open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => LoadError::Missing(path.to_owned()),
        _ => unreadable(path, error),
    })?;
    let found = file.metadata().map_err(|error| unreadable(path, error))?;
    // What a shell puts in the place of `<(command)` is a pipe.
    if let Some(kind) = other_kind(&found).filter(|_| !is_pipe(&found)) {
        return Err(LoadError::NotAFile { path: path.to_owned(), kind });
    }
    if trust == Trust::Owner && found.mode() & 0o002 != 0 {
        return Err(LoadError::WritableByAll(path.to_owned()));
    }
    let input = InputReader::new(file).map_err(|error| unreadable(path, error))?;
    let mut loaded = read_from(input, path, options)?;
    let own = rustix::process::geteuid().as_raw();
    if trust == Trust::Owner && is_foreign(found.uid(), own) {
        loaded.findings.diagnostics.push(foreign_owner(found.uid()));
    }
    Ok(loaded)
}

fn unreadable(path: &Path, source: io::Error) -> LoadError {
    LoadError::Unreadable { path: path.to_owned(), source }
}

/// Root reads what it is told to; everybody else trusts themselves and root.
pub(in crate::cli) fn is_foreign(owner: u32, own: u32) -> bool {
    own != 0 && owner != 0 && owner != own
}

fn foreign_owner(owner: u32) -> Diagnostic {
    let message = format!("the hostfile belongs to another user (uid {owner})");
    Diagnostic::whole(codes::FOREIGN_OWNER, message)
        .severity(Severity::Note)
        .help("its owner decides where the job runs")
}

fn read_from(input: impl Read, path: &Path, options: ReadOptions) -> Result<Reading, LoadError> {
    let mut bytes = Vec::new();
    let read = input.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => {
            LoadError::NotAFile { path: path.to_owned(), kind: "a pipe that no process writes to" }
        }
        _ => unreadable(path, error),
    })?;
    if FILE_BYTES_MAX < bytes.len() as u64 {
        return Err(LoadError::TooLarge(path.to_owned()));
    }
    let name = String::from_utf8_lossy(path.as_os_str().as_bytes());
    Ok(pool::read_any(&name, &bytes, options))
}

fn are_host_names(list: &str) -> bool {
    list.split(',').all(|name| HostName::parse(name).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_root_and_our_own_are_not_foreign() {
        assert!(!is_foreign(1000, 1000));
        assert!(!is_foreign(0, 1000));
        assert!(is_foreign(1001, 1000));
        assert!(!is_foreign(1001, 0));
    }
}
