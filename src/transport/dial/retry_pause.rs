//! Pause between two attempts.

use std::time::Duration;

/// Pause between two attempts: an eighth of the time waited so far, within bounds.
pub(crate) fn share_of(waited: Duration, min: Duration, max: Duration) -> Duration {
    (waited / 8).clamp(min, max)
}
