//! Whether the Python of the workers has a package without which an option would do nothing.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use crate::base::Status;
use crate::base::shell::quoted;
use crate::os::process::command_output::exit_code_of;
use crate::wire::{Problem, RequiredPackage};

/// Time limit of the question; a Python that does not answer is a problem of its script.
const LIMIT: Duration = Duration::from_secs(30);
/// Exit code of the question for a package that is missing. Python itself uses 1 and 2.
const MISSING: i32 = 3;
/// Packages of the working directory are none of a script in another one.
const QUESTION: &str = "import sys
sys.path = [entry for entry in sys.path if entry]
from importlib import metadata
try:
    metadata.distribution(sys.argv[1])
except metadata.PackageNotFoundError:
    sys.exit(3)
";

/// Asks the interpreter, in the environment of the agent, whether it has the package; only its answer that it does not is a problem.
pub(super) fn check_package(
    cwd: &Path,
    python: &CStr,
    package: &RequiredPackage,
    env: &BTreeMap<Vec<u8>, Vec<u8>>,
) -> Result<(), Problem> {
    let RequiredPackage { name, option, env: own } = package;
    let python = OsStr::from_bytes(python.to_bytes());
    let mut env = env.clone();
    env.extend(own.iter().cloned());
    if exit_code_of(python, &["-c", QUESTION, name], cwd, &env, LIMIT) != Some(MISSING) {
        return Ok(());
    }
    let shown = python.display();
    let problem = format!("`{option}` needs the package `{name}`, which `{shown}` does not have");
    let python = quoted(python);
    Err(Problem::new(Status::NotFound, problem).help(format!(
        "`{python} -m pip install WHEEL` with the wheel of {name}, or name an interpreter that has it: `--python FILE` or \
         `PYTHON_EXEC=FILE`"
    )))
}
