//! Shared code of the end-to-end tests: the real binary with its own directory and marker, a list
//! of the processes that carry the marker, and the check that no process of a job is left.

pub(crate) mod cgroup;
#[cfg(feature = "train")]
pub(crate) mod checkpoints;
pub(crate) mod delays;
pub(crate) mod expected;
pub(crate) mod golden;
pub(crate) mod launch;
pub(crate) mod net;
pub(crate) mod process;
pub(crate) mod proof;
pub(crate) mod scratch;
#[cfg(feature = "train")]
pub(crate) mod shards;
pub(crate) mod terminal;
pub(crate) mod torch;
pub(crate) mod varying_nodes;

use std::time::{Duration, Instant};

use remuda::base::clock;

/// Limit after which a hanging test fails, far above what the busiest machine needs. No test passes or fails
/// because of a duration.
pub(crate) const LIMIT: Duration = Duration::from_secs(300);
/// Interval between two checks of a condition.
pub(crate) const PAUSE: Duration = Duration::from_millis(3);

/// Calls `check` until it returns a value.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, check: impl FnMut() -> Option<T>) -> T {
    wait_for_or(|| what.to_owned(), check)
}

/// The same, with a description that is only computed on failure.
#[track_caller]
pub(crate) fn wait_for_or<T>(what: impl Fn() -> String, mut check: impl FnMut() -> Option<T>) -> T {
    let deadline: Instant = clock::now() + LIMIT;
    loop {
        if let Some(value) = check() {
            return value;
        }
        assert!(clock::now() < deadline, "timed out waiting for {}", what());
        std::thread::sleep(PAUSE);
    }
}
