//! The private directory of a launch, and the janitor that clears it however the launcher ends.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Pid;

use crate::base::{clock, env_vars};
use crate::os::fork::{self, Side};
use crate::os::{family, fds, signals};

/// A socket's path has 108 bytes in the kernel; ssh appends up to 18 while it makes one, we a node's
/// number.
const PATH_BYTES_MAX: usize = 108 - 18 - 8;
/// The janitor gives up after this time; what holds a directory for longer is not ours.
const SWEEP_LIMIT: Duration = Duration::from_secs(10);

/// See the module. Dropping it removes the directory and ends the janitor.
pub(super) struct ControlDir {
    path: PathBuf,
    janitor: Pid,
    leash: OwnedFd,
}

impl ControlDir {
    /// Forks the janitor, then makes the directory: no thread may exist yet. In this order nothing is
    /// ever there that nobody would remove.
    pub(super) fn create() -> io::Result<Self> {
        let places = places()?;
        let (held, leash) = fds::pipe()?;
        match fork::fork()? {
            Side::Parent(janitor) => match make_one(&places) {
                Ok(path) => Ok(Self { path, janitor, leash }),
                Err(error) => {
                    drop(leash);
                    family::wait_for(janitor);
                    Err(error)
                }
            },
            Side::Child => {
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
        family::wait_for(self.janitor);
    }
}

/// Where the directory may be, by a name that nobody else has.
fn places() -> io::Result<Vec<PathBuf>> {
    let mut random = [0; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    let name = format!("remuda-{:016x}", u64::from_ne_bytes(random));
    let runtime_dir = env_vars::get(env_vars::XDG_RUNTIME_DIR).map(PathBuf::from);
    let parents = runtime_dir.into_iter().filter(|dir| dir.is_dir());
    let all = parents.chain(["/tmp".into(), "/var/tmp".into()]).map(|parent| parent.join(&name));
    Ok(all.filter(|path| path.to_str().is_some_and(is_plain)).collect())
}

fn make_one(places: &[PathBuf]) -> io::Result<PathBuf> {
    let mut verdict = io::Error::from(io::ErrorKind::NotFound);
    for path in places {
        // Fails where something has this name.
        match fs::DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => return Ok(path.clone()),
            Err(error) => verdict = error,
        }
    }
    Err(verdict)
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
    let mut word = [0];
    let read = rustix::io::retry_on_intr(|| rustix::io::read(&leash, &mut word));
    if matches!(read, Ok(0)) {
        for place in places {
            sweep(place);
        }
    }
}

/// Ends every ssh master whose socket is here, and removes everything. A master may just be making
/// its socket, so once is not enough.
fn sweep(dir: &Path) {
    const PAUSE: Duration = Duration::from_millis(20);
    let deadline = clock::now() + SWEEP_LIMIT;
    while clock::now() < deadline {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
            // One that still answers removes its socket itself.
            if !is_socket || !end_master(&path).unwrap_or(false) {
                let _ = fs::remove_file(&path);
            }
        }
        match fs::remove_dir(dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => std::thread::sleep(PAUSE),
            _ => return,
        }
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
    fn a_path_that_ssh_would_read_differently_is_not_used() {
        assert!(is_plain("/run/user/1000/remuda-0123456789abcdef"));
        for bad in ["relative", "/with blank", "/with%percent", "/with*star", "/quote\"", "/ü"] {
            assert!(!is_plain(bad), "{bad}");
        }
        assert!(!is_plain(&format!("/{}", "x".repeat(PATH_BYTES_MAX))));
    }
}
