//! Registration of file descriptors with an async runtime.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::os::files::fds;

/// Registers a pipe or socket with the current runtime; reads and writes no longer block.
pub fn register(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    fds::set_nonblocking(&fd)?;
    // SAFETY: an `OwnedFd` stays open, under the same number and for the same file, until it is
    // dropped, and the `AsyncFd` owns it.
    Ok(unsafe { AsyncFd::register_with_interest(fd, interest) }?)
}
