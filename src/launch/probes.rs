//! What the keeper of a pod asks while a job runs, and reads when it is over: probes, numbers, and a
//! message for whoever looks at the pod later. Nothing here can change anything.

use std::collections::VecDeque;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use super::options::LaunchError;
use crate::base::{JobId, NodeRank, Status};
use crate::os::tasks::Tasks;

/// Who is answered at a time; one more takes the place of the first, so that nobody keeps others from
/// being answered by saying nothing.
const CALLERS_MAX: usize = 64;
/// Bytes of a question that are read.
const QUESTION_BYTES_MAX: usize = 4096;
/// How long one question may take.
const QUESTION_MAX: Duration = Duration::from_secs(5);
/// What Kubernetes keeps of a termination message.
const MESSAGE_BYTES_MAX: usize = 4096;

/// A few numbers about the job, as this node knows them. Whoever answers probes reads them.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    ready: AtomicBool,
    epoch: AtomicU32,
    /// Workers that run, and nodes that are there: node 0 alone knows.
    counts: Mutex<Option<(u32, u32)>>,
}

impl Pulse {
    /// Node 0 can be called, or this node has been let in.
    pub(super) fn set_ready(&self, is_ready: bool) {
        self.ready.store(is_ready, Ordering::Relaxed);
    }

    /// The epoch that runs.
    pub(super) fn set_epoch(&self, epoch: u32) {
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    /// Workers that run, and nodes that are there.
    pub(super) fn set_counts(&self, running: usize, nodes: usize) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts = Some((running as u32, nodes as u32));
    }

    /// What is answered: status and text. Pure but for the numbers.
    fn answer(&self, question: &[u8]) -> (u16, String) {
        let line = question.split(|byte| *byte == b'\r' || *byte == b'\n').next();
        let line = String::from_utf8_lossy(line.unwrap_or_default()).into_owned();
        let mut words = line.split(' ');
        let (method, path, version) = (words.next(), words.next(), words.next());
        if !version.is_some_and(|version| version.starts_with("HTTP/1.")) {
            return (400, "this is a status port\n".to_owned());
        }
        if !matches!(method, Some("GET" | "HEAD")) {
            return (405, "nothing can be changed here\n".to_owned());
        }
        match path.map(|path| path.split('?').next().unwrap_or_default()) {
            // Whoever answers is the loop of the job itself.
            Some("/livez" | "/startupz") => (200, "ok\n".to_owned()),
            Some("/readyz") if self.ready.load(Ordering::Relaxed) => (200, "ok\n".to_owned()),
            Some("/readyz") => (503, "not yet a part of the job\n".to_owned()),
            Some("/metrics") => (200, self.metrics()),
            _ => (404, "there are /livez, /readyz and /metrics\n".to_owned()),
        }
    }

    fn metrics(&self) -> String {
        let gauge = |name: &str, help: &str, value: u32| {
            format!(
                "# HELP remuda_{name} {help}\n# TYPE remuda_{name} gauge\nremuda_{name} {value}\n"
            )
        };
        let is_ready = self.ready.load(Ordering::Relaxed);
        let mut text = gauge("ready", "Whether this node is a part of the job.", is_ready.into());
        text += &gauge(
            "epoch",
            "Starts of the job before this one.",
            self.epoch.load(Ordering::Relaxed),
        );
        if let Some((running, nodes)) = *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
        {
            text += &gauge("workers_running", "Workers of the job that run.", running);
            text += &gauge("nodes_joined", "Nodes of the job that are there.", nodes);
        }
        text
    }
}

/// Answers probes from now on. Must be called inside a runtime.
pub(super) async fn answer_probes(
    address: Option<SocketAddr>,
    pulse: &Arc<Pulse>,
    tasks: &mut Tasks,
) -> Result<(), LaunchError> {
    let Some(address) = address else { return Ok(()) };
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|error| LaunchError::Status { address, error })?;
    tasks.spawn(serve(listener, Arc::clone(pulse)));
    Ok(())
}

async fn serve(listener: TcpListener, pulse: Arc<Pulse>) {
    let mut callers = JoinSet::new();
    let mut in_order = VecDeque::new();
    loop {
        tokio::select! {
            Some(_) = callers.join_next() => {
                in_order.retain(|caller: &AbortHandle| !caller.is_finished());
            }
            called = listener.accept() => {
                // For lack of descriptors, say: the next probe is soon enough.
                let Ok((stream, _)) = called else {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                };
                if in_order.len() == CALLERS_MAX && let Some(first) = in_order.pop_front() {
                    first.abort();
                }
                let answered = answer(stream, Arc::clone(&pulse));
                let answered = async { tokio::time::timeout(QUESTION_MAX, answered).await };
                in_order.push_back(callers.spawn(answered));
            }
        }
    }
}

async fn answer(mut stream: TcpStream, pulse: Arc<Pulse>) -> io::Result<()> {
    let mut question = Vec::new();
    let is_over = |question: &[u8]| question.windows(4).any(|end| end == b"\r\n\r\n");
    while !is_over(&question) && question.len() < QUESTION_BYTES_MAX {
        if stream.read_buf(&mut question).await? == 0 {
            break;
        }
    }
    let (status, text) = pulse.answer(&question);
    let reason = match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        _ => "Service Unavailable",
    };
    let body = if question.starts_with(b"HEAD ") { "" } else { text.as_str() };
    let head = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; version=0.0.4\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    stream.write_all((head + body).as_bytes()).await?;
    stream.shutdown().await
}

