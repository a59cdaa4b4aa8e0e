//! A file that every user of this machine may lock and write, in a directory where all users create
//! files. It is opened without trust in its creator: links are not followed, opening never blocks,
//! and only a regular file with one name is accepted.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{self, FileType, FlockOperation, Mode, OFlags};

/// Directories of such files, in order of preference. All users of a machine must use the same one,
/// so the choice does not depend on anything that belongs to one user.
const DIRECTORIES: [&str; 3] = ["/run/lock", "/dev/shm", "/tmp"];

/// A shared file; see the module. Its locks are those of `flock`: they belong to the open file, and
/// end with the last copy of its descriptor.
#[derive(Debug)]
pub struct SharedFile {
    fd: OwnedFd,
    is_writable: bool,
}

/// How a file is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// No other process has a lock.
    Exclusive,
    /// No other process has an exclusive lock.
    Shared,
}

/// Returns the directory for such files. It belongs to root and is sticky, so that no user can
/// replace a file of another user.
pub fn directory() -> Option<PathBuf> {
    DIRECTORIES.iter().map(PathBuf::from).find(|directory| is_common(directory))
}

fn is_common(directory: &Path) -> bool {
    const STICKY_FOR_ALL: u32 = 0o1777;
    fs::lstat(directory).is_ok_and(|found| {
        FileType::from_raw_mode(found.st_mode) == FileType::Directory
            && found.st_mode & STICKY_FOR_ALL == STICKY_FOR_ALL
            && found.st_uid == 0
    })
}

impl SharedFile {
    /// Opens the file, and creates it if it does not exist.
    pub fn open(path: &Path) -> io::Result<Self> {
        const TRIES_MAX: usize = 8;
        let own = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        for _ in 0..TRIES_MAX {
            // Without CREATE: in a sticky directory the kernel refuses that for another user's
            // file.
            let (opened, is_writable) = match fs::open(path, OFlags::RDWR | own, Mode::empty()) {
                Err(rustix::io::Errno::ACCESS) => {
                    (fs::open(path, OFlags::RDONLY | own, Mode::empty()), false)
                }
                Err(rustix::io::Errno::NOENT) => (create(path, own), true),
                opened => (opened, true),
            };
            match opened {
                // Another process created or removed it in between.
                Err(rustix::io::Errno::EXIST | rustix::io::Errno::NOENT) => {}
                Err(error) => return Err(error.into()),
                Ok(fd) => {
                    check(&fd)?;
                    return Ok(Self { fd, is_writable });
                }
            }
        }
        Err(io::Error::from(io::ErrorKind::ResourceBusy))
    }

    /// Locks the file if no other lock conflicts; false otherwise. An existing lock of this file is
    /// replaced, or lost if the new one conflicts.
    pub fn try_lock(&self, lock: Lock) -> io::Result<bool> {
        let operation = match lock {
            Lock::Exclusive => FlockOperation::NonBlockingLockExclusive,
            Lock::Shared => FlockOperation::NonBlockingLockShared,
        };
        match rustix::io::retry_on_intr(|| fs::flock(&self.fd, operation)) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Releases the lock.
    pub fn unlock(&self) -> io::Result<()> {
        Ok(fs::flock(&self.fd, FlockOperation::NonBlockingUnlock)?)
    }

    /// Reads its first bytes, at most `bytes_max`.
    pub fn read(&self, bytes_max: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; bytes_max];
        let length = rustix::io::retry_on_intr(|| rustix::io::pread(&self.fd, &mut bytes, 0))?;
        bytes.truncate(length);
        Ok(bytes)
    }

    /// Replaces its content; does nothing if it is another user's file that this process may only
    /// read.
    pub fn replace(&self, bytes: &[u8]) -> io::Result<()> {
        if self.is_writable {
            fs::ftruncate(&self.fd, 0)?;
            rustix::io::pwrite(&self.fd, bytes, 0)?;
        }
        Ok(())
    }

    /// Returns the open file, to be held by each process that shares its locks.
    pub fn into_fd(self) -> OwnedFd {
        self.fd
    }
}

fn create(path: &Path, own: OFlags) -> rustix::io::Result<OwnedFd> {
    let all_users = Mode::from_raw_mode(0o666);
    let fd = fs::open(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | own, all_users)?;
    // Independent of the umask.
    fs::fchmod(&fd, all_users)?;
    Ok(fd)
}

/// Checks an opened file. A file with a second name may be one that other users must not write.
fn check(fd: &OwnedFd) -> io::Result<()> {
    let found = fs::fstat(fd)?;
    let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    if is_file && found.st_nlink == 1 {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "it is not a regular file with one name"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("remuda-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir(&dir).expect("a directory");
        dir
    }

    #[test]
    fn shared_file_must_be_regular_with_one_name() {
        let dir = scratch("shared-file");
        let victim = dir.join("victim");
        std::fs::write(&victim, "precious").expect("a file");
        let (link, hard, pipe) = (dir.join("link"), dir.join("hard"), dir.join("pipe"));
        symlink(&victim, &link).expect("a link");
        std::fs::hard_link(&victim, &hard).expect("a second name");
        let mode = Mode::from_raw_mode(0o600);
        fs::mknodat(fs::CWD, &pipe, FileType::Fifo, mode, 0).expect("a pipe");
        for path in [&link, &hard, &pipe, &dir] {
            assert!(SharedFile::open(path).is_err(), "{}", path.display());
        }
        symlink(dir.join("nothing"), dir.join("dangling")).expect("a link");
        assert!(SharedFile::open(&dir.join("dangling")).is_err());
        assert!(!dir.join("nothing").exists(), "no link is followed to create a file");
        assert_eq!(std::fs::read_to_string(&victim).expect("there"), "precious");
        std::fs::remove_dir_all(dir).expect("removable");
    }

    #[test]
    fn file_lock_ends_with_its_last_descriptor() {
        let dir = scratch("shared-lock");
        let path = dir.join("lock");
        let first = SharedFile::open(&path).expect("made");
        let second = SharedFile::open(&path).expect("opened");
        assert!(first.try_lock(Lock::Exclusive).expect("flock works"));
        assert!(!second.try_lock(Lock::Shared).expect("flock works"));
        first.replace(b"held").expect("written");
        assert_eq!(second.read(2).expect("read"), b"he");
        let copy = first.fd.try_clone().expect("a descriptor");
        drop(first);
        assert!(!second.try_lock(Lock::Exclusive).expect("flock works"), "a copy is left");
        drop(copy);
        assert!(second.try_lock(Lock::Exclusive).expect("flock works"));
        std::fs::remove_dir_all(dir).expect("removable");
    }
}
