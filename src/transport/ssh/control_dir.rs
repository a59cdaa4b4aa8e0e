//! The private directory of a launch, and the janitor process that clears it however the launcher
//! ends.
//!
//! The launcher holds a lock on its directory for as long as it lives. If launcher and janitor are
//! killed together, the lock is free, and the janitor of the user's next launch clears the
//! directory.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::Pid;

use crate::base::{clock, env_vars};
use crate::os::files::fds;
use crate::os::process::fork::{self, ForkSide};
use crate::os::process::process_tree::{self, ProcessRef};
use crate::os::process::signals;
use crate::os::random::random_bytes;

/// Most bytes of the directory's path. The kernel allows 108 bytes for a socket's path; ssh appends
/// up to 18 while it makes one, remuda appends a node's number.
const PATH_BYTES_MAX: usize = 108 - 18 - 8;
/// Time after which the janitor stops trying; a process that uses a directory for longer is not
/// remuda's.
const SWEEP_LIMIT: Duration = Duration::from_secs(10);

/// Time in which a janitor without work ends; then it is killed. It may be stopped by a signal, or
/// clear old directories on a disk that hangs.
const JANITOR_LIMIT: Duration = Duration::from_secs(2);
/// Number of scans after which a master that is stopped by signals again and again is killed.
const GENTLE_SCANS_MAX: u32 = 3;

/// Prefix of the directory's name; 16 hexadecimal digits follow.
const PREFIX: &str = "remuda-ctl-";
/// Limits for one janitor: directories of killed launches that it clears, and names that it scans.
const STALE_MAX: usize = 64;
const NAMES_MAX: usize = 100_000;

/// The private directory. Dropping it removes the directory and ends the janitor.
pub(super) struct ControlDir {
    path: PathBuf,
    janitor: Pid,
    janitor_pipe: OwnedFd,
    /// The lock, which the kernel frees when the launcher exits; `None` if the file system has no
    /// locks.
    _lock: Option<OwnedFd>,
}

impl ControlDir {
    /// Forks the janitor, then makes the directory: no thread may exist yet. In this order, the
    /// janitor exists before anything that it has to remove.
    pub(super) fn create() -> io::Result<Self> {
        let candidates = candidate_paths()?;
        let (read_end, leash) = fds::pipe()?;
        match fork::fork()? {
            ForkSide::Parent(janitor) => match make_first(&candidates) {
                Ok((path, claim)) => Ok(Self { path, janitor, janitor_pipe: leash, _lock: claim }),
                Err(error) => {
                    drop(leash);
                    process_tree::wait_or_kill(janitor, JANITOR_LIMIT);
                    Err(error)
                }
            },
            ForkSide::Child => {
                run_janitor(read_end, &candidates);
                fork::exit_now(0)
            }
        }
    }

    /// Path of the directory: absolute, short and of plain characters.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ControlDir {
    fn drop(&mut self) {
        sweep(&self.path);
        // A byte instead of the end of the pipe: the janitor has nothing left to do.
        let _ = rustix::io::write(&self.janitor_pipe, b".");
        process_tree::wait_or_kill(self.janitor, JANITOR_LIMIT);
    }
}

/// Candidate paths of the directory, with a random name.
fn candidate_paths() -> io::Result<Vec<PathBuf>> {
    let name = format!("{PREFIX}{:016x}", u64::from_ne_bytes(random_bytes()?));
    let runtime_dir = env_vars::get(env_vars::XDG_RUNTIME_DIR).map(PathBuf::from);
    let parents = runtime_dir.into_iter().filter(|dir| dir.is_dir());
    let all = parents.chain(["/tmp".into(), "/var/tmp".into()]).map(|parent| parent.join(&name));
    Ok(all.filter(|path| path.to_str().is_some_and(is_plain)).collect())
}

fn make_first(candidates: &[PathBuf]) -> io::Result<(PathBuf, Option<OwnedFd>)> {
    let mut last_error = io::Error::from(io::ErrorKind::NotFound);
    for path in candidates {
        match make(path) {
            Ok(claim) => return Ok((path.clone(), claim)),
            Err(error) => last_error = error,
        }
    }
    Err(last_error)
}

/// Makes a directory with access for this user alone, and locks it. Between the two steps another
/// janitor may take its owner for dead and remove it: then the directory is made once more.
fn make(path: &Path) -> io::Result<Option<OwnedFd>> {
    const TRIES: u32 = 8;
    for _ in 0..TRIES {
        // Fails if the name exists.
        fs::DirBuilder::new().mode(0o700).create(path)?;
        match lock(path) {
            Ok(claim) => return Ok(Some(claim)),
            Err(Errno::WOULDBLOCK | Errno::NOENT) => {}
            // Without locks a janitor cannot see whether the owner lives, so no janitor removes the
            // directory.
            Err(_) => return Ok(None),
        }
        let _ = fs::remove_dir(path);
    }
    Err(io::ErrorKind::WouldBlock.into())
}

/// Locks a directory that belongs to this user and that no other user may enter; does not follow
/// links.
fn lock(path: &Path) -> Result<OwnedFd, Errno> {
    let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::open(path, how, Mode::empty())?;
    let opened = rustix::fs::fstat(&dir)?;
    if opened.st_uid != rustix::process::geteuid().as_raw() || opened.st_mode & 0o777 != 0o700 {
        return Err(Errno::PERM);
    }
    rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive)?;
    // The previous owner of the lock may have removed the directory.
    let found = rustix::fs::lstat(path)?;
    let is_same = (found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino);
    if is_same { Ok(dir) } else { Err(Errno::NOENT) }
}

