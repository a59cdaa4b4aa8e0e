//! A tracer, which keeps what it traces from being buried: the kernel tells the parent of a dead
//! process only when whoever traces it has gone.

use std::sync::mpsc;
use std::thread::JoinHandle;

use rustix::process::Pid;

/// Traces a process until it is dropped.
pub(crate) struct Tracer {
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Tracer {
    /// `None` where the kernel does not let us.
    pub(crate) fn attach(pid: Pid) -> Option<Self> {
        let (end, ended) = mpsc::channel::<()>();
        let (told, attached) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let no = std::ptr::null_mut::<libc::c_void>();
            // SAFETY: this request reads no memory of ours; it ends with this thread at the latest.
            let answer =
                unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid.as_raw_nonzero().get(), no, no) };
            told.send(answer == 0).expect("whoever attaches waits");
            let _ = ended.recv();
        });
        let tracer = Self { end: Some(end), thread: Some(thread) };
        attached.recv().expect("the thread tells").then_some(tracer)
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        drop(self.end.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
