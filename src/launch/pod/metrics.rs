//! Numbers about a job, and their text in Prometheus' exposition format 0.0.4.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::launch::progress::JobProgress;
use crate::wire::Stream;

/// Maximum number of nodes for which heartbeats are shown one by one.
const NODES_MAX: usize = 4096;

/// Counters that the tasks of links update.
#[derive(Debug, Default)]
pub(in crate::launch) struct LinkTraffic {
    stdout_bytes: AtomicU64,
    stderr_bytes: AtomicU64,
    /// What the workers report.
    pub(in crate::launch) progress: JobProgress,
}

impl LinkTraffic {
    /// Counts output of workers.
    pub(in crate::launch) fn output(&self, stream: Stream, bytes: usize) {
        let counter = match stream {
            Stream::Stdout => &self.stdout_bytes,
            Stream::Stderr => &self.stderr_bytes,
        };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Numbers of the job that only node 0 knows.
#[derive(Clone, Debug, Default)]
pub(in crate::launch) struct JobNumbers {
    /// Start of the job since 1970.
    pub(in crate::launch) started: Duration,
    /// Number of workers that run.
    pub(in crate::launch) running: usize,
    /// Number of workers that exited with 0, or because they were stopped.
    pub(in crate::launch) exited: usize,
    /// Number of workers that exited by themselves, and not with 0.
    pub(in crate::launch) failed: usize,
    /// Each node, and when its last message was received if it is connected.
    pub(in crate::launch) nodes: Vec<(String, Option<Instant>)>,
}

/// The text of all numbers. `job` and `traffic` are those of node 0.
pub(in crate::launch) fn show_metrics(
    (is_ready, restarts): (bool, u32),
    job: Option<(&JobNumbers, &LinkTraffic)>,
    now: Instant,
) -> String {
    let mut text = Exposition::default();
    text.family("up", Kind::Gauge, "1 while the remuda process of this node runs.").sample("", 1);
    text.family("ready", Kind::Gauge, "1 if this node has joined the job.")
        .sample("", u8::from(is_ready));
    text.family("restarts_total", Kind::Counter, "Restarts of the workers of the job.")
        .sample("", restarts);
    if let Some((job, traffic)) = job {
        show_job(&mut text, job, now);
        show_traffic(&mut text, traffic, now);
    }
    text.0
}

fn show_job(text: &mut Exposition, job: &JobNumbers, now: Instant) {
    let started = job.started.as_secs_f64();
    text.family("job_start_time_seconds", Kind::Gauge, "Start of the job as Unix time.")
        .sample("", Float(started));
    text.family("workers", Kind::Gauge, "Workers of the job by state.")
        .sample(r#"state="running""#, job.running)
        .sample(r#"state="exited""#, job.exited)
        .sample(r#"state="failed""#, job.failed);
    let connected = job.nodes.iter().filter(|(_, last_message)| last_message.is_some()).count();
    text.family("nodes", Kind::Gauge, "Nodes of the job by state.")
        .sample(r#"state="connected""#, connected)
        .sample(r#"state="missing""#, job.nodes.len() - connected);
    let mut ages = text.family(
        "heartbeat_age_seconds",
        Kind::Gauge,
        "Time since the last message of a connected node.",
    );
    let last_messages = job.nodes.iter().filter_map(|(host, at)| Some((host, (*at)?)));
    for (host, at) in last_messages.take(NODES_MAX) {
        let age = now.saturating_duration_since(at).as_secs_f64();
        ages = ages.sample(&format!("node=\"{}\"", escape_label(host)), Float(age));
    }
}

fn show_traffic(text: &mut Exposition, traffic: &LinkTraffic, now: Instant) {
    let bytes = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    text.family("output_bytes_total", Kind::Counter, "Bytes that workers have written.")
        .sample(r#"stream="stdout""#, bytes(&traffic.stdout_bytes))
        .sample(r#"stream="stderr""#, bytes(&traffic.stderr_bytes));
    let Some((step, at)) = traffic.progress.lowest_step() else { return };
    text.family("step", Kind::Gauge, "Last training step that workers report.")
        .sample("", step.step);
    let age = now.saturating_duration_since(at).as_secs_f64();
    text.family("last_step_age_seconds", Kind::Gauge, "Time since workers reported a step.")
        .sample("", Float(age));
    if let Some(steps) = step.steps {
        text.family("steps_planned", Kind::Gauge, "Total number of training steps.")
            .sample("", steps);
    }
    if let Some(loss) = step.loss {
        text.family("loss", Kind::Gauge, "Loss of the last step.").sample("", Float(loss));
    }
    if let Some(speed) = step.tokens_per_s {
        text.family("tokens_per_second", Kind::Gauge, "Tokens per second of all workers.")
            .sample("", Float(speed));
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
}

/// A number with a fraction; `NaN` and infinities are written as Prometheus reads them.
struct Float(f64);

impl std::fmt::Display for Float {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            number if number.is_nan() => f.write_str("NaN"),
            f64::INFINITY => f.write_str("+Inf"),
            f64::NEG_INFINITY => f.write_str("-Inf"),
            number => write!(f, "{number}"),
        }
    }
}

/// The exposition text so far.
#[derive(Default)]
struct Exposition(String);

impl Exposition {
    /// Begins a family of samples.
    fn family(&mut self, name: &str, kind: Kind, help: &str) -> Family<'_> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let _ = write!(self.0, "# HELP remuda_{name} {help}\n# TYPE remuda_{name} {kind}\n");
        Family { text: &mut self.0, name: name.to_owned() }
    }
}

/// Samples of one name.
struct Family<'a> {
    text: &'a mut String,
    name: String,
}

impl Family<'_> {
    fn sample(self, labels: &str, value: impl std::fmt::Display) -> Self {
        let labels = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let _ = writeln!(self.text, "remuda_{}{labels} {value}", self.name);
        self
    }
}

fn escape_label(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Rank, clock};
    use crate::report::WorkerStep;

    #[test]
    fn metrics_of_a_member_cover_its_own_state() {
        let expect = "\
# HELP remuda_up 1 while the remuda process of this node runs.
# TYPE remuda_up gauge
remuda_up 1
# HELP remuda_ready 1 if this node has joined the job.
# TYPE remuda_ready gauge
remuda_ready 0
# HELP remuda_restarts_total Restarts of the workers of the job.
# TYPE remuda_restarts_total counter
remuda_restarts_total 3
";
        assert_eq!(show_metrics((false, 3), None, clock::now()), expect);
    }

    #[test]
    fn metrics_of_node_0_describe_the_job() {
        let now = clock::now();
        let nodes = vec![("n1".to_owned(), Some(now)), ("n\"2".to_owned(), None)];
        let started = Duration::from_millis(1500);
        let job = JobNumbers { started, running: 5, exited: 2, failed: 1, nodes };
        let traffic = LinkTraffic::default();
        traffic.output(Stream::Stderr, 7);
        let step =
            |step, loss| WorkerStep { step, steps: None, loss: Some(loss), tokens_per_s: None };
        traffic.progress.step(Rank(1), step(8, 0.5));
        traffic.progress.step(Rank(0), step(9, f64::NAN));
        traffic.progress.step(Rank(2), step(10, 0.25));
        let text = show_metrics((true, 0), Some((&job, &traffic)), now);
        for line in [
            "remuda_job_start_time_seconds 1.5",
            "remuda_workers{state=\"running\"} 5",
            "remuda_workers{state=\"exited\"} 2",
            "remuda_workers{state=\"failed\"} 1",
            "remuda_nodes{state=\"connected\"} 1",
            "remuda_nodes{state=\"missing\"} 1",
            "remuda_heartbeat_age_seconds{node=\"n1\"} 0",
            "remuda_output_bytes_total{stream=\"stderr\"} 7",
            "remuda_step 9",
            "remuda_loss NaN",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("tokens_per_second"), "{text}");
    }

    #[test]
    fn metrics_escape_labels() {
        assert_eq!(escape_label("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
        assert_eq!(Float(f64::NEG_INFINITY).to_string(), "-Inf");
    }
}
