//! Virtual environments of Python.

use std::path::{Path, PathBuf};

/// Root of the virtual environment in whose `bin` a program lies. Links are not resolved: the Python of an environment
/// is a link to that of the system, and a link outside of an environment, as `pipx` and `uv tool` make it, leads to a
/// program that others do not share the environment with.
pub fn virtual_env_of(program: &Path) -> Option<PathBuf> {
    let root = program.parent()?.parent()?;
    root.join("pyvenv.cfg").is_file().then(|| root.to_owned())
}
