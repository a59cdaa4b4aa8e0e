//! Processes of one job, identified by a variable in their environment.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Signal};

use super::wait_for_or;

/// The variable that marks the processes of a job; each job has another value.
pub(crate) const MARK: &str = "REMUDA_TEST_MARK";

/// The role of a process, found by its place in the process tree, since its name is set only after
/// the fork. A child of the launcher that has the launcher's command line is a helper and no agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Launcher,
    Agent,
    Shim,
    Worker,
    /// A child of a worker, or an orphan.
    Other,
}

/// A living process of a job.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) pid: Pid,
    pub(crate) role: Role,
    pub(crate) parent: i32,
    pub(crate) name: String,
    /// Its arguments, separated by blanks.
    pub(crate) command: String,
}

impl Process {
    /// Sends a signal; a process that has just exited is no error.
    pub(crate) fn signal(&self, signal: Signal) {
        signal_to(self.pid, signal);
    }

    /// A field of `/proc/PID/status`, in KiB.
    #[track_caller]
    pub(crate) fn memory_kib(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).expect("it lives");
        let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("the field");
        let number = line.trim_start_matches(':').trim().trim_end_matches(" kB");
        number.parse().expect("a number")
    }

    /// The letter of its state: `T` is stopped.
    pub(crate) fn state(&self) -> Option<char> {
        Some(read_stat(self.pid)?.1)
    }
}

/// Sends a signal; a process that has just exited is no error.
pub(crate) fn signal_to(pid: Pid, signal: Signal) {
    let _ = rustix::process::kill_process(pid, signal);
}

/// Calls `action` while a process is stopped: it is stopped again after each SIGCONT.
pub(crate) fn while_stopped<T>(process: &Process, action: impl FnOnce() -> T) -> T {
    const PAUSE: Duration = Duration::from_millis(1);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        process.signal(Signal::STOP);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) && process.state().is_some_and(|s| s != 'Z') {
                process.signal(Signal::STOP);
                std::thread::sleep(PAUSE);
            }
        });
        let result = action();
        is_over.store(true, Ordering::Relaxed);
        result
    })
}

/// Every living process with the marker; `launcher` is the pid of the launcher.
pub(crate) fn marked(mark: &str, launcher: Pid) -> Vec<Process> {
    let mut found: Vec<Process> = pids().filter_map(|pid| read_process(pid, mark)).collect();
    let parents: Vec<(i32, i32)> =
        found.iter().map(|process| (process.pid.as_raw_pid(), process.parent)).collect();
    let of_launcher = found.iter().find(|process| process.pid == launcher);
    let of_launcher = of_launcher.map(|process| process.command.clone());
    for process in &mut found {
        process.role = role(process.pid.as_raw_pid(), launcher.as_raw_pid(), &parents);
        if process.role == Role::Agent && of_launcher.as_ref() == Some(&process.command) {
            process.role = Role::Other;
        }
    }
    found
}

/// The role, from the number of steps up to the launcher.
fn role(mut pid: i32, launcher: i32, parents: &[(i32, i32)]) -> Role {
    let mut steps = 0;
    while pid != launcher {
        let Some((_, parent)) = parents.iter().find(|(child, _)| *child == pid) else {
            return Role::Other;
        };
        pid = *parent;
        steps += 1;
    }
    match steps {
        0 => Role::Launcher,
        1 => Role::Agent,
        2 => Role::Shim,
        3 => Role::Worker,
        _ => Role::Other,
    }
}

/// Waits until no living process has the marker.
#[track_caller]
pub(crate) fn assert_clean(mark: &str, launcher: Pid) {
    let left = || marked(mark, launcher);
    wait_for_or(|| format!("the end of {:#?}", left()), || left().is_empty().then_some(()));
}

pub(crate) fn pids() -> impl Iterator<Item = Pid> {
    let entries = fs::read_dir("/proc").expect("/proc is mounted");
    entries.flatten().filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
}

/// The process, if it is alive and has the marker.
fn read_process(pid: Pid, mark: &str) -> Option<Process> {
    let wanted = format!("{MARK}={mark}");
    let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
    environ.split(|byte| *byte == 0).find(|entry| *entry == wanted.as_bytes())?;
    let (name, state, parent) = read_stat(pid)?;
    let command = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let command = String::from_utf8_lossy(&command).replace('\0', " ");
    // A zombie waits to be reaped by its parent and is not alive.
    (!matches!(state, 'Z' | 'X')).then_some(Process {
        pid,
        role: Role::Other,
        parent,
        name,
        command,
    })
}

/// The name, the state and the parent of a process.
fn read_stat(pid: Pid) -> Option<(String, char, i32)> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    let (open, close) = (stat.find('(')?, stat.rfind(')')?);
    let mut fields = stat[close + 2..].split(' ');
    let state = fields.next()?.chars().next()?;
    Some((stat[open + 1..close].to_owned(), state, fields.next()?.parse().ok()?))
}
