//! The private directory of a launch, and the janitor that clears it however the launcher ends.
//!
//! Whoever made one holds a lock on it for as long as it lives. Where launcher and janitor were killed
//! together the lock is free, and the janitor of the user's next launch clears what they left.

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
use crate::os::family::ProcessRef;
use crate::os::fork::{self, ForkSide};
use crate::os::{family, fds, signals};

/// A socket's path has 108 bytes in the kernel; ssh appends up to 18 while it makes one, we a node's
/// number.
const PATH_BYTES_MAX: usize = 108 - 18 - 8;
/// The janitor gives up after this time; what holds a directory for longer is not ours.
const SWEEP_LIMIT: Duration = Duration::from_secs(10);

/// A janitor that has nothing left to do ends within this time, or is killed: it may be stopped by a
/// signal, or clear what others have left on a disk that hangs.
const JANITOR_LIMIT: Duration = Duration::from_secs(2);
/// After so many looks a master that a signal stops again and again is killed.
const PATIENT_LOOKS: u32 = 3;

/// What its name begins with; 16 hexadecimal digits follow.
const PREFIX: &str = "remuda-ctl-";
/// Directories of dead launches that one janitor clears, and names that it looks at.
const STALE_MAX: usize = 64;
const NAMES_MAX: usize = 100_000;

/// See the module. Dropping it removes the directory and ends the janitor.
pub(super) struct ControlDir {
    path: PathBuf,
    janitor: Pid,
    leash: OwnedFd,
    /// Free when we are gone; `None` where the file system knows no locks.
    _claim: Option<OwnedFd>,
}

impl ControlDir {
    /// Forks the janitor, then makes the directory: no thread may exist yet. In this order nothing is
    /// ever there that nobody would remove.
    pub(super) fn create() -> io::Result<Self> {
        let places = places()?;
        let (held, leash) = fds::pipe()?;
        match fork::fork()? {
            ForkSide::Parent(janitor) => match make_one(&places) {
                Ok((path, claim)) => Ok(Self { path, janitor, leash, _claim: claim }),
                Err(error) => {
                    drop(leash);
                    family::end_child(janitor, JANITOR_LIMIT);
                    Err(error)
                }
            },
            ForkSide::Child => {
                watch(held, &places);
                fork::exit_now(0)
            }
        }
    }

    /// Where it is: absolute, short, of plain characters.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ControlDir {
    fn drop(&mut self) {
        sweep(&self.path);
        // A word instead of the end: there is nothing left to do.
        let _ = rustix::io::write(&self.leash, b".");
        family::end_child(self.janitor, JANITOR_LIMIT);
    }
}

/// Where the directory may be, by a name that nobody else has.
fn places() -> io::Result<Vec<PathBuf>> {
    let mut random = [0; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    let name = format!("{PREFIX}{:016x}", u64::from_ne_bytes(random));
    let runtime_dir = env_vars::get(env_vars::XDG_RUNTIME_DIR).map(PathBuf::from);
    let parents = runtime_dir.into_iter().filter(|dir| dir.is_dir());
    let all = parents.chain(["/tmp".into(), "/var/tmp".into()]).map(|parent| parent.join(&name));
    Ok(all.filter(|path| path.to_str().is_some_and(is_plain)).collect())
}

fn make_one(places: &[PathBuf]) -> io::Result<(PathBuf, Option<OwnedFd>)> {
    let mut verdict = io::Error::from(io::ErrorKind::NotFound);
    for path in places {
        match make(path) {
            Ok(claim) => return Ok((path.clone(), claim)),
            Err(error) => verdict = error,
        }
    }
    Err(verdict)
}

/// Makes a directory that is ours alone, and locks it. Between the two another janitor may take it for
/// one whose owner is dead, and remove it: then it is made once more.
fn make(path: &Path) -> io::Result<Option<OwnedFd>> {
    const TRIES: u32 = 8;
    for _ in 0..TRIES {
        // Fails where something has this name.
        fs::DirBuilder::new().mode(0o700).create(path)?;
        match lock(path) {
            Ok(claim) => return Ok(Some(claim)),
            Err(Errno::WOULDBLOCK | Errno::NOENT) => {}
            // Who cannot lock cannot see that nobody does: then nobody removes it.
            Err(_) => return Ok(None),
        }
        let _ = fs::remove_dir(path);
    }
    Err(io::ErrorKind::WouldBlock.into())
}

/// The lock on a directory of our own that nobody else may enter; not through a link.
fn lock(path: &Path) -> Result<OwnedFd, Errno> {
    let how = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::open(path, how, Mode::empty())?;
    let opened = rustix::fs::fstat(&dir)?;
    if opened.st_uid != rustix::process::geteuid().as_raw() || opened.st_mode & 0o777 != 0o700 {
        return Err(Errno::PERM);
    }
    rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive)?;
    // Whoever had the lock before may have removed it.
    let found = rustix::fs::lstat(path)?;
    let is_same = (found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino);
    if is_same { Ok(dir) } else { Err(Errno::NOENT) }
}

