//! The thread that owns a job's output. Other threads send it output without waiting, and it
//! reports back what was shown, so that a slow screen delays output and nothing else.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;

use super::pages::{OutputRouter, Style, WorkerLabel};
use super::status::WorkerStep;
use super::terminal::StatusPlace;
use crate::base::{Epoch, NodeRank, Rank, clock};
use crate::job::Evidence;
use crate::wire::Stream;

/// Most bytes that are collected before they are passed to the screen in one piece.
const BATCH_BYTES: usize = 256 * 1024;

/// Most steps that are queued for the status line; further ones are dropped.
const STEPS_WAITING_MAX: usize = 1024;

/// Number of output bytes that were handled, with the node and the epoch of the link that carried
/// them.
pub type Consumed = ((NodeRank, u32), u64);

enum Told {
    Output { from: (NodeRank, u32), rank: Rank, stream: Stream, bytes: Vec<u8> },
    End { rank: Rank, stream: Stream },
    Say(String),
    Step(Rank, WorkerStep),
    LeftAlone(Rank),
    Hush(Rank),
    EndStatus,
    EndPrompt,
    ExpectEcho,
    BeginEpoch(Epoch),
    Rest(Box<dyn FnOnce() + Send>),
    Wake,
    CollectEvidence(Vec<Rank>, OnEvidence),
    Finish,
}

/// Callback for the workers' output about their failures.
type OnEvidence = Box<dyn FnOnce(BTreeMap<Rank, Evidence>) + Send>;

/// Handle of the thread.
pub struct Reporter {
    told: mpsc::Sender<Told>,
    thread: JoinHandle<OutputRouter>,
    steps_waiting: Option<Arc<AtomicUsize>>,
}

/// Handle for the tasks that read links.
#[derive(Clone)]
pub struct OutputSender {
    told: mpsc::Sender<Told>,
    /// Number of steps in the queue; `None` if there is no status line.
    steps_waiting: Option<Arc<AtomicUsize>>,
}

impl Reporter {
    /// Starts the thread; `consumed` receives the number of bytes that were shown or dropped.
    pub fn start(
        workers: &[WorkerLabel],
        style: &Style,
        stdout: OwnedFd,
        stderr: OwnedFd,
        consumed: impl Fn(Consumed) + Send + 'static,
    ) -> std::io::Result<Self> {
        let router = OutputRouter::new(workers, style, stdout, stderr);
        let (sender, messages) = mpsc::channel();
        let thread = std::thread::Builder::new().name("reporter".to_owned());
        let has_status = style.terminal.status != StatusPlace::Nowhere;
        let queued_steps = has_status.then(Arc::<AtomicUsize>::default);
        let steps = queued_steps.clone();
        let handle = move |router: &mut OutputRouter, message| {
            if let (Told::Step(..), Some(steps)) = (&message, &steps) {
                steps.fetch_sub(1, Ordering::Relaxed);
            }
            hear(router, message, &consumed)
        };
        let thread = thread.spawn(move || run(router, &messages, handle))?;
        Ok(Self { told: sender, thread, steps_waiting: queued_steps })
    }

    /// A handle for the tasks that send output.
    pub fn sender(&self) -> OutputSender {
        OutputSender { told: self.told.clone(), steps_waiting: self.steps_waiting.clone() }
    }

    /// Shows a line of remuda.
    pub fn say(&self, text: impl Into<String>) {
        let _ = self.told.send(Told::Say(text.into()));
    }

    /// Leaves the terminal to another program. Calls `done` when all earlier output is on the
    /// terminal, or when the terminal does not accept output.
    pub fn rest(&self, done: impl FnOnce() + Send + 'static) {
        let _ = self.told.send(Told::Rest(Box::new(done)));
    }

    /// Takes the terminal back.
    pub fn wake(&self) {
        let _ = self.told.send(Told::Wake);
    }

    /// Shows only this worker from now on.
    pub fn hush(&self, only: Rank) {
        let _ = self.told.send(Told::Hush(only));
    }

    /// Calls `done` with the output of these workers about their failures, once everything that was
    /// sent before has been handled.
    pub fn collect_evidence(
        &self,
        ranks: Vec<Rank>,
        done: impl FnOnce(BTreeMap<Rank, Evidence>) + Send + 'static,
    ) {
        let _ = self.told.send(Told::CollectEvidence(ranks, Box::new(done)));
    }

