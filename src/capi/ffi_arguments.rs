//! Arguments of the C interface, and the guard around every call.

use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::capi::call_error::{self, CallError, CallErrorKind};
use crate::capi::started_work::StartedWork;
use crate::runtime::comm::core::options::STREAMS_MAX;
use crate::runtime::{Dtype, Group, InitOptions, RawSlice, ReduceOp, ReduceOrder, Work};

/// Version of the interface. It changes if a function or a struct changes in a way that an older caller does not
/// expect; new functions alone do not change it.
pub const ABI_VERSION: u32 = 1;

/// `remuda_options`. A zero field has its default; `size` lets later versions add fields at the end.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CallOptions {
    /// Size of the struct in bytes.
    pub size: u32,
    /// Number of TCP streams between two ranks of different nodes, at most 16.
    pub streams: u32,
    /// Deadline of every operation in milliseconds.
    pub timeout_ms: u64,
    /// Order in which all-reduces combine values: `REMUDA_ORDER_…`.
    pub order: u32,
    /// Unused; 0.
    pub reserved: u32,
}

/// Result of a call.
pub(super) type CallResult = Result<(), CallError>;

/// Runs a call: its error becomes the last error of the thread, and so does a panic.
pub(super) fn guarded(call: impl FnOnce() -> CallResult) -> i32 {
    let outcome = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        let message = format!("panic: {}", text.unwrap_or("without a message"));
        Err(CallError::new(CallErrorKind::Panic, None, message))
    });
    match outcome {
        Ok(()) => 0,
        Err(error) => {
            let status = error.kind as i32;
            call_error::set_last(error);
            status
        }
    }
}

/// [`guarded`] for a call on a group. If it panics, the group is aborted: otherwise the other ranks would wait
/// until their deadlines.
///
/// # Safety
/// `group` is null, or a group that has not been freed.
pub(super) unsafe fn on_group(group: *const Group, call: impl FnOnce(&Group) -> CallResult) -> i32 {
    // SAFETY: the caller promises it.
    let Some(group) = (unsafe { group.as_ref() }) else {
        return guarded(|| Err(CallError::argument("the group is null")));
    };
    let status = guarded(|| call(group));
    if status == CallErrorKind::Panic as i32 {
        guarded(|| {
            group.abort("it panicked in the library");
            Ok(())
        });
    }
    status
}

/// Elements of the caller; see [`RawSlice::new`].
///
/// # Safety
/// `count` elements from `data` are initialized, and no other code uses them before the operation ends.
pub(super) unsafe fn elements(
    data: *mut c_void,
    count: usize,
    dtype: u32,
) -> Result<RawSlice, CallError> {
    let dtype = dtype_of(dtype)?;
    // SAFETY: the caller promises it.
    let slice = unsafe { RawSlice::new(data.cast(), count, dtype) };
    slice.ok_or_else(|| {
        let problem = format!(
            "{count} elements of type {dtype} at {data:?}: the address is null or not aligned"
        );
        CallError::argument(problem)
    })
}

/// Element type with a code.
pub(super) fn dtype_of(code: u32) -> Result<Dtype, CallError> {
    let known = u8::try_from(code).ok().and_then(Dtype::from_code);
    known.ok_or_else(|| CallError::argument(format!("no element type has the code {code}")))
}

/// Reduction with a code.
pub(super) fn reduction(code: u32) -> Result<ReduceOp, CallError> {
    let known = u8::try_from(code).ok().and_then(ReduceOp::from_code);
    known.ok_or_else(|| CallError::argument(format!("no reduction has the code {code}")))
}

/// Number of elements of all ranks' parts.
pub(super) fn of_all_ranks(group: &Group, count: usize) -> Result<usize, CallError> {
    let all = count.checked_mul(group.world_size());
    all.ok_or_else(|| CallError::argument(format!("{count} elements per rank are too many")))
}

/// Options of the caller; null means the defaults.
///
/// # Safety
/// `options` is null or points to a struct of the size that its first field states.
pub(super) unsafe fn init_options(options: *const CallOptions) -> Result<InitOptions, CallError> {
    // SAFETY: the caller promises it.
    let Some(size) = (unsafe { options.cast::<u32>().as_ref() }) else {
        return Ok(InitOptions::default());
    };
    if (*size as usize) < size_of::<CallOptions>() {
        let problem =
            format!("`size` of the options is {size}; set it to `sizeof(remuda_options)`");
        return Err(CallError::argument(problem));
    }
    // SAFETY: the struct is at least as long as this version of it.
    let CallOptions { streams, timeout_ms, order, .. } = unsafe { *options };
    let mut found = InitOptions::default();
    if timeout_ms != 0 {
        found.timeout = Duration::from_millis(timeout_ms);
    }
    if streams != 0 {
        let few = u8::try_from(streams).ok().filter(|few| usize::from(*few) <= STREAMS_MAX);
        let problem = || CallError::argument(format!("more than {STREAMS_MAX} streams"));
        found.streams = Some(few.and_then(std::num::NonZero::new).ok_or_else(problem)?);
    }
    let known = u8::try_from(order).ok().and_then(ReduceOrder::from_code);
    found.order =
        known.ok_or_else(|| CallError::argument(format!("no order has the code {order}")))?;
    Ok(found)
}