/// Whether ssh reads the path unchanged, in a configuration and as the name of a socket.
fn is_plain(path: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
    path.starts_with('/') && path.chars().all(plain) && path.len() <= PATH_BYTES_MAX
}

/// The janitor: waits until the launcher has ended, then clears the directory.
fn run_janitor(pipe: OwnedFd, candidates: &[PathBuf]) {
    // The janitor ignores the signals of the terminal and of a batch system.
    let _ = rustix::process::setsid();
    signals::block_requests();
    process_tree::set_name(c"remuda-janitor");
    // Closes the other descriptors: a reader of remuda's output must not wait for the janitor.
    let Ok(pipe) = fds::close_all_except(pipe) else {
        return;
    };
    clear_stale(candidates);
    let mut byte = [0];
    let read = rustix::io::retry_on_intr(|| rustix::io::read(&pipe, &mut byte));
    if matches!(read, Ok(0)) {
        for path in candidates {
            sweep(path);
        }
    }
}

/// Clears the directories of this user's launches that were killed together with their janitors.
fn clear_stale(own: &[PathBuf]) {
    let mut left = STALE_MAX;
    for parent in own.iter().filter_map(|path| path.parent()) {
        let names = fs::read_dir(parent).into_iter().flatten().take(NAMES_MAX).flatten();
        let others = names.map(|entry| entry.path()).filter(|path| is_control_dir(path));
        for path in others.filter(|path| !own.contains(path)) {
            // Held until the directory is removed, so that no other janitor clears it at the same
            // time.
            let Ok(_claim) = lock(&path) else { continue };
            clear(&path, 0);
            left -= 1;
            if left == 0 {
                return;
            }
        }
    }
}

/// Whether the name is that of a control directory; its owner and its lock are checked elsewhere.
fn is_control_dir(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let digits = name.and_then(|name| name.strip_prefix(PREFIX));
    digits.is_some_and(|digits| {
        digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// Ends every ssh master that has a socket in the directory, and removes all files. Scans
/// repeatedly, because a master may be making its socket at that time.
fn sweep(dir: &Path) {
    const PAUSE: Duration = Duration::from_millis(20);
    let deadline = clock::now() + SWEEP_LIMIT;
    let mut scans = 0..;
    while !clear(dir, scans.next().unwrap_or(GENTLE_SCANS_MAX)) && clock::now() < deadline {
        std::thread::sleep(PAUSE);
    }
}

/// One scan, after `scans` earlier ones; returns whether nothing is left. remuda makes no
/// subdirectories in it.
fn clear(dir: &Path, scans: u32) -> bool {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
        if let Some(master) = is_socket.then(|| process_tree::stopped_listener(&path)).flatten() {
            end_stopped(&master, scans);
            continue;
        }
        // A master that still answers removes its socket itself.
        if !is_socket || !end_master(&path).unwrap_or(false) {
            let _ = fs::remove_file(&path);
        }
    }
    fs::remove_dir(dir).is_ok() || !dir.exists()
}

/// Ends a master that is stopped by a signal: it does not answer, and acts on a signal only once it
/// is continued.
fn end_stopped(master: &ProcessRef, scans: u32) {
    if scans < GENTLE_SCANS_MAX {
        master.signal(libc::SIGTERM);
        master.signal(libc::SIGCONT);
    } else {
        master.signal(libc::SIGKILL);
    }
}

/// Requests the end of a master with OpenSSH's PROTOCOL.mux: hello, then terminate. Returns whether
/// there was a master.
fn end_master(socket: &Path) -> io::Result<bool> {
    const MESSAGES: [u32; 6] = [
        8,           // length
        0x0000_0001, // MUX_MSG_HELLO
        4,           // version
        8,           // length
        0x1000_0005, // MUX_C_TERMINATE
        1,           // request id
    ];
    const LIMIT: Duration = Duration::from_secs(1);
    let mut master = match UnixStream::connect(socket) {
        Ok(master) => master,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(false),
        Err(error) => return Err(error),
    };
    master.set_read_timeout(Some(LIMIT))?;
    master.set_write_timeout(Some(LIMIT))?;
    let bytes: Vec<u8> = MESSAGES.iter().flat_map(|word| word.to_be_bytes()).collect();
    master.write_all(&bytes)?;
    // The master writes its replies before it ends; their content does not matter.
    let _ = master.read(&mut [0; 64]);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_dir_is_locked_while_its_owner_lives() {
        let parent = std::env::temp_dir();
        let path = parent.join(format!("{PREFIX}{:016x}", std::process::id()));
        let claim = make(&path).expect("a directory").expect("a lock");
        assert!(is_control_dir(&path));
        clear_stale(&[parent.join("another")]);
        assert!(path.exists(), "its owner lives");
        assert_eq!(lock(&path).err(), Some(Errno::WOULDBLOCK));
        drop(claim);
        let link = parent.join(format!("{PREFIX}{:016x}", u64::from(std::process::id()) << 32));
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        assert!(lock(&link).is_err(), "a link leads elsewhere");
        fs::write(path.join("config"), "x").expect("the directory is writable");
        clear_stale(&[parent.join("another")]);
        let link_stays = link.symlink_metadata().is_ok();
        let _ = fs::remove_file(&link);
        assert!(!path.exists() && link_stays);
    }

    #[test]
    fn path_that_ssh_would_read_differently_is_not_plain() {
        assert!(is_plain("/run/user/1000/remuda-ctl-0123456789abcdef"));
        for bad in ["relative", "/with blank", "/with%percent", "/with*star", "/quote\"", "/ü"] {
            assert!(!is_plain(bad), "{bad}");
        }
        assert!(!is_plain(&format!("/{}", "x".repeat(PATH_BYTES_MAX))));
    }
}
