//! Memory that processes share, and sleeping on a word of it.
//!
//! A segment is an anonymous file (memfd): it has no name that could be left behind, and the kernel
//! frees it with its last descriptor and mapping. It is sealed, so no process that holds it can
//! shrink it while others use it, and sparse, so its size costs nothing until it is touched.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::time::Duration;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::{Resource, getrlimit};
use rustix::thread::futex;

use crate::os::atomic::AtomicU32;

/// Creates a sealed, sparse anonymous file of `bytes` bytes, all zero. Not inherited over `exec`.
pub fn create_shared(name: &str, bytes: u64) -> io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&fd, bytes)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

/// Whether no process can shrink the file; only then is a mapping of it safe to read.
pub fn is_sealed_against_shrinking(fd: BorrowedFd<'_>) -> io::Result<bool> {
    match rustix::fs::fcntl_get_seals(fd) {
        // Only anonymous files have seals.
        Err(rustix::io::Errno::INVAL) => Ok(false),
        seals => Ok(seals?.contains(SealFlags::SHRINK)),
    }
}

/// Returns the bytes that the file holds in memory, as opposed to its size.
pub fn resident_bytes(fd: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(rustix::fs::fstat(fd)?.st_blocks as u64 * 512)
}

/// Returns the bytes of physical memory of this machine.
pub fn machine_bytes() -> u64 {
    // SAFETY: sysconf reads two constants and touches no memory of this process.
    let (pages, page_bytes) =
        unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    pages.max(0) as u64 * page_bytes.max(0) as u64
}

/// Returns the largest file that this process can create and map (`ulimit -v`, `ulimit -f`), in bytes;
/// `None`: unlimited.
pub fn shared_bytes_limit() -> Option<u64> {
    let limits = [Resource::As, Resource::Fsize].map(|resource| getrlimit(resource).current);
    limits.into_iter().flatten().min()
}

/// Returns a private copy of an inherited descriptor whose number was in an environment variable;
/// `None` when no such descriptor is open. Neither is inherited any further.
pub fn duplicate_inherited(number: i32) -> Option<OwnedFd> {
    use std::os::fd::FromRawFd;
    // SAFETY: fcntl with these commands takes and returns plain numbers, and fails on bad ones.
    let copy = unsafe {
        libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC);
        libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 3)
    };
    // SAFETY: the kernel has just created this descriptor, and no other code knows its number.
    (0 <= copy).then(|| unsafe { OwnedFd::from_raw_fd(copy) })
}

/// A mapping of a shared file, from its first byte; unmapped when dropped.
///
/// It returns addresses, never references: which process may access which bytes when is defined by
/// a protocol between processes, which this module does not know.
#[derive(Debug)]
pub struct Mapping {
    fd: OwnedFd,
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is an address range that stays mapped while the value lives; it returns raw
// addresses only, so moving it to another thread or sharing it gives no access by itself.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the whole file, readable and writable, shared.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        let bytes = usize::try_from(rustix::fs::fstat(&fd)?.st_size)
            .map_err(|_| io::Error::other("the segment does not fit the address space"))?;
        Self::of_first(fd, bytes)
    }

    /// Maps the first `bytes` bytes of the file, readable and writable, shared. The file must have
    /// that many.
    pub fn of_first(fd: OwnedFd, bytes: usize) -> io::Result<Self> {
        // SAFETY: a null hint lets the kernel choose unused addresses, so no mapping is replaced.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::NORESERVE,
                &fd,
                0,
            )
        }?;
        let base =
            NonNull::new(base.cast()).expect("mmap without a hint never returns address zero");
        Ok(Self { fd, base, bytes })
    }

    /// Returns the address of the first byte; page aligned.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the number of mapped bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the file that is mapped.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns a range of whole pages to the kernel; it reads as zeros afterwards.
    pub fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.fd, flags, offset, bytes)?)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new`; code that uses its addresses keeps the mapping
        // alive. If it fails, the address space stays in use, and nothing can be done about that.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Sleeps until `word` is woken, at most `limit`, and not at all unless it still reads `expected`.
///
/// May return early for no reason, so callers must check again.
pub fn futex_wait(word: &AtomicU32, expected: u32, limit: Duration) {
    let limit = futex::Timespec {
        tv_sec: limit.as_secs() as i64,
        tv_nsec: i64::from(limit.subsec_nanos()),
    };
    // After every outcome (woken, changed, timed out, interrupted) the caller checks again.
    let _ = futex::wait(word, futex::Flags::empty(), expected, Some(&limit));
}

/// Wakes all threads, of any process, that sleep on `word`.
pub fn futex_wake_all(word: &AtomicU32) {
    // It fails only for addresses that are not mapped, and a reference is mapped.
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_cannot_shrink_and_returns_pages() {
        let fd = create_shared("test", 1 << 20).unwrap();
        assert!(is_sealed_against_shrinking(fd.as_fd()).unwrap());
        let directory = std::fs::File::open("/").unwrap();
        assert!(!is_sealed_against_shrinking(directory.as_fd()).unwrap());
        assert!(rustix::fs::ftruncate(&fd, 4096).is_err());
        let mapping = Mapping::new(fd).unwrap();
        assert_eq!(resident_bytes(mapping.fd()).unwrap(), 0);
        // SAFETY: the whole file is mapped and no other code knows it.
        unsafe { mapping.base().as_ptr().write_bytes(1, 1 << 20) };
        assert_eq!(resident_bytes(mapping.fd()).unwrap(), 1 << 20);
        mapping.discard(0, 1 << 20).unwrap();
        assert_eq!(resident_bytes(mapping.fd()).unwrap(), 0);
    }

    #[test]
    fn futex_wait_returns_at_once_if_word_changed() {
        let word = AtomicU32::new(1);
        futex_wait(&word, 0, Duration::from_secs(600));
        futex_wake_all(&word);
    }
}
