//! Interval of heartbeats.

use std::time::Duration;

/// Heartbeat interval of both ends for a lease: a tenth of it, between 10 ms and 3 s, so that
/// several heartbeats may be late before the lease expires.
pub fn heartbeat_interval(lease: Duration) -> Duration {
    const BEAT_MIN: Duration = Duration::from_millis(10);
    const BEAT_MAX: Duration = Duration::from_secs(3);
    (lease / 10).clamp(BEAT_MIN, BEAT_MAX)
}
