//! Server for the supervisor of a pod while a job runs: probes and metrics. It cannot change
//! anything.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use crate::base::{clock, lock};
use crate::launch::options::LaunchError;
use crate::launch::pod::metrics::{JobNumbers, LinkTraffic, show_metrics};
use crate::os::tasks::Tasks;

/// Maximum number of open connections; a further one closes the oldest, so that silent clients
/// cannot block the others.
const CONNECTIONS_MAX: usize = 64;
/// Maximum number of bytes of a request that are read.
const REQUEST_BYTES_MAX: usize = 4096;
/// Time limit of one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Numbers about the job as this node knows them, read by the probe server.
#[derive(Debug, Default)]
pub(in crate::launch) struct HealthState {
    ready: AtomicBool,
    epoch: AtomicU32,
    /// Numbers that only node 0 knows.
    job: Mutex<Option<(JobNumbers, Arc<LinkTraffic>)>>,
}

/// Response to a request.
#[derive(Debug, PartialEq, Eq)]
struct HttpResponse {
    status: u16,
    content_type: &'static str,
    text: String,
}

/// Content type of plain text.
const PLAIN: &str = "text/plain; charset=utf-8";
/// Content type of Prometheus' exposition format.
const EXPOSITION: &str = "text/plain; version=0.0.4; charset=utf-8";

impl HealthState {
    /// Sets whether node 0 accepts connections, or this node has joined.
    pub(in crate::launch) fn set_ready(&self, is_ready: bool) {
        self.ready.store(is_ready, Ordering::Relaxed);
    }

    /// Sets the current epoch.
    pub(in crate::launch) fn set_epoch(&self, epoch: u32) {
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    /// Sets the numbers of the job, on node 0.
    pub(in crate::launch) fn set_job(&self, numbers: JobNumbers, traffic: &Arc<LinkTraffic>) {
        let mut job = lock(&self.job);
        *job = Some((numbers, Arc::clone(traffic)));
    }

    /// The response to a request. Pure but for the numbers.
    fn respond(&self, request: &[u8]) -> HttpResponse {
        let plain = |status, text: &str| HttpResponse {
            status,
            content_type: PLAIN,
            text: text.to_owned(),
        };
        let line = request.split(|byte| *byte == b'\r' || *byte == b'\n').next();
        let line = String::from_utf8_lossy(line.unwrap_or_default()).into_owned();
        let mut words = line.split(' ');
        let (method, path, version) = (words.next(), words.next(), words.next());
        if !version.is_some_and(|version| version.starts_with("HTTP/1.")) {
            return plain(400, "expected an HTTP/1 request\n");
        }
        if !matches!(method, Some("GET" | "HEAD")) {
            return plain(405, "only GET and HEAD are supported\n");
        }
        match path.map(|path| path.split('?').next().unwrap_or_default()) {
            // The response itself is the check: the event loop of the job sends it.
            Some("/livez" | "/startupz") => plain(200, "ok\n"),
            Some("/readyz") if self.ready.load(Ordering::Relaxed) => plain(200, "ok\n"),
            Some("/readyz") => plain(503, "this node has not joined the job\n"),
            Some("/metrics") => {
                HttpResponse { status: 200, content_type: EXPOSITION, text: self.metrics() }
            }
            _ => plain(404, "not found; see /livez, /readyz and /metrics\n"),
        }
    }

    fn metrics(&self) -> String {
        let of_node = (self.ready.load(Ordering::Relaxed), self.epoch.load(Ordering::Relaxed));
        let job = lock(&self.job);
        let job = job.as_ref().map(|(numbers, traffic)| (numbers, &**traffic));
        show_metrics(of_node, job, clock::now())
    }
}

/// Starts to serve probes. Must be called inside a runtime.
pub(in crate::launch) async fn start_probe_server(
    address: Option<SocketAddr>,
    health: &Arc<HealthState>,
    tasks: &mut Tasks,
) -> Result<(), LaunchError> {
    let Some(address) = address else { return Ok(()) };
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|error| LaunchError::Status { address, error })?;
    tasks.spawn(serve(listener, Arc::clone(health)));
    Ok(())
}

