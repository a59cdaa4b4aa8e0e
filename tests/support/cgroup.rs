//! A control group with little memory, where this machine lets us make one.

use std::fs;
use std::path::{Path, PathBuf};

/// Hierarchies in which memory may be limited: the old kind and the new one.
const HIERARCHIES: [(&str, &str); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];

/// Removed when dropped; whoever was in it must have ended.
pub(crate) struct MemoryGroup(PathBuf);

impl MemoryGroup {
    pub(crate) fn new(bytes: u64) -> Option<Self> {
        HIERARCHIES.iter().find_map(|(root, limit)| {
            let path = Path::new(root).join(format!("remuda-test-{}", std::process::id()));
            fs::create_dir(&path).ok()?;
            let group = Self(path);
            fs::write(group.0.join(limit), bytes.to_string()).ok()?;
            // Memory that may be swapped out is not scarce.
            let _ = fs::write(group.0.join("memory.swap.max"), "0");
            Some(group)
        })
    }

    /// The file that takes pids.
    pub(crate) fn members(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
