//! Control groups with little memory or processor time, on machines that permit their creation.

use std::fs;
use std::path::{Path, PathBuf};

/// The root, the file and the value of a limit, for cgroup v1 and for v2.
type Limits<'a> = [(&'a str, &'a str, &'a str); 2];

/// A control group, removed when dropped; its processes must have exited by then.
pub(crate) struct Group(PathBuf);

impl Group {
    /// A limit of the memory of all its processes together.
    pub(crate) fn with_memory(bytes: u64) -> Option<Self> {
        let bytes = bytes.to_string();
        let group = Self::limited(&[
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", &bytes),
            ("/sys/fs/cgroup", "memory.max", &bytes),
        ])?;
        // Without swap: memory that can be swapped out is not scarce.
        let _ = fs::write(group.0.join("memory.swap.max"), "0");
        Some(group)
    }

    /// A limit of one processor's time for all its processes together.
    pub(crate) fn with_one_cpu() -> Option<Self> {
        Self::limited(&[
            ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "100000"),
            ("/sys/fs/cgroup", "cpu.max", "100000 100000"),
        ])
    }

    fn limited(limits: &Limits<'_>) -> Option<Self> {
        limits.iter().find_map(|(root, file, limit)| {
            let path = Path::new(root).join(format!("remuda-test-{}", std::process::id()));
            fs::create_dir(&path).ok()?;
            let group = Self(path);
            fs::write(group.0.join(file), limit).ok()?;
            Some(group)
        })
    }

    /// The file to which pids are written.
    pub(crate) fn members(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
