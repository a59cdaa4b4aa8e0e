//! The program of the workers.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::agent;
use crate::base::shell::quoted;
use crate::base::{Status, env_vars};
use crate::cli::args::ProgramArgs;
use crate::cli::codes::machine::{CANNOT_READ, NO_PYTHON};
use crate::cli::error::CliError;
pub(in crate::cli) use crate::cli::executable::search_path;
use crate::cli::executable::{is_elf, other_interpreter};
use crate::cli::resolve::environment::working_directory;
use crate::os::files::virtual_env::virtual_env_of;
use crate::plan::Program;
use crate::report::text::show_io_error;
use crate::wire::Problem;

/// The option of `remuda run` for programs that are not scripts of Python.
pub(in crate::cli) const NO_PYTHON_OPTION: &str = "--no_python";
/// What selected the Python beside the executable of remuda.
const OWN_ENVIRONMENT: &str = "where remuda is installed";

/// The program of the workers, and its arguments.
pub(in crate::cli) struct ResolvedProgram {
    pub(in crate::cli) program: Program,
    pub(in crate::cli) args: Vec<OsString>,
    /// Note if it does not run as typed.
    pub(in crate::cli) note: Option<String>,
}

/// Returns the script or program, and a note if it does not run as typed; `no_python` is the option of the line for
/// programs that are not scripts of Python.
pub(in crate::cli) fn program(
    args: &ProgramArgs,
    venv_script: Option<&Path>,
    no_python: &str,
) -> Result<ResolvedProgram, CliError> {
    let (script, rest) = args.script_and_args.split_first().expect("clap requires a script");
    let local_rank = !args.no_local_rank;
    let elf = !args.no_python && !args.module && is_elf(Path::new(script));
    let note = match elf {
        true => Some(format!("`{}` is an executable: run without Python", script.display())),
        false if args.no_python || args.module => None,
        false => other_interpreter(Path::new(script)).map(|other| {
            let shown = script.display();
            let added = if local_rank { " --no_local_rank" } else { "" };
            format!(
                "`{shown}` is a script of {other}, but runs with Python: `{no_python}{added} {other} {}` runs it with \
                 {other}",
                quoted(script)
            )
        }),
    };
    let program = if elf {
        // Only this file was examined: without a directory PATH would choose another one.
        Program::Exec { program: with_directory(script), local_rank: false }
    } else if args.no_python {
        // DeepSpeed passes `--local_rank` to any program. `true --local_rank=0` ignores it, but an
        // executable that was given as the script does not expect it.
        Program::Exec { program: script.clone(), local_rank }
    } else {
        Program::Python {
            script: script.clone(),
            module: args.module,
            local_rank,
            interpreter: interpreter(args.python.as_ref(), venv_script)?,
        }
    };
    Ok(ResolvedProgram { program, args: rest.to_vec(), note })
}

/// Returns `./NAME` for a name without a directory.
fn with_directory(name: &OsString) -> OsString {
    if name.as_bytes().contains(&b'/') { name.clone() } else { Path::new(".").join(name).into() }
}

/// Returns the interpreter: `--python`, `PYTHON_EXEC`, the active environment, the environment in which remuda is
/// installed, PATH. The path is
/// absolute, but links are not resolved, since that would leave a virtual environment.
pub(in crate::cli) fn interpreter(
    named: Option<&OsString>,
    venv: Option<&Path>,
) -> Result<OsString, CliError> {
    if let Some(named) = named {
        let help = "name an interpreter: `--python /usr/bin/python3`, or leave `--python` out";
        return absolute(Path::new(named), "`--python`", help);
    }
    if let Some(named) = env_vars::get(env_vars::PYTHON_EXEC) {
        let help = "name an interpreter: `PYTHON_EXEC=/usr/bin/python3`, or unset PYTHON_EXEC";
        return absolute(Path::new(&named), env_vars::PYTHON_EXEC, help);
    }
    if venv.is_some() {
        // On every node, it is the first in the PATH that the script leaves.
        return Ok("python3".into());
    }
    for root in [env_vars::VIRTUAL_ENV, env_vars::CONDA_PREFIX] {
        let python = env_vars::get(root).map(|root| Path::new(&root).join("bin/python"));
        if let Some(python) = python.filter(|python| python.exists()) {
            return absolute(
                &python,
                root,
                "activate the environment again, or unset the variable",
            );
        }
    }
    if let Some(root) = own_environment() {
        return Ok(root.join("bin/python").into());
    }
    ["python3", "python"].iter().find_map(|name| search_path(name)).ok_or_else(|| {
        CliError::new(Status::NotFound, NO_PYTHON, "there is no `python3` and no `python` in PATH")
            .help(
                "name an interpreter in PYTHON_EXEC or with `--python FILE`; `--no_python` runs a program that is \
                 not a Python script",
            )
    })
}

