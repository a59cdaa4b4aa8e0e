//! File descriptors: moving them, passing them to other processes, creating pipes of a suitable
//! size.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

use rustix::io::FdFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::pipe::PipeFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Maximum number of descriptors that one packet may carry.
pub const PACKET_FDS_MAX: usize = 8;

/// Size of a pipe for workers' output: a burst fits, and one read takes it all.
const PIPE_BYTES: usize = 256 * 1024;

/// Creates a pipe, both ends closed on exec: `(read, write)`.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?)
}

/// Creates a pipe for a worker's output, larger than the default where the kernel allows it.
pub fn output_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe()?;
    // Unprivileged users have a budget of pipe pages; if it is used up, the default size remains.
    let _ = rustix::pipe::fcntl_setpipe_size(&write, PIPE_BYTES);
    Ok((read, write))
}

/// Returns the number of bytes in a pipe.
pub fn readable_bytes(pipe: impl AsFd) -> io::Result<usize> {
    Ok(rustix::io::ioctl_fionread(pipe)? as usize)
}

/// Returns the capacity of a pipe in bytes.
pub fn pipe_capacity(pipe: impl AsFd) -> io::Result<usize> {
    Ok(rustix::pipe::fcntl_getpipe_size(pipe)?)
}

/// Creates two connected stream sockets, closed on exec.
pub fn stream_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    pair(SocketType::STREAM)
}

/// Creates two connected sockets that keep the boundaries of packets, closed on exec.
pub fn packet_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    pair(SocketType::SEQPACKET)
}

fn pair(kind: SocketType) -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?)
}

/// Makes reads and writes return `WouldBlock` instead of waiting.
pub fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(fd, true)?)
}

/// Opens the same pipe or terminal again for writing without blocking. Processes that share `fd`
/// are not affected. Any other file is returned unchanged: a regular file has an offset, and does
/// not block.
pub fn reopen_nonblocking(fd: OwnedFd) -> OwnedFd {
    use rustix::fs::{FileType, Mode, OFlags};
    let kind = rustix::fs::fstat(&fd).map(|stat| FileType::from_raw_mode(stat.st_mode));
    if !matches!(kind, Ok(FileType::Fifo | FileType::CharacterDevice)) {
        return fd;
    }
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).unwrap_or(fd)
}

/// Whether a short write would not block.
pub fn has_room(fd: impl AsFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut polled = [PollFd::new(&fd, PollFlags::OUT)];
    let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut polled, Some(&no_wait)), Ok(1..))
        && polled[0].revents().contains(PollFlags::OUT)
}

/// Makes writes to standard error drop what does not fit instead of blocking, where it is a pipe or
/// a terminal. Processes that share it are not affected.
pub fn make_stderr_nonblocking() {
    // If it cannot be opened again, the check with `has_room` remains.
    if let Ok(copy) = copy_above(rustix::stdio::stderr(), 3) {
        let _ = rustix::stdio::dup2_stderr(reopen_nonblocking(copy));
    }
}

/// Keeps a descriptor open across the next exec. Safe to call between fork and exec.
pub fn keep_on_exec(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(rustix::io::fcntl_setfd(fd, FdFlags::empty())?)
}

/// Marks a descriptor that was inherited by number, so that started programs do not inherit it.
pub fn close_on_exec(number: RawFd) -> io::Result<()> {
    // SAFETY: a number that is not a descriptor only makes the call fail.
    match unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Returns a copy of `fd` with a number of at least `min`, closed on exec.
pub fn copy_above(fd: impl AsFd, min: RawFd) -> io::Result<OwnedFd> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, min)?)
}

/// Opens `/dev/null` for reading and writing.
pub fn null() -> io::Result<OwnedFd> {
    Ok(File::options().read(true).write(true).open("/dev/null")?.into())
}

/// Moves descriptors 0 and 1 away, so that no code uses them by mistake: returns private copies,
/// and puts `/dev/null` and standard error in their place.
pub fn take_stdio() -> io::Result<(OwnedFd, OwnedFd)> {
    let input = copy_above(rustix::stdio::stdin(), 3)?;
    let output = copy_above(rustix::stdio::stdout(), 3)?;
    rustix::stdio::dup2_stdin(&null()?)?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    Ok((input, output))
}

/// Closes every descriptor except this one, and puts `/dev/null` on 0, 1 and 2. For a process that
/// was just forked and will never run the code that owned the others.
pub fn close_all_except(fd: OwnedFd) -> io::Result<OwnedFd> {
    const NUMBER: RawFd = 3;
    let null = null()?;
    // SAFETY: the caller's process no longer uses anything that owned these numbers, and exits
    // without running it; `close_range` and `dup2` take plain numbers.
    unsafe {
        for standard in 0..NUMBER {
            libc::dup2(null.as_raw_fd(), standard);
        }
        if fd.as_raw_fd() != NUMBER && libc::dup2(fd.as_raw_fd(), NUMBER) < 0 {
            return Err(io::Error::last_os_error());
        }
        let (first, all) = ((NUMBER + 1) as libc::c_uint, libc::c_uint::MAX);
        let closed = libc::syscall(libc::SYS_close_range, first, all, 0);
        if closed < 0 {
            // Before Linux 5.9 there is no `close_range`: close them one by one.
            for number in NUMBER + 1..getrlimit(Resource::Nofile).current.unwrap_or(4096) as RawFd {
                libc::close(number);
            }
        }
        // Both numbers may be closed or replaced by now.
        std::mem::forget((fd, null));
        Ok(OwnedFd::from_raw_fd(NUMBER))
    }
}

