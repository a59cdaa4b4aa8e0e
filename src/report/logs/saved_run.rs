//! A run directory that a later command reads: its name, and the state of the run in `run.json`.

use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::base::JobId;
use crate::os::calendar::utc_stamp;
use crate::os::files::input_file;
use crate::os::machine::machine_name;
use crate::report::record::RunState;

/// State and host are in the first bytes of a record; records of large jobs have megabytes.
const HEAD_BYTES_MAX: u64 = 4 * 1024;
const RECORD_BYTES_MAX: u64 = 64 << 20;

const RUNNING: &str = "\"state\": \"running\"";
const LOST: &str = "\"state\": \"lost\"";

/// The name of a run directory: `20261122-173109Z-JOB`, the time in UTC.
pub(super) fn run_dir_name(started: Duration, job: &JobId) -> String {
    format!("{}-{job}", utc_stamp(started))
}

/// The start time of a run from the name of its directory, as text that sorts by time; `None` for
/// every other name. Directories of earlier versions are named by seconds since 1970, in 11 digits.
pub(super) fn parse_stamp(name: &str) -> Option<String> {
    const STAMP_BYTES: usize = "20261122-173109Z".len();
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some((seconds, job)) = name.split_once('-')
        && seconds.len() == 11
        && !job.is_empty()
    {
        return seconds.parse().ok().map(|seconds| utc_stamp(Duration::from_secs(seconds)));
    }
    let (stamp, job) = (name.get(..STAMP_BYTES)?, name.get(STAMP_BYTES..)?);
    let (date, time) = stamp.split_once('-')?;
    let is_stamp = date.len() == 8 && is_number(date) && is_number(time.strip_suffix('Z')?);
    (is_stamp && 1 < job.len() && job.starts_with('-')).then(|| stamp.to_owned())
}

/// Takes the lock on a run directory. A launcher holds it as long as it lives; an error other than
/// `WOULDBLOCK` means that the file system has no locks.
pub(super) fn lock(path: &Path) -> rustix::io::Result<OwnedFd> {
    use rustix::fs::{FlockOperation, Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path, flags, Mode::empty())?;
    rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
    Ok(directory)
}

/// A run directory with a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedRun {
    path: PathBuf,
    state: RunState,
}

impl SavedRun {
    /// Reads the state of a run. If a record contains `running` and no process holds the lock of
    /// its directory, the state is [`RunState::Lost`]: the launcher was killed. This applies only
    /// to records of this host, because some network file systems keep locks to one host. `None` if
    /// there is no record.
    pub fn read(path: &Path) -> Option<Self> {
        let of = |state| Some(Self { path: path.to_owned(), state });
        match Head::read(path)?.state {
            RunState::Running => {}
            state => return of(state),
        }
        let Ok(_lock) = lock(path) else { return of(RunState::Running) };
        // The launcher may have ended between the first read and the lock.
        let head = Head::read(path)?;
        let is_lost = head.state == RunState::Running && head.is_of_this_host();
        of(if is_lost { RunState::Lost } else { head.state })
    }

    /// The state of the run.
    pub fn state(&self) -> RunState {
        self.state
    }

    /// Whether the run ended with exit status 0.
    pub(super) fn is_success(&self) -> bool {
        let record = || -> Option<serde_json::Value> {
            let mut bytes = Vec::new();
            let file = input_file::open_regular(&self.path.join("run.json")).ok()?;
            file.take(RECORD_BYTES_MAX).read_to_end(&mut bytes).ok()?;
            serde_json::from_slice(&bytes).ok()
        };
        self.state == RunState::Ended && record().is_some_and(|record| record["exit"] == 0)
    }

    /// If the run is lost and its record still contains `running`, replaces that by `lost`, with
    /// `write`.
    pub(super) fn mark_lost(&self, write: impl FnOnce(&Path, &str) -> std::io::Result<()>) {
        if self.state != RunState::Lost {
            return;
        }
        let Ok(_lock) = lock(&self.path) else { return };
        let Ok(text) = fs::read_to_string(self.path.join("run.json")) else { return };
        if text.contains(RUNNING) {
            // After a failure the next command tries again.
            let _ = write(&self.path, &text.replacen(RUNNING, LOST, 1));
        }
    }
}

/// Fields from the first lines of a record.
struct Head {
    state: RunState,
    /// The host of the launcher; earlier versions did not write it.
    host: Option<String>,
}

impl Head {
    fn read(path: &Path) -> Option<Self> {
        let mut bytes = Vec::new();
        let file = input_file::open_regular(&path.join("run.json")).ok()?;
        file.take(HEAD_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Self::parse(&String::from_utf8_lossy(&bytes))
    }

    fn parse(text: &str) -> Option<Self> {
        let value = |key: &str| {
            let rest = text.split_once(&format!("\"{key}\": \""))?.1;
            Some(rest.split_once('"')?.0.to_owned())
        };
        let state = match value("state")?.as_str() {
            "running" => RunState::Running,
            "ended" => RunState::Ended,
            "lost" => RunState::Lost,
            _ => return None,
        };
        Some(Self { state, host: value("host") })
    }

    fn is_of_this_host(&self) -> bool {
        self.host.as_ref().is_none_or(|host| *host == machine_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_directory_is_recognised_by_its_name() {
        #[track_caller]
        fn check(name: &str, expect: Option<&str>) {
            assert_eq!(parse_stamp(name).as_deref(), expect, "{name}");
        }
        check("20261122-173109Z-f7yhranw", Some("20261122-173109Z"));
        check("20261122-173109Z-my-job-2", Some("20261122-173109Z"));
        check("00951782399-f7yhranw", Some("20000228-235959Z"));
        for other in [
            "latest",
            "tools",
            "not-ours",
            "20261122-173109Z-",
            "20261122-173109Z",
            "2026112-173109Z-x",
            "20261122-17310xZ-x",
            "00951782399-",
            "0095178239x-x",
            ".latest-7",
            "ü0261122-173109Z-x",
        ] {
            check(other, None);
        }
    }

    #[test]
    fn new_run_directory_name_is_recognised() {
        let job = JobId("a-job".to_owned());
        let name = run_dir_name(Duration::from_secs(951_782_399), &job);
        assert_eq!(name, "20000228-235959Z-a-job");
        assert_eq!(parse_stamp(&name).as_deref(), Some("20000228-235959Z"));
    }

    #[test]
    fn head_of_a_record_is_read() {
        let text = "{\n  \"version\": 3,\n  \"state\": \"running\",\n  \"host\": \"n1\",\n  \"comm";
        let head = Head::parse(text).expect("a head");
        assert_eq!((head.state, head.host.as_deref()), (RunState::Running, Some("n1")));
        assert!(!head.is_of_this_host() || machine_name() == "n1");
        assert!(Head::parse("{\n  \"state\": \"unknown\"").is_none());
        assert!(Head::parse("").is_none());
    }
}
