//! The two halves of a link: bytes in, bytes out, over whatever descriptor carries them.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;

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
}