async fn serve(listener: TcpListener, health: Arc<HealthState>) {
    let mut connections = JoinSet::new();
    let mut in_order = VecDeque::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {
                in_order.retain(|connection: &AbortHandle| !connection.is_finished());
            }
            accepted = listener.accept() => {
                // File descriptors may have run out: the next probe is early enough.
                let Ok((stream, _)) = accepted else {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                };
                if in_order.len() == CONNECTIONS_MAX && let Some(first) = in_order.pop_front() {
                    first.abort();
                }
                let response = serve_connection(stream, Arc::clone(&health));
                let response = async { tokio::time::timeout(REQUEST_TIMEOUT, response).await };
                in_order.push_back(connections.spawn(response));
            }
        }
    }
}

async fn serve_connection(mut stream: TcpStream, health: Arc<HealthState>) -> io::Result<()> {
    let mut request = Vec::new();
    let is_over = |request: &[u8]| request.windows(4).any(|end| end == b"\r\n\r\n");
    while !is_over(&request) && request.len() < REQUEST_BYTES_MAX {
        if stream.read_buf(&mut request).await? == 0 {
            break;
        }
    }
    let HttpResponse { status, content_type, text } = health.respond(&request);
    let reason = match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        _ => "Service Unavailable",
    };
    let body = if request.starts_with(b"HEAD ") { "" } else { text.as_str() };
    let head = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    stream.write_all((head + body).as_bytes()).await?;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_answered_and_other_requests_are_refused() {
        let health = HealthState::default();
        let status = |request: &str| health.respond(request.as_bytes()).status;
        assert_eq!(status("GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"), 200);
        assert_eq!(status("GET /readyz?verbose HTTP/1.1\r\n\r\n"), 503);
        health.set_ready(true);
        assert_eq!(status("GET /readyz HTTP/1.1\r\n\r\n"), 200);
        assert_eq!(status("HEAD /livez HTTP/1.0\r\n\r\n"), 200);
        assert_eq!(status("GET /quit HTTP/1.1\r\n\r\n"), 404);
        assert_eq!(status("POST /livez HTTP/1.1\r\n\r\n"), 405);
        for invalid in ["", "GET /livez", "\x16\x03\x01", "SSH-2.0-x\r\n"] {
            assert_eq!(status(invalid), 400);
        }
        health.set_epoch(3);
        let metrics = health.respond(b"GET /metrics HTTP/1.1\r\n\r\n");
        assert_eq!(metrics.content_type, "text/plain; version=0.0.4; charset=utf-8");
        assert!(metrics.text.contains("\nremuda_restarts_total 3\n"), "{metrics:?}");
        assert!(!metrics.text.contains("remuda_nodes"), "{metrics:?}");
        health.set_job(JobNumbers { running: 5, ..JobNumbers::default() }, &Arc::default());
        let metrics = health.respond(b"GET /metrics HTTP/1.1\r\n\r\n").text;
        assert!(metrics.contains("\nremuda_workers{state=\"running\"} 5\n"), "{metrics}");
    }

    #[test]
    fn probes_are_plain_text() {
        let health = HealthState::default();
        for path in ["/livez", "/readyz", "/startupz", "/quit"] {
            let answer = health.respond(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes());
            assert_eq!(answer.content_type, "text/plain; charset=utf-8", "{path}");
        }
    }

    /// Idle connections are closed before their time limit when new ones arrive.
    #[test]
    fn idle_connections_do_not_block_probes() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let address = listener.local_addr().expect("it has one");
            tokio::spawn(serve(listener, Arc::default()));
            let mut idle = Vec::new();
            for _ in 0..4 * CONNECTIONS_MAX {
                idle.push(TcpStream::connect(address).await.expect("it listens"));
            }
            let probe = async {
                let mut stream = TcpStream::connect(address).await?;
                stream.write_all(b"GET /livez HTTP/1.1\r\n\r\n").await?;
                let mut answer = String::new();
                stream.read_to_string(&mut answer).await.map(|_| answer)
            };
            let answer = tokio::time::timeout(REQUEST_TIMEOUT / 2, probe).await;
            let answer = answer.expect("an answer").expect("a whole one");
            assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        });
    }
}
