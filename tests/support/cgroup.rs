//! Control groups with little of something, where this machine lets us make them.

use std::fs;
use std::path::{Path, PathBuf};

/// Where something may be limited, and how: hierarchies of the old kind and the new one.
type Places<'a> = [(&'a str, &'a str, &'a str); 2];

/// Removed when dropped; whoever was in it must have ended.
pub(crate) struct Group(PathBuf);

impl Group {
    /// So much memory for all that are in it.
    pub(crate) fn with_memory(bytes: u64) -> Option<Self> {
        let bytes = bytes.to_string();
        let group = Self::limited(&[
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", &bytes),
            ("/sys/fs/cgroup", "memory.max", &bytes),
        ])?;
        // Memory that may be swapped out is not scarce.
        let _ = fs::write(group.0.join("memory.swap.max"), "0");
        Some(group)
    }

    /// The time of one processor for all that are in it.
    pub(crate) fn with_one_cpu() -> Option<Self> {
        Self::limited(&[
            ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "100000"),
            ("/sys/fs/cgroup", "cpu.max", "100000 100000"),
        ])
    }

    fn limited(places: &Places<'_>) -> Option<Self> {
        places.iter().find_map(|(root, file, limit)| {
            let path = Path::new(root).join(format!("remuda-test-{}", std::process::id()));
            fs::create_dir(&path).ok()?;
            let group = Self(path);
            fs::write(group.0.join(file), limit).ok()?;
            Some(group)
        })
    }

    /// The file that takes pids.
    pub(crate) fn members(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
