//! Output of a short-lived helper program: for checks of a node, never for workers.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::os::process::fork::terminate_with_parent;
use crate::os::process::shell_env::{last_line, memory_file, read_all, wait};

/// Runs a program without input to its end and returns its standard output. The error says why there is
/// none: it cannot be started, it fails, or it takes longer than `limit`.
pub fn output_of(
    program: &OsStr,
    arguments: &[&str],
    cwd: &Path,
    limit: Duration,
) -> Result<String, String> {
    output_for_input(program, arguments, cwd, &[], limit)
}

/// The same for a program that reads this input.
#[expect(clippy::disallowed_methods, reason = "os is where processes are started")]
pub fn output_for_input(
    program: &OsStr,
    arguments: &[&str],
    cwd: &Path,
    text: &[u8],
    limit: Duration,
) -> Result<String, String> {
    let run = || -> io::Result<Result<String, String>> {
        let (mut out, mut err, mut input) = (memory_file()?, memory_file()?, memory_file()?);
        input.write_all(text)?;
        input.rewind()?;
        let mut command = Command::new(program);
        command.args(arguments).current_dir(cwd).stdin(input);
        command.stdout(out.try_clone()?).stderr(err.try_clone()?);
        let mut child = terminate_with_parent(&mut command).spawn()?;
        Ok(match wait(&mut child, limit)? {
            None => Err(format!("it did not exit within {} s", limit.as_secs())),
            Some(status) if status.success() => {
                Ok(String::from_utf8_lossy(&read_all(&mut out)?).into_owned())
            }
            Some(status) => match reason(&read_all(&mut err)?) {
                line if line.is_empty() => Err(format!("it failed ({status})")),
                line => Err(format!("it failed ({status}): {line}")),
            },
        })
    };
    run().unwrap_or_else(|error| Err(format!("it cannot be started: {error}")))
}

/// Runs a program without input in this environment, discards its output, and returns its exit code; `None` if it cannot be
/// started, is ended by a signal, or takes longer than `limit`.
#[expect(clippy::disallowed_methods, reason = "os is where processes are started")]
pub fn exit_code_of(
    program: &OsStr,
    arguments: &[&str],
    cwd: &Path,
    env: &BTreeMap<Vec<u8>, Vec<u8>>,
    limit: Duration,
) -> Option<i32> {
    let env = env.iter().map(|(name, value)| (OsStr::from_bytes(name), OsStr::from_bytes(value)));
    let mut command = Command::new(program);
    command.args(arguments).current_dir(cwd).env_clear().envs(env);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = terminate_with_parent(&mut command).spawn().ok()?;
    wait(&mut child, limit).ok()??.code()
}

/// The line of standard error that says why a program failed: its last one, or that with the error if the program is
/// remuda, which writes what to type behind it.
fn reason(written: &[u8]) -> String {
    let text = String::from_utf8_lossy(written);
    let error = text.lines().find(|line| line.starts_with("error["));
    error.map_or_else(|| last_line(written), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(program: &str, arguments: &[&str], expect: Result<&str, &str>) {
        let limit = Duration::from_secs(20);
        let result = output_of(OsStr::new(program), arguments, Path::new("/"), limit);
        match (&result, expect) {
            (Ok(output), Ok(expect)) => assert_eq!(output, expect),
            (Err(why), Err(expect)) => assert!(why.contains(expect), "{why}"),
            _ => panic!("{result:?}"),
        }
    }

    #[test]
    fn exit_code_is_that_of_the_program() {
        let limit = Duration::from_secs(20);
        let env = BTreeMap::from([(b"CODE".to_vec(), b"4".to_vec())]);
        let code = |program: &str, words: &[&str]| {
            exit_code_of(OsStr::new(program), words, Path::new("/"), &env, limit)
        };
        assert_eq!(code("/bin/sh", &["-c", "exit $CODE"]), Some(4));
        assert_eq!(code("/bin/sh", &["-c", "kill -9 $$"]), None);
        assert_eq!(code("/nowhere/at/all", &[]), None);
    }

    #[test]
    fn command_output_is_text_or_reason() {
        check("sh", &["-c", "echo yes"], Ok("yes\n"));
        check("sh", &["-c", "echo no >&2; exit 3"], Err("(exit status: 3): no"));
        let told = "echo 'error[B005]: no GPU' >&2; echo 'help: leave it out' >&2; exit 78";
        check("sh", &["-c", told], Err("(exit status: 78): error[B005]: no GPU"));
        check("sh", &["-c", "exit 3"], Err("it failed"));
        check("/nowhere/at/all", &[], Err("cannot be started"));
        let limit = Duration::from_secs(20);
        let copied = output_for_input(OsStr::new("cat"), &[], Path::new("/"), b"text", limit);
        assert_eq!(copied.as_deref(), Ok("text"));
    }

    #[test]
    fn command_is_killed_at_its_time_limit() {
        let limit = Duration::from_millis(50);
        let result = output_of(OsStr::new("sleep"), &["1000"], Path::new("/"), limit);
        assert!(result.is_err_and(|why| why.contains("did not exit")));
    }
}
