//! Free space of a disk.

use std::path::Path;

/// Returns the bytes that this user can still write to the disk of a path; `None`: the system does not tell it.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(path).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}
