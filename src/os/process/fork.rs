//! fork, and what programs need that are started with it.

use std::ffi::{CStr, CString, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rustix::process::Pid;

use crate::os::files::fds;

/// The side of a fork on which the caller is.
pub enum ForkSide {
    /// The process that called fork.
    Parent(Pid),
    /// The new process.
    Child,
}

/// Forks. Must be called before any thread exists, or be followed by exec alone.
pub fn fork() -> io::Result<ForkSide> {
    // SAFETY: the callers (the agent's first lines, the single-threaded shim) have one thread, so
    // the child owns a consistent copy of everything.
    match unsafe { libc::fork() } {
        0 => Ok(ForkSide::Child),
        pid if 0 < pid => Ok(ForkSide::Parent(Pid::from_raw(pid).expect("a pid is positive"))),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Exits at once: no destructors run, and no buffers copied from the parent are flushed twice.
pub fn exit_now(code: u8) -> ! {
    // SAFETY: `_exit` takes any code and does not return.
    unsafe { libc::_exit(i32::from(code)) }
}

/// Returns the file that a shell would run for `name`: `name` itself when it contains a `/`, or
/// else the first executable of that name in `path`. The error is suitable for a message.
pub fn find_program(name: &CStr, cwd: &Path, path: Option<&OsString>) -> io::Result<CString> {
    if name.to_bytes().contains(&b'/') {
        let full = cwd.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
        check_executable(&full)?;
        return Ok(name.to_owned());
    }
    let path = path.map_or(&b"/usr/local/bin:/usr/bin:/bin"[..], |path| path.as_bytes());
    let mut not_found = io::Error::from_raw_os_error(libc::ENOENT);
    for directory in path.split(|byte| *byte == b':') {
        let directory = Path::new(std::ffi::OsStr::from_bytes(directory));
        let full = cwd.join(directory).join(std::ffi::OsStr::from_bytes(name.to_bytes()));
        match check_executable(&full) {
            Ok(()) => return Ok(CString::new(full.into_os_string().into_vec())?),
            Err(error) if error.raw_os_error() == Some(libc::EACCES) => not_found = error,
            Err(_) => {}
        }
    }
    Err(not_found)
}

fn check_executable(path: &Path) -> io::Result<()> {
    if std::fs::metadata(path)?.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::EACCES));
    }
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK)?;
    Ok(())
}

/// Lets this process receive SIGTERM when its parent ends, if that is the process with this number.
///
/// # Errors
/// If the kernel refuses it.
pub fn end_with_parent(parent: u32) -> io::Result<()> {
    let is_parent = || {
        let found = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get());
        found.and_then(|pid| u32::try_from(pid).ok()) == Some(parent)
    };
    if is_parent() {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    }
    Ok(())
}

/// Makes a command start in its own session, so that it does not receive the terminal's signals.
pub fn in_own_session(command: &mut std::process::Command) -> &mut std::process::Command {
    // SAFETY: `setsid` and `setrlimit` are async-signal-safe, and nothing else runs in between.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(command, || {
            rustix::process::setsid()?;
            fds::restore_limit();
            Ok(())
        })
    }
}

/// Makes a command start in its own session and receive SIGTERM when the calling thread ends, for
/// any reason.
pub fn terminate_with_parent(command: &mut std::process::Command) -> &mut std::process::Command {
    let parent = rustix::process::getpid();
    // SAFETY: `setsid`, `setrlimit`, `prctl` and `getppid` are async-signal-safe.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(command, move || {
            rustix::process::setsid()?;
            fds::restore_limit();
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
            if rustix::process::getppid() == Some(parent) {
                Ok(())
            } else {
                // The parent exited before the signal was armed.
                Err(io::Error::from_raw_os_error(libc::ESRCH))
            }
        })
    }
}
