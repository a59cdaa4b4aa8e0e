//! The environment of the workers: environment files, `--env`, and variables that are copied from
//! the environment of the launcher.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::base::order;
use crate::base::shell::quoted;
use crate::base::{Diagnostic, Findings, Severity, Source, Status, env_vars};
use crate::cli::codes::machine::{BAD_VARIABLE, CANNOT_READ};
use crate::cli::error::CliError;
use crate::cli::resolve::trust::{Trust, is_foreign};
use crate::launch::Transport;
use crate::os::files::input_file::{irregular_kind, open};
use crate::plan::{Accelerator, Export, VariableOrigin, propagated_exports};
use crate::pool::{
    EnvFile, NAME_AN_ENV_FILE, Variable, codes, loads_code_warning, read_env, shadowed,
};
use crate::report::diagnostic::{Paint, show_all, show_findings};
use crate::report::text::show_io_error;

/// Name of DeepSpeed's environment file.
const DEFAULT_NAME: &str = ".deepspeed_env";
/// Maximum size of an environment file, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Variables from environment files, and warnings about the files.
#[derive(Debug, Default)]
pub(in crate::cli) struct FileExports {
    exports: Vec<Export>,
    /// Warnings, ready to be printed.
    pub(in crate::cli) warnings: String,
}

/// How the workers get the environment of the launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum JobScope {
    /// The workers inherit it.
    Here,
    /// Variables are sent to the workers: there are several nodes, or the transport is not local.
    Nodes,
}

impl JobScope {
    /// Returns the scope of a job with this number of nodes.
    pub(in crate::cli) fn of(nodes: usize, transport: &Transport) -> Self {
        match transport {
            Transport::Local if nodes <= 1 => Self::Here,
            Transport::Local | Transport::Ssh(_) | Transport::Dial(_) | Transport::Managed(_) => {
                Self::Nodes
            }
        }
    }
}

/// Returns all variables for the workers except those that remuda sets. Later ones take precedence:
/// variables of the launcher that are copied to jobs of several nodes, then the files, then
/// `--env`.
pub(in crate::cli) fn exports(
    typed: &[OsString],
    files: FileExports,
    scope: JobScope,
    accelerator: Accelerator,
) -> Result<Vec<Export>, CliError> {
    let mut exports = Vec::new();
    if scope == JobScope::Nodes {
        let cwd = working_directory()?;
        exports.extend(propagated_exports(&env_vars::all(), cwd.as_os_str(), accelerator));
    }
    exports.extend(files.exports);
    for text in typed {
        exports.push(export(text)?);
    }
    Ok(exports)
}

/// Returns the working directory of this process.
pub(in crate::cli) fn working_directory() -> Result<PathBuf, CliError> {
    std::env::current_dir().map_err(|error| {
        let what = match entered_directory() {
            Some(path) => format!("the working directory `{}` no longer exists", path.display()),
            None => "no working directory".to_owned(),
        };
        let message = format!("{what}: {}", show_io_error(&error));
        CliError::new(Status::NoInput, CANNOT_READ, message).help("`cd` to a directory that exists")
    })
}

/// Returns the path by which a deleted working directory was entered: the kernel appends
/// `(deleted)` to it.
fn entered_directory() -> Option<PathBuf> {
    let link = std::fs::read_link("/proc/self/cwd").ok()?.into_os_string().into_vec();
    let path = link.strip_suffix(b" (deleted)")?;
    Some(OsString::from_vec(path.to_vec()).into())
}

/// Parses `NAME=VALUE`; `NAME` alone has the value of the launcher's environment.
fn export(text: &OsStr) -> Result<Export, CliError> {
    let bytes = text.as_bytes();
    if let Some(at) = bytes.iter().position(|byte| *byte == b'=') {
        let (name, value) = (bytes[..at].to_vec(), bytes[at + 1..].to_vec());
        return Ok(Export::flag(OsString::from_vec(name), OsString::from_vec(value)));
    }
    let value = text.to_str().and_then(env_vars::get);
    value.map(|value| Export::flag(text, value)).ok_or_else(|| {
        let message = format!("--env {}: the variable is not set here", text.display());
        CliError::usage(BAD_VARIABLE, message).help("give it a value: `--env NAME=VALUE`")
    })
}

