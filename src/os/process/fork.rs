//! fork and exec. Code that runs between the two is async-signal-safe: no allocation, no lock.

use std::ffi::{CStr, CString, NulError, OsString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rustix::process::Pid;

use crate::os::files::fds;
use crate::os::process::signals;

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

/// Strings in the form that execve needs, created before the fork.
pub struct CStrings {
    /// What the pointers lead to; moving a `CString` does not move its bytes.
    owned: Vec<CString>,
    /// One for each string, then a null pointer.
    pointers: Vec<*const libc::c_char>,
}

impl CStrings {
    /// Creates them, with room for `room` more; fails when a string contains a NUL byte.
    pub fn new(strings: impl IntoIterator<Item = Vec<u8>>, room: usize) -> Result<Self, NulError> {
        let mut owned = strings.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>()?;
        let mut pointers = Vec::with_capacity(owned.len() + room + 1);
        pointers.extend(owned.iter().map(|string| string.as_ptr()));
        pointers.push(std::ptr::null());
        owned.reserve(room);
        Ok(Self { owned, pointers })
    }

    /// Adds a string; fails when it contains a NUL byte.
    pub fn push(&mut self, string: Vec<u8>) -> Result<(), NulError> {
        let string = CString::new(string)?;
        let end = self.pointers.len() - 1;
        self.pointers.insert(end, string.as_ptr());
        self.owned.push(string);
        Ok(())
    }
}

/// What a child needs to execute its program, except for descriptors.
pub struct Exec {
    /// Path of the file; PATH has been searched.
    pub path: CString,
    /// `argv`, with the program's own name first.
    pub argv: CStrings,
    /// Its complete environment, as `NAME=value`.
    pub envp: CStrings,
    /// Working directory.
    pub cwd: CString,
    /// Processors and memory to which it is bound.
    #[cfg(feature = "cli")]
    pub binding: Option<crate::os::cpu::affinity::Binding>,
}

/// Descriptors of a child.
pub struct ChildFds {
    /// Those that become 0, 1, 2.
    pub stdio: [OwnedFd; 3],
    /// Those that stay open under their own numbers.
    pub inherited: Vec<OwnedFd>,
}

/// The step at which a child failed before its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecStage {
    /// A descriptor, the session or the parent-death signal could not be set up.
    Setup,
    /// The working directory could not be entered.
    Chdir,
    /// The program could not be executed.
    Exec,
}

impl Exec {
    /// Starts the program as leader of its own session and process group, killed when `parent`
    /// exits. On failure the child writes `(tag, stage, errno)` to `report` and exits with 127.
    pub fn spawn(
        &self,
        fds: &ChildFds,
        report: BorrowedFd<'_>,
        tag: u32,
        parent: Pid,
    ) -> io::Result<Pid> {
        match fork()? {
            ForkSide::Parent(pid) => Ok(pid),
            ForkSide::Child => {
                let (stage, errno) = self.set_up_and_exec(fds, parent);
                let record = ExecFailure { tag, stage, errno }.encode();
                let _ = rustix::io::write(report, &record);
                exit_now(127)
            }
        }
    }

    fn set_up_and_exec(&self, fds: &ChildFds, parent: Pid) -> (ExecStage, i32) {
        if let Err(error) = self.set_up(fds, parent) {
            return (ExecStage::Setup, error.raw_os_error().unwrap_or(0));
        }
        if let Err(errno) = rustix::process::chdir(self.cwd.as_c_str()) {
            return (ExecStage::Chdir, errno.raw_os_error());
        }
        // SAFETY: path and both arrays are NUL-terminated and live in `self`.
        unsafe {
            libc::execve(
                self.path.as_ptr(),
                self.argv.pointers.as_ptr(),
                self.envp.pointers.as_ptr(),
            );
        }
        (ExecStage::Exec, io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    fn set_up(&self, child: &ChildFds, parent: Pid) -> io::Result<()> {
        rustix::process::setsid()?;
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        if rustix::process::getppid() != Some(parent) {
            // The parent exited before the signal was armed.
            exit_now(127);
        }
        signals::reset_for_exec();
        fds::restore_limit();
        for (target, fd) in child.stdio.iter().enumerate() {
            duplicate_to(fd.as_raw_fd(), target as RawFd)?;
        }
        #[cfg(feature = "cli")]
        if let Some(binding) = &self.binding {
            binding.apply()?;
        }
        for fd in &child.inherited {
            fds::keep_on_exec(std::os::fd::AsFd::as_fd(fd))?;
        }
        Ok(())
    }
}

fn duplicate_to(source: RawFd, target: RawFd) -> io::Result<()> {
    debug_assert!(2 < source, "standard descriptors are filled before anything is opened");
    // SAFETY: both numbers are open or about to be replaced; no owner of 0, 1, 2 exists in a child.
    if unsafe { libc::dup2(source, target) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// One record of the report of children that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecFailure {
    /// The child, as numbered by the caller of [`Exec::spawn`].
    pub tag: u32,
    /// The step that failed.
    pub stage: ExecStage,
    /// Error number of the kernel.
    pub errno: i32,
}

impl ExecFailure {
    /// Bytes of one record; written atomically to a pipe.
    pub const BYTES: usize = 12;

    fn encode(self) -> [u8; Self::BYTES] {
        let stage = match self.stage {
            ExecStage::Setup => 0u32,
            ExecStage::Chdir => 1,
            ExecStage::Exec => 2,
        };
        let mut record = [0; Self::BYTES];
        record[..4].copy_from_slice(&self.tag.to_le_bytes());
        record[4..8].copy_from_slice(&stage.to_le_bytes());
        record[8..].copy_from_slice(&self.errno.to_le_bytes());
        record
    }

    /// Decodes a record.
    pub fn decode(record: [u8; Self::BYTES]) -> Self {
        let word =
            |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().expect("four bytes"));
        let stage = match word(4) {
            0 => ExecStage::Setup,
            1 => ExecStage::Chdir,
            _ => ExecStage::Exec,
        };
        Self { tag: word(0), stage, errno: word(8) as i32 }
    }
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
