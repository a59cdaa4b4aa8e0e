//! A word to a disk that may hang, in a process of its own: who waits for it waits as long as was said and
//! no longer. For the time before there are threads, which may not be there when somebody forks.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;

use super::fork::{self, ForkSide};
use super::{family, fds, signals};

/// One that was killed is buried within this time, or not at all.
const END_LIMIT: Duration = Duration::from_millis(200);

/// What an errand that does not come back looks like.
pub fn hangs() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "its disk does not respond")
}

/// Runs it and waits for so long; one that is not back by then is ended and left alone. Where somebody
/// else ends the process we do it ourselves. No thread may exist yet.
pub fn run(limit: Duration, errand: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let (told, tell) = fds::pipe()?;
    match fork::fork()? {
        ForkSide::Parent(child) => {
            drop(tell);
            match wait(child, &told, limit)? {
                Some(0) => Ok(()),
                Some(number) => Err(io::Error::from_raw_os_error(number)),
                None => errand(),
            }
        }
        ForkSide::Child => {
            let with_us = Some(rustix::process::Signal::KILL);
            let _ = rustix::process::set_parent_process_death_signal(with_us);
            let number = match errand() {
                Ok(()) => 0,
                Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
            };
            let _ = rustix::io::write(&tell, &number.to_ne_bytes());
            fork::exit_now(0)
        }
    }
}

/// The kernel's number for what came of it, 0 if nothing went wrong.
fn wait(child: Pid, told: &OwnedFd, limit: Duration) -> io::Result<Option<i32>> {
    if !has_news(told, limit)? {
        signals::send(child, libc::SIGKILL);
        // The kernel may hold it for longer than it is worth.
        if has_news(told, END_LIMIT)? {
            family::wait_for(child);
        }
        return Err(hangs());
    }
    let mut number = [0; size_of::<i32>()];
    let length = rustix::io::retry_on_intr(|| rustix::io::read(told, &mut number))?;
    family::wait_for(child);
    Ok((length == number.len()).then(|| i32::from_ne_bytes(number)))
}

/// Whether something was said, or never will be.
fn has_news(told: &OwnedFd, limit: Duration) -> io::Result<bool> {
    let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
    let mut asked = [PollFd::new(told, PollFlags::IN)];
    Ok(0 < rustix::io::retry_on_intr(|| poll(&mut asked, Some(&limit)))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn it_comes_back_with_what_the_kernel_said() {
        assert!(run(LONG, || Ok(())).is_ok());
        let refused = run(LONG, || Err(io::Error::from_raw_os_error(libc::ENOSPC)));
        assert_eq!(refused.expect_err("refused").raw_os_error(), Some(libc::ENOSPC));
        let odd = run(LONG, || Err(io::Error::other("odd")));
        assert_eq!(odd.expect_err("refused").raw_os_error(), Some(libc::EIO));
    }

    #[test]
    fn one_that_hangs_is_ended_and_one_that_is_killed_is_run_by_ourselves() {
        let hung = run(Duration::from_millis(1), || {
            loop {
                std::thread::park();
            }
        });
        assert_eq!(hung.expect_err("it hangs").kind(), io::ErrorKind::TimedOut);
        let ours = std::process::id();
        let mut is_done = false;
        let killed = run(LONG, || {
            if std::process::id() != ours {
                fork::exit_now(0);
            }
            is_done = true;
            Ok(())
        });
        assert!(killed.is_ok() && is_done);
    }
}
