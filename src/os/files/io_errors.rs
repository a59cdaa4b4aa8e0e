//! Kinds of I/O errors after which the same call is worth another attempt.

use std::io::{self, ErrorKind};
use std::time::Duration;

/// Pause before the next attempt to connect.
pub const CONNECT_PAUSE: Duration = Duration::from_millis(20);

/// Time for which a host that the kernel reports as unreachable is tried again: shortly after a link
/// came up, the kernel may still remember that the neighbour did not answer.
const UNREACHABLE_LIMIT: Duration = Duration::from_secs(5);

/// Whether a read or write on a non-blocking socket failed only because it had to wait.
pub fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Returns the pause after which to connect again, if another attempt may succeed. `elapsed` is the
/// time since the first attempt.
///
/// A refused connection is not retried here: whether the listener may still be starting, or has
/// ended, is known to the caller alone.
pub fn pause_before_reconnect(error: &io::Error, elapsed: Duration) -> Option<Duration> {
    match error.kind() {
        ErrorKind::TimedOut => Some(Duration::ZERO),
        ErrorKind::HostUnreachable if elapsed < UNREACHABLE_LIMIT => Some(CONNECT_PAUSE),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pause(kind: ErrorKind, elapsed: Duration) -> Option<Duration> {
        pause_before_reconnect(&kind.into(), elapsed)
    }

    #[test]
    fn unreachable_host_is_retried_for_a_limited_time() {
        let just_before = UNREACHABLE_LIMIT.saturating_sub(Duration::from_nanos(1));
        assert_eq!(pause(ErrorKind::HostUnreachable, Duration::ZERO), Some(CONNECT_PAUSE));
        assert_eq!(pause(ErrorKind::HostUnreachable, just_before), Some(CONNECT_PAUSE));
        assert_eq!(pause(ErrorKind::HostUnreachable, UNREACHABLE_LIMIT), None);
    }

    #[test]
    fn timed_out_attempt_is_repeated_at_once() {
        assert_eq!(pause(ErrorKind::TimedOut, UNREACHABLE_LIMIT), Some(Duration::ZERO));
    }

    #[test]
    fn other_errors_end_the_attempts() {
        for kind in [ErrorKind::ConnectionRefused, ErrorKind::PermissionDenied] {
            assert_eq!(pause(kind, Duration::ZERO), None, "{kind:?}");
        }
    }
}
