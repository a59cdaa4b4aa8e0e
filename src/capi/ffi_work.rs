//! Handles of operations in flight.

use std::time::Duration;

use crate::capi::ffi_arguments::{guarded, place};
use crate::capi::started_work::StartedWork;

/// Status of [`remuda_wait`] for an operation that has not ended.
pub const IN_PROGRESS: i32 = 100;

/// Limit of [`remuda_wait`] that never passes.
pub const FOREVER: u64 = u64::MAX;

/// Waits for at most `limit_ms` milliseconds. If the operation has ended, frees the handle and returns the status of
/// the operation; else returns [`IN_PROGRESS`], and the handle remains.
///
/// # Safety
/// `work` is null or a handle that was not freed, and no other thread uses it now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_wait(work: *mut StartedWork, limit_ms: u64) -> i32 {
    let limit = if limit_ms == FOREVER { Duration::MAX } else { Duration::from_millis(limit_ms) };
    let mut has_ended = true;
    let status = guarded(|| {
        // SAFETY: the caller promises it.
        let outcome = unsafe { place(work, "work") }?.wait_for(limit);
        has_ended = outcome.is_some();
        Ok(outcome.unwrap_or(Ok(()))?)
    });
    if !has_ended {
        return IN_PROGRESS;
    }
    if !work.is_null() {
        guarded(|| {
            // SAFETY: a started operation made the box, and its handle is freed once: here.
            drop(unsafe { Box::from_raw(work) });
            Ok(())
        });
    }
    status
}

/// Sets `has_ended` to 1 if the operation has ended, else to 0; does not wait, and keeps the handle.
///
/// # Safety
/// `work` is a handle that was not freed, no other thread uses it now, and `has_ended` may be written; both may be
/// null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_test(work: *mut StartedWork, has_ended: *mut i32) -> i32 {
    guarded(|| {
        // SAFETY: the caller promises it.
        let (work, has_ended) = unsafe { (place(work, "work")?, place(has_ended, "has_ended")?) };
        *has_ended = i32::from(work.has_ended());
        Ok(())
    })
}
