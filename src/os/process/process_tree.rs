//! The processes below this one: adopting, finding, killing and reaping them.
//!
//! A subreaper inherits every orphan below it. Walking its children until the kernel returns
//! `ECHILD` therefore also finds processes that forked twice and left their session. No process is
//! found by name.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, WaitOptions, WaitStatus, getpid};

use crate::base::{WorkerExit, clock};
use crate::os::process::signals;

/// Time limit for the end of killed processes. After SIGKILL the kernel needs a moment; a process
/// in uninterruptible sleep may need for ever. It is shorter than the time after which the launcher
/// gives up, so that the launcher receives the list of processes that could not be killed.
pub const KILL_LIMIT: Duration = Duration::from_secs(8);

/// Makes this process adopt the orphans below it.
pub fn become_subreaper() {
    // Linux 3.4 and later; without it teardown still signals process groups.
    let _ = rustix::process::set_child_subreaper(Some(getpid()));
}

/// Sets the name of this process in listings (at most 15 bytes).
pub fn set_name(name: &std::ffi::CStr) {
    let _ = rustix::thread::set_name(name);
}

/// Returns the direct children of a process; empty if it has exited.
pub fn children_of(pid: Pid) -> Vec<Pid> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let mut children = Vec::new();
    for task in tasks.flatten() {
        match fs::read_to_string(task.path().join("children")) {
            Ok(list) => children.extend(list.split_ascii_whitespace().filter_map(parse_pid)),
            // A kernel without this file (CONFIG_PROC_CHILDREN): check the parent of every process.
            Err(_) => return children_by_scan(pid),
        }
    }
    children
}

fn children_by_scan(parent: Pid) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries.flatten().filter_map(|entry| parse_pid(entry.file_name().to_str()?));
    pids.filter(|pid| Stat::of(*pid).is_some_and(|stat| stat.parent == parent.as_raw_pid()))
        .collect()
}

fn parse_pid(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

/// A descendant of this process, held by a pidfd so that its pid cannot be reused for another one.
#[derive(Debug)]
pub struct ProcessRef {
    pid: Pid,
    /// `None` on kernels without such descriptors (before Linux 5.3).
    fd: Option<OwnedFd>,
}

impl ProcessRef {
    /// Opens a child of `parent`; `None` if it is not, or no longer, its child.
    fn child(pid: Pid, parent: Pid) -> Option<Self> {
        let fd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => Some(fd),
            Err(Errno::NOSYS | Errno::PERM) => None,
            Err(_) => return None,
        };
        // Checked while it is held: the pid may have been reused before.
        (Stat::of(pid)?.parent == parent.as_raw_pid()).then_some(Self { pid, fd })
    }

    /// Returns the pid.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Signals the process. If it has exited, nothing happens.
    pub fn signal(&self, number: i32) {
        match &self.fd {
            Some(fd) => signals::send_to_pidfd(fd, number),
            None => signals::send(self.pid, number),
        }
    }
}

/// Returns the process that listens on a socket of this user, if a signal has stopped it.
pub fn stopped_listener(socket: &Path) -> Option<ProcessRef> {
    let listener = || {
        let peer = rustix::net::sockopt::socket_peercred(UnixStream::connect(socket).ok()?).ok()?;
        is_stopped(peer.pid).then_some(peer.pid)
    };
    let pid = listener()?;
    let fd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
    // Checked while it is held: the pid may have been reused before.
    (listener()? == pid).then_some(ProcessRef { pid, fd: Some(fd) })
}

/// Opens the direct children of a process.
pub fn hold_children(parent: Pid) -> Vec<ProcessRef> {
    children_of(parent).into_iter().filter_map(|pid| ProcessRef::child(pid, parent)).collect()
}

/// Opens all descendants of these processes and appends them, deepest last.
pub fn hold_descendants(of: &mut Vec<ProcessRef>) {
    let mut next = 0;
    while let Some(parent) = of.get(next).map(ProcessRef::pid) {
        of.extend(hold_children(parent));
        next += 1;
    }
}

/// The fields of `/proc/PID/stat` that remuda uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Name that the process has or gave itself, at most 15 bytes. May contain any character.
    pub name: String,
    /// One letter; `Z` and `X` have exited, `D` is in uninterruptible sleep.
    pub state: char,
    /// Pid of the parent.
    pub parent: i32,
    /// Session of the process.
    pub session: i32,
}

