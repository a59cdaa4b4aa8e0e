//! Starting many programs at once: children that share the memory of this process until exec.
//!
//! After a `fork`, the child has a copy of the page tables, and each page that the parent writes is copied, too.
//! For eight workers that took a tenth of the processor time of a short job. Waiting for the exec of each child in
//! turn, as `posix_spawn` does, takes four times as long on a busy machine. So a child has a stack of its own
//! here, in memory that [`StartingChildren`] keeps until all children have executed or exited. Code of a child is
//! async-signal-safe: no allocation, no lock.

use std::ffi::{CString, NulError, c_int, c_void};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::NonNull;

use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::Pid;

use crate::os::files::fds;
use crate::os::process::fork::exit_now;
use crate::os::process::signals;

/// Address space for the stack of a child, which uses a page or two of it.
const STACK_BYTES: usize = 64 * 1024;

/// Strings in the form that execve needs, created before the fork.
pub struct CStrings {
    _owned: Vec<CString>,
    pointers: Vec<*const libc::c_char>,
}

impl CStrings {
    /// Creates them; fails when a string contains a NUL byte.
    pub fn new(strings: impl IntoIterator<Item = Vec<u8>>) -> Result<Self, NulError> {
        let owned = strings.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>()?;
        let mut pointers: Vec<_> = owned.iter().map(|string| string.as_ptr()).collect();
        pointers.push(std::ptr::null());
        Ok(Self { _owned: owned, pointers })
    }
}

/// What a child needs to execute its program, except for descriptors.
pub struct Exec {
    /// Path of the file; PATH has been searched.
    pub path: CString,
    /// `argv`, with the program's own name first.
    pub argv: CStrings,
    /// Its complete environment, as `NAME=value`.
    pub envp: CStrings,
    /// Working directory.
    pub cwd: CString,
    /// Processors and memory to which it is bound.
    #[cfg(feature = "cli")]
    pub binding: Option<crate::os::cpu::affinity::Binding>,
}

/// Descriptors of a child.
pub struct ChildFds {
    /// Those that become 0, 1, 2.
    pub stdio: [OwnedFd; 3],
    /// Those that stay open under their own numbers.
    pub inherited: Vec<OwnedFd>,
}

impl Exec {
    /// Executes the program; returns the error number of the kernel. libc would write the number to `errno`,
    /// which the child shares with its parent here.
    fn replace_process(&self) -> i32 {
        let (path, argv, envp) =
            (self.path.as_ptr(), self.argv.pointers.as_ptr(), self.envp.pointers.as_ptr());
        let status: isize;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: path and both arrays are NUL-terminated and live in `self`; the kernel changes only the
        // registers that are named.
        unsafe {
            std::arch::asm!(
                "syscall",
                inlateout("rax") libc::SYS_execve as isize => status,
                in("rdi") path, in("rsi") argv, in("rdx") envp,
                lateout("rcx") _, lateout("r11") _,
                options(nostack),
            );
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        unsafe {
            std::arch::asm!(
                "svc 0",
                in("x8") libc::SYS_execve as isize,
                inlateout("x0") path => status, in("x1") argv, in("x2") envp,
                options(nostack),
            );
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        // SAFETY: path and both arrays are NUL-terminated and live in `self`.
        unsafe {
            libc::execve(path, argv, envp);
            status = -(io::Error::last_os_error().raw_os_error().unwrap_or(0) as isize);
        }
        -status as i32
    }
}

/// Children that were started and may not have executed their programs yet.
pub struct StartingChildren {
    /// Reports of children that failed before exec. It ends once all have executed or exited.
    failures: OwnedFd,
    /// The other end, until all children are started.
    report: Option<OwnedFd>,
    stacks: Stacks,
    /// What each child reads. There is room for all from the beginning, so that none moves.
    starts: Vec<Start>,
}

/// What a child has received.
struct Start {
    exec: Exec,
    stdio: [RawFd; 3],
    inherited: Vec<RawFd>,
    report: RawFd,
    tag: u32,
    parent: Pid,
}

/// The step at which a child failed before its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecStage {
    /// A descriptor, the session or the parent-death signal could not be set up.
    Setup,
    /// The working directory could not be entered.
    Chdir,
    /// The program could not be executed.
    Exec,
}

/// What the report of failed children has.
#[derive(Debug, PartialEq, Eq)]
pub enum ExecReport {
    /// A child failed.
    Failed(ExecFailure),
    /// Nothing yet.
    Pending,
    /// All children have executed their programs or exited.
    Ended,
}

impl StartingChildren {
    /// Provides for this number of children.
    pub fn new(children: usize) -> io::Result<Self> {
        let (failures, report) = fds::pipe()?;
        fds::set_nonblocking(&failures)?;
        let stacks = Stacks::new(children)?;
        Ok(Self { failures, report: Some(report), stacks, starts: Vec::with_capacity(children) })
    }