/// Returns the virtual environment in which remuda is installed and was called.
fn own_environment() -> Option<PathBuf> {
    let called = std::env::args_os().next()?;
    let file = if called.as_bytes().contains(&b'/') {
        std::path::absolute(called).ok()?
    } else {
        search_path(&called.to_string_lossy())?.into()
    };
    virtual_env_of(&file).filter(|root| root.join("bin/python").exists())
}

/// Returns the interpreter and the setting that selected it, unless it is the `python3` of PATH.
pub(in crate::cli) fn show_interpreter(
    program: &Program,
    named: Option<&OsString>,
) -> Option<String> {
    let Program::Python { interpreter, .. } = program else { return None };
    let of_path = search_path("python3");
    let is_set = |name| env_vars::get(name).is_some();
    let is_below = |root: OsString| Path::new(interpreter).starts_with(root);
    let of_environment = [env_vars::VIRTUAL_ENV, env_vars::CONDA_PREFIX]
        .into_iter()
        .find(|name| env_vars::get(name).is_some_and(is_below))
        .or_else(|| {
            own_environment().filter(|root| is_below(root.into())).map(|_| OWN_ENVIRONMENT)
        });
    let (source, is_usual) = match of_environment {
        _ if named.is_some() => ("--python", of_path.as_ref() == Some(interpreter)),
        _ if is_set(env_vars::PYTHON_EXEC) => {
            (env_vars::PYTHON_EXEC, of_path.as_ref() == Some(interpreter))
        }
        // The directory of an active environment is the first in PATH; that of remuda may be.
        Some(name) => {
            let directory = |file| Path::new(file).parent();
            (name, of_path.as_ref().and_then(directory) == directory(interpreter))
        }
        None => return None,
    };
    let shown = Path::new(interpreter).display();
    (!is_usual).then(|| format!("{shown} ({source})"))
}

/// Returns the absolute path of an interpreter. `source` is the setting that names it, and `help` what
/// to do if it is not in PATH.
fn absolute(python: &Path, source: &str, help: &str) -> Result<OsString, CliError> {
    if !python.as_os_str().as_bytes().contains(&b'/') {
        return search_path(&python.to_string_lossy()).ok_or_else(|| {
            let message = format!("{source}: `{}` is not in PATH", python.display());
            CliError::new(Status::NotFound, NO_PYTHON, message).help(help)
        });
    }
    let absolute = std::path::absolute(python);
    absolute
        .map(PathBuf::into_os_string)
        .map_err(|error| CliError::new(Status::Io, CANNOT_READ, error.to_string()))
}

/// Returns the reason why a Python script cannot be run, as far as this machine can check it.
pub(in crate::cli) fn script_problem(program: &Program, cwd: &Path) -> Option<String> {
    let Program::Python { script, module: false, .. } = program else { return None };
    let (shown, path) = (Path::new(script).display(), cwd.join(script));
    match std::fs::metadata(&path) {
        Err(_) => Some(format!("there is no script `{shown}` here")),
        Ok(found) if found.is_file() || found.is_dir() => {
            let errno = rustix::fs::access(&path, rustix::fs::Access::READ_OK).err()?;
            Some(format!("script `{shown}` cannot be read: {}", show_io_error(&errno.into())))
        }
        Ok(_) => Some(format!("script `{shown}` is not a regular file")),
    }
}

/// Returns the files and programs that this node needs to start its workers and lacks, as far as
/// this can be checked before the launcher waits for other nodes.
pub(in crate::cli) fn missing_requirements(
    program: &Program,
    venv_script: Option<&Path>,
) -> Result<Vec<Problem>, CliError> {
    // The activation script may provide the program; the agent checks that later.
    if venv_script.is_some() {
        return Ok(Vec::new());
    }
    let (program, script) = program_and_script(program);
    Ok(agent::find_missing(&working_directory()?, script.as_deref(), &program))
}

pub(in crate::cli) fn program_and_script(program: &Program) -> (OsString, Option<OsString>) {
    match program {
        Program::Python { script, module, interpreter, .. } => {
            (interpreter.clone(), (!module).then(|| script.clone()))
        }
        Program::Exec { program, .. } => (program.clone(), None),
    }
}
