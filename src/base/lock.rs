//! [`lock`]: locks shared data.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks shared data, also after a panic of another thread. Callers change their data in one step, so that
/// a panic leaves it complete.
#[inline]
pub(crate) fn lock<T: ?Sized>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