    /// Starts a program as leader of its own session and process group, killed when this process exits. On
    /// failure the child reports `(tag, stage, errno)` and exits with 127.
    pub fn spawn(&mut self, exec: Exec, fds: &ChildFds, tag: u32) -> io::Result<Pid> {
        let number = self.starts.len();
        assert!(number < self.starts.capacity(), "there is room for each child");
        let report = self.report.as_ref().expect("not all children are started");
        self.starts.push(Start {
            exec,
            stdio: fds.stdio.each_ref().map(AsRawFd::as_raw_fd),
            inherited: fds.inherited.iter().map(AsRawFd::as_raw_fd).collect(),
            report: report.as_raw_fd(),
            tag,
            parent: rustix::process::getpid(),
        });
        let argument = (&raw const self.starts[number]).cast_mut().cast();
        let flags = libc::CLONE_VM | libc::SIGCHLD;
        // SAFETY: the stack is unused, and both it and the argument stay until the child has executed or exited.
        // The child copies the descriptors, has its own signal actions, and only reads memory of this process.
        match unsafe { libc::clone(run_child, self.stacks.top(number), flags, argument) } {
            pid if 0 < pid => Ok(Pid::from_raw(pid).expect("a pid is positive")),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// All children are started: the report ends with the last of them.
    pub fn all_started(&mut self) {
        self.report = None;
    }

    /// Reads the report.
    pub fn read(&mut self) -> ExecReport {
        let mut record = [0; ExecFailure::BYTES];
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.failures, &mut record)) {
            Ok(ExecFailure::BYTES) => ExecReport::Failed(ExecFailure::decode(record)),
            Err(rustix::io::Errno::AGAIN) => ExecReport::Pending,
            Ok(0) => {
                self.release();
                ExecReport::Ended
            }
            // It cannot be read to its end: children may still need the memory.
            _ => ExecReport::Ended,
        }
    }

    /// Releases the memory of the children: the report has ended, and the kernel closes its ends after a child
    /// has left this memory.
    fn release(&mut self) {
        self.starts.clear();
        self.stacks.unmap();
    }
}

impl Drop for StartingChildren {
    /// Children may still need the memory; this happens once, when the process is about to exit.
    fn drop(&mut self) {
        std::mem::take(&mut self.starts).leak();
    }
}

impl AsFd for StartingChildren {
    /// Readable when [`StartingChildren::read`] has something.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.failures.as_fd()
    }
}

/// Stacks of the children, one after the other.
struct Stacks {
    base: NonNull<u8>,
    bytes: usize,
}

impl Stacks {
    fn new(count: usize) -> io::Result<Self> {
        let bytes = count.max(1) * STACK_BYTES;
        let (access, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a null hint lets the kernel choose unused addresses, so no mapping is replaced.
        let base =
            unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, access, flags) }?;
        let base =
            NonNull::new(base.cast()).expect("mmap without a hint never returns address zero");
        Ok(Self { base, bytes })
    }

    /// The end of a stack, from which it grows downwards.
    fn top(&self, number: usize) -> *mut c_void {
        let end = (number + 1) * STACK_BYTES;
        assert!(end <= self.bytes, "there is a stack for each child");
        self.base.as_ptr().wrapping_add(end).cast()
    }

    fn unmap(&mut self) {
        // SAFETY: the range was mapped by `new`, and no child uses it any more. Its length becomes 0, with which
        // the kernel unmaps nothing.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
        self.bytes = 0;
    }
}

/// First function of a child.
extern "C" fn run_child(start: *mut c_void) -> c_int {
    // SAFETY: `spawn` passes a start that stays until this process has executed or exited.
    let start = unsafe { &*start.cast::<Start>() };
    let (stage, errno) = start.set_up_and_exec();
    let record = ExecFailure { tag: start.tag, stage, errno }.encode();
    // SAFETY: the descriptor is open in this process, which closes it with its exit.
    let report = unsafe { BorrowedFd::borrow_raw(start.report) };
    let _ = rustix::io::write(report, &record);
    exit_now(127)
}

impl Start {
    fn set_up_and_exec(&self) -> (ExecStage, i32) {
        if let Err(error) = self.set_up() {
            return (ExecStage::Setup, error.raw_os_error().unwrap_or(0));
        }
        if let Err(errno) = rustix::process::chdir(self.exec.cwd.as_c_str()) {
            return (ExecStage::Chdir, errno.raw_os_error());
        }
        (ExecStage::Exec, self.exec.replace_process())
    }

    fn set_up(&self) -> io::Result<()> {
        rustix::process::setsid()?;
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        if rustix::process::getppid() != Some(self.parent) {
            // The parent exited before the signal was armed.
            exit_now(127);
        }
        signals::reset_for_exec();
        fds::restore_limit();
        for (target, fd) in self.stdio.iter().enumerate() {
            duplicate_to(*fd, target as RawFd)?;
        }
        #[cfg(feature = "cli")]
        if let Some(binding) = &self.exec.binding {
            binding.apply()?;
        }
        for fd in &self.inherited {
            // SAFETY: the descriptor is open in this process until exec.
            fds::keep_on_exec(unsafe { BorrowedFd::borrow_raw(*fd) })?;
        }
        Ok(())
    }
}

