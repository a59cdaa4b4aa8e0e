//! The last error of a thread, and hints.

use std::ffi::c_char;
use std::ptr::null;

use crate::capi::call_error::{self, CallErrorKind};

/// Returns the length of the last error message of this thread in bytes, without the zero byte at its end, and
/// copies as much as fits; 0 if no call of this thread has failed. `kind` and `rank` may be null; the rank is -1 if
/// the error names none.
///
/// # Safety
/// `message` has room for `message_len` bytes or is null, and `kind` and `rank` may be written or are null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_last_error(
    message: *mut c_char,
    message_len: usize,
    kind: *mut i32,
    rank: *mut i64,
) -> usize {
    let last = call_error::last();
    // SAFETY: the caller promises it.
    if let Some(kind) = unsafe { kind.as_mut() } {
        *kind = last.as_ref().map_or(0, |last| last.kind as i32);
    }
    // SAFETY: the caller promises it.
    if let Some(rank) = unsafe { rank.as_mut() } {
        *rank = last.as_ref().and_then(|last| last.rank).map_or(-1, |rank| i64::from(rank.0));
    }
    let text = last.as_ref().map_or("", |last| &last.message);
    if !message.is_null() && message_len != 0 {
        let copied = crate::base::prefix(text, message_len - 1);
        // SAFETY: the copied bytes and the zero byte fit; the text of the library is memory of its own.
        unsafe {
            std::ptr::copy_nonoverlapping(copied.as_ptr(), message.cast(), copied.len());
            *message.add(copied.len()) = 0;
        }
    }
    text.len()
}

/// Returns what to do about the last error of this thread; null if no call of it has failed.
#[unsafe(no_mangle)]
pub extern "C" fn remuda_last_hint() -> *const c_char {
    call_error::last().map_or(null(), |last| last.hint.as_ptr())
}

/// Returns what to do about an error of a kind; null if there is no such kind.
#[unsafe(no_mangle)]
pub extern "C" fn remuda_hint(kind: i32) -> *const c_char {
    let found = CallErrorKind::ALL.into_iter().find(|known| *known as i32 == kind);
    found.map_or(null(), |kind| kind.hint().as_ptr())
}
