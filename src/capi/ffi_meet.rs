//! Meeting through a store of the caller.

use std::ffi::{CString, c_char, c_void};
use std::io;

use crate::capi::call_error::CallError;
use crate::capi::ffi_arguments::{CallOptions, guarded, init_options, place, text};
use crate::runtime::{Group, KeyValue};

/// Largest value in the store of a caller, in bytes.
const VALUE_BYTES_MAX: usize = 4096;

/// `remuda_store`: a key-value store of the caller.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CallerStore {
    /// First argument of the functions.
    pub context: *mut c_void,
    /// Sets a key to a text; returns 0, or -1 if that fails.
    pub set: Option<unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> i32>,
    /// Waits for a key and copies its value with the zero byte at its end, at most as many bytes as stated; returns 0,
    /// or -1 if there is no value or it is longer.
    pub get: Option<unsafe extern "C" fn(*mut c_void, *const c_char, *mut c_char, usize) -> i32>,
}

impl KeyValue for CallerStore {
    fn set(&self, key: &str, value: &str) -> io::Result<()> {
        let (key, value) = (CString::new(key)?, CString::new(value)?);
        let set = self.set.ok_or(io::ErrorKind::Unsupported)?;
        // SAFETY: the caller of `remuda_meet` promises functions that can be called so.
        match unsafe { set(self.context, key.as_ptr(), value.as_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::other("the store refused the value")),
        }
    }

    fn get(&self, key: &str) -> io::Result<String> {
        let key = CString::new(key)?;
        let get = self.get.ok_or(io::ErrorKind::Unsupported)?;
        let mut value = vec![0u8; VALUE_BYTES_MAX];
        // SAFETY: as for `set`; the buffer has the stated size.
        let status =
            unsafe { get(self.context, key.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
        if status != 0 {
            return Err(io::Error::other("the store has no value"));
        }
        let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
        value.truncate(end);
        String::from_utf8(value).map_err(io::Error::other)
    }
}

/// Joins a group of ranks that another launcher has started; see [`Group::meet`].
///
/// # Safety
/// `store` is null or has functions with the stated rules; `address` is null or ends with a zero byte; `options` is
/// null or points to options; `group` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remuda_meet(
    store: *const CallerStore,
    address: *const c_char,
    rank: u32,
    size: u32,
    options: *const CallOptions,
    group: *mut *mut Group,
) -> i32 {
    guarded(|| {
        // SAFETY: the caller promises it.
        let (options, address) = unsafe { (init_options(options)?, text(address, "address")?) };
        // SAFETY: the caller promises it.
        let (store, group) = unsafe { (store.as_ref(), place(group, "group")?) };
        let store = store.ok_or_else(|| CallError::argument("`store` is null"))?;
        if store.set.is_none() || store.get.is_none() {
            return Err(CallError::argument("a function of the store is null"));
        }
        let met = Group::meet(store, address, rank as usize, size as usize, &options)?;
        *group = Box::into_raw(Box::new(met));
        Ok(())
    })
}
