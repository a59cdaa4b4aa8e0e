//! Preflight checks: whether the workers can start on this node, before any worker of the job is
//! started.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::Access;

use super::affinity;
use super::first_line::check_interpreter;
use super::gpu_locks::{self, GpuLocks};
use super::ports::{self, Listening};
use super::python_package::check_package;
use super::script_hints::script_hint;
use crate::base::shell::quoted;
use crate::base::{Epoch, JobId, Status, env_vars};
use crate::os::files::fds::{RAISE_FILE_LIMIT, TooFewFiles, require_open_files};
use crate::os::files::input_file::{irregular_kind, is_pipe, not_regular, open};
use crate::os::files::virtual_env::virtual_env_of;
use crate::os::process::{fork, shell_env};
use crate::plan::CoreShare;
use crate::report::text::show_io_error;
use crate::wire::{FileState, Prepare, Problem, RequiredFile};

/// Descriptors that an agent needs in addition to those of its workers.
const OWN_FDS: u64 = 32;
/// Time limit of a venv script.
const VENV_LIMIT: Duration = Duration::from_secs(60);

/// The executable of the agent as a program name, independent of its location on a node.
pub const OWN_EXECUTABLE: &str = "/proc/self/exe";

/// Name of the agent's executable in the workers' argument list.
pub(super) const OWN_NAME: &[u8] = b"remuda";

/// Results of the checks that the start needs.
pub(super) struct Prepared {
    /// The file that the workers execute.
    pub(super) path: CString,
    /// Root of the virtual environment in which that file lies.
    pub(super) virtual_env: Option<PathBuf>,
    /// The listeners of node 0.
    pub(super) listening: Option<Listening>,
    /// Base environment of the workers: the agent's, or that of the venv script.
    pub(super) env: Environment,
    /// The binding of each worker, in the order of local ranks; empty if workers are not bound.
    pub(super) shares: Vec<CoreShare>,
    /// Whether a worker has a thread for each of its processors.
    pub(super) sets_threads: bool,
    /// Locks of GPUs.
    pub(super) gpu_locks: Vec<OwnedFd>,
    /// Notes for the user.
    pub(super) notes: Vec<String>,
}

/// What a program is called in messages if it runs a script.
const INTERPRETER: &str = "interpreter";

/// Names and values of an environment.
pub(super) type Environment = BTreeMap<Vec<u8>, Vec<u8>>;

/// Directory in which the files of a job are searched.
#[derive(Clone, Copy)]
pub(super) struct Site<'a> {
    /// The directory of relative names.
    pub(super) cwd: &'a Path,
    /// Whether the files are also searched on other machines, or were named on another one.
    pub(super) spans_machines: bool,
}

impl Site<'_> {
    /// Adds where a file was expected, unless its path already shows that.
    fn with_search_help(self, problem: Problem, file: &Path) -> Problem {
        let directory = (!file.is_absolute()).then(|| {
            let cwd = self.cwd.display();
            format!("give the full path, or `cd` to its directory first; searched in `{cwd}`")
        });
        let every_node =
            self.spans_machines.then(|| "the same path must exist on every node".to_owned());
        let help: Vec<String> = directory.into_iter().chain(every_node).collect();
        if help.is_empty() { problem } else { problem.help(help.join("; ")) }
    }

    /// Adds how to name an interpreter; its path is absolute.
    fn with_interpreter_help(self, problem: Problem) -> Problem {
        let every_node = if self.spans_machines { " that exists on every node" } else { "" };
        problem.help(format!(
            "name an interpreter{every_node}: `--python /usr/bin/python3` or \
             `PYTHON_EXEC=/usr/bin/python3`"
        ))
    }
}

