//! Executor of the backend: either the caller of a blocking operation or the communication thread
//! runs it, never both.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::base::lock;
use crate::runtime::comm::core::error::CollectiveError;
use crate::runtime::comm::core::pending::{Outcome, PendingOperation};
use crate::runtime::comm::host::backend::HostBackend;
use crate::runtime::comm::host::messages::{MessageBatch, StartedMessage};

/// Backend of a group and its communication thread, which is created with the first started
/// operation.
pub(crate) struct Executor {
    /// Communication thread; it ends before the backend that it uses.
    comm: OnceLock<CommThread>,
    core: Arc<ExecutorCore>,
    /// The messages that were started last, if no other operation was started since.
    batch: Mutex<Option<Arc<MessageBatch>>>,
}

/// State that the callers and the communication thread share.
struct ExecutorCore {
    backend: Mutex<HostBackend>,
    /// Number of started operations that are not complete; blocking ones wait for them, so that all
    /// ranks have the same order.
    pending: Mutex<usize>,
    idle: Condvar,
}

/// Capacity of the queue of started operations; if it is full, starting another one blocks.
const QUEUE_MAX: usize = 1024;

/// A started operation, until it runs.
type QueuedOperation = Box<dyn FnOnce(&mut HostBackend) + Send>;

/// Thread that runs started operations, in order.
struct CommThread {
    /// Closed by the drop, at which the thread ends.
    queue: Option<SyncSender<QueuedOperation>>,
    thread: Option<JoinHandle<()>>,
}

impl Executor {
    pub(crate) fn new(backend: HostBackend) -> Self {
        let core = ExecutorCore {
            backend: Mutex::new(backend),
            pending: Mutex::new(0),
            idle: Condvar::new(),
        };
        Self { comm: OnceLock::new(), core: Arc::new(core), batch: Mutex::new(None) }
    }

    /// Runs an operation after all started ones are complete.
    pub(crate) fn run<V>(&self, operation: impl FnOnce(&mut HostBackend) -> V) -> V {
        self.core.wait_idle();
        operation(&mut self.core.lock())
    }

    /// Starts an operation; `on_event` is called when it begins and when it has succeeded. The outcome is
    /// `if_panicked` if either of them panics, which is code of the caller.
    pub(crate) fn start(
        &self,
        operation: impl FnOnce(&mut HostBackend) -> Outcome + Send + 'static,
        on_event: impl Fn(OperationEvent) + Send + 'static,
        if_panicked: CollectiveError,
    ) -> io::Result<PendingOutcome> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let queued: QueuedOperation = Box::new(move |backend| {
            let result = catch_unwind(AssertUnwindSafe(|| {
                on_event(OperationEvent::Started);
                operation(backend).inspect(|()| on_event(OperationEvent::Done))
            }));
            // Sending fails if the owner has dropped the handle.
            let _ = sender.send(result.unwrap_or(Err(if_panicked)));
        });
        let mut batch = lock(&self.batch);
        // Messages that are started after this operation run after it.
        *batch = None;
        self.enqueue(queued)?;
        Ok(PendingOutcome::new(receiver))
    }

    /// Starts messages. They join the messages that were started last, if no other operation was started
    /// since and those are not all complete.
    pub(crate) fn start_messages(&self, messages: Vec<StartedMessage>) -> io::Result<()> {
        let mut batch = lock(&self.batch);
        let messages = match &*batch {
            Some(open) => match open.post(messages) {
                Ok(()) => return Ok(()),
                Err(messages) => messages,
            },
            None => messages,
        };
        let open = Arc::new(MessageBatch::new(messages));
        *batch = Some(open.clone());
        self.enqueue(Box::new(move |backend| backend.run_messages(&open)))
    }

    fn enqueue(&self, operation: QueuedOperation) -> io::Result<()> {
        let comm = self.comm()?;
        *lock(&self.core.pending) += 1;
        let queue = comm.queue.as_ref().expect("the queue is closed only by the last drop");
        queue.send(operation).expect("the communication thread runs until the queue is closed");
        Ok(())
    }

    /// Returns the communication thread, which is started at its first use.
    fn comm(&self) -> io::Result<&CommThread> {
        if let Some(comm) = self.comm.get() {
            return Ok(comm);
        }
        let comm = CommThread::start(self.core.clone())?;
        // If two callers create a thread at the same time, the second thread has no operation and is
        // dropped.
        Ok(self.comm.get_or_init(|| comm))
    }

    /// Runs `action` on the backend as soon as the current operation is complete.
    pub(crate) fn run_after_current(&self, action: impl FnOnce(&mut HostBackend)) {
        action(&mut self.core.lock());
    }
}

impl ExecutorCore {
    fn lock(&self) -> MutexGuard<'_, HostBackend> {
        lock(&self.backend)
    }

    #[inline]
    fn wait_idle(&self) {
        let pending = lock(&self.pending);
        // Every started operation has a deadline, so this wait ends.
        drop(self.idle.wait_while(pending, |pending| 0 < *pending));
    }

    fn finish_one(&self) {
        *lock(&self.pending) -= 1;
        self.idle.notify_all();
    }
}

impl CommThread {
    fn start(core: Arc<ExecutorCore>) -> io::Result<Self> {
        let (queue, operations) = mpsc::sync_channel::<QueuedOperation>(QUEUE_MAX);
        let body = move || {
            for operation in operations {
                let mut backend = core.lock();
                let spin = backend.spin;
                backend.spin = spin.beside_caller();
                operation(&mut backend);
                backend.spin = spin;
                drop(backend);
                core.finish_one();
            }
        };
        let thread = std::thread::Builder::new().name("remuda-comm".to_owned()).spawn(body)?;
        Ok(Self { queue: Some(queue), thread: Some(thread) })
    }
}

impl Drop for CommThread {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            // The panic hook has already reported a panic of this thread.
            let _ = thread.join();
        }
    }
}

/// Event of a started operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationEvent {
    /// It begins to run.
    Started,
    /// It has succeeded.
    Done,
}

/// Future outcome of a started operation.
pub(crate) struct PendingOutcome {
    receiver: Receiver<Outcome>,
    /// Outcome that was received and not yet taken.
    outcome: Option<Outcome>,
}

impl PendingOutcome {
    pub(crate) fn new(receiver: Receiver<Outcome>) -> Self {
        Self { receiver, outcome: None }
    }

    /// Outcome of an operation that could not be started.
    pub(crate) fn failed(error: CollectiveError) -> Self {
        Self::ready(Err(error))
    }

    /// Outcome of an operation that has ended.
    pub(crate) fn ready(outcome: Outcome) -> Self {
        let (sender, receiver) = mpsc::sync_channel(1);
        // Sending cannot fail: the receiver exists.
        let _ = sender.send(outcome);
        Self { receiver, outcome: None }
    }
}

impl PendingOperation for PendingOutcome {
    fn poll(&mut self, limit: Duration) -> bool {
        if self.outcome.is_none() {
            self.outcome = match self.receiver.recv_timeout(limit) {
                Ok(outcome) => Some(outcome),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("the communication thread reports every outcome")
                }
            };
        }
        self.outcome.is_some()
    }

    fn take(&mut self) -> Option<Outcome> {
        self.outcome.take()
    }
}