/// Whether ssh takes the path as it is, in a configuration and as the name of a socket.
fn is_plain(path: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
    path.starts_with('/') && path.chars().all(plain) && path.len() <= PATH_BYTES_MAX
}

/// The janitor: waits for the end of the launcher, and clears up after it.
fn watch(leash: OwnedFd, places: &[PathBuf]) {
    // The terminal's signals and those of a batch system are not for us.
    let _ = rustix::process::setsid();
    signals::block_requests();
    family::set_name(c"remuda-janitor");
    // Whoever waits for the end of our output must not wait for us.
    let Ok(leash) = fds::keep_only(leash) else {
        return;
    };
    clear_stale(places);
    let mut word = [0];
    let read = rustix::io::retry_on_intr(|| rustix::io::read(&leash, &mut word));
    if matches!(read, Ok(0)) {
        for place in places {
            sweep(place);
        }
    }
}

/// Clears what launches of ours have left that were killed together with their janitors.
fn clear_stale(own: &[PathBuf]) {
    let mut left = STALE_MAX;
    for parent in own.iter().filter_map(|path| path.parent()) {
        let names = fs::read_dir(parent).into_iter().flatten().take(NAMES_MAX).flatten();
        let others = names.map(|entry| entry.path()).filter(|path| is_control_dir(path));
        for path in others.filter(|path| !own.contains(path)) {
            // Held until it is gone, so that nobody else takes it meanwhile.
            let Ok(_claim) = lock(&path) else { continue };
            clear(&path, 0);
            left -= 1;
            if left == 0 {
                return;
            }
        }
    }
}

/// By its name; whose it is, its owner and its lock say.
fn is_control_dir(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let digits = name.and_then(|name| name.strip_prefix(PREFIX));
    digits.is_some_and(|digits| {
        digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// Ends every ssh master whose socket is here, and removes everything. A master may just be making
/// its socket, so once is not enough.
fn sweep(dir: &Path) {
    const PAUSE: Duration = Duration::from_millis(20);
    let deadline = clock::now() + SWEEP_LIMIT;
    let mut looks = 0..;
    while !clear(dir, looks.next().unwrap_or(PATIENT_LOOKS)) && clock::now() < deadline {
        std::thread::sleep(PAUSE);
    }
}

/// One look after so many others; whether nothing is left. No directory in it is ours.
fn clear(dir: &Path, looks: u32) -> bool {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
        if let Some(master) = is_socket.then(|| family::stopped_listener(&path)).flatten() {
            end_stopped(&master, looks);
            continue;
        }
        // One that still answers removes its socket itself.
        if !is_socket || !end_master(&path).unwrap_or(false) {
            let _ = fs::remove_file(&path);
        }
    }
    fs::remove_dir(dir).is_ok() || !dir.exists()
}

/// Ends a master that a signal has stopped: it does not answer, and acts on a signal only once it is
/// continued.
fn end_stopped(master: &ProcessRef, looks: u32) {
    if looks < PATIENT_LOOKS {
        master.signal(libc::SIGTERM);
        master.signal(libc::SIGCONT);
    } else {
        master.signal(libc::SIGKILL);
    }
}

/// Asks a master to end, in the words of OpenSSH's PROTOCOL.mux: hello, then terminate. Whether
/// there was one.
fn end_master(socket: &Path) -> io::Result<bool> {
    const WORDS: [u32; 6] = [
        8,           // length
        0x0000_0001, // MUX_MSG_HELLO
        4,           // version
        8,           // length
        0x1000_0005, // MUX_C_TERMINATE
        1,           // request id
    ];
    const PATIENCE: Duration = Duration::from_secs(1);
    let mut master = match UnixStream::connect(socket) {
        Ok(master) => master,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(false),
        Err(error) => return Err(error),
    };
    master.set_read_timeout(Some(PATIENCE))?;
    master.set_write_timeout(Some(PATIENCE))?;
    let bytes: Vec<u8> = WORDS.iter().flat_map(|word| word.to_be_bytes()).collect();
    master.write_all(&bytes)?;
    // Its answers do not matter, but it writes them before it ends.
    let _ = master.read(&mut [0; 64]);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_locked_while_it_is_somebodys() {
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
        fs::write(path.join("config"), "x").expect("ours");
        clear_stale(&[parent.join("another")]);
        let link_stays = link.symlink_metadata().is_ok();
        let _ = fs::remove_file(&link);
        assert!(!path.exists() && link_stays);
    }

    #[test]
    fn a_path_that_ssh_would_read_differently_is_not_used() {
        assert!(is_plain("/run/user/1000/remuda-ctl-0123456789abcdef"));
        for bad in ["relative", "/with blank", "/with%percent", "/with*star", "/quote\"", "/ü"] {
            assert!(!is_plain(bad), "{bad}");
        }
        assert!(!is_plain(&format!("/{}", "x".repeat(PATH_BYTES_MAX))));
    }
}
