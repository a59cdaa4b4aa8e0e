//! Runs file I/O in a child process with a timeout, because the file system may hang. For the time
//! before threads exist, since fork must not run beside threads.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;

use crate::os::files::fds;
use crate::os::process::fork::{self, ForkSide};
use crate::os::process::{process_tree, signals};

/// Time limit for the exit of a child that was killed; after it, the child is not reaped.
const END_LIMIT: Duration = Duration::from_millis(200);

/// Returns the error of an operation that exceeded its limit.
pub fn timeout_error() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the disk does not respond")
}

/// Runs an operation in a child process and waits at most `limit`; after that, the child is killed.
/// If the child exits without a result, this process runs the operation itself. No thread may exist
/// yet.
pub fn run_with_timeout(
    limit: Duration,
    operation: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let (result_read, result_write) = fds::pipe()?;
    match fork::fork()? {
        ForkSide::Parent(child) => {
            drop(result_write);
            match wait_for_result(child, &result_read, limit)? {
                Some(0) => Ok(()),
                Some(number) => Err(io::Error::from_raw_os_error(number)),
                None => operation(),
            }
        }
        ForkSide::Child => {
            let kill = Some(rustix::process::Signal::KILL);
            let _ = rustix::process::set_parent_process_death_signal(kill);
            let number = match operation() {
                Ok(()) => 0,
                Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
            };
            let _ = rustix::io::write(&result_write, &number.to_ne_bytes());
            fork::exit_now(0)
        }
    }
}

/// Returns the kernel's error number of the operation, 0 on success; `None` if the child ended
/// without a result.
fn wait_for_result(child: Pid, result: &OwnedFd, limit: Duration) -> io::Result<Option<i32>> {
    if !wait_readable(result, limit)? {
        signals::send(child, libc::SIGKILL);
        // The kernel may block the end of the child for longer than the limit.
        if wait_readable(result, END_LIMIT)? {
            process_tree::wait_for(child);
        }
        return Err(timeout_error());
    }
    let mut number = [0; size_of::<i32>()];
    let length = rustix::io::retry_on_intr(|| rustix::io::read(result, &mut number))?;
    process_tree::wait_for(child);
    Ok((length == number.len()).then(|| i32::from_ne_bytes(number)))
}

/// Whether the child has written a result, or has closed the pipe.
fn wait_readable(result: &OwnedFd, limit: Duration) -> io::Result<bool> {
    let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
    let mut polled = [PollFd::new(result, PollFlags::IN)];
    Ok(0 < rustix::io::retry_on_intr(|| poll(&mut polled, Some(&limit)))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn io_in_child_returns_error_number() {
        assert!(run_with_timeout(LONG, || Ok(())).is_ok());
        let refused = run_with_timeout(LONG, || Err(io::Error::from_raw_os_error(libc::ENOSPC)));
        assert_eq!(refused.expect_err("refused").raw_os_error(), Some(libc::ENOSPC));
        let odd = run_with_timeout(LONG, || Err(io::Error::other("odd")));
        assert_eq!(odd.expect_err("refused").raw_os_error(), Some(libc::EIO));
    }

    #[test]
    fn io_in_child_times_out_and_has_a_fallback() {
        let hanging = run_with_timeout(Duration::from_millis(1), || {
            loop {
                std::thread::park();
            }
        });
        assert_eq!(hanging.expect_err("it hangs").kind(), io::ErrorKind::TimedOut);
        let own_pid = std::process::id();
        let mut is_done = false;
        let killed = run_with_timeout(LONG, || {
            if std::process::id() != own_pid {
                fork::exit_now(0);
            }
            is_done = true;
            Ok(())
        });
        assert!(killed.is_ok() && is_done);
    }
}