/// A text of the caller.
///
/// # Safety
/// `text` is null or ends with a zero byte.
pub(super) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str, CallError> {
    if text.is_null() {
        return Err(CallError::argument(format!("`{name}` is null")));
    }
    // SAFETY: the caller promises it.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| CallError::argument(format!("`{name}` is not UTF-8")))
}

/// An array of the caller.
///
/// # Safety
/// `count` values from `values` are initialized.
pub(super) unsafe fn array<'a, T>(
    values: *const T,
    count: usize,
    name: &str,
) -> Result<&'a [T], CallError> {
    if count == 0 {
        return Ok(&[]);
    }
    if values.is_null() {
        return Err(CallError::argument(format!("`{name}` is null")));
    }
    // SAFETY: the caller promises it.
    Ok(unsafe { std::slice::from_raw_parts(values, count) })
}

/// Place of the caller for a result.
///
/// # Safety
/// `place` is null or may be written.
pub(super) unsafe fn place<'a, T>(place: *mut T, name: &str) -> Result<&'a mut T, CallError> {
    // SAFETY: the caller promises it.
    unsafe { place.as_mut() }.ok_or_else(|| CallError::argument(format!("`{name}` is null")))
}

/// Whether the caller wants a handle: then `start` begins the operation, else `block` runs it.
///
/// # Safety
/// `work` is null or may be written.
pub(super) unsafe fn start_or_block<S, M: Send + 'static>(
    work: *mut *mut StartedWork,
    memory: S,
    start: impl FnOnce(S) -> Work<M>,
    block: impl FnOnce(S) -> Result<(), crate::runtime::CollectiveError>,
) -> CallResult {
    // SAFETY: the caller promises it.
    match unsafe { work.as_mut() } {
        Some(work) => *work = Box::into_raw(Box::new(StartedWork::new(start(memory)))),
        None => block(memory)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::ptr::null;

    use super::*;

    #[test]
    fn panic_becomes_a_status() {
        assert_eq!(guarded(|| Ok(())), 0);
        assert_eq!(guarded(|| panic!("rank {}", 3)), CallErrorKind::Panic as i32);
        assert_eq!(call_error::last().unwrap().message, "panic: rank 3");
        assert_eq!(guarded(|| Err(CallError::argument("bad"))), CallErrorKind::Argument as i32);
        assert_eq!(call_error::last().unwrap().message, "bad");
    }

    #[test]
    fn panic_on_a_group_aborts_it() {
        let groups = Group::threads(2).unwrap();
        // SAFETY: the group lives.
        let status = unsafe { on_group(&raw const groups[0], |_| panic!("here")) };
        assert_eq!(status, CallErrorKind::Panic as i32);
        let error = groups[1].barrier().unwrap_err().to_string();
        assert!(error.contains("it panicked in the library"), "{error}");
        // SAFETY: null is allowed.
        let status = unsafe { on_group(null(), |_| Ok(())) };
        assert_eq!(status, CallErrorKind::Argument as i32);
    }

    #[test]
    fn options_have_defaults_and_limits() {
        let all = CallOptions { size: 24, streams: 0, timeout_ms: 0, order: 0, reserved: 0 };
        let read = |options: &CallOptions| {
            // SAFETY: the struct lives.
            unsafe { init_options(options) }.map_err(|error| error.message)
        };
        assert_eq!(size_of::<CallOptions>(), 24);
        assert_eq!(read(&all).unwrap().timeout, InitOptions::default().timeout);
        let some = CallOptions { timeout_ms: 1500, streams: 3, order: 1, ..all };
        let found = read(&some).unwrap();
        assert_eq!((found.timeout, found.order), (Duration::from_millis(1500), ReduceOrder::Any));
        assert_eq!(found.streams.unwrap().get(), 3);
        let problem = |options: CallOptions| read(&options).unwrap_err();
        assert!(problem(CallOptions { size: 8, ..all }).contains("sizeof(remuda_options)"));
        assert_eq!(problem(CallOptions { streams: 17, ..all }), "more than 16 streams");
        assert_eq!(problem(CallOptions { order: 2, ..all }), "no order has the code 2");
    }
}