/// Opens `/dev/null` on each of 0, 1, 2 that is closed, so that no later descriptor gets these
/// numbers.
pub fn fill_stdio() -> io::Result<()> {
    loop {
        let fd = null()?.into_raw_fd();
        if 2 < fd {
            // SAFETY: the number is from `into_raw_fd` just above and no other code has it.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
            return Ok(());
        }
    }
}

/// Sends one packet with descriptors.
pub fn send_packet(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    assert!(fds.len() <= PACKET_FDS_MAX, "a packet carries at most {PACKET_FDS_MAX} descriptors");
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PACKET_FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        let pushed = control.push(SendAncillaryMessage::ScmRights(fds));
        assert!(pushed, "the buffer was made for {PACKET_FDS_MAX} descriptors");
    }
    let flags = SendFlags::NOSIGNAL;
    rustix::io::retry_on_intr(|| {
        rustix::net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags)
    })?;
    Ok(())
}

/// Receives one packet into `buffer`; returns its length and its descriptors. Length 0 is the end.
pub fn recv_packet(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PACKET_FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let mut slices = [IoSliceMut::new(buffer)];
        rustix::net::recvmsg(&socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    Ok((received.bytes, fds))
}

/// The soft limit of open descriptors before it was raised.
static ORIGINAL_LIMIT: OnceLock<Option<u64>> = OnceLock::new();

/// Raises the soft limit of open descriptors to the hard one; returns the limit in force.
pub fn raise_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    ORIGINAL_LIMIT.get_or_init(|| limit.current);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _ = setrlimit(Resource::Nofile, raised);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How to raise the hard limit of open files.
pub const RAISE_FILE_LIMIT: &str =
    "raise `nofile` in /etc/security/limits.conf, or with `docker run --ulimit nofile=N`";

/// The limit of open files is too low.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the hard limit is {limit}; {RAISE_FILE_LIMIT}")]
pub struct TooFewFiles {
    /// Number of open files that are needed.
    pub needed: u64,
    /// The hard limit.
    pub limit: u64,
}

/// Raises the soft limit of open descriptors to the hard one, and checks that it allows this number.
pub fn require_open_files(needed: u64) -> Result<(), TooFewFiles> {
    let limit = raise_limit();
    if needed <= limit { Ok(()) } else { Err(TooFewFiles { needed, limit }) }
}

/// Restores the limit that [`raise_limit`] found, for a program that is not part of remuda: some
/// programs call `select`, some close every descriptor up to the limit. Safe to call between fork
/// and exec.
pub fn restore_limit() {
    if let Some(current) = ORIGINAL_LIMIT.get() {
        let maximum = getrlimit(Resource::Nofile).maximum;
        let _ = setrlimit(Resource::Nofile, Rlimit { current: *current, maximum });
    }
}

/// Whether the process group of this process may read this terminal. Groups are compared as the
/// kernel numbers them: in an inner pid namespace an outer group is 0, which rustix's `getpgrp`
/// cannot return.
pub fn is_in_foreground(terminal: BorrowedFd<'_>) -> bool {
    // SAFETY: both take and return plain numbers; the descriptor is borrowed for the call.
    unsafe { libc::tcgetpgrp(terminal.as_raw_fd()) == libc::getpgrp() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_pipe_has_no_room() {
        let (read, write) = pipe().expect("a pipe");
        assert!(has_room(&write));
        set_nonblocking(&write).expect("a pipe");
        while rustix::io::write(&write, &[0; 4096]).is_ok() {}
        assert!(!has_room(&write));
        drop(read);
    }

    #[test]
    fn more_files_than_the_hard_limit_are_an_error() {
        assert_eq!(require_open_files(1), Ok(()));
        let limit = raise_limit();
        // Without a limit, no number is too large.
        if let Some(needed) = limit.checked_add(1) {
            assert_eq!(require_open_files(needed), Err(TooFewFiles { needed, limit }));
        }
    }

    #[test]
    fn packet_carries_bytes_and_descriptors() {
        let (a, b) = packet_pair().expect("a socket pair");
        let (read, write) = pipe().expect("a pipe");
        send_packet(&a, b"hello", &[write.as_fd()]).expect("sent");
        drop(write);
        let mut buffer = [0; 16];
        let (length, fds) = recv_packet(&b, &mut buffer).expect("received");
        assert_eq!(&buffer[..length], b"hello");
        rustix::io::write(&fds[0], b"x").expect("the descriptor arrived open");
        drop(fds);
        assert_eq!(rustix::io::read(&read, &mut buffer).expect("read"), 1);
        assert_eq!(rustix::io::read(&read, &mut buffer).expect("end"), 0);
    }
}
