//! Memory that operations use in place.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::Mutex;

use crate::base::lock;
use crate::capi::call_error::CallError;
use crate::capi::ffi_arguments::{guarded, on_group, place};
use crate::runtime::{Buffer, Group};

/// Memory of the callers, by its address.
static BUFFERS: Mutex<BTreeMap<usize, Buffer<u8>>> = Mutex::new(BTreeMap::new());

/// Allocates `bytes` zeros, aligned to a page, in memory that the ranks of the node share.
///
/// # Safety
/// `group` is null or a group that has not been freed; `memory` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_alloc(
    group: *const Group,
    bytes: usize,
    memory: *mut *mut c_void,
) -> i32 {
    let call = |group: &Group| {
        // SAFETY: the caller promises it.
        let memory = unsafe { place(memory, "memory") }?;
        // Without a byte, two buffers could have one address.
        let mut buffer = group.alloc::<u8>(bytes.max(1))?;
        let address = buffer.as_mut_ptr();
        lock(&BUFFERS).insert(address.addr(), buffer);
        *memory = address.cast();
        Ok(())
    };
    // SAFETY: the caller promises it.
    unsafe { on_group(group, call) }
}

/// Frees memory of [`remuda_alloc`]; null is allowed. Its group may have been freed before.
#[unsafe(no_mangle)]
pub extern "C" fn remuda_release(memory: *mut c_void) -> i32 {
    guarded(|| {
        if memory.is_null() {
            return Ok(());
        }
        let buffer = lock(&BUFFERS).remove(&memory.addr());
        let unknown = || CallError::argument(format!("`remuda_alloc` did not return {memory:?}"));
        buffer.map(drop).ok_or_else(unknown)
    })
}
