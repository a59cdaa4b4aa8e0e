//! The two halves of a link, one to read and one to write, over any descriptor or in memory.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::pipe::{SpliceFlags, splice};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::memory_socket::MemorySocket;
use crate::os::files::async_fd::register;

/// The half of a link that is read.
pub struct LinkReader(Carrier);

/// The half of a link that is written.
pub struct LinkWriter(Carrier);

/// What carries the bytes of a link.
enum Carrier {
    Descriptor(Arc<AsyncFd<OwnedFd>>),
    Memory(Arc<MemorySocket>),
}

/// Returns the halves of a link over one socket, which is closed when both are dropped. Must be called inside a
/// runtime.
pub fn split_socket(socket: OwnedFd) -> io::Result<(LinkReader, LinkWriter)> {
    let shared = Arc::new(register(socket, Interest::READABLE | Interest::WRITABLE)?);
    let reader = LinkReader(Carrier::Descriptor(shared.clone()));
    Ok((reader, LinkWriter(Carrier::Descriptor(shared))))
}

/// Returns both ends of a link between tasks of this process, which needs no descriptor. An end is closed when both
/// of its halves are dropped.
pub fn memory_link() -> [(LinkReader, LinkWriter); 2] {
    MemorySocket::pair().map(|socket| {
        let shared = Arc::new(socket);
        let reader = LinkReader(Carrier::Memory(shared.clone()));
        (reader, LinkWriter(Carrier::Memory(shared)))
    })
}

impl LinkReader {
    /// Takes a pipe or socket; must be called inside a runtime.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self(Carrier::Descriptor(Arc::new(register(fd, Interest::READABLE)?))))
    }

    /// Appends the available bytes, at most `buffer`'s spare capacity; 0 is the end.
    pub async fn read(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        debug_assert!(
            buffer.len() < buffer.capacity(),
            "an empty buffer looks like the end of the stream"
        );
        match &self.0 {
            Carrier::Descriptor(descriptor) => {
                let read = |fd: &OwnedFd| {
                    Ok(rustix::io::read(fd, rustix::buffer::spare_capacity(buffer))?)
                };
                descriptor.async_io(Interest::READABLE, read).await
            }
            Carrier::Memory(socket) => Ok(socket.read(buffer).await),
        }
    }

    /// Returns the available bytes, at most this number; none is the end. Takes no memory while it waits.
    pub async fn read_piece(&self, bytes_max: usize) -> io::Result<Vec<u8>> {
        match &self.0 {
            Carrier::Descriptor(descriptor) => {
                let read = |fd: &OwnedFd| {
                    let mut piece = Vec::with_capacity(bytes_max);
                    rustix::io::read(fd, rustix::buffer::spare_capacity(&mut piece))?;
                    Ok(piece)
                };
                descriptor.async_io(Interest::READABLE, read).await
            }
            Carrier::Memory(socket) => Ok(socket.read_piece(bytes_max).await),
        }
    }

    /// Like [`Self::read`] without waiting: an error of the kind `WouldBlock` if no bytes are
    /// available.
    pub fn try_read(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        match &self.0 {
            Carrier::Descriptor(descriptor) => {
                let spare = rustix::buffer::spare_capacity(buffer);
                Ok(rustix::io::read(descriptor.get_ref(), spare)?)
            }
            Carrier::Memory(socket) => {
                socket.try_read(buffer).ok_or_else(|| io::ErrorKind::WouldBlock.into())
            }
        }
    }
}

impl LinkWriter {
    /// Takes a pipe or socket; must be called inside a runtime.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        Ok(Self(Carrier::Descriptor(Arc::new(register(fd, Interest::WRITABLE)?))))
    }

    /// Writes both parts, in one call if the kernel accepts them.
    pub async fn write_all(&self, mut head: &[u8], mut body: &[u8]) -> io::Result<()> {
        let descriptor = match &self.0 {
            Carrier::Descriptor(descriptor) => descriptor,
            Carrier::Memory(socket) => {
                socket.write_all(head).await?;
                return socket.write_all(body).await;
            }
        };
        while !head.is_empty() || !body.is_empty() {
            let parts = [IoSlice::new(head), IoSlice::new(body)];
            let write = |fd: &OwnedFd| Ok(rustix::io::writev(fd, &parts)?);
            let written = descriptor.async_io(Interest::WRITABLE, write).await?;
            let of_head = written.min(head.len());
            head = &head[of_head..];
            body = &body[written - of_head..];
        }
        Ok(())
    }

    /// Shuts a link over a socket down in both directions, also if other processes hold the socket.
    pub fn shutdown(&self) {
        match &self.0 {
            Carrier::Descriptor(descriptor) => {
                let _ = rustix::net::shutdown(descriptor.get_ref(), rustix::net::Shutdown::Both);
            }
            Carrier::Memory(socket) => socket.shutdown(),
        }
    }

    /// Moves bytes from a pipe without copying them. If the link does not accept pages and nothing
    /// has been moved yet, the error is `EINVAL`.
    pub async fn move_all(&self, pipe: &OwnedFd, mut bytes: usize) -> io::Result<()> {
        let Carrier::Descriptor(descriptor) = &self.0 else { return Err(Errno::INVAL.into()) };
        while 0 < bytes {
            let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
            // The pipe is not empty, so `EAGAIN` can only be caused by the link.
            let moved = |fd: &OwnedFd| Ok(splice(pipe, None, fd, None, bytes, flags)?);
            match descriptor.async_io(Interest::WRITABLE, moved).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                moved => bytes -= moved,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};

    use super::*;
    use crate::os::files::fds;

    fn with_runtime(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        runtime.expect("a runtime").block_on(test);
    }

    fn pipe_with(bytes: &[u8]) -> OwnedFd {
        let (read, write) = fds::pipe().expect("a pipe");
        assert_eq!(rustix::io::write(&write, bytes), Ok(bytes.len()));
        read
    }

    #[test]
    fn link_moves_the_requested_bytes_of_a_pipe() {
        with_runtime(async {
            let (near, far) = fds::stream_pair().expect("a socket pair");
            let pipe = pipe_with(b"a whole line and a part");
            let writer = LinkWriter::new(near).expect("a link");
            writer.move_all(&pipe, 12).await.expect("moved");
            let mut received = [0; 64];
            let length = rustix::io::read(&far, &mut received).expect("there is something");
            assert_eq!(&received[..length], b"a whole line");
            assert_eq!(fds::readable_bytes(&pipe).expect("a pipe"), 11);
        });
    }

    #[test]
    fn link_without_splice_reports_einval_and_loses_no_bytes() {
        with_runtime(async {
            let counter = eventfd(0, EventfdFlags::NONBLOCK).expect("a counter");
            let writer = LinkWriter::new(counter).expect("it can be waited for");
            let pipe = pipe_with(b"8 bytes.");
            let error = writer.move_all(&pipe, 8).await.expect_err("a counter has no pages");
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert_eq!(fds::readable_bytes(&pipe).expect("a pipe"), 8);
        });
    }
}
