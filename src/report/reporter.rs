//! The thread that owns the pages of a job. Whoever has something to show sends it here and goes
//! on; what was shown is told back, so that a slow screen holds up output and nothing else.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::pages::{Pages, Style, WorkerLabel};
use crate::base::{NodeRank, Rank};
use crate::wire::Stream;

/// What is collected before it is handed to the screen in one piece.
const BATCH_BYTES: usize = 256 * 1024;

/// How often a screen that stood still is looked at.
const STILL_PAUSE: Duration = Duration::from_millis(100);

/// Output of that many bytes from a node has been dealt with.
pub type Consumed = (NodeRank, u64);

enum Told {
    Output { node: NodeRank, rank: Rank, stream: Stream, bytes: Vec<u8> },
    End { rank: Rank, stream: Stream },
    Say(String),
    Hush(Rank),
    Finish,
}

/// Handle to the thread.
pub struct Reporter {
    told: mpsc::Sender<Told>,
    thread: JoinHandle<Pages>,
}

/// A copy of the way to the thread, for the tasks that read links.
#[derive(Clone)]
pub struct OutputSender(mpsc::Sender<Told>);

impl Reporter {
    /// Starts it; `consumed` hears what has been shown or given up.
    pub fn start(
        workers: &[WorkerLabel],
        style: &Style,
        stdout: OwnedFd,
        stderr: OwnedFd,
        consumed: impl Fn(Consumed) + Send + 'static,
    ) -> std::io::Result<Self> {
        let pages = Pages::new(workers, style, stdout, stderr);
        let (told, receiver) = mpsc::channel();
        let thread = std::thread::Builder::new().name("reporter".to_owned());
        let thread = thread.spawn(move || run(pages, &receiver, consumed))?;
        Ok(Self { told, thread })
    }

    /// The way for output.
    pub fn sender(&self) -> OutputSender {
        OutputSender(self.told.clone())
    }

    /// Shows a line of our own.
    pub fn say(&self, text: impl Into<String>) {
        let _ = self.told.send(Told::Say(text.into()));
    }

    /// From now on shows only this worker.
    pub fn hush(&self, only: Rank) {
        let _ = self.told.send(Told::Hush(only));
    }

    /// Waits until everything sent so far has been dealt with; the pages are then the caller's.
    /// What links still send after that is not looked at.
    pub fn finish(self) -> Pages {
        let _ = self.told.send(Told::Finish);
        match self.thread.join() {
            Ok(pages) => pages,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl OutputSender {
    /// A worker wrote.
    pub fn output(&self, node: NodeRank, rank: Rank, stream: Stream, bytes: Vec<u8>) {
        let _ = self.0.send(Told::Output { node, rank, stream, bytes });
    }

    /// Shows a line of our own.
    pub fn say(&self, text: impl Into<String>) {
        let _ = self.0.send(Told::Say(text.into()));
    }

    /// It will write no more.
    pub fn end(&self, rank: Rank, stream: Stream) {
        let _ = self.0.send(Told::End { rank, stream });
    }
}

fn run(mut pages: Pages, told: &mpsc::Receiver<Told>, consumed: impl Fn(Consumed)) -> Pages {
    while let Some(first) = next(&mut pages, told) {
        let mut next = Some(first);
        while let Some(message) = next {
            if hear(&mut pages, message, &consumed).is_break() {
                return pages;
            }
            next = if pages.pending_bytes() < BATCH_BYTES { told.try_recv().ok() } else { None };
        }
        pages.flush();
    }
    pages
}

/// What comes next. While it waits it looks whether a screen that stood still has moved on.
fn next(pages: &mut Pages, told: &mpsc::Receiver<Told>) -> Option<Told> {
    while pages.stands_still() {
        match told.recv_timeout(STILL_PAUSE) {
            Ok(message) => return Some(message),
            Err(mpsc::RecvTimeoutError::Timeout) => pages.look_again(),
            Err(mpsc::RecvTimeoutError::Disconnected) => return None,
        }
    }
    told.recv().ok()
}

fn hear(pages: &mut Pages, message: Told, consumed: &impl Fn(Consumed)) -> ControlFlow<()> {
    match message {
        Told::Output { node, rank, stream, bytes } => {
            pages.output(rank, stream, &bytes);
            consumed((node, bytes.len() as u64));
        }
        Told::End { rank, stream } => pages.end(rank, stream),
        Told::Say(text) => pages.say(&text),
        Told::Hush(only) => pages.hush(only),
        Told::Finish => return ControlFlow::Break(()),
    }
    ControlFlow::Continue(())
}
