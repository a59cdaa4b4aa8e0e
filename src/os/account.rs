//! Who we are on this machine, and what its limits leave us.

use std::ffi::CStr;

use rustix::process::{Resource, getrlimit};

/// A limit of the kernel; `None`: unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Current limit.
    pub soft: Option<u64>,
    /// As far as it may be raised.
    pub hard: Option<u64>,
}

/// Open files.
pub fn open_files() -> Bounds {
    bounds(Resource::Nofile)
}

/// Bytes that may be locked in memory.
pub fn locked_memory() -> Bounds {
    bounds(Resource::Memlock)
}

fn bounds(resource: Resource) -> Bounds {
    let limit = getrlimit(resource);
    Bounds { soft: limit.current, hard: limit.maximum }
}

/// The name of a user's number; `None` where it has none.
pub fn user_name(uid: u32) -> Option<String> {
    let mut record = std::mem::MaybeUninit::<libc::passwd>::uninit();
    let mut text = vec![0; 16 * 1024];
    let mut found: *mut libc::passwd = std::ptr::null_mut();
    // SAFETY: record and buffer are ours and as long as we say.
    let status = unsafe {
        libc::getpwuid_r(uid, record.as_mut_ptr(), text.as_mut_ptr(), text.len(), &raw mut found)
    };
    if status != 0 || found.is_null() {
        return None;
    }
    // SAFETY: it was found, so the record is filled and its name is a C string in `text`.
    let name = unsafe { CStr::from_ptr((*found).pw_name) };
    Some(name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_has_a_name_and_files_have_a_limit() {
        assert_eq!(user_name(0).as_deref(), Some("root"));
        assert_eq!(user_name(u32::MAX - 7), None);
        assert!(open_files().soft.is_none_or(|files| 0 < files));
    }
}