impl Stat {
    /// Reads the file; `None` if the process has exited.
    pub fn of(pid: Pid) -> Option<Self> {
        // A process may give itself a name that is not UTF-8.
        parse_stat(&String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
    }

    /// Whether the process is asleep or stopped: it has no work until an event occurs.
    pub fn is_waiting(&self) -> bool {
        self.state == 'S' || self.is_suspended()
    }

    /// Whether it is stopped, by a signal (`T`) or a debugger (`t`).
    pub fn is_suspended(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    /// Whether it is stopped by a signal. A debugger also stops running processes for moments.
    pub fn is_stopped(&self) -> bool {
        self.state == 'T'
    }

    /// Whether it has exited, though it may not have been reaped yet.
    pub fn has_exited(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// Parses the line. The name is between the first `(` and the last `)`, and may contain both.
fn parse_stat(text: &str) -> Option<Stat> {
    let (open, close) = (text.find('(')?, text.rfind(')')?);
    let mut fields = text.get(close + 2..)?.split(' ');
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    Some(Stat { name: text.get(open + 1..close)?.to_owned(), state, parent, session })
}

/// Value of a variable in the environment with which a process was started; `None` when it is not
/// set, or this user may not read it.
pub fn env_var_of(pid: Pid, name: &str) -> Option<String> {
    let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let prefix = [name.as_bytes(), b"="].concat();
    let value = environ.split(|byte| *byte == 0).find_map(|entry| entry.strip_prefix(&*prefix))?;
    String::from_utf8(value.to_vec()).ok()
}

/// Result of waiting for any child without blocking.
#[derive(Debug, PartialEq, Eq)]
pub enum Reaped {
    /// A child exited and was reaped.
    Exited(Pid, WorkerExit),
    /// There are children, and none has exited.
    NoneExited,
    /// There are no children at all.
    NoChildren,
}

/// Reaps one child that has exited, if any.
pub fn reap() -> Reaped {
    match rustix::io::retry_on_intr(|| rustix::process::wait(WaitOptions::NOHANG)) {
        Ok(Some((pid, status))) => Reaped::Exited(pid, worker_exit(status)),
        Ok(None) => Reaped::NoneExited,
        Err(_) => Reaped::NoChildren,
    }
}

fn worker_exit(status: WaitStatus) -> WorkerExit {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => WorkerExit::Code(code as u8),
        (None, Some(signal)) => {
            WorkerExit::Signal { signal, core: libc::WCOREDUMP(status.as_raw()) }
        }
        (None, None) => unreachable!("wait without WUNTRACED reports only ends"),
    }
}

/// Clean-up of descendants: kills and reaps them, except excluded ones, in one scan per call, so
/// that a process with its own event loop does not block.
pub struct Reaper {
    /// Whether a child is left alone, together with its descendants.
    excluded: Box<dyn Fn(Pid) -> bool + Send>,
    deadline: Instant,
}

impl Reaper {
    /// Time between two scans: a killed process ends after a moment, once its memory is freed.
    pub const PAUSE: Duration = Duration::from_millis(1);

    /// Creates a clean-up that ends after `limit`.
    pub fn new(limit: Duration, excluded: impl Fn(Pid) -> bool + Send + 'static) -> Self {
        Self { excluded: Box::new(excluded), deadline: clock::now() + limit }
    }

    /// Kills the descendants, reaps those that have exited and calls `on_end` with the exit of each
    /// child. When none is left or the limit has passed, returns those that may still exist.
    pub fn scan(&self, on_end: impl FnMut(Pid, WorkerExit)) -> Option<Vec<Pid>> {
        for process in self.remaining() {
            process.signal(libc::SIGKILL);
        }
        reap_except(&self.excluded, on_end);
        let left: Vec<Pid> = self.remaining().iter().map(ProcessRef::pid).collect();
        (left.is_empty() || self.deadline < clock::now()).then_some(left)
    }

    fn remaining(&self) -> Vec<ProcessRef> {
        let mut left = hold_children(getpid());
        left.retain(|child| !(self.excluded)(child.pid));
        hold_descendants(&mut left);
        left
    }
}

/// Kills all descendants until none is left or `limit` has passed. Calls `on_end` with the exit of
/// each child; returns those that may still exist.
pub fn kill_descendants(limit: Duration, mut on_end: impl FnMut(Pid, WorkerExit)) -> Vec<Pid> {
    let reaper = Reaper::new(limit, |_| false);
    loop {
        if let Some(left) = reaper.scan(&mut on_end) {
            return left;
        }
        std::thread::sleep(Reaper::PAUSE);
    }
}

/// Reaps every child that has exited except the excluded ones, which their owner reaps.
pub fn reap_except(excluded: impl Fn(Pid) -> bool, mut on_end: impl FnMut(Pid, WorkerExit)) {
    for pid in children_of(getpid()) {
        if !excluded(pid)
            && let Some(exit) = reap_one(pid)
        {
            on_end(pid, exit);
        }
    }
}

/// Kills the parent of this process and the other descendants of that parent, if `parent` still is the
/// parent.
pub fn kill_parent(parent: Pid) {
    let mut others = hold_children(parent);
    others.retain(|child| child.pid != getpid());
    hold_descendants(&mut others);
    if rustix::process::getppid() != Some(parent) {
        return;
    }
    signals::send(parent, libc::SIGKILL);
    for process in others {
        process.signal(libc::SIGKILL);
    }
}

/// Result of [`wait_or_kill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildEnd {
    /// It exited by itself.
    Exited,
    /// It was stopped, or took too long, and was killed.
    Killed,
}

/// Signals a child that has not been reaped. If it has exited, nothing happens.
pub fn signal_child(child: Pid, number: i32) {
    signals::send(child, number);
}

/// Waits for a child that is about to exit. A child that is stopped by a signal, or that takes
/// longer than `limit`, is killed. Never blocks for longer than `limit` and `KILLED_LIMIT`.
pub fn wait_or_kill(child: Pid, limit: Duration) -> ChildEnd {
    if wait_until(child, limit, || !is_stopped(child)) {
        return ChildEnd::Exited;
    }
    signals::send(child, libc::SIGKILL);
    wait_until(child, KILLED_LIMIT, || true);
    ChildEnd::Killed
}

/// Returns whether a signal has stopped a process.
pub fn is_stopped(pid: Pid) -> bool {
    Stat::of(pid).is_some_and(|stat| stat.is_stopped())
}

/// Time limit for the end of a killed child. After it, the child is in uninterruptible sleep and is
/// left to the kernel.
const KILLED_LIMIT: Duration = Duration::from_secs(1);

/// Waits for the exit of the child as long as `may_exit` returns true; false if it has not exited
/// within `limit`.
fn wait_until(child: Pid, limit: Duration, may_exit: impl Fn() -> bool) -> bool {
    const PAUSE_MAX: Duration = Duration::from_millis(10);
    let deadline = clock::now() + limit;
    let mut pause = Duration::from_micros(100);
    loop {
        match rustix::process::waitpid(Some(child), WaitOptions::NOHANG) {
            Ok(None) | Err(Errno::INTR) => {}
            // An error: another part of this process has reaped it.
            Ok(Some(_)) | Err(_) => return true,
        }
        if deadline < clock::now() || !may_exit() {
            return false;
        }
        std::thread::sleep(pause);
        pause = PAUSE_MAX.min(pause * 2);
    }
}

/// Waits until this child exits, and reaps it.
pub fn wait_for(pid: Pid) {
    let _ = rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(pid), WaitOptions::empty()));
}

