//! Input files that a user names, opened without blocking even if they are not regular files.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};

/// Time limit for a named pipe that has no writer.
const WRITER_LIMIT: Duration = Duration::from_secs(2);

/// Opens a file of any kind. Does not wait for the writer of a pipe, and does not make a terminal
/// the controlling terminal of this process.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

/// Opens a regular file; any other kind is an error that names the kind.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = open(path)?;
    match irregular_kind(&file.metadata()?) {
        None => Ok(file),
        Some(kind) => Err(not_regular(kind)),
    }
}

/// Reads the whole of a regular file.
pub fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the error that names the kind of a file, where a regular file is needed.
pub fn not_regular(kind: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("it is not a regular file: it is {kind}"))
}

/// Returns the kind of a file that is not regular; `None` for a regular file.
pub fn irregular_kind(found: &Metadata) -> Option<&'static str> {
    use std::os::unix::fs::FileTypeExt;
    let kind = found.file_type();
    if kind.is_file() {
        None
    } else if kind.is_dir() {
        Some("a directory")
    } else if kind.is_fifo() {
        Some("a pipe")
    } else if kind.is_socket() {
        Some("a socket")
    } else {
        Some("a device")
    }
}

/// Whether a file is a pipe: a named one, or one from a shell's `<(command)`.
pub fn is_pipe(found: &Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_fifo(&found.file_type())
}

/// Reader of a file from [`open`], which may be a pipe: waits for the data of the pipe's writer. A
/// pipe that has no writer results in `TimedOut` after a limited time.
#[derive(Debug)]
pub struct InputReader {
    file: File,
    /// Whether an empty read is the end of the input: for a regular file, and for a pipe that had a
    /// writer.
    may_end: bool,
}

impl InputReader {
    /// Creates a reader of this file.
    pub fn new(file: File) -> io::Result<Self> {
        let may_end = !is_pipe(&file.metadata()?);
        Ok(Self { file, may_end })
    }

    /// Waits until there is something to read or the writer is gone; false after `limit`.
    fn wait(&self, limit: Option<Duration>) -> io::Result<bool> {
        let limit = limit.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        let mut polled = [PollFd::new(&self.file, PollFlags::IN)];
        Ok(0 < rustix::io::retry_on_intr(|| poll(&mut polled, limit.as_ref()))?)
    }
}

impl Read for InputReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut has_waited = false;
        loop {
            match self.file.read(buffer) {
                Ok(0) if !self.may_end && !buffer.is_empty() => {
                    if has_waited {
                        let why = "it is a pipe that no process writes to";
                        return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                    }
                    // If a writer was connected, the poll returns at once: then this is the end.
                    self.may_end = self.wait(Some(WRITER_LIMIT))?;
                    has_waited = true;
                }
                // A writer is connected.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.may_end = true;
                    self.wait(None)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => {
                    self.may_end |= matches!(read, Ok(1..));
                    return read;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::path::PathBuf;

    /// A named pipe.
    struct Fifo(PathBuf);

    impl Fifo {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("remuda-{name}-{}", std::process::id()));
            let mode = Mode::RUSR | Mode::WUSR;
            rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0)
                .expect("a pipe");
            Self(path)
        }
    }

    impl Drop for Fifo {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn read(path: &Path) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        InputReader::new(open(path)?)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    #[test]
    fn pipe_without_a_writer_is_an_error() {
        let fifo = Fifo::new("no-writer");
        assert_eq!(read(&fifo.0).expect_err("no writer").kind(), io::ErrorKind::TimedOut);
        let refused = open_regular(&fifo.0).expect_err("a pipe").to_string();
        assert_eq!(refused, "it is not a regular file: it is a pipe");
    }

    #[test]
    fn pipe_with_a_writer_is_read_to_its_end() {
        let fifo = Fifo::new("writer");
        let path = fifo.0.clone();
        let writer = std::thread::spawn(move || {
            let mut pipe = File::options().write(true).open(path).expect("a reader opens it");
            pipe.write_all(b"some ").expect("read");
            pipe.write_all(b"bytes").expect("read");
        });
        assert_eq!(read(&fifo.0).expect("all of it"), b"some bytes");
        writer.join().expect("it ends");
    }

    #[test]
    fn pipe_written_before_the_read_is_read_whole() {
        let (read_end, write_end) = std::io::pipe().expect("a pipe");
        let path = PathBuf::from(format!("/proc/self/fd/{}", read_end.as_raw_fd()));
        (&write_end).write_all(b"hosts").expect("it has room");
        drop(write_end);
        assert_eq!(read(&path).expect("all of it"), b"hosts");
        let (empty, write_end) = std::io::pipe().expect("a pipe");
        drop(write_end);
        let path = PathBuf::from(format!("/proc/self/fd/{}", empty.as_raw_fd()));
        assert_eq!(read(&path).expect("nothing"), b"");
    }
}
