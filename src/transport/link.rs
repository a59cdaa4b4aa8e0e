//! The two halves of a link: bytes in, bytes out, over whatever descriptor carries them.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;

use rustix::pipe::{SpliceFlags, splice};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::os::watch::watch;

/// The half that is read.
pub struct LinkReader(AsyncFd<OwnedFd>);

/// The half that is written.
pub struct LinkWriter(AsyncFd<OwnedFd>);

impl LinkReader {
    /// Takes a pipe or socket; must be called inside a runtime.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self(watch(fd, Interest::READABLE)?))
    }

    /// Appends what is there, at most `buffer`'s spare capacity; 0 is the end.
    pub async fn read(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        debug_assert!(buffer.len() < buffer.capacity(), "reading into no room looks like the end");
        let read = |fd: &OwnedFd| Ok(rustix::io::read(fd, rustix::buffer::spare_capacity(buffer))?);
        self.0.async_io(Interest::READABLE, read).await
    }

    /// The same without waiting: an error of the kind `WouldBlock` when nothing is there.
    pub fn read_now(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        Ok(rustix::io::read(self.0.get_ref(), rustix::buffer::spare_capacity(buffer))?)
    }
}

impl LinkWriter {
    /// Takes a pipe or socket; must be called inside a runtime.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self(watch(fd, Interest::WRITABLE)?))
    }

    /// Writes both parts, in one call where the kernel takes them.
    pub async fn write_all(&self, mut head: &[u8], mut body: &[u8]) -> io::Result<()> {
        while !head.is_empty() || !body.is_empty() {
            let parts = [IoSlice::new(head), IoSlice::new(body)];
            let write = |fd: &OwnedFd| Ok(rustix::io::writev(fd, &parts)?);
            let written = self.0.async_io(Interest::WRITABLE, write).await?;
            let of_head = written.min(head.len());
            head = &head[of_head..];
            body = &body[written - of_head..];
        }
        Ok(())
    }

    /// Moves bytes that are in a pipe, without copying them. Where the link does not take pages,
    /// and nothing has been moved yet, the error is `EINVAL`.
    pub async fn move_all(&self, pipe: &OwnedFd, mut bytes: usize) -> io::Result<()> {
        while 0 < bytes {
            let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
            // The pipe is not empty: whoever would have to wait is the link.
            let moved = |fd: &OwnedFd| Ok(splice(pipe, None, fd, None, bytes, flags)?);
            bytes -= self.0.async_io(Interest::WRITABLE, moved).await?;
        }
        Ok(())
    }
}
