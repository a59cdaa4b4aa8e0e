//! What end-to-end tests share: the real binary with a directory and a marker of its own, a view of
//! the processes that carry the marker, and the oracle that says that nothing of a job is left.

pub(crate) mod cgroup;
pub(crate) mod delays;
pub(crate) mod launch;
pub(crate) mod net;
pub(crate) mod process;
pub(crate) mod proof;
pub(crate) mod terminal;
pub(crate) mod torch;

use std::time::{Duration, Instant};

use remuda::base::clock;

/// Ends a hang. No test passes or fails because of how long something took.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// Between two looks at the world.
pub(crate) const PAUSE: Duration = Duration::from_millis(3);

/// Looks again and again until there is an answer.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    wait_for_or(|| what.to_owned(), look)
}

/// The same with something to say only in the end.
#[track_caller]
pub(crate) fn wait_for_or<T>(what: impl Fn() -> String, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline: Instant = clock::now() + LIMIT;
    loop {
        if let Some(answer) = look() {
            return answer;
        }
        assert!(clock::now() < deadline, "waited in vain for {}", what());
        std::thread::sleep(PAUSE);
    }
}
