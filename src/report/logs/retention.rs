//! Decides which run directories are kept: bounded by number, size and age, separately for jobs and
//! for small commands.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;

use super::ended_sizes::EndedSizes;
use super::saved_run::{SavedRun, lock, parse_stamp};
use crate::base::clock;
use crate::base::order;
use crate::os::calendar::utc_stamp;
use crate::report::record::RunState;

/// The kind of command that a run directory belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunClass {
    /// A job: `run`, `train`, `pod` and the other launchers.
    Job,
    /// A small command: `ssh`, `bench`. Its directories are in `tools`, below those of jobs.
    Tool,
}

impl RunClass {
    /// The directory of this class, below that of all runs.
    pub(super) fn dir_below(self, parent: &Path) -> PathBuf {
        match self {
            Self::Job => parent.to_owned(),
            Self::Tool => parent.join("tools"),
        }
    }

    fn limits(self) -> Limits {
        match self {
            Self::Job => JOBS_MAX,
            Self::Tool => TOOLS_MAX,
        }
    }
}

/// Limits for the directories that are kept.
#[derive(Clone, Copy, Debug)]
struct Limits {
    runs: usize,
    bytes: u64,
    age: Duration,
}

const JOBS_MAX: Limits = Limits { runs: 100, bytes: 16 << 30, age: days(90) };
const TOOLS_MAX: Limits = Limits { runs: 50, bytes: 1 << 30, age: days(30) };
/// Age up to which a failed run is removed only after all successful runs have been removed.
const FAILURE_TIME: Duration = days(1);

const fn days(count: u64) -> Duration {
    Duration::from_secs(count * 24 * 60 * 60)
}

/// A run directory that may be removed.
#[derive(Debug)]
struct Removable {
    path: PathBuf,
    stamp: String,
    bytes: u64,
}

/// Corrects the records of runs after their launchers were killed, and removes directories above
/// the limits: those that are too old, then the oldest. A running run is never removed; one that
/// failed within the last day is removed only if no other is left. `own` is the run that has just
/// begun.
pub(super) fn prune(
    parent: &Path,
    own: &Path,
    class: RunClass,
    write: impl Fn(&Path, &str) -> std::io::Result<()>,
) {
    let max = class.limits();
    let (mut kept, mut bytes) = (0, 0);
    let mut removable = Vec::new();
    let mut sizes = EndedSizes::read(parent);
    for (path, name, stamp) in runs(parent) {
        let (is_running, size) = match sizes.get(&name) {
            Some(size) => (false, size),
            None => examine(&path, &name, &mut sizes, &write),
        };
        (kept, bytes) = (kept + 1, bytes + size);
        if !is_running && path != own {
            removable.push(Removable { path, stamp, bytes: size });
        }
    }
    sizes.save();
    remove_above(max, kept, bytes, removable);
}

/// Returns whether the launcher of a run lives, and the size of the run's directory. Corrects the
/// record if the launcher was killed, and records the size if the run has ended.
fn examine(
    path: &Path,
    name: &str,
    sizes: &mut EndedSizes,
    write: impl FnOnce(&Path, &str) -> std::io::Result<()>,
) -> (bool, u64) {
    let (run, size) = (SavedRun::read(path), size_of(path));
    let Some(run) = run else { return (false, size) };
    run.mark_lost(write);
    if run.state() != RunState::Running {
        sizes.insert(name, size);
        return (false, size);
    }
    // On a file system without locks, a running run looks like a finished one: it can be removed
    // when it is no longer among the newest.
    (matches!(lock(path), Err(Errno::WOULDBLOCK)), size)
}

/// Removes runs until the limits hold for `kept` directories of `bytes` bytes.
fn remove_above(max: Limits, mut kept: usize, mut bytes: u64, mut removable: Vec<Removable>) {
    order::sort_by(&mut removable, |a, b| a.stamp.cmp(&b.stamp));
    let now = clock::wall();
    let oldest = utc_stamp(now.saturating_sub(max.age));
    let is_too_much = |kept: usize, bytes: u64| max.runs < kept || max.bytes < bytes;
    let recent = utc_stamp(now.saturating_sub(FAILURE_TIME));
    for keeps_failures in [true, false] {
        removable.retain(|run| {
            let is_old = run.stamp < oldest;
            if !is_old && !is_too_much(kept, bytes) {
                return true;
            }
            if keeps_failures && recent <= run.stamp && !has_succeeded(&run.path) {
                return true;
            }
            remove(&run.path);
            (kept, bytes) = (kept - 1, bytes.saturating_sub(run.bytes));
            false
        });
    }
}

/// Directories with the name of a run: path, name, start time.
fn runs(parent: &Path) -> Vec<(PathBuf, String, String)> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let named = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let stamp = parse_stamp(&name)?;
        Some((entry.path(), name, stamp))
    });
    named.collect()
}

fn has_succeeded(run: &Path) -> bool {
    SavedRun::read(run).is_some_and(|run| run.is_success())
}

/// Removes a run directory unless its launcher has just begun.
fn remove(run: &Path) {
    let lock = lock(run);
    if !matches!(lock, Err(Errno::WOULDBLOCK)) {
        let _ = fs::remove_dir_all(run);
    }
}

