//! What a file or a name is that may run without Python: the interpreter in the first line of a file, and
//! the programs of PATH. Starts nothing; `args` and `resolve` call it.

use std::ffi::OsString;
use std::io::Read;
use std::path::Path;

use crate::base::env_vars;
use crate::os::files::input_file::open_regular;

/// Shells that scripts name in their first line.
const SHELLS: [&str; 9] = ["sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "csh", "tcsh"];

/// Whether a file is an executable of Linux, and not a script.
pub(super) fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    open_regular(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok()
        && magic == *b"\x7fELF"
}

/// Returns the interpreter in the first line of a script, if that is not Python: `#!/bin/sh`,
/// `#!/usr/bin/env perl`.
pub(super) fn other_interpreter(script: &Path) -> Option<String> {
    const LINE_BYTES_MAX: u64 = 256;
    let mut head = Vec::new();
    open_regular(script).ok()?.take(LINE_BYTES_MAX).read_to_end(&mut head).ok()?;
    let line = String::from_utf8_lossy(&head).lines().next()?.strip_prefix("#!")?.to_owned();
    let program = line.split_whitespace().map(|word| word.rsplit('/').next().unwrap_or(word));
    let name = program.clone().find(|name| *name != "env" && !name.starts_with('-'))?;
    (!line.contains("python")).then(|| name.escape_debug().to_string())
}

/// Returns the shell in the first line of a script, unless the name of the file is that of a script of
/// Python.
pub(super) fn shell_of(script: &Path) -> Option<String> {
    let is_python = script.extension().is_some_and(|end| end == "py");
    other_interpreter(script).filter(|name| !is_python && SHELLS.contains(&name.as_str()))
}

/// Whether a file is a batch script of Slurm: it has a line that begins with `#SBATCH`.
pub(super) fn is_batch_script(script: &Path) -> bool {
    const HEAD_BYTES_MAX: u64 = 4096;
    let mut head = Vec::new();
    let file = open_regular(script);
    let read = file.and_then(|file| file.take(HEAD_BYTES_MAX).read_to_end(&mut head));
    let has_line = || head.split(|byte| *byte == b'\n').any(|line| line.starts_with(b"#SBATCH "));
    let is_python = script.extension().is_some_and(|end| end == "py");
    !is_python && read.is_ok() && has_line()
}

/// Returns the file of this name in a directory of PATH.
pub(super) fn search_path(name: &str) -> Option<OsString> {
    let path = env_vars::get(env_vars::PATH)?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
        .map(Into::into)
}