/// Reads the file of the home directory and that of the working directory, which takes precedence.
/// The errors of both files are printed together.
pub(in crate::cli) fn read_files(
    trust: Trust,
    accelerator: Accelerator,
    paint: Paint,
) -> Result<FileExports, CliError> {
    let named = env_vars::get(env_vars::DS_ENV_FILE);
    let name = named.clone().unwrap_or_else(|| DEFAULT_NAME.into());
    let home = env_vars::get(env_vars::HOME).map(|home| Path::new(&home).join(&name));
    let here = working_directory()?.join(&name);
    let mut read = EnvFileReader { trust, screens: String::new(), status: None };
    // An absolute name is the same file in both places, and the home directory may be the working
    // directory.
    let is_same = home.as_ref().is_some_and(|home| same_file(home, &here));
    let mut of_home = if is_same { None } else { home.and_then(|home| read.file(&home, paint)) };
    let mut of_cwd = read.file(&here, paint);
    let is_in_cwd_only = !is_same && Path::new(&name).is_relative();
    if let (true, Some((file, findings))) = (is_in_cwd_only, &mut of_cwd) {
        let found =
            file.variables.iter().filter_map(|found| loads_code_warning(&found.name, found.span));
        findings.diagnostics.extend(found);
    }
    if let (Some((file, findings)), Some((other, home_findings))) = (&mut of_cwd, &of_home) {
        findings.diagnostics.extend(shadowed(file, other, &home_findings.source.name));
        order::sort_by_key(&mut findings.diagnostics, |found| found.span.map(|span| span.start));
    }
    if of_home.is_none()
        && of_cwd.is_none()
        && read.status.is_none()
        && let Some(named) = named
    {
        read.screens += &show_findings(&missing(&named), paint);
    }
    for (file, findings) in of_home.iter_mut().chain(&mut of_cwd) {
        leave_devices_to_slots(file, findings, accelerator);
    }
    let found: Vec<_> = of_home.into_iter().chain(of_cwd).collect();
    read.screens += &show_all(found.iter().map(|(_, findings)| findings), paint);
    if found.iter().any(|(_, findings)| findings.has_errors()) {
        read.status.get_or_insert(Status::BadInput);
    }
    match read.status {
        Some(status) => Err(CliError::Screen { status, text: read.screens }),
        None => Ok(FileExports { exports: to_exports(&found), warnings: read.screens }),
    }
}

/// Removes variables that select devices: the slots of a worker determine its devices, as in
/// DeepSpeed.
fn leave_devices_to_slots(file: &mut EnvFile, findings: &mut Findings, accelerator: Accelerator) {
    let devices = accelerator.visible_devices();
    let selects_devices = |variable: &Variable| devices.contains(&variable.name.as_str());
    for variable in file.variables.iter().filter(|variable| selects_devices(variable)) {
        let name = &variable.name;
        let message = format!("`{name}` is not passed on: the slots of the job select its devices");
        let help = format!("select slots with `--include`; `--env {name}=…` overrides them");
        let problem = Diagnostic::warning(codes::ENV_DEVICES, variable.span, message);
        findings.diagnostics.push(problem.help(help));
    }
    file.variables.retain(|variable| !selects_devices(variable));
}

fn to_exports(found: &[(EnvFile, Findings)]) -> Vec<Export> {
    let of_file = |(file, findings): &(EnvFile, Findings)| {
        let name = findings.source.name.clone();
        let export = move |variable: &Variable| Export {
            name: variable.name.clone().into(),
            value: variable.value.clone().into(),
            origin: VariableOrigin::File { file: name.clone(), line: variable.line },
        };
        file.variables.iter().map(export).collect::<Vec<_>>()
    };
    found.iter().flat_map(of_file).collect()
}

fn same_file(left: &Path, right: &Path) -> bool {
    match (std::fs::metadata(left), std::fs::metadata(right)) {
        (Ok(left), Ok(right)) => left.dev() == right.dev() && left.ino() == right.ino(),
        _ => left == right,
    }
}

struct EnvFileReader {
    trust: Trust,
    /// Messages about files that could not be read.
    screens: String,
    /// Exit status of the first of them.
    status: Option<Status>,
}

impl EnvFileReader {
    /// Reads a file; the result is `None` if it does not exist or may not be used.
    fn file(&mut self, path: &Path, paint: Paint) -> Option<(EnvFile, Findings)> {
        match self.read(path) {
            Ok(found) => found,
            Err((status, problem)) => {
                self.status.get_or_insert(status);
                let source = Source { name: short_path(path), text: String::new() };
                let findings = Findings { source, diagnostics: vec![*problem] };
                self.screens += &show_findings(&findings, paint);
                None
            }
        }
    }