    /// Ends the status line, because the job is being stopped.
    pub fn end_status(&self) {
        let _ = self.told.send(Told::EndStatus);
    }

    /// Ends a prompt: the terminal has echoed the end of a line that was typed.
    pub fn end_prompt(&self) {
        let _ = self.told.send(Told::EndPrompt);
    }

    /// The terminal may have echoed the key of a signal, such as `^\`.
    pub fn expect_echo(&self) {
        let _ = self.told.send(Told::ExpectEcho);
    }

    /// Starts an epoch, because the workers are restarted.
    pub fn begin_epoch(&self, epoch: Epoch) {
        let _ = self.told.send(Told::BeginEpoch(epoch));
    }

    /// Continues the panic of the thread, which has printed its message.
    pub fn pass_on_panic(&self) -> ! {
        std::panic::resume_unwind(Box::new("the reporter has panicked"))
    }

    /// Waits until everything that was sent before has been handled, and returns the output router.
    /// Output that links send later is dropped.
    pub fn finish(self) -> OutputRouter {
        let _ = self.told.send(Told::Finish);
        match self.thread.join() {
            Ok(router) => router,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl OutputSender {
    /// Sends output of a worker; `from` is the node and the epoch of the link.
    pub fn output(&self, from: (NodeRank, u32), rank: Rank, stream: Stream, bytes: Vec<u8>) {
        let _ = self.told.send(Told::Output { from, rank, stream, bytes });
    }

    /// Sends a step of a worker.
    pub fn step(&self, rank: Rank, step: WorkerStep) {
        let Some(queued) = &self.steps_waiting else {
            return;
        };
        if queued.load(Ordering::Relaxed) < STEPS_WAITING_MAX {
            queued.fetch_add(1, Ordering::Relaxed);
            let _ = self.told.send(Told::Step(rank, step));
        }
    }

    /// Reports that a worker has lost a peer.
    pub fn left_alone(&self, rank: Rank) {
        let _ = self.told.send(Told::LeftAlone(rank));
    }

    /// Shows a line of remuda.
    pub fn say(&self, text: impl Into<String>) {
        let _ = self.told.send(Told::Say(text.into()));
    }

    /// Reports the end of a stream.
    pub fn end(&self, rank: Rank, stream: Stream) {
        let _ = self.told.send(Told::End { rank, stream });
    }
}

fn run(
    mut router: OutputRouter,
    messages: &mpsc::Receiver<Told>,
    handle: impl Fn(&mut OutputRouter, Told) -> ControlFlow<()>,
) -> OutputRouter {
    loop {
        let mut next = match wait(messages, &router) {
            Ok(first) => Some(first),
            Err(RecvTimeoutError::Timeout) => {
                router.look_again();
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return router,
        };
        while let Some(message) = next {
            if handle(&mut router, message).is_break() {
                return router;
            }
            next =
                if router.pending_bytes() < BATCH_BYTES { messages.try_recv().ok() } else { None };
        }
        router.flush();
    }
}

/// The next message, unless timed work of the screens is due before.
fn wait(messages: &mpsc::Receiver<Told>, router: &OutputRouter) -> Result<Told, RecvTimeoutError> {
    match router.due() {
        Some(due) => messages.recv_timeout(due.saturating_duration_since(clock::now())),
        None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
    }
}

fn hear(router: &mut OutputRouter, message: Told, consumed: &impl Fn(Consumed)) -> ControlFlow<()> {
    match message {
        Told::Output { from, rank, stream, bytes } => {
            let length = bytes.len() as u64;
            router.output(rank, stream, bytes);
            consumed((from, length));
        }
        Told::End { rank, stream } => router.end(rank, stream),
        Told::Say(text) => router.say(&text),
        Told::Step(rank, step) => router.step(rank, step),
        Told::LeftAlone(rank) => router.left_alone(rank),
        Told::Hush(only) => router.hush(only),
        Told::EndStatus => router.end_status(),
        Told::EndPrompt => router.end_prompt(),
        Told::ExpectEcho => router.expect_echo(),
        Told::BeginEpoch(epoch) => router.begin_epoch(epoch),
        Told::Rest(done) => {
            router.rest();
            done();
        }
        Told::Wake => router.wake(),
        Told::CollectEvidence(ranks, done) => {
            let found = ranks.into_iter();
            done(found.filter_map(|rank| Some((rank, router.evidence(rank)?))).collect());
        }
        Told::Finish => return ControlFlow::Break(()),
    }
    ControlFlow::Continue(())
}