/// Bytes of all files below a directory. Links are not followed.
fn size_of(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| entry.metadata().ok().map(|found| (entry, found)));
    sizes
        .map(|(entry, found)| if found.is_dir() { size_of(&entry.path()) } else { found.len() })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of runs that is removed on drop.
    struct Runs(PathBuf);

    impl Runs {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("remuda-{name}-{}", std::process::id()));
            fs::create_dir(&path).expect("a directory for the test");
            Self(path)
        }

        /// Adds a run that began `age` ago.
        fn add(&self, age: Duration, job: &str, record: &str) -> PathBuf {
            let stamp = utc_stamp(clock::wall().saturating_sub(age));
            let path = self.0.join(format!("{stamp}-{job}"));
            fs::create_dir(&path).expect("a directory");
            fs::write(path.join("run.json"), record).expect("a record");
            path
        }

        fn prune(&self) {
            let own =
                self.add(Duration::ZERO, &format!("own{}", clock::wall().as_nanos()), SUCCESS);
            let write = |path: &Path, text: &str| fs::write(path.join("run.json"), text);
            prune(&self.0, &own, RunClass::Job, write);
            assert!(own.exists(), "the run that has just begun");
        }

        fn count(&self) -> usize {
            runs(&self.0).len()
        }
    }

    impl Drop for Runs {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const SUCCESS: &str = "{\n  \"state\": \"ended\",\n  \"exit\": 0\n}\n";
    const FAILURE: &str = "{\n  \"state\": \"ended\",\n  \"exit\": 1\n}\n";
    const RUNNING: &str = "{\n  \"state\": \"running\",\n  \"exit\": null\n}\n";
    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn recent_failure_outlives_newer_successes() {
        let runs = Runs::new("failures");
        let failed = runs.add(MINUTE * 500, "failed", FAILURE);
        let earlier = runs.add(days(3), "earlier", FAILURE);
        let first = runs.add(MINUTE * 400, "first", SUCCESS);
        for minute in 0..100 {
            runs.add(MINUTE * (minute + 1), "success", SUCCESS);
        }
        runs.prune();
        assert_eq!(runs.count(), 100);
        assert!(failed.exists() && !earlier.exists() && !first.exists());
    }

    #[test]
    fn recent_failures_are_bounded_too() {
        let runs = Runs::new("only-failures");
        for minute in 0..120 {
            runs.add(MINUTE * (minute + 1), "failed", FAILURE);
        }
        runs.prune();
        assert_eq!(runs.count(), 100);
    }

    #[test]
    fn running_run_is_kept_at_any_age() {
        let runs = Runs::new("running");
        let running = runs.add(days(200), "running", RUNNING);
        let old = runs.add(days(100), "old", FAILURE);
        let held = lock(&running).expect("no other process knows it");
        runs.prune();
        assert!(running.exists() && !old.exists());
        drop(held);
    }

    #[test]
    fn record_of_a_killed_launcher_becomes_lost() {
        let runs = Runs::new("lost");
        let lost = runs.add(MINUTE, "lost", RUNNING);
        assert_eq!(SavedRun::read(&lost).expect("a record").state(), RunState::Lost);
        let elsewhere = runs.add(
            MINUTE,
            "elsewhere",
            &RUNNING.replace("\"exit\"", "\"host\": \"?\",\n  \"exit\""),
        );
        runs.prune();
        let text = |path: &Path| fs::read_to_string(path.join("run.json")).expect("a record");
        assert_eq!(text(&lost), RUNNING.replace("running", "lost"));
        assert!(text(&elsewhere).contains("running"), "its lock may not be seen here");
    }

    #[test]
    fn only_runs_that_have_ended_are_not_examined_again() {
        let runs = Runs::new("examined");
        let ended = runs.add(MINUTE * 3, "ended", SUCCESS);
        let lost = runs.add(MINUTE * 2, "lost", RUNNING);
        let running = runs.add(MINUTE, "running", RUNNING);
        let held = lock(&running).expect("no other process knows it");
        runs.prune();
        let sizes = fs::read_to_string(runs.0.join(".ended_runs")).expect("the sizes");
        let has = |run: &Path| {
            sizes.contains(run.file_name().and_then(|name| name.to_str()).expect("a name"))
        };
        assert_eq!([&ended, &lost, &running].map(|run| has(run)), [true, true, false]);
        drop(held);
        fs::remove_dir_all(&ended).expect("a run that the user removes");
        runs.prune();
        let sizes = fs::read_to_string(runs.0.join(".ended_runs")).expect("the sizes");
        assert!(!sizes.contains("-ended") && sizes.contains("-running"), "{sizes}");
    }

    #[test]
    fn runs_above_the_size_limit_are_removed() {
        let runs = Runs::new("size");
        let big = runs.add(days(2), "big", SUCCESS);
        let file = fs::File::create(big.join("rank0.stdout")).expect("a file");
        file.set_len(17 << 30).expect("a file with a hole");
        let small = runs.add(days(3), "small", SUCCESS);
        runs.prune();
        assert!(!big.exists() && !small.exists(), "the oldest first, until the rest fits");
    }
}
