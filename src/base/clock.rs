//! The only clock of the program. Decisions use [`now`]; [`wall`] is for people and files.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Monotonic time.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
pub fn now() -> Instant {
    Instant::now()
}

/// So long after a time; what is longer than a hundred years is a hundred years.
pub fn after(start: Instant, limit: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(100 * 365 * 86_400);
    start + limit.min(FAR)
}

/// Time since 1970 in UTC; jumps when the clock is set.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
pub fn wall() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Microseconds since this machine started, comparable between processes of one machine.
pub fn machine_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000
}
