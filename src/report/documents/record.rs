//! `run.json`: the result of a run for programs; versioned and pinned by a test.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use crate::base::{Status, WorkerExit};
use crate::report::plan::{MASK, Text, is_secret};

/// The content of `run.json`.
#[derive(Clone, Debug, Serialize)]
pub struct RunRecord {
    /// Version of the document's format.
    pub version: u32,
    /// Version of the `remuda` that wrote it.
    pub remuda: &'static str,
    /// Name of the job.
    pub job: String,
    /// State of the job. If a record contains `running` and no process holds the lock of its
    /// directory, its launcher was killed: [`SavedRun`](crate::report::SavedRun) reads it as `lost`, and the next
    /// command that makes a run directory beside it writes `lost` into it.
    pub state: RunState,
    /// Pid of the launcher.
    pub pid: u32,
    /// Host of the launcher.
    pub host: String,
    /// The command line; values of variables whose names look like those of secrets are masked.
    #[serde(serialize_with = "serialize_words")]
    pub command: Vec<OsString>,
    /// Working directory of the command.
    #[serde(serialize_with = "serialize_path")]
    pub cwd: PathBuf,
    /// SHA-256 of the plan, in hexadecimal digits.
    pub plan: String,
    /// Start of the job, in seconds since 1970.
    pub start: f64,
    /// End of the job, in seconds since 1970; unset while it runs.
    pub end: Option<f64>,
    /// The exit status of `remuda`.
    pub exit: Option<u8>,
    /// Whether `exit` is a worker's own status or that of remuda.
    pub exit_of: Option<ExitSource>,
    /// The first failure of the last epoch, or the request that ended the job.
    pub cause: Option<CauseRecord>,
    /// Every start of the workers, and its result.
    pub epochs: Vec<EpochRecord>,
    /// Every worker, by rank, as soon as all of an epoch have started; none before, nor between two epochs.
    pub workers: Vec<WorkerRecord>,
    /// Processes whose end could not be confirmed.
    pub leaked: Vec<LeakedRecord>,
}

/// State of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// The workers were started.
    Running,
    /// The launcher has written the result.
    Ended,
    /// The launcher was killed.
    Lost,
}

/// The source of an exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ExitSource {
    /// The status is that of a worker.
    Worker,
    /// The status is of `remuda` itself.
    Remuda,
}

impl From<Status> for ExitSource {
    fn from(status: Status) -> Self {
        match status {
            Status::Worker(_) => Self::Worker,
            _ => Self::Remuda,
        }
    }
}

/// One start of the workers.
#[derive(Clone, Debug, Serialize)]
pub struct EpochRecord {
    /// Number of the epoch: 0 at first, then one more after every restart.
    pub epoch: u32,
    /// Start of the workers, in seconds since 1970.
    pub start: f64,
    /// End of the epoch, in seconds since 1970; unset while it lasts.
    pub end: Option<f64>,
    /// Its first failure.
    pub cause: Option<CauseRecord>,
}

/// The first failure, or the request that ended the job.
#[derive(Clone, Debug, Serialize)]
pub struct CauseRecord {
    /// `worker_failed`, `worker_missing`, `worker_not_started`, `node_lost`; without a failure `interrupted`, by a
    /// signal to the launcher, or `allocation_ended`.
    pub kind: &'static str,
    /// Rank of the worker; unset without a worker.
    pub rank: Option<u32>,
    /// Host of the worker, the lost node, or the host of the launcher.
    pub host: String,
    /// Pid of the worker on its host; unset if it never started.
    pub pid: Option<u32>,
    /// Its exit code; unset if a signal ended it.
    pub code: Option<u8>,
    /// The signal that ended it, or that the launcher received.
    pub signal: Option<i32>,
    /// The first line of the exception that ended it, if it reported one.
    pub exception: Option<String>,
    /// Source of the evidence: `error_file`, `output`, `note`, `exit`, `reports_of_others`; unset if a node
    /// was lost.
    pub evidence: Option<&'static str>,
    /// Where it failed in its program, or was when it was stopped, if its traceback or its stack says so.
    pub place: Option<PlaceRecord>,
}

/// A place in a program.
#[derive(Clone, Debug, Serialize)]
pub struct PlaceRecord {
    /// The file, as the traceback names it.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// Name of the function; empty where the traceback has none.
    pub function: String,
}

impl CauseRecord {
    /// A cause that is no worker.
    pub fn of_host(kind: &'static str, host: String) -> Self {
        Self {
            kind,
            rank: None,
            host,
            pid: None,
            code: None,
            signal: None,
            exception: None,
            evidence: None,
            place: None,
        }
    }
}

/// Result of one worker.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerRecord {
    /// Rank of the worker in the job.
    pub rank: u32,
    /// Host of the worker, as the hostfile names it.
    pub host: String,
    /// Its pid; unset if it never started.
    pub pid: Option<u32>,
    /// Its exit code; unset if a signal ended it.
    pub code: Option<u8>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether it ended because remuda stopped it.
    pub stopped: bool,
    /// Seconds that it ran.
    pub seconds: Option<f64>,
    /// By how much the kernel's count of out-of-memory kills rose while it ran.
    pub oom_kills: u64,
    /// Errors of GPUs (`Xid`) that the driver logged meanwhile about the worker or about a whole GPU.
    pub xids: Vec<String>,
    /// The last training step that it reported, from 1.
    pub step: Option<u64>,
    /// What it did instead of training steps, as it reported it, such as `checkpoint`.
    pub phase: Option<String>,
}

/// A process that may still be running.
#[derive(Clone, Debug, Serialize)]
pub struct LeakedRecord {
    /// Host of the process.
    pub host: String,
    /// Pid of the process on its host.
    pub pid: u32,
    /// Name of the process, as the kernel shows it.
    pub name: String,
}

impl RunRecord {
    /// Formats the record as text with one line end at the end.
    pub fn to_json(&self) -> String {
        let mut json = serde_json::to_string_pretty(self).expect("plain data has a JSON form");
        json.push('\n');
        json
    }
}

/// Masks the value of every `NAME=VALUE` whose name looks like that of a secret, anywhere in a
/// word.
pub fn mask_secret(word: OsString) -> OsString {
    let bytes = word.as_bytes();
    let mut ends = memchr::memchr_iter(b'=', bytes);
    let name_end = ends.find(|end| is_secret(OsStr::from_bytes(&bytes[..*end])));
    match name_end {
        Some(end) => [OsStr::from_bytes(&bytes[..=end]), OsStr::new(MASK)].into_iter().collect(),
        None => word,
    }
}

fn serialize_words<S: Serializer>(words: &[OsString], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(words.iter().map(Text))
}

fn serialize_path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    Text(path.as_os_str()).serialize(serializer)
}

/// The exit as a code or as a signal.
pub fn code_and_signal(exit: WorkerExit) -> (Option<u8>, Option<i32>) {
    match exit {
        WorkerExit::Code(code) => (Some(code), None),
        WorkerExit::Signal { signal, .. } => (None, Some(signal)),
        WorkerExit::Lost => (None, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_secret_names_are_masked() {
        for (word, expect) in [
            ("train.py", "train.py"),
            ("API_KEY=xyz", "API_KEY=***"),
            ("--env=HF_TOKEN=xyz=", "--env=HF_TOKEN=***"),
            ("--lr=0.1", "--lr=0.1"),
        ] {
            assert_eq!(mask_secret(word.into()), expect);
        }
    }
}
