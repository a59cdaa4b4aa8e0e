//! The thread that owns the pages of a job. Whoever has something to show sends it here and goes
//! on; what was shown is told back, so that a slow screen holds up output and nothing else.

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

/// What is collected before it is handed to the screen in one piece.
const BATCH_BYTES: usize = 256 * 1024;

/// Steps of workers on their way to the status line; of more, none is worth waiting for.
const STEPS_WAITING_MAX: usize = 1024;

/// Output of that many bytes has been dealt with; it came over the node's link of that epoch.
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

/// Receives what workers printed about their failures.
type OnEvidence = Box<dyn FnOnce(BTreeMap<Rank, Evidence>) + Send>;

/// Handle to the thread.
pub struct Reporter {
    told: mpsc::Sender<Told>,
    thread: JoinHandle<OutputRouter>,
    steps_waiting: Option<Arc<AtomicUsize>>,
}

/// A copy of the way to the thread, for the tasks that read links.
#[derive(Clone)]
pub struct OutputSender {
    told: mpsc::Sender<Told>,
    /// Steps that have not been heard; `None` where there is no status line.
    steps_waiting: Option<Arc<AtomicUsize>>,
}

impl Reporter {
    /// Starts it; `consumed` hears what has been shown or given up.
    pub fn start(
        workers: &[WorkerLabel],
        style: &Style,
        stdout: OwnedFd,
        stderr: OwnedFd,
        consumed: impl Fn(Consumed) + Send + 'static,
    ) -> std::io::Result<Self> {
        let pages = OutputRouter::new(workers, style, stdout, stderr);
        let (told, receiver) = mpsc::channel();
        let thread = std::thread::Builder::new().name("reporter".to_owned());
        let has_status = style.terminal.status != StatusPlace::Nowhere;
        let steps_waiting = has_status.then(Arc::<AtomicUsize>::default);
        let steps = steps_waiting.clone();
        let hear = move |pages: &mut OutputRouter, message| {
            if let (Told::Step(..), Some(steps)) = (&message, &steps) {
                steps.fetch_sub(1, Ordering::Relaxed);
            }
            hear(pages, message, &consumed)
        };
        let thread = thread.spawn(move || run(pages, &receiver, hear))?;
        Ok(Self { told, thread, steps_waiting })
    }

    /// The way for output.
    pub fn sender(&self) -> OutputSender {
        OutputSender { told: self.told.clone(), steps_waiting: self.steps_waiting.clone() }
    }

    /// Shows a line of our own.
    pub fn say(&self, text: impl Into<String>) {
        let _ = self.told.send(Told::Say(text.into()));
    }

    /// Leaves the terminal to somebody else; `done` hears when everything said so far is on it, or
    /// it stands still.
    pub fn rest(&self, done: impl FnOnce() + Send + 'static) {
        let _ = self.told.send(Told::Rest(Box::new(done)));
    }

    /// Takes the terminal back.
    pub fn wake(&self) {
        let _ = self.told.send(Told::Wake);
    }

    /// From now on shows only this worker.
    pub fn hush(&self, only: Rank) {
        let _ = self.told.send(Told::Hush(only));
    }

    /// Calls `done` with what these workers printed about their failures, once everything that was sent
    /// so far has been dealt with.
    pub fn collect_evidence(
        &self,
        ranks: Vec<Rank>,
        done: impl FnOnce(BTreeMap<Rank, Evidence>) + Send + 'static,
    ) {
        let _ = self.told.send(Told::CollectEvidence(ranks, Box::new(done)));
    }

    /// The job is being stopped: there is no status line any more.
    pub fn end_status(&self) {
        let _ = self.told.send(Told::EndStatus);
    }

    /// The terminal has echoed the end of a line that was typed: a prompt is over.
    pub fn end_prompt(&self) {
        let _ = self.told.send(Told::EndPrompt);
    }

    /// The terminal may have echoed the key of a signal, such as `^\`.
    pub fn expect_echo(&self) {
        let _ = self.told.send(Told::ExpectEcho);
    }

