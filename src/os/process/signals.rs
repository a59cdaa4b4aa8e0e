//! Signals: blocking them, receiving them as a descriptor, sending them to child processes.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::io::Errno;
use rustix::process::{Pid, Signal};

/// Whether the process was started with this signal ignored (nohup).
pub fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: a null new action only queries; the kernel fills `action` when it returns 0.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0
            && action.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// Blocks the signals that request a stop, in this process and its children. A batch system
/// sends these signals to all processes at once; the launcher handles them.
pub fn block_requests() {
    block(&REQUESTS);
}

const REQUESTS: [i32; 6] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGUSR1, libc::SIGUSR2];

/// Guard that blocks the signals of [`block_requests`] until it is dropped, so that their handler
/// also cleans up resources that were created meanwhile. Threads that are started meanwhile never
/// receive these signals.
pub struct BlockedRequests(());

/// Sends a signal to this process.
pub fn send_to_self(signal: i32) {
    // SAFETY: the call takes two numbers and touches no memory.
    let _ = unsafe { libc::kill(libc::getpid(), signal) };
}

/// Blocks requests until the returned value is dropped; see [`BlockedRequests`].
pub fn defer_requests() -> BlockedRequests {
    block_requests();
    BlockedRequests(())
}

impl Drop for BlockedRequests {
    fn drop(&mut self) {
        change_mask(libc::SIG_UNBLOCK, &REQUESTS);
    }
}

/// Blocks these signals in this thread. A blocked SIGTTIN makes reading the terminal from the
/// background an error instead of a stop.
pub fn block(signals: &[i32]) {
    change_mask(libc::SIG_BLOCK, signals);
}

fn change_mask(how: i32, signals: &[i32]) {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` initialises the set that the other calls read.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        libc::pthread_sigmask(how, set.as_ptr(), std::ptr::null_mut());
    }
}

/// Makes the kernel keep the exit status of children. A parent that ignores SIGCHLD passes that on
/// through exec, and then no process receives the exit of a child.
pub fn reset_sigchld() {
    // SAFETY: the default disposition runs no code of this process.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
    }
}

/// Makes a write beyond the limit of file sizes (`ulimit -f`) an error instead of the end of this process.
pub fn ignore_file_size_signal() {
    // SAFETY: ignoring a signal runs no code of this process.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Blocks SIGCHLD in this thread and returns a descriptor that is readable when one is pending.
pub fn child_events() -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigemptyset` initialises the set that the other calls read; `signalfd` returns a new
    // descriptor that has no other owner.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        if libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Discards pending events of [`child_events`]; the caller then reaps the children that exited.
pub fn drain(fd: &OwnedFd) {
    let mut buffer = [0u8; 1024];
    while matches!(rustix::io::read(fd, &mut buffer), Ok(n) if n == buffer.len()) {}
}

static STOP: AtomicI32 = AtomicI32::new(0);

extern "C" fn on_stop_signal(signal: i32) {
    STOP.store(signal, Ordering::Relaxed);
}

/// Returns the variable in which a handler stores the number of a received signal, 0 until then. A
/// second signal of the same kind terminates the process as usual.
pub fn stop_signal(signals: &[i32]) -> &'static AtomicI32 {
    for signal in signals {
        // SAFETY: the action is zeroed, which is a valid one; the handler only stores to an atomic,
        // which is async-signal-safe.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_stop_signal as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_RESTART | libc::SA_RESETHAND;
            libc::sigaction(*signal, &raw const action, std::ptr::null_mut());
        }
    }
    &STOP
}

/// Resets every handled signal and the mask to what a new program expects. Signals that were
/// ignored at start stay ignored, as nohup needs; SIGPIPE, which Rust ignores, and SIGXFSZ do not.
///
/// Async-signal-safe: may be called between fork and exec.
pub fn reset_for_exec() {
    // SAFETY: plain system calls with a set that `sigemptyset` initialised.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        libc::signal(libc::SIGXFSZ, libc::SIG_DFL);
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut());
    }
}

/// Returns a signal by number; `None` for numbers that the kernel does not know.
pub fn from_number(number: i32) -> Option<Signal> {
    Signal::from_named_raw(number)
}

/// Signals a process group whose leader is a child that was not yet reaped. A child that has
/// just been forked and leads no group yet is signalled alone. If no process of the group is left,
/// nothing happens.
pub fn send_to_group(leader: Pid, number: i32) {
    if let Some(signal) = from_number(number)
        && rustix::process::kill_process_group(leader, signal) == Err(Errno::SRCH)
    {
        let _ = rustix::process::kill_process(leader, signal);
    }
}

/// Signals the process of a pidfd. If it has exited, nothing happens.
pub fn send_to_pidfd(process: &OwnedFd, number: i32) {
    if let Some(signal) = from_number(number) {
        let _ = rustix::process::pidfd_send_signal(process, signal);
    }
}

/// Signals one child or grandchild of this process. If it has exited, nothing happens.
pub(crate) fn send(pid: Pid, number: i32) {
    if let Some(signal) = from_number(number) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Stops this process until it receives SIGCONT (Ctrl-Z).
pub fn stop_self() {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a child that leads no group")]
    fn child_without_a_group_is_signalled_alone() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("started");
        send_to_group(Pid::from_child(&child), libc::SIGTERM);
        assert_eq!(child.wait().expect("reaped").signal(), Some(libc::SIGTERM));
    }
}