/// Reaps this child if it has exited.
pub fn reap_one(pid: Pid) -> Option<WorkerExit> {
    match reap_child(pid) {
        Reaped::Exited(_, exit) => Some(exit),
        Reaped::NoneExited | Reaped::NoChildren => None,
    }
}

/// Reaps this child if it has exited; [`Reaped::NoChildren`] if it was reaped before.
pub fn reap_child(pid: Pid) -> Reaped {
    let wait = || rustix::process::waitpid(Some(pid), WaitOptions::NOHANG);
    match rustix::io::retry_on_intr(wait) {
        Ok(Some((pid, status))) => Reaped::Exited(pid, worker_exit(status)),
        Ok(None) => Reaped::NoneExited,
        Err(_) => Reaped::NoChildren,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_name_may_contain_brackets_and_blanks() {
        let stat = parse_stat("12 (a) (b c) S 1 12 7 0 -1 4194560").expect("well formed");
        assert_eq!(stat, Stat { name: "a) (b c".to_owned(), state: 'S', parent: 1, session: 7 });
    }

    #[test]
    fn process_ref_accepts_only_children() {
        let parent = rustix::process::getppid().map_or(1, Pid::as_raw_pid);
        let parent = Pid::from_raw(parent).expect("not 0");
        assert!(ProcessRef::child(getpid(), parent).is_some());
        assert!(ProcessRef::child(getpid(), getpid()).is_none(), "no process is its own child");
        assert!(ProcessRef::child(parent, getpid()).is_none());
    }

    #[test]
    fn stat_reads_this_process() {
        let stat = Stat::of(getpid()).expect("this process exists");
        assert_eq!(stat.parent, rustix::process::getppid().map_or(0, Pid::as_raw_pid));
    }
}