    /// Workers are started anew.
    pub fn begin_epoch(&self, epoch: Epoch) {
        let _ = self.told.send(Told::BeginEpoch(epoch));
    }

    /// The thread has told nobody anything any more: it panicked, and said so.
    pub fn pass_on_panic(&self) -> ! {
        std::panic::resume_unwind(Box::new("the reporter has panicked"))
    }

    /// Waits until everything sent so far has been dealt with; the pages are then the caller's.
    /// What links still send after that is not looked at.
    pub fn finish(self) -> OutputRouter {
        let _ = self.told.send(Told::Finish);
        match self.thread.join() {
            Ok(pages) => pages,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl OutputSender {
    /// A worker wrote; the link is of a node, and of the epoch in which it was made.
    pub fn output(&self, from: (NodeRank, u32), rank: Rank, stream: Stream, bytes: Vec<u8>) {
        let _ = self.told.send(Told::Output { from, rank, stream, bytes });
    }

    /// A worker has done a step.
    pub fn step(&self, rank: Rank, step: WorkerStep) {
        let Some(waiting) = &self.steps_waiting else {
            return;
        };
        if waiting.load(Ordering::Relaxed) < STEPS_WAITING_MAX {
            waiting.fetch_add(1, Ordering::Relaxed);
            let _ = self.told.send(Told::Step(rank, step));
        }
    }

    /// A worker has lost a peer.
    pub fn left_alone(&self, rank: Rank) {
        let _ = self.told.send(Told::LeftAlone(rank));
    }

    /// Shows a line of our own.
    pub fn say(&self, text: impl Into<String>) {
        let _ = self.told.send(Told::Say(text.into()));
    }

    /// It will write no more.
    pub fn end(&self, rank: Rank, stream: Stream) {
        let _ = self.told.send(Told::End { rank, stream });
    }
}

fn run(
    mut pages: OutputRouter,
    told: &mpsc::Receiver<Told>,
    hear: impl Fn(&mut OutputRouter, Told) -> ControlFlow<()>,
) -> OutputRouter {
    loop {
        let mut next = match wait(told, &pages) {
            Ok(first) => Some(first),
            Err(RecvTimeoutError::Timeout) => {
                pages.look_again();
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return pages,
        };
        while let Some(message) = next {
            if hear(&mut pages, message).is_break() {
                return pages;
            }
            next = if pages.pending_bytes() < BATCH_BYTES { told.try_recv().ok() } else { None };
        }
        pages.flush();
    }
}

/// The next message, unless the screens want to be looked at before it comes.
fn wait(told: &mpsc::Receiver<Told>, pages: &OutputRouter) -> Result<Told, RecvTimeoutError> {
    match pages.due() {
        Some(due) => told.recv_timeout(due.saturating_duration_since(clock::now())),
        None => told.recv().map_err(|_| RecvTimeoutError::Disconnected),
    }
}

fn hear(pages: &mut OutputRouter, message: Told, consumed: &impl Fn(Consumed)) -> ControlFlow<()> {
    match message {
        Told::Output { from, rank, stream, bytes } => {
            let length = bytes.len() as u64;
            pages.output(rank, stream, bytes);
            consumed((from, length));
        }
        Told::End { rank, stream } => pages.end(rank, stream),
        Told::Say(text) => pages.say(&text),
        Told::Step(rank, step) => pages.step(rank, step),
        Told::LeftAlone(rank) => pages.left_alone(rank),
        Told::Hush(only) => pages.hush(only),
        Told::EndStatus => pages.end_status(),
        Told::EndPrompt => pages.end_prompt(),
        Told::ExpectEcho => pages.expect_echo(),
        Told::BeginEpoch(epoch) => pages.begin_epoch(epoch),
        Told::Rest(done) => {
            pages.rest();
            done();
        }
        Told::Wake => pages.wake(),
        Told::CollectEvidence(ranks, done) => {
            let found = ranks.into_iter();
            done(found.filter_map(|rank| Some((rank, pages.evidence(rank)?))).collect());
        }
        Told::Finish => return ControlFlow::Break(()),
    }
    ControlFlow::Continue(())
}