/// What is left for whoever looks at a pod that has ended.
#[derive(Serialize)]
struct Message<'a> {
    version: u32,
    /// Which job and which node of it; of a start that was refused nobody may know.
    job: Option<&'a str>,
    node: Option<u32>,
    status: u8,
    /// The node that was the cause of a failure.
    cause: Option<u32>,
    /// The last screen.
    text: &'a str,
}

/// Writes how the job ended where the keeper of the pod reads it. What cannot be written is not worth
/// another failure.
pub(super) fn leave_message(
    file: Option<&Path>,
    (job, node): (&JobId, NodeRank),
    status: Status,
    (text, cause): (&str, Option<NodeRank>),
) {
    if let Some(file) = file {
        write_message(file, Some((job.0.as_str(), node)), status, (text, cause));
    }
}

/// Writes there why nothing was started, and nothing is known of a job.
pub fn leave_refusal(file: &Path, status: Status, text: &str) {
    write_message(file, None, status, (text, None));
}

fn write_message(
    file: &Path,
    whose: Option<(&str, NodeRank)>,
    status: Status,
    (text, cause): (&str, Option<NodeRank>),
) {
    let message = Message {
        version: 1,
        job: whose.map(|(job, _)| job),
        node: whose.map(|(_, node)| node.0),
        status: status.code(),
        cause: cause.map(|cause| cause.0),
        text,
    };
    // The keeper makes the file; where there is none nobody reads it.
    let file = OpenOptions::new().write(true).truncate(true).open(file);
    let _ = file.and_then(|mut file| file.write_all(fitting(message).as_bytes()));
}

/// As much of the text as there is room for, from its beginning: the cause stands first.
fn fitting(mut message: Message<'_>) -> String {
    loop {
        let json = serde_json::to_string(&message).expect("numbers and texts serialize");
        if json.len() <= MESSAGE_BYTES_MAX {
            return json;
        }
        let mut end = message.text.len() - (json.len() - MESSAGE_BYTES_MAX).div_ceil(6).max(1);
        while !message.text.is_char_boundary(end) {
            end -= 1;
        }
        message.text = &message.text[..end];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_answered_and_everything_else_is_told_what_there_is() {
        let pulse = Pulse::default();
        let status = |question: &str| pulse.answer(question.as_bytes()).0;
        assert_eq!(status("GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"), 200);
        assert_eq!(status("GET /readyz?verbose HTTP/1.1\r\n\r\n"), 503);
        pulse.set_ready(true);
        assert_eq!(status("GET /readyz HTTP/1.1\r\n\r\n"), 200);
        assert_eq!(status("HEAD /livez HTTP/1.0\r\n\r\n"), 200);
        assert_eq!(status("GET /quit HTTP/1.1\r\n\r\n"), 404);
        assert_eq!(status("POST /livez HTTP/1.1\r\n\r\n"), 405);
        for nonsense in ["", "GET /livez", "\x16\x03\x01", "SSH-2.0-x\r\n"] {
            assert_eq!(status(nonsense), 400);
        }
        pulse.set_epoch(3);
        let (_, metrics) = pulse.answer(b"GET /metrics HTTP/1.1\r\n\r\n");
        assert!(metrics.contains("\nremuda_epoch 3\n"), "{metrics}");
        assert!(!metrics.contains("remuda_nodes_joined"), "{metrics}");
        pulse.set_counts(5, 2);
        let (_, metrics) = pulse.answer(b"GET /metrics HTTP/1.1\r\n\r\n");
        assert!(metrics.ends_with("\nremuda_nodes_joined 2\n"), "{metrics}");
    }

    /// Whoever holds connections is let go before its time is over.
    #[test]
    fn silence_keeps_nobody_from_being_answered() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("it has one");
            tokio::spawn(serve(listener, Arc::default()));
            let mut silent = Vec::new();
            for _ in 0..4 * CALLERS_MAX {
                silent.push(TcpStream::connect(address).await.expect("it listens"));
            }
            let asked = async {
                let mut stream = TcpStream::connect(address).await?;
                stream.write_all(b"GET /livez HTTP/1.1\r\n\r\n").await?;
                let mut answer = String::new();
                stream.read_to_string(&mut answer).await.map(|_| answer)
            };
            let answer = tokio::time::timeout(QUESTION_MAX / 2, asked).await;
            let answer = answer.expect("an answer").expect("a whole one");
            assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        });
    }

    #[test]
    fn a_message_has_the_beginning_of_a_long_text_and_fits() {
        for text in ["short", &"\u{1}é\n".repeat(5000), &"x".repeat(5000), &"\u{7}".repeat(9000)] {
            let message =
                Message { version: 1, job: Some("a"), node: Some(3), status: 7, cause: None, text };
            let json = fitting(message);
            assert!(json.len() <= MESSAGE_BYTES_MAX);
            let back: serde_json::Value = serde_json::from_str(&json).expect("JSON");
            let kept = back["text"].as_str().expect("a text");
            assert!(text.starts_with(kept) && (kept == text || 600 < kept.len()), "{}", kept.len());
        }
    }
}
