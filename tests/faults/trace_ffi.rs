//! A tracer that keeps a process from being reaped: the kernel notifies the parent of the exit only
//! when the tracer is gone.

use std::sync::mpsc;
use std::thread::JoinHandle;

use rustix::process::Pid;

/// Traces a process until it is dropped.
pub(crate) struct Tracer {
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Tracer {
    /// Attaches to a process; `None` if the kernel does not permit it.
    pub(crate) fn attach(pid: Pid) -> Option<Self> {
        let (end, ended) = mpsc::channel::<()>();
        let (told, attached) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let no = std::ptr::null_mut::<libc::c_void>();
            // SAFETY: this request reads no memory of this process; tracing ends with this thread at the latest.
            let answer =
                unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid.as_raw_nonzero().get(), no, no) };
            told.send(answer == 0).expect("the attaching thread waits");
            let _ = ended.recv();
        });
        let tracer = Self { end: Some(end), thread: Some(thread) };
        attached.recv().expect("the thread sends its result").then_some(tracer)
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        drop(self.end.take());
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
