//! A state that a thread and those who give it work share: a lock, and a bell that rings when the
//! state has changed.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// See the module. Nobody panics while holding the lock.
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

    /// Until the bell rings, at most for so long.
    pub(super) fn wait<'a>(&self, state: MutexGuard<'a, S>, limit: Duration) -> MutexGuard<'a, S> {
        let waited = self.changed.wait_timeout(state, limit);
        waited.expect("no thread panics while it holds the lock").0
    }

    /// Until the bell rings.
    pub(super) fn wait_for_change<'a>(&self, state: MutexGuard<'a, S>) -> MutexGuard<'a, S> {
        self.changed.wait(state).expect("no thread panics while it holds the lock")
    }

    pub(super) fn ring(&self) {
        self.changed.notify_all();
    }
}