/// Runs all checks and returns all problems at once.
pub(super) fn run_preflight(
    job: &JobId,
    epoch: Epoch,
    prepare: &Prepare,
) -> Result<Prepared, Vec<Problem>> {
    let cwd = Path::new(OsStr::from_bytes(&prepare.cwd));
    let site = Site { cwd, spans_machines: prepare.spans_machines };
    let mut problems = Vec::new();
    problems.extend(check_fds(prepare.fds).err());
    let (path, env) = match check_cwd(site) {
        Ok(()) => check_files(site, prepare, &mut problems),
        // If the directory is missing, files in it and relative to it are missing too.
        Err(problem) => {
            problems.push(problem);
            (None, env_vars::all())
        }
    };
    let shares = prepare
        .cores
        .as_ref()
        .map_or(Ok(Default::default()), |request| affinity::assign_cores(request, &env));
    let shares = take_or_note(&mut problems, shares);
    // The node that has rank 0 listens.
    let listening = ports::open_listeners(job, epoch, prepare).map_err(Problem::of_job);
    let listening = take_or_note(&mut problems, listening);
    let locks =
        prepare.gpu_locks.as_ref().map(|request| gpu_locks::lock_gpus(job, request)).transpose();
    let locks = locks.map_err(|in_use| problems.extend(in_use)).ok();
    match (path, listening, shares, locks) {
        (Some(path), Some(listening), Some((shares, mut notes)), Some(locks))
            if problems.is_empty() =>
        {
            let GpuLocks { locks, notes: lock_notes } = locks.unwrap_or_default();
            notes.extend(lock_notes);
            let near_gpus = prepare.cores.as_ref().and_then(|request| request.near_gpus);
            let sets_threads = near_gpus.is_none();
            let file = cwd.join(OsStr::from_bytes(path.to_bytes()));
            Ok(Prepared {
                virtual_env: virtual_env_of(&file),
                path,
                listening,
                env,
                shares,
                sets_threads,
                gpu_locks: locks,
                notes,
            })
        }
        _ => Err(problems),
    }
}

/// Checks the files of an existing working directory: script, environment, and the program of the
/// workers.
fn check_files(
    site: Site<'_>,
    prepare: &Prepare,
    problems: &mut Vec<Problem>,
) -> (Option<CString>, Environment) {
    problems.extend(check_script(site, prepare.script.as_deref()).err());
    problems
        .extend(prepare.files.iter().filter_map(|file| check_required_file(site.cwd, file).err()));
    let env =
        take_or_note(problems, worker_environment(site, prepare)).unwrap_or_else(env_vars::all);
    let what = if prepare.script.is_some() { INTERPRETER } else { "program" };
    let path = take_or_note(problems, find_program(site, (what, &prepare.program), &env));
    if let (Some(python), Some(package)) = (&path, &prepare.package) {
        problems.extend(check_package(site.cwd, python, package, &env).err());
    }
    (path, env)
}

/// Returns the problems of this machine if the launcher is on another one: a missing working
/// directory, or else a missing script and a missing program that runs it.
pub fn find_missing(cwd: &Path, script: Option<&OsStr>, program: &OsStr) -> Vec<Problem> {
    let site = Site { cwd, spans_machines: true };
    if let Err(problem) = check_cwd(site) {
        return vec![problem];
    }
    let what = if script.is_some() { INTERPRETER } else { "program" };
    let program = (what, program.as_bytes());
    let found = [
        check_script(site, script.map(OsStr::as_bytes)),
        find_program(site, program, &env_vars::all()).map(drop),
    ];
    found.into_iter().filter_map(Result::err).collect()
}

/// Returns the value, or appends the problem to the list.
fn take_or_note<T>(problems: &mut Vec<Problem>, result: Result<T, Problem>) -> Option<T> {
    result.map_err(|problem| problems.push(problem)).ok()
}

pub(super) fn check_cwd(site: Site<'_>) -> Result<(), Problem> {
    let shown = site.cwd.display();
    match std::fs::metadata(site.cwd) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(Problem::new(Status::NoInput, format!("`{shown}` is not a directory"))),
        Err(error) => {
            let message =
                format!("cannot use the working directory `{shown}`: {}", show_io_error(&error));
            Err(site.with_search_help(Problem::new(Status::NoInput, message), site.cwd))
        }
    }
}

fn check_fds(workers: u64) -> Result<(), Problem> {
    require_open_files(workers + OWN_FDS).map_err(|TooFewFiles { needed, limit }| {
        let message =
            format!("the job needs {needed} open files on this node, the hard limit is {limit}");
        Problem::new(Status::OsLimit, message).help(RAISE_FILE_LIMIT)
    })
}

