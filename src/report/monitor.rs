//! State that a thread shares with its clients: a lock, and a condition variable that is notified
//! when the state has changed.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// A lock and a condition variable. No thread panics while it holds the lock.
pub(super) struct Monitor<S> {
    state: Mutex<S>,
    changed: Condvar,
}

impl<S> Monitor<S> {
    pub(super) fn new(state: S) -> Self {
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, S> {
        self.state.lock().expect("no thread panics while it holds the lock")
    }

    /// Waits for a change, at most for the limit.
    pub(super) fn wait<'a>(&self, state: MutexGuard<'a, S>, limit: Duration) -> MutexGuard<'a, S> {
        let waited = self.changed.wait_timeout(state, limit);
        waited.expect("no thread panics while it holds the lock").0
    }

    /// Waits for a change.
    pub(super) fn wait_for_change<'a>(&self, state: MutexGuard<'a, S>) -> MutexGuard<'a, S> {
        self.changed.wait(state).expect("no thread panics while it holds the lock")
    }

    pub(super) fn notify_all(&self) {
        self.changed.notify_all();
    }
}
