//! The lines that a node prints beside its link: an explanation of a failed start, or messages of
//! the agent.

use std::sync::{Arc, Mutex};
use std::time::Duration;

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
    reader: tokio::task::JoinHandle<()>,
}

/// What a process has printed so far, readable beside [`StderrCapture`].
#[derive(Clone)]
pub(in crate::transport) struct PrintedLines(Arc<Mutex<StderrState>>);

impl PrintedLines {
    /// All lines that are kept and are not empty.
    pub(in crate::transport) fn read(&self) -> Vec<String> {
        let state = self.0.lock().expect("no thread panics while it holds the lock");
        let text = String::from_utf8_lossy(&state.bytes);
        text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
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
        let reader = tokio::spawn(async move {
            let mut buffer = Vec::with_capacity(READ_BYTES);
            while let Ok(1..) = pipe.read(&mut buffer).await {
                shared.lock().expect("no thread panics while it holds the lock").push(&buffer);
                buffer.clear();
            }
        });
        Self { state, reader }
    }

    /// Waits at most `limit` until all output has been passed on.
    pub(in crate::transport) async fn finish(&mut self, limit: Duration) {
        let _ = tokio::time::timeout(limit, &mut self.reader).await;
    }

    /// The output so far, for other tasks.
    pub(in crate::transport) fn printed(&self) -> PrintedLines {
        PrintedLines(Arc::clone(&self.state))
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
