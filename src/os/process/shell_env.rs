//! The environment of a shell after it has sourced a script. This is the only module that starts a
//! shell, because an activation script is written for a shell; the script's name is passed as an
//! argument.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::base::clock;
use crate::base::order;
use crate::os::process::fork::terminate_with_parent;

/// Maximum bytes of an environment, and of a script's output.
const OUTPUT_BYTES_MAX: u64 = 4 << 20;
/// Interval of checks whether the shell has exited.
const PAUSE: Duration = Duration::from_millis(2);
/// The script gets no arguments, and its output does not mix with the environment.
const SOURCE: &str =
    r#"remuda_script=$1; shift; . "$remuda_script" >&2 && exec cat /proc/self/environ"#;
/// Variables that a shell sets for itself, which are omitted.
const SHELL_VARIABLES: [&[u8]; 2] = [b"_", b"SHLVL"];

/// Reason why there is no such environment.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The shell could not be started: none is installed, or there is no memory.
    #[error("cannot start a shell: {0}")]
    Os(#[from] io::Error),
    /// The script exceeded the time limit.
    #[error("it did not exit within {} s", .0.as_secs())]
    TimedOut(Duration),
    /// The script failed.
    #[error("it failed ({status}){}", show_last_line(.last_line))]
    Failed {
        /// Exit status of the shell.
        status: ExitStatus,
        /// Last line of its output; empty if there is none.
        last_line: String,
    },
    /// The script exited the shell, so there is no environment.
    #[error("it exited the shell that sourced it")]
    ExitedShell,
}

fn show_last_line(line: &str) -> String {
    if line.is_empty() { String::new() } else { format!(": {line}") }
}

/// Sources `script` with bash, or sh if there is no bash, in the directory `cwd`, and returns the
/// environment.
pub fn environment_after(
    script: &Path,
    cwd: &Path,
    limit: Duration,
) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, SourceError> {
    let (mut out, mut err) = (memory_file()?, memory_file()?);
    let mut child = match start("bash", script, cwd, &out, &err) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            start("sh", script, cwd, &out, &err)?
        }
        started => started?,
    };
    let status = wait(&mut child, limit)?.ok_or(SourceError::TimedOut(limit))?;
    if !status.success() {
        return Err(SourceError::Failed { status, last_line: last_line(&read_all(&mut err)?) });
    }
    let text = read_all(&mut out)?;
    if text.is_empty() {
        return Err(SourceError::ExitedShell);
    }
    Ok(parse(&text))
}

#[expect(clippy::disallowed_methods, reason = "os is where processes are started")]
fn start(shell: &str, script: &Path, cwd: &Path, out: &File, err: &File) -> io::Result<Child> {
    let mut command = Command::new(shell);
    command.args(["-c", SOURCE, "remuda"]).arg(script).current_dir(cwd);
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(err.try_clone()?);
    terminate_with_parent(&mut command).spawn()
}

/// Waits for a child; `None` if it was killed at the time limit, with its whole process group.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let deadline: Instant = clock::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if deadline < clock::now() {
            let _ = rustix::process::kill_process_group(Pid::from_child(child), Signal::KILL);
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(PAUSE);
    }
}

pub(crate) fn memory_file() -> io::Result<File> {
    Ok(rustix::fs::memfd_create("remuda-sourced", rustix::fs::MemfdFlags::CLOEXEC)?.into())
}

pub(crate) fn read_all(file: &mut File) -> io::Result<Vec<u8>> {
    file.rewind()?;
    let mut bytes = Vec::new();
    file.take(OUTPUT_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub(crate) fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned()
}

/// Parses `NAME=value` entries, each ended by a NUL.
fn parse(text: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let variables = text.split(|byte| *byte == 0).filter_map(|variable| {
        let at = variable.iter().position(|byte| *byte == b'=')?;
        Some((variable[..at].to_vec(), variable[at + 1..].to_vec()))
    });
    order::map(variables.filter(|(name, _)| !SHELL_VARIABLES.contains(&name.as_slice())))
}
