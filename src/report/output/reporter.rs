//! The thread that owns a job's output. Other threads send it output without waiting, and it
//! reports back what was shown, so that a slow screen delays output and nothing else.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;

use super::prefix_text::WorkerLabel;
use super::router::OutputRouter;
use super::style::Style;
use crate::base::{Epoch, NodeRank, Rank, clock};
use crate::job::Evidence;
use crate::report::terminal::{StatusPlace, WorkerStep};
use crate::report::text::MessageLevel;
use crate::wire::Stream;

/// Most bytes that are collected before they are passed to the screen in one piece.
const BATCH_BYTES: usize = 256 * 1024;

/// Most steps and phases that are queued for the status line; further ones are dropped.
const QUEUED_STEPS_MAX: usize = 1024;

/// The link that carried output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLink {
    /// The node that the workers run on.
    pub node: NodeRank,
    /// Its number among the links of the node.
    pub link: u32,
}

/// Output that was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Consumed {
    /// The link that carried it.
    pub from: OutputLink,
    /// Number of its bytes.
    pub bytes: u64,
}

enum ReporterMessage {
    Output { from: OutputLink, rank: Rank, stream: Stream, bytes: Vec<u8> },
    End { rank: Rank, stream: Stream },
    Message(String),
    Answer(String),
    State(Rank, String),
    Step(Rank, WorkerStep),
    Phase(Rank, Option<String>),
    PeerLost(Rank),
    ShowOnly(Rank),
    EndStatus,
    EndPrompt,
    ExpectEcho,
    BeginEpoch(Epoch),
    SetWorkers(Vec<WorkerLabel>),
    ReleaseTerminal(Box<dyn FnOnce() + Send>),
    ResumeTerminal,
    CollectEvidence(Vec<Rank>, OnEvidence),
    Finish,
}

/// Callback for the workers' output about their failures.
type OnEvidence = Box<dyn FnOnce(BTreeMap<Rank, Evidence>) + Send>;

/// Handle of the thread.
pub struct Reporter {
    sender: mpsc::Sender<ReporterMessage>,
    thread: JoinHandle<OutputRouter>,
    queued_steps: Option<Arc<AtomicUsize>>,
}