pub(super) fn check_script(site: Site<'_>, script: Option<&[u8]>) -> Result<(), Problem> {
    let cwd = site.cwd;
    let Some(script) = script.map(OsStr::from_bytes) else {
        return Ok(());
    };
    let problem = |why: &str| {
        Problem::new(Status::NoInput, format!("cannot read script `{}`: {why}", script.display()))
    };
    match std::fs::metadata(cwd.join(script)) {
        Ok(metadata) if metadata.is_dir() && !cwd.join(script).join("__main__.py").exists() => {
            let help = "give a script in it, or put a `__main__.py` there";
            Err(problem("it is a directory").help(help))
        }
        Ok(metadata) => match irregular_kind(&metadata) {
            None | Some("a directory") => {
                let path = cwd.join(script);
                rustix::fs::access(&path, Access::READ_OK).map_err(|errno| {
                    let help = format!("`chmod u+r {}`, or ask its owner", quoted(script));
                    problem(&show_io_error(&errno.into())).help(help)
                })
            }
            Some(kind) => {
                let problem = problem(&format!("it is not a regular file: it is {kind}"));
                Err(problem.help("write it to a file, because every worker reads it"))
            }
        },
        Err(error) => {
            let problem = problem(&show_io_error(&error));
            Err(if let Some(hint) = script_hint(cwd, script) {
                problem.help(hint)
            } else if let Some(program) = program_in_path(cwd, script) {
                let line = format!("--no_python --no_local_rank {}", quoted(script));
                problem.help(format!("for the program `{program}`: `{line}`"))
            } else if is_module(script) {
                problem.help(format!("if it is a module: `--module {}`", script.display()))
            } else {
                site.with_search_help(problem, Path::new(script))
            })
        }
    }
}

/// Checks that a file is in the state that the workers need.
fn check_required_file(cwd: &Path, required: &RequiredFile) -> Result<(), Problem> {
    let path = Path::new(OsStr::from_bytes(&required.path));
    let (shown, file) = (path.display(), cwd.join(path));
    match &required.state {
        FileState::Readable => readable(&file).map_err(|error| {
            let message = format!("cannot read `{shown}`: {}", show_io_error(&error));
            Problem {
                scope: required.scope,
                ..Problem::new(Status::NoInput, message).help(&required.help)
            }
        }),
        FileState::NoFilesWithPrefix(prefix) => match last_with_prefix(&file, prefix) {
            None => Ok(()),
            Some(newest) => {
                let message = format!("`{shown}` is in use: it contains `{}`", newest.display());
                let problem = Problem::new(Status::Config, message).help(&required.help);
                Err(Problem { scope: required.scope, ..problem })
            }
        },
    }
}

/// Checks that a file can be opened, and that workers which open it do not wait for a writer.
fn readable(path: &Path) -> io::Result<()> {
    let found = open(path)?.metadata()?;
    if is_pipe(&found) { Err(not_regular("a pipe")) } else { Ok(()) }
}

/// Returns the last entry by name that begins with this text. An unreadable directory is not reported here.
fn last_with_prefix(dir: &Path, prefix: &str) -> Option<PathBuf> {
    let names =
        std::fs::read_dir(dir).ok()?.flatten().map(|entry| PathBuf::from(entry.file_name()));
    names.filter(|name| name.as_os_str().as_encoded_bytes().starts_with(prefix.as_bytes())).max()
}