    fn read(&self, path: &Path) -> Result<Option<(EnvFile, Findings)>, Refusal> {
        let file = match open(path) {
            Ok(file) => file,
            Err(error) if is_absent(&error) => return Ok(None),
            Err(error) => return Err(unreadable(path, &error)),
        };
        let found = file.metadata().map_err(|error| unreadable(path, &error))?;
        check(path, &found, self.trust)?;
        let mut bytes = Vec::new();
        let read = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
        read.map_err(|error| unreadable(path, &error))?;
        if FILE_BYTES_MAX < bytes.len() as u64 {
            let message = format!("environment file `{}` is larger than 16 MiB", short_path(path));
            let problem = Diagnostic::whole(codes::ENV_TOO_LARGE, message);
            return Err(refusal(Status::BadInput, problem.help(NAME_AN_ENV_FILE)));
        }
        Ok(Some(read_env(&short_path(path), &bytes)))
    }
}

type Refusal = (Status, Box<Diagnostic>);

fn refusal(status: Status, problem: Diagnostic) -> Refusal {
    (status, Box::new(problem))
}

/// Whether the error means that the file does not exist: a home that is not a directory contains no
/// file.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn unreadable(path: &Path, error: &io::Error) -> Refusal {
    let message =
        format!("cannot read environment file `{}`: {}", short_path(path), show_io_error(error));
    let problem = Diagnostic::whole(codes::ENV_UNREADABLE, message)
        .help(format!("type `chmod u+r {}`, or move it away", typed_path(&short_path(path))));
    refusal(Status::NoInput, problem)
}

fn check(path: &Path, found: &std::fs::Metadata, trust: Trust) -> Result<(), Refusal> {
    let name = short_path(path);
    if let Some(kind) = irregular_kind(found) {
        let message = format!("environment file `{name}` is not a regular file: it is {kind}");
        let problem = Diagnostic::whole(codes::ENV_NOT_A_FILE, message);
        return Err(refusal(Status::NoInput, problem.help("write the variables to a file")));
    }
    if trust == Trust::All {
        return Ok(());
    }
    if found.mode() & 0o002 != 0 {
        let message = format!("every user can write environment file `{name}`");
        let problem = Diagnostic::whole(codes::ENV_WRITABLE_BY_ALL, message).help(format!(
            "type `chmod o-w {}`, or add `--allow_insecure_files`",
            typed_path(&name)
        ));
        return Err(refusal(Status::Permission, problem));
    }
    if is_foreign(found.uid(), rustix::process::geteuid().as_raw()) {
        let message =
            format!("environment file `{name}` belongs to another user (uid {})", found.uid());
        let problem = Diagnostic::whole(codes::ENV_FOREIGN_OWNER, message)
            .help("copy it, or add `--allow_insecure_files`");
        return Err(refusal(Status::Permission, problem));
    }
    Ok(())
}

fn missing(named: &OsStr) -> Findings {
    let named = named.display();
    let source = Source { name: env_vars::DS_ENV_FILE.to_owned(), text: String::new() };
    let message = format!("no environment file `{named}` in the home and the working directory");
    let problem = Diagnostic::whole(codes::ENV_MISSING, message)
        .severity(Severity::Warning)
        .help("correct DS_ENV_FILE, or unset it; `~` is not expanded in it");
    Findings { source, diagnostics: vec![problem] }
}

/// Quotes a shortened path for a shell, which expands its `~`.
fn typed_path(short: &str) -> String {
    match short.strip_prefix("~/") {
        Some(rest) => format!("~/{}", quoted(rest)),
        None => quoted(short),
    }
}

/// Shortens a path: relative to the working directory, or with `~` for the home directory.
fn short_path(path: &Path) -> String {
    if let Some(rest) = std::env::current_dir().ok().and_then(|here| relative_to(path, &here)) {
        return rest.display().to_string();
    }
    let home = env_vars::get(env_vars::HOME).map(PathBuf::from);
    match home.and_then(|home| relative_to(path, &home)) {
        Some(rest) => format!("~/{}", rest.display()),
        None => path.display().to_string(),
    }
}

/// Returns the path relative to a directory. Every path is below the root, and then keeps its
/// slash.
fn relative_to(path: &Path, directory: &Path) -> Option<PathBuf> {
    directory.parent()?;
    path.strip_prefix(directory).ok().map(Path::to_owned)
}