/// Handle for the tasks that read links.
#[derive(Clone)]
pub struct OutputSender {
    sender: mpsc::Sender<ReporterMessage>,
    /// Number of steps in the queue; `None` if there is no status line.
    queued_steps: Option<Arc<AtomicUsize>>,
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
        // The windows of the agents limit output, QUEUED_STEPS_MAX limits steps, and the agents limit the rate
        // of notes; the rest follows from events of the dispatcher.
        let (sender, messages) = mpsc::channel();
        let thread = std::thread::Builder::new().name("reporter".to_owned());
        let has_status = style.terminal.status != StatusPlace::Nowhere;
        let queued_steps = has_status.then(Arc::<AtomicUsize>::default);
        let (steps, least_message) = (queued_steps.clone(), style.least_message);
        let handle = move |router: &mut OutputRouter, message| {
            let is_progress =
                matches!(message, ReporterMessage::Step(..) | ReporterMessage::Phase(..));
            if let (true, Some(steps)) = (is_progress, &steps) {
                steps.fetch_sub(1, Ordering::Relaxed);
            }
            match message {
                ReporterMessage::Message(text) if MessageLevel::of(&text) < least_message => {
                    ControlFlow::Continue(())
                }
                message => handle_message(router, message, &consumed),
            }
        };
        let thread = thread.spawn(move || run(router, &messages, handle))?;
        Ok(Self { sender, thread, queued_steps })
    }

    /// A handle for the tasks that send output.
    pub fn sender(&self) -> OutputSender {
        OutputSender { sender: self.sender.clone(), queued_steps: self.queued_steps.clone() }
    }

    /// Shows a line of remuda, if lines of its severity are shown.
    pub fn print_message(&self, text: impl Into<String>) {
        let _ = self.sender.send(ReporterMessage::Message(text.into()));
    }

    /// Shows the answer to a request of the user.
    pub fn print_answer(&self, text: impl Into<String>) {
        let _ = self.sender.send(ReporterMessage::Answer(text.into()));
    }

    /// Shows a line of remuda about a worker that runs, with the time since its last output.
    pub fn print_state(&self, rank: Rank, state: String) {
        let _ = self.sender.send(ReporterMessage::State(rank, state));
    }

    /// Leaves the terminal to another program. Calls `done` when all earlier output is on the
    /// terminal, or when the terminal does not accept output.
    pub fn release_terminal(&self, done: impl FnOnce() + Send + 'static) {
        let _ = self.sender.send(ReporterMessage::ReleaseTerminal(Box::new(done)));
    }

    /// Takes the terminal back.
    pub fn resume_terminal(&self) {
        let _ = self.sender.send(ReporterMessage::ResumeTerminal);
    }

    /// Shows only this worker from now on.
    pub fn show_only(&self, only: Rank) {
        let _ = self.sender.send(ReporterMessage::ShowOnly(only));
    }

    /// Calls `done` with the output of these workers about their failures, once everything that was
    /// sent before has been handled.
    pub fn collect_evidence(
        &self,
        ranks: Vec<Rank>,
        done: impl FnOnce(BTreeMap<Rank, Evidence>) + Send + 'static,
    ) {
        let _ = self.sender.send(ReporterMessage::CollectEvidence(ranks, Box::new(done)));
    }

    /// Ends the status line, because the job is being stopped.
    pub fn end_status(&self) {
        let _ = self.sender.send(ReporterMessage::EndStatus);
    }

    /// Ends a prompt: the terminal has echoed the end of a line that was typed.
    pub fn end_prompt(&self) {
        let _ = self.sender.send(ReporterMessage::EndPrompt);
    }

    /// The terminal may have echoed the key of a signal, such as `^\`.
    pub fn expect_echo(&self) {
        let _ = self.sender.send(ReporterMessage::ExpectEcho);
    }

    /// Starts an epoch, because the workers are restarted.
    pub fn begin_epoch(&self, epoch: Epoch) {
        let _ = self.sender.send(ReporterMessage::BeginEpoch(epoch));
    }

    /// Replaces the workers: from now on output is received under their ranks.
    pub fn set_workers(&self, workers: Vec<WorkerLabel>) {
        let _ = self.sender.send(ReporterMessage::SetWorkers(workers));
    }

    /// Continues the panic of the thread, which has printed its message.
    pub fn resume_panic(&self) -> ! {
        std::panic::resume_unwind(Box::new("the reporter has panicked"))
    }

    /// Waits until everything that was sent before has been handled, and returns the output router.
    /// Output that links send later is dropped.
    pub fn finish(self) -> OutputRouter {
        let _ = self.sender.send(ReporterMessage::Finish);
        match self.thread.join() {
            Ok(router) => router,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl OutputSender {
    /// Sends output of a worker.
    pub fn output(&self, from: OutputLink, rank: Rank, stream: Stream, bytes: Vec<u8>) {
        let _ = self.sender.send(ReporterMessage::Output { from, rank, stream, bytes });
    }

    /// Sends a step of a worker.
    pub fn step(&self, rank: Rank, step: WorkerStep) {
        self.progress(ReporterMessage::Step(rank, step));
    }

    /// Sends the phase of a worker.
    pub fn phase(&self, rank: Rank, phase: Option<String>) {
        self.progress(ReporterMessage::Phase(rank, phase));
    }

    fn progress(&self, message: ReporterMessage) {
        let Some(queued) = &self.queued_steps else {
            return;
        };
        if queued.load(Ordering::Relaxed) < QUEUED_STEPS_MAX {
            queued.fetch_add(1, Ordering::Relaxed);
            let _ = self.sender.send(message);
        }
    }

    /// Reports that a worker has lost a peer.
    pub fn report_peer_lost(&self, rank: Rank) {
        let _ = self.sender.send(ReporterMessage::PeerLost(rank));
    }

    /// Shows a line of remuda, if lines of its severity are shown.
    pub fn print_message(&self, text: impl Into<String>) {
        let _ = self.sender.send(ReporterMessage::Message(text.into()));
    }

    /// Reports the end of a stream.
    pub fn end(&self, rank: Rank, stream: Stream) {
        let _ = self.sender.send(ReporterMessage::End { rank, stream });
    }
}

fn run(
    mut router: OutputRouter,
    messages: &mpsc::Receiver<ReporterMessage>,
    handle: impl Fn(&mut OutputRouter, ReporterMessage) -> ControlFlow<()>,
) -> OutputRouter {
    loop {
        let mut next = match wait(messages, &router) {
            Ok(first) => Some(first),
            Err(RecvTimeoutError::Timeout) => {
                router.on_timer();
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
fn wait(
    messages: &mpsc::Receiver<ReporterMessage>,
    router: &OutputRouter,
) -> Result<ReporterMessage, RecvTimeoutError> {
    match router.due() {
        Some(due) => messages.recv_timeout(due.saturating_duration_since(clock::now())),
        None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
    }
}

fn handle_message(
    router: &mut OutputRouter,
    message: ReporterMessage,
    consumed: &impl Fn(Consumed),
) -> ControlFlow<()> {
    match message {
        ReporterMessage::Output { from, rank, stream, bytes } => {
            let handled = Consumed { from, bytes: bytes.len() as u64 };
            router.output(rank, stream, bytes);
            consumed(handled);
        }
        ReporterMessage::End { rank, stream } => router.end(rank, stream),
        ReporterMessage::Message(text) | ReporterMessage::Answer(text) => {
            router.print_message(&text);
        }
        ReporterMessage::State(rank, state) => router.print_state(rank, &state),
        ReporterMessage::Step(rank, step) => router.step(rank, step),
        ReporterMessage::Phase(rank, phase) => router.phase(rank, phase),
        ReporterMessage::PeerLost(rank) => router.on_peer_lost(rank),
        ReporterMessage::ShowOnly(only) => router.show_only(only),
        ReporterMessage::EndStatus => router.end_status(),
        ReporterMessage::EndPrompt => router.end_prompt(),
        ReporterMessage::ExpectEcho => router.expect_echo(),
        ReporterMessage::BeginEpoch(epoch) => router.begin_epoch(epoch),
        ReporterMessage::SetWorkers(workers) => router.set_workers(&workers),
        ReporterMessage::ReleaseTerminal(done) => {
            router.release_terminal();
            done();
        }
        ReporterMessage::ResumeTerminal => router.resume_terminal(),
        ReporterMessage::CollectEvidence(ranks, done) => {
            let found = ranks.into_iter();
            done(found.filter_map(|rank| Some((rank, router.evidence(rank)?))).collect());
        }
        ReporterMessage::Finish => return ControlFlow::Break(()),
    }
    ControlFlow::Continue(())
}
