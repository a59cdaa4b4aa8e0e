//! Who runs the engine: the caller of a blocking operation, or the communication thread, never both.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::runtime::engine::Engine;
use crate::runtime::error::CollectiveError;
use crate::runtime::flag::Spin;

/// The engine of a group and its communication thread, which begins with the first started
/// operation.
pub(crate) struct Runner {
    /// Ends before the engine that it uses.
    comm: OnceLock<Comm>,
    core: Arc<Core>,
}

struct Core {
    engine: Mutex<Engine>,
    /// Operations that were started and are not over; blocking ones wait for them, so that all
    /// ranks see one order.
    pending: Mutex<usize>,
    idle: Condvar,
}

/// Started operations that can wait for their turn; starting one more waits for a place.
const STARTED_MAX: usize = 1024;

type Outcome = Result<(), CollectiveError>;
type Job = Box<dyn FnOnce(&mut Engine) + Send>;

/// The thread that runs started operations, in order.
struct Comm {
    jobs: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Runner {
    pub(crate) fn new(engine: Engine) -> Self {
        let core =
            Core { engine: Mutex::new(engine), pending: Mutex::new(0), idle: Condvar::new() };
        Self { comm: OnceLock::new(), core: Arc::new(core) }
    }

    /// Runs an operation once everything that was started is over.
    pub(crate) fn run<V>(&self, operation: impl FnOnce(&mut Engine) -> V) -> V {
        self.core.wait_idle();
        operation(&mut self.core.lock())
    }

    /// Starts an operation, and tells `watch` when it begins and when it has succeeded.
    pub(crate) fn start(
        &self,
        operation: impl FnOnce(&mut Engine) -> Outcome + Send + 'static,
        watch: impl Fn(Moment) + Send + 'static,
    ) -> io::Result<Pending> {
        let comm = self.comm()?;
        let (done, outcome) = mpsc::channel();
        let job: Job = Box::new(move |engine| {
            watch(Moment::Started);
            let ended = operation(engine);
            if ended.is_ok() {
                watch(Moment::Done);
            }
            // The receiver may be gone: its owner dropped the handle and does not care.
            let _ = done.send(ended);
        });
        *self.core.pending.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        let jobs = comm.jobs.as_ref().expect("jobs are closed only by the last drop");
        jobs.send(job).expect("the communication thread runs until jobs are closed");
        Ok(Pending { outcome, ended: None })
    }

    /// Returns the communication thread, which is started at its first use.
    fn comm(&self) -> io::Result<&Comm> {
        if let Some(comm) = self.comm.get() {
            return Ok(comm);
        }
        let comm = Comm::start(self.core.clone())?;
        // Who comes second drops a thread that has nothing to do.
        Ok(self.comm.get_or_init(|| comm))
    }

    /// The engine, as soon as the operation under way is over.
    pub(crate) fn interrupt(&self, action: impl FnOnce(&mut Engine)) {
        action(&mut self.core.lock());
    }
}

impl Core {
    fn lock(&self) -> MutexGuard<'_, Engine> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_idle(&self) {
        let pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        // Every started operation has a deadline of its own, so this ends.
        drop(self.idle.wait_while(pending, |pending| 0 < *pending));
    }

    fn finish_one(&self) {
        *self.pending.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.idle.notify_all();
    }
}

impl Comm {
    fn start(core: Arc<Core>) -> io::Result<Self> {
        let (jobs, queue) = mpsc::sync_channel::<Job>(STARTED_MAX);
        let body = move || {
            for job in queue {
                let mut engine = core.lock();
                // The caller computes meanwhile: it should have the processor.
                let patient = std::mem::replace(&mut engine.spin, Spin::BRIEF);
                job(&mut engine);
                engine.spin = patient;
                drop(engine);
                core.finish_one();
            }
        };
        let thread = std::thread::Builder::new().name("remuda-comm".to_owned()).spawn(body)?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // The waiting caller has already received a panic of that thread.
            let _ = thread.join();
        }
    }
}

/// What the communication thread tells about an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    Started,
    Done,
}

/// The end of a started operation, to come.
pub(crate) struct Pending {
    outcome: Receiver<Outcome>,
    ended: Option<Outcome>,
}

impl Pending {
    /// An operation that could not be started.
    pub(crate) fn failed(error: CollectiveError) -> Self {
        let (done, outcome) = mpsc::channel();
        // The receiver is here.
        let _ = done.send(Err(error));
        Self { outcome, ended: None }
    }

    pub(crate) fn wait(mut self) -> Outcome {
        match self.ended.take() {
            Some(ended) => ended,
            None => self.outcome.recv().expect("the communication thread answers every job"),
        }
    }

    /// Takes the outcome of an operation that has ended.
    pub(crate) fn take(&mut self) -> Option<Outcome> {
        self.ended.take()
    }

    /// Waits for the end, unless the outcome was taken.
    pub(crate) fn poll_ended(&mut self) {
        if self.ended.is_none() {
            // Nothing comes any more where the outcome was taken.
            self.ended = self.outcome.recv().ok();
        }
    }

    /// Whether it has ended, after waiting for at most `limit`.
    pub(crate) fn poll(&mut self, limit: Duration) -> bool {
        if self.ended.is_none() {
            self.ended = match self.outcome.recv_timeout(limit) {
                Ok(outcome) => Some(outcome),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("the communication thread answers every job")
                }
            };
        }
        self.ended.is_some()
    }
}
