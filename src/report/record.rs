//! `run.json`: how a run ended, for machines. Made for that, versioned, pinned by a test.

use serde::Serialize;

use crate::base::{Status, WorkerExit};

/// The document.
#[derive(Clone, Debug, Serialize)]
pub struct RunRecord {
    /// Version of this shape.
    pub version: u32,
    /// Name of the job.
    pub job: String,
    /// SHA-256 of the plan, in hexadecimal digits.
    pub plan: String,
    /// Seconds since 1970.
    pub start: f64,
    /// Seconds since 1970.
    pub end: f64,
    /// The exit status of `remuda`.
    pub exit: u8,
    /// Whether `exit` is a worker's own status or ours.
    pub exit_of: ExitOf,
    /// The first failure.
    pub cause: Option<CauseRecord>,
    /// Every worker, by rank.
    pub workers: Vec<WorkerRecord>,
    /// Processes that could not be confirmed dead.
    pub leaked: Vec<LeakedRecord>,
}

/// Whose exit status it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ExitOf {
    /// A worker's.
    Worker,
    /// `remuda`'s own.
    Remuda,
}

impl From<Status> for ExitOf {
    fn from(status: Status) -> Self {
        match status {
            Status::Worker(_) => Self::Worker,
            _ => Self::Remuda,
        }
    }
}

/// The first failure.
#[derive(Clone, Debug, Serialize)]
pub struct CauseRecord {
    /// `worker_failed`, `worker_not_started`, `node_lost`.
    pub kind: &'static str,
    /// Its rank; unset when a node was lost.
    pub rank: Option<u32>,
    /// Its host.
    pub host: String,
    /// Its pid.
    pub pid: Option<u32>,
    /// Its exit code.
    pub code: Option<u8>,
    /// The signal that ended it.
    pub signal: Option<i32>,
}

/// One worker.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerRecord {
    /// Its rank.
    pub rank: u32,
    /// Its host.
    pub host: String,
    /// Its pid; unset when it never started.
    pub pid: Option<u32>,
    /// Its exit code.
    pub code: Option<u8>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether it ended because we stopped it.
    pub stopped: bool,
    /// Seconds that it ran.
    pub seconds: Option<f64>,
    /// By how much the kernel's count of out-of-memory kills rose while it ran.
    pub oom_kills: u64,
}

/// A process that may still be there.
#[derive(Clone, Debug, Serialize)]
pub struct LeakedRecord {
    /// Where.
    pub host: String,
    /// Its pid.
    pub pid: u32,
    /// Its name.
    pub name: String,
}

impl RunRecord {
    /// As text, one line end at the end.
    pub fn to_json(&self) -> String {
        let mut json = serde_json::to_string_pretty(self).expect("plain data has a JSON form");
        json.push('\n');
        json
    }
}

/// The two faces of an exit.
pub fn code_and_signal(exit: WorkerExit) -> (Option<u8>, Option<i32>) {
    match exit {
        WorkerExit::Code(code) => (Some(code), None),
        WorkerExit::Signal { signal, .. } => (None, Some(signal)),
        WorkerExit::Lost => (None, None),
    }
}
