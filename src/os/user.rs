//! The user of this process on this machine, and its limits.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::process::{Resource, getrlimit};

/// A resource limit of the kernel; `None`: unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Current limit.
    pub soft: Option<u64>,
    /// Maximum to which it may be raised.
    pub hard: Option<u64>,
}

/// Returns the limit of open files.
pub fn open_files() -> Bounds {
    bounds(Resource::Nofile)
}

/// Returns the limit of bytes that may be locked in memory.
pub fn locked_memory() -> Bounds {
    bounds(Resource::Memlock)
}

fn bounds(resource: Resource) -> Bounds {
    let limit = getrlimit(resource);
    Bounds { soft: limit.current, hard: limit.maximum }
}

/// Returns the name of a user id; `None` if it has none.
pub fn user_name(uid: u32) -> Option<String> {
    let mut record = std::mem::MaybeUninit::<libc::passwd>::uninit();
    let mut text = vec![0; 16 * 1024];
    let mut found: *mut libc::passwd = std::ptr::null_mut();
    // SAFETY: this function owns record and buffer, and they are as long as stated.
    let status = unsafe {
        libc::getpwuid_r(uid, record.as_mut_ptr(), text.as_mut_ptr(), text.len(), &raw mut found)
    };
    if status != 0 || found.is_null() {
        return None;
    }
    // SAFETY: the user was found, so the record is filled and its name is a C string in `text`.
    let name = unsafe { CStr::from_ptr((*found).pw_name) };
    Some(name.to_string_lossy().into_owned())
}

/// Returns the home directory of a user; `None` if there is no such user.
pub fn home_of(name: &str) -> Option<PathBuf> {
    let name = CString::new(name).ok()?;
    let mut record = std::mem::MaybeUninit::<libc::passwd>::uninit();
    let mut text = vec![0; 16 * 1024];
    let mut found: *mut libc::passwd = std::ptr::null_mut();
    // SAFETY: this function owns name, record and buffer, and they are as long as stated.
    let status = unsafe {
        libc::getpwnam_r(
            name.as_ptr(),
            record.as_mut_ptr(),
            text.as_mut_ptr(),
            text.len(),
            &raw mut found,
        )
    };
    if status != 0 || found.is_null() {
        return None;
    }
    // SAFETY: the user was found, so the record is filled and its directory is a C string in `text`.
    let home = unsafe { CStr::from_ptr((*found).pw_dir) };
    Some(OsStr::from_bytes(home.to_bytes()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_has_a_name_and_open_files_a_limit() {
        assert_eq!(user_name(0).as_deref(), Some("root"));
        assert_eq!(user_name(u32::MAX - 7), None);
        assert_eq!(home_of("root"), Some("/root".into()));
        assert_eq!((home_of("no such user"), home_of("a\0b")), (None, None));
        assert!(open_files().soft.is_none_or(|files| 0 < files));
    }
}