/// Whether this is the name of a module such as `pkg.train`: names with dots between them, and not
/// a file name.
fn is_module(script: &OsStr) -> bool {
    const FILES: [&str; 7] = ["py", "ipynb", "sh", "json", "yaml", "yml", "txt"];
    let is_name = |part: &str| {
        !part.starts_with(|c: char| c.is_ascii_digit())
            && !part.is_empty()
            && part.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    let ending = Path::new(script).extension().and_then(OsStr::to_str);
    let is_file = ending.is_some_and(|ending| FILES.contains(&ending));
    let text = script.to_str().filter(|text| text.contains('.') && !is_file);
    text.is_some_and(|text| text.split('.').all(is_name))
}

/// Returns the agent's environment, or the environment after the venv script.
fn worker_environment(site: Site<'_>, prepare: &Prepare) -> Result<Environment, Problem> {
    let Some(script) = prepare.venv_script.as_deref().map(OsStr::from_bytes) else {
        return Ok(env_vars::all());
    };
    let shown = script.display();
    let path = site.cwd.join(script);
    let found = std::fs::metadata(&path).and_then(|found| match irregular_kind(&found) {
        Some(kind) => Err(not_regular(kind)),
        None => Ok(()),
    });
    if let Err(error) = found {
        let message = format!("cannot read venv script `{shown}`: {}", show_io_error(&error));
        return Err(
            site.with_search_help(Problem::new(Status::NoInput, message), Path::new(script))
        );
    }
    shell_env::environment_after(&path, site.cwd, VENV_LIMIT).map_err(|error| {
        Problem::new(Status::Config, format!("venv script `{shown}`: {error}"))
            .help(format!("test it: `{}`", source_command(script)))
    })
}

/// Returns the path of the program with this name in PATH.
fn program_in_path(cwd: &Path, name: &OsStr) -> Option<String> {
    let is_name = !name.is_empty() && !name.as_bytes().contains(&b'/');
    let name = CString::new(name.as_bytes()).ok().filter(|_| is_name)?;
    let found = fork::find_program(&name, cwd, env_vars::get(env_vars::PATH).as_ref()).ok()?;
    Some(found.to_string_lossy().into_owned())
}

/// Returns a command that sources a script in a shell of its own, which the script can exit. `sh`
/// searches a name without a slash in PATH.
fn source_command(script: &OsStr) -> String {
    let path = if script.as_bytes().contains(&b'/') {
        Path::new(script).to_owned()
    } else {
        Path::new(".").join(script)
    };
    format!("bash -c {}", quoted(format!(". {}", quoted(path))))
}

/// Finds the program in PATH; `what` is its name in messages: `program` or `interpreter`.
pub(super) fn find_program(
    site: Site<'_>,
    (what, program): (&str, &[u8]),
    env: &Environment,
) -> Result<CString, Problem> {
    let cwd = site.cwd;
    let name = CString::new(program)
        .map_err(|_| Problem::new(Status::NotFound, "the program's name contains a NUL byte"))?;
    if program == OWN_EXECUTABLE.as_bytes() {
        return Ok(own_executable(name));
    }
    let path = env.get(env_vars::PATH.as_bytes()).filter(|path| !path.is_empty());
    let path = path.map(|path| OsStr::from_bytes(path).to_owned());
    let found = fork::find_program(&name, cwd, path.as_ref());
    let found =
        found.map_err(|error| not_executable(site, (what, program), &error, path.as_deref()))?;
    let file = cwd.join(OsStr::from_bytes(found.to_bytes()));
    check_interpreter(cwd, (what, Path::new(OsStr::from_bytes(program))), &file)?;
    Ok(found)
}

/// Returns the problem of a program that was not found or cannot be executed.
fn not_executable(
    site: Site<'_>,
    (what, program): (&str, &[u8]),
    error: &io::Error,
    path: Option<&OsStr>,
) -> Problem {
    let (cwd, shown) = (site.cwd, OsStr::from_bytes(program).display().to_string());
    match error.kind() {
        io::ErrorKind::NotFound => {
            let is_path = shown.contains('/');
            let reason = if is_path { "does not exist" } else { "is not in PATH" };
            let problem = Problem::new(Status::NotFound, format!("{what} `{shown}` {reason}"));
            // remuda starts programs without a shell; the user may have expected one.
            let file = cwd.join(&shown);
            if !is_path && file.is_file() {
                let is_executable = rustix::fs::access(&file, Access::EXEC_OK).is_ok();
                let first = if is_executable {
                    String::new()
                } else {
                    format!("`chmod +x {}`, then ", quoted(&shown))
                };
                problem.help(format!("for the file in the working directory: {first}`./{shown}`"))
            } else if shown.contains([' ', '$']) && !shown.contains('\'') {
                problem.help(format!("if it is a shell command: `-- sh -c '{shown}'`"))
            } else if is_path && what == INTERPRETER {
                site.with_interpreter_help(problem)
            } else if is_path {
                site.with_search_help(problem, Path::new(OsStr::from_bytes(program)))
            } else {
                problem.help(not_in_path_help(path))
            }
        }
        kind => {
            let message = format!("{what} `{shown}` cannot be executed: {}", show_io_error(error));
            let problem = Problem::new(Status::NotExecutable, message);
            if kind == io::ErrorKind::PermissionDenied && cwd.join(&shown).is_file() {
                problem.help(format!("`chmod +x {}`", quoted(&shown)))
            } else {
                problem
            }
        }
    }
}

/// Help for a program that is not in PATH. The PATH of an ssh login is often shorter than the one
/// that the user sees.
fn not_in_path_help(path: Option<&OsStr>) -> String {
    const SHOWN_BYTES_MAX: usize = 256;
    let help = "give its full path";
    match path.filter(|path| path.len() <= SHOWN_BYTES_MAX) {
        Some(path) => format!("{help}; PATH on that node is `{}`", path.display()),
        None => help.to_owned(),
    }
}

/// Returns the path of the agent's executable rather than the link, so that process listings show
/// it; the link if that path no longer exists.
fn own_executable(link: CString) -> CString {
    let own = std::fs::read_link(OWN_EXECUTABLE).ok().filter(|own| own.exists());
    own.and_then(|own| CString::new(own.into_os_string().into_vec()).ok()).unwrap_or(link)
}
