//! The lines that a node prints beside its link: an explanation of a failed start, or messages of
//! the agent.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use crate::transport::LinkReader;

/// Size of one read.
const READ_BYTES: usize = 4096;
/// Most bytes of a node's standard error that are kept to explain a failure.
const WORDS_BYTES_MAX: usize = 16 * 1024;

/// Callback for the lines that a node prints beside the link, and for the reasons of a wait.
pub type LineCallback = Box<dyn Fn(&str) + Send + Sync>;

/// Standard error of a node: kept while the agent is starting, then passed on line by line.
pub(in crate::transport) struct StderrCapture {
    state: Arc<Mutex<StderrState>>,
    kept: watch::Receiver<usize>,
    reader: tokio::task::JoinHandle<()>,
}

/// What a process has printed so far, readable beside [`StderrCapture`].
#[derive(Clone)]
pub(in crate::transport) struct PrintedLines {
    state: Arc<Mutex<StderrState>>,
    /// Number of bytes that are kept.
    kept: watch::Receiver<usize>,
    /// Number of bytes that [`next`](Self::next) has returned.
    returned: usize,
}

impl PrintedLines {
    /// All lines that are kept and are not empty.
    pub(in crate::transport) fn read(&self) -> Vec<String> {
        let state = self.state.lock().expect("no thread panics while it holds the lock");
        let text = String::from_utf8_lossy(&state.bytes);
        text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
    }
}

impl PrintedLines {
    /// A text with these lines below it.
    pub(in crate::transport) fn below(&self, first: String) -> String {
        std::iter::once(first).chain(self.read()).collect::<Vec<_>>().join("\n")
    }

    /// Waits for the next line that is kept; none is lost if the wait is cancelled.
    pub(in crate::transport) async fn next(&mut self) -> String {
        loop {
            self.kept.mark_unchanged();
            if let Some(line) = self.take_line() {
                return line;
            }
            if self.kept.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// The next line that is kept, if there is one.
    pub(in crate::transport) fn take_line(&mut self) -> Option<String> {
        let state = self.state.lock().expect("no thread panics while it holds the lock");
        let rest = &state.bytes[self.returned..];
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        self.returned += end + 1;
        Some(String::from_utf8_lossy(&rest[..end]).trim_end().to_owned())
    }
}

struct StderrState {
    bytes: Vec<u8>,
    /// Callback for the lines; `None` until the agent is up.
    on_line: Option<LineCallback>,
    pending_callback: Option<LineCallback>,
}

impl StderrCapture {
    pub(in crate::transport) fn collect(pipe: LinkReader, on_line: LineCallback) -> Self {
        let state =
            StderrState { bytes: Vec::new(), on_line: None, pending_callback: Some(on_line) };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        let (count, kept) = watch::channel(0);
        let reader = tokio::spawn(async move {
            let mut buffer = Vec::with_capacity(READ_BYTES);
            while let Ok(1..) = pipe.read(&mut buffer).await {
                let now_kept = {
                    let mut state =
                        shared.lock().expect("no thread panics while it holds the lock");
                    state.push(&buffer);
                    state.bytes.len()
                };
                buffer.clear();
                count.send_if_modified(|count| std::mem::replace(count, now_kept) != now_kept);
            }
        });
        Self { state, kept, reader }
    }

    /// Waits at most `limit` until all output has been passed on.
    pub(in crate::transport) async fn finish(&mut self, limit: Duration) {
        // A task can be awaited until it has ended, and not again.
        if !self.reader.is_finished() {
            let _ = tokio::time::timeout(limit, &mut self.reader).await;
        }
    }

    /// The output so far, for other tasks.
    pub(in crate::transport) fn printed(&self) -> PrintedLines {
        let (state, kept) = (Arc::clone(&self.state), self.kept.clone());
        PrintedLines { state, kept, returned: 0 }
    }

    /// All output so far. Waits for a short time, because a node prints the reason just before it
    /// ends.
    pub(in crate::transport) async fn output_so_far(&mut self) -> String {
        const LIMIT: Duration = Duration::from_millis(500);
        self.finish(LIMIT).await;
        let state = self.state.lock().expect("no thread panics while it holds the lock");
        String::from_utf8_lossy(&state.bytes).into_owned()
    }

    /// Discards the output of start-up files; the output that follows is the agent's.
    pub(in crate::transport) fn forward_lines(&mut self) {
        let mut state = self.state.lock().expect("no thread panics while it holds the lock");
        state.bytes.clear();
        state.on_line = state.pending_callback.take();
    }
}

impl StderrState {
    fn push(&mut self, bytes: &[u8]) {
        let room = WORDS_BYTES_MAX.saturating_sub(self.bytes.len()).min(bytes.len());
        self.bytes.extend_from_slice(&bytes[..room]);
        let Some(on_line) = &self.on_line else {
            return;
        };
        while let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.bytes.drain(..=end).collect();
            on_line(String::from_utf8_lossy(&line).trim_end());
        }
        if WORDS_BYTES_MAX <= self.bytes.len() {
            self.bytes.clear();
        }
    }
}

impl Drop for StderrCapture {
    fn drop(&mut self) {
        self.reader.abort();
    }
}