fn duplicate_to(source: RawFd, target: RawFd) -> io::Result<()> {
    debug_assert!(2 < source, "standard descriptors are filled before anything is opened");
    // SAFETY: both numbers are open or about to be replaced; no owner of 0, 1, 2 exists in a child.
    if unsafe { libc::dup2(source, target) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// One record of the report of children that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecFailure {
    /// The child, as numbered by the caller of [`StartingChildren::spawn`].
    pub tag: u32,
    /// The step that failed.
    pub stage: ExecStage,
    /// Error number of the kernel.
    pub errno: i32,
}

impl ExecFailure {
    /// Bytes of one record; written atomically to a pipe.
    pub const BYTES: usize = 12;

    fn encode(self) -> [u8; Self::BYTES] {
        let stage = match self.stage {
            ExecStage::Setup => 0u32,
            ExecStage::Chdir => 1,
            ExecStage::Exec => 2,
        };
        let mut record = [0; Self::BYTES];
        record[..4].copy_from_slice(&self.tag.to_le_bytes());
        record[4..8].copy_from_slice(&stage.to_le_bytes());
        record[8..].copy_from_slice(&self.errno.to_le_bytes());
        record
    }

    /// Decodes a record.
    pub fn decode(record: [u8; Self::BYTES]) -> Self {
        let word =
            |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().expect("four bytes"));
        let stage = match word(4) {
            0 => ExecStage::Setup,
            1 => ExecStage::Chdir,
            _ => ExecStage::Exec,
        };
        Self { tag: word(0), stage, errno: word(8) as i32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::process::process_tree;

    fn exec(path: &str, argv: &[&str]) -> Exec {
        let strings = |strings: &[&str]| {
            let owned = strings.iter().map(|text| text.as_bytes().to_vec());
            CStrings::new(owned.collect::<Vec<_>>()).expect("no NUL")
        };
        Exec {
            path: CString::new(path).expect("no NUL"),
            argv: strings(argv),
            envp: strings(&["A=1"]),
            cwd: CString::new("/").expect("no NUL"),
            #[cfg(feature = "cli")]
            binding: None,
        }
    }

    /// Descriptors of a child whose output is a pipe; the other end of it.
    fn child_fds() -> (ChildFds, OwnedFd) {
        let (read, write) = fds::pipe().expect("a pipe");
        let stdio = [fds::null().expect("/dev/null"), write, fds::null().expect("/dev/null")];
        (ChildFds { stdio, inherited: Vec::new() }, read)
    }

    fn report(children: &mut StartingChildren) -> Vec<ExecFailure> {
        let mut found = Vec::new();
        loop {
            match children.read() {
                ExecReport::Failed(failure) => found.push(failure),
                ExecReport::Pending => std::thread::yield_now(),
                ExecReport::Ended => return found,
            }
        }
    }

    #[test]
    fn children_run_at_once_with_their_own_arguments() {
        let mut children = StartingChildren::new(20).expect("memory");
        let mut started = Vec::new();
        for number in 0..20 {
            let (own, output) = child_fds();
            let exec = exec("/bin/sh", &["sh", "-c", "echo $0 $A", &number.to_string()]);
            started.push((children.spawn(exec, &own, number).expect("a child"), output));
        }
        children.all_started();
        assert_eq!(report(&mut children), []);
        for (number, (pid, output)) in started.into_iter().enumerate() {
            let text = std::io::read_to_string(std::fs::File::from(output)).expect("its output");
            assert_eq!(text, format!("{number} 1\n"));
            process_tree::wait_for(pid);
        }
    }

    #[test]
    fn children_that_cannot_execute_report_why() {
        let mut children = StartingChildren::new(3).expect("memory");
        let mut pids = Vec::new();
        let mut spawn = |tag, exec| {
            pids.push(children.spawn(exec, &child_fds().0, tag).expect("a child"));
        };
        spawn(7, exec("/bin/true", &["true"]));
        spawn(8, exec("/does/not/exist", &["x"]));
        spawn(
            9,
            Exec {
                cwd: CString::new("/dev/null").expect("no NUL"),
                ..exec("/bin/true", &["true"])
            },
        );
        children.all_started();
        let mut failures = report(&mut children);
        failures.sort_by_key(|failure| failure.tag);
        let failure = |tag, stage, errno| ExecFailure { tag, stage, errno };
        assert_eq!(
            failures,
            [
                failure(8, ExecStage::Exec, libc::ENOENT),
                failure(9, ExecStage::Chdir, libc::ENOTDIR)
            ]
        );
        pids.into_iter().for_each(process_tree::wait_for);
    }
}
