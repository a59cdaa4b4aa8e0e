//! The files: `remuda.toml` in the working directory, and that of the user. A file that other users can write
//! is refused, because it decides what is executed.

use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::base::shell::quoted;
use crate::base::{Diagnostic, Findings, Source, Status, env_vars};
use crate::cli::error::CliError;
use crate::cli::resolve::trust::Trust;
use crate::config::codes::{SETTINGS_NOT_TRUSTED, SETTINGS_UNREADABLE};
use crate::os::files::input_file::{irregular_kind, open};
use crate::os::user::user_name;
use crate::report::text::show_io_error;

/// Name of the file.
const NAME: &str = "remuda.toml";
/// Maximum size of the file, in bytes.
const BYTES_MAX: u64 = 1 << 20;
/// The permission to write, of the group and of all other users.
const OTHERS_WRITE: u32 = 0o022;

/// A file that was read.
#[derive(Clone, Debug)]
pub(super) struct FoundFile {
    pub(super) source: Source,
    /// Whether it is that of the working directory.
    pub(super) is_local: bool,
}

/// A file that is not used, and the exit status.
#[derive(Debug)]
struct RefusedFile {
    status: Status,
    problem: Box<Diagnostic>,
}

impl RefusedFile {
    fn new(status: Status, problem: Diagnostic) -> Self {
        Self { status, problem: Box::new(problem) }
    }
}

/// Whether `remuda config check` reads a file as `remuda.toml`.
pub(in crate::cli) fn is_settings_file(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "toml")
}

/// Reads the files that exist: first that of the user, then that of the working directory, which has
/// precedence.
///
/// # Errors
/// All problems of both files.
pub(super) fn find(trust: Trust) -> Result<Vec<FoundFile>, CliError> {
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    let mut status = Status::BadInput;
    for (path, is_local) in [(user_file(), false), (Some(NAME.into()), true)] {
        let Some(path) = path else { continue };
        match read(&path, trust) {
            Ok(None) => {}
            Ok(Some(text)) => {
                let source = Source { name: path.display().to_string(), text };
                found.push(FoundFile { source, is_local });
            }
            Err(RefusedFile { status: cause, problem }) => {
                status = cause;
                let source = Source { name: path.display().to_string(), text: String::new() };
                problems.push(Findings { source, diagnostics: vec![*problem] });
            }
        }
    }
    if problems.is_empty() {
        return Ok(found);
    }
    Err(CliError::Findings { status, findings: problems })
}

/// Returns the path of the user's file.
fn user_file() -> Option<PathBuf> {
    // The XDG specification says that a relative path is to be ignored.
    let named = env_vars::get(env_vars::XDG_CONFIG_HOME).map(PathBuf::from);
    let named = named.filter(|path| path.is_absolute());
    let home = || Some(Path::new(&env_vars::get(env_vars::HOME)?).join(".config"));
    Some(named.or_else(home)?.join("remuda").join(NAME))
}

/// Reads a file; `None`: there is none.
fn read(path: &Path, trust: Trust) -> Result<Option<String>, RefusedFile> {
    // A directory that this user cannot enter has no file for this user.
    if path.symlink_metadata().is_err() {
        return Ok(None);
    }
    let unreadable = |why: &str| RefusedFile::new(Status::NoInput, unreadable(path, why));
    let file = open(path).map_err(|error| unreadable(&show_io_error(&error)))?;
    let metadata = file.metadata().map_err(|error| unreadable(&show_io_error(&error)))?;
    if let Some(kind) = irregular_kind(&metadata) {
        return Err(unreadable(&format!("it is {kind}")));
    }
    if let Some(problem) = not_trusted(path, &metadata).filter(|_| trust == Trust::Owner) {
        return Err(RefusedFile::new(Status::Permission, problem));
    }
    let bytes = read_all(file).map_err(|why| unreadable(&why))?;
    String::from_utf8(bytes).map(Some).map_err(|_| unreadable("it is not UTF-8 text"))
}

fn read_all(file: File) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = file.take(BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| show_io_error(&error))?;
    if BYTES_MAX < bytes.len() as u64 {
        return Err("it is larger than 1 MiB".to_owned());
    }
    Ok(bytes)
}

fn unreadable(path: &Path, why: &str) -> Diagnostic {
    let message = format!("cannot read `{}`: {why}", path.display());
    Diagnostic::whole(SETTINGS_UNREADABLE, message)
        .help("correct the file, or add `--no_settings`, which ignores it")
}

/// Returns the problem of a file that commands would refuse; `None` for a file that does not exist.
pub(in crate::cli) fn check_trust(path: &Path) -> Option<Diagnostic> {
    not_trusted(path, &path.metadata().ok()?)
}

fn not_trusted(path: &Path, found: &Metadata) -> Option<Diagnostic> {
    let shown = path.display();
    let (owner, own) = (found.uid(), rustix::process::geteuid().as_raw());
    // Unlike a hostfile, it is refused to root too: it can name the program's interpreter.
    if owner != own && owner != 0 {
        let name = user_name(owner).map_or_else(|| owner.to_string(), |name| format!("`{name}`"));
        let message =
            format!("`{shown}` belongs to user {name}, who could decide what is executed");
        let help = "copy it, or add `--allow_insecure_files`; `--no_settings` ignores it";
        return Some(Diagnostic::whole(SETTINGS_NOT_TRUSTED, message).help(help));
    }
    let mode = found.mode() & OTHERS_WRITE;
    let who = match mode {
        0 => return None,
        0o020 => "its group",
        _ => "every user",
    };
    let message = format!("{who} can write `{shown}`, which decides what is executed");
    let help = format!("type `chmod go-w {}`; `--no_settings` ignores it", quoted(path));
    Some(Diagnostic::whole(SETTINGS_NOT_TRUSTED, message).help(help))
}
