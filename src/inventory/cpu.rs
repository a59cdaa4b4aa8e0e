//! Processors that this process may use, by its affinity and the quota of its control groups.

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity};

use super::cgroup::{Cgroup, groups};

/// CPU quota of a control group: processor time in microseconds for each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuQuota {
    /// Processor time in each period, in microseconds.
    pub quota_us: u64,
    /// Length of a period, in microseconds.
    pub period_us: u64,
}

impl CpuQuota {
    /// The quota in whole processors, rounded up; at least 1.
    pub fn cpus(self) -> usize {
        1.max(self.quota_us.div_ceil(self.period_us.max(1))) as usize
    }
}

/// Number of processors that this process may keep busy; at least 1.
pub fn usable_cpus() -> usize {
    // The set of rustix holds 1024 processors; on a larger machine the system call fails.
    let allowed = sched_getaffinity(None)
        .map(|set: CpuSet| set.count() as usize)
        .or_else(|_| std::thread::available_parallelism().map(NonZeroUsize::get))
        .unwrap_or(1);
    let quota = cpu_quota(Path::new("/proc/self/cgroup"), Path::new("/sys/fs/cgroup"));
    1.max(allowed).min(quota.map_or(usize::MAX, CpuQuota::cpus))
}

/// The smallest quota of this process's control group and its ancestors; `None`: no limit.
///
/// `membership` is `/proc/self/cgroup`, `root` the directory where the hierarchies are mounted.
pub fn cpu_quota(membership: &Path, root: &Path) -> Option<CpuQuota> {
    let quotas = groups(membership, root, "cpu").into_iter().filter_map(|group| match group {
        Cgroup::V1(group) => read_v1(&group),
        Cgroup::V2(group) => read_v2(&group),
    });
    quotas.min_by_key(|quota| quota.cpus())
}

/// Reads the quota of a group of version 2: `cpu.max` is `max 100000` or `150000 100000`.
fn read_v2(group: &Path) -> Option<CpuQuota> {
    let text = fs::read_to_string(group.join("cpu.max")).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    Some(CpuQuota { quota_us: quota.parse().ok()?, period_us: period.parse().ok()? })
}

/// Reads the quota of a group of version 1; `None` where it is -1, which means no limit.
fn read_v1(group: &Path) -> Option<CpuQuota> {
    let number = |name: &str| fs::read_to_string(group.join(name)).ok()?.trim().parse().ok();
    Some(CpuQuota {
        quota_us: number("cpu.cfs_quota_us")?,
        period_us: number("cpu.cfs_period_us")?,
    })
}

#[cfg(test)]
mod tests {
    use super::super::cgroup::tests::tree;
    use super::*;

    /// Checks the quota in processors of a process in the given tree of control groups.
    #[track_caller]
    fn check(name: &str, membership: &str, files: &[(&str, &str)], expect: Option<usize>) {
        let (membership, root) = tree(name, membership, files);
        let found = cpu_quota(&membership, &root);
        assert_eq!(found.map(CpuQuota::cpus), expect, "for {name}");
    }

    #[test]
    fn cpu_quota_is_the_smallest_of_all_ancestors() {
        check("none", "0::/\n", &[], None);
        check("unlimited", "0::/\n", &[("cpu.max", "max 100000\n")], None);
        check("half", "0::/\n", &[("cpu.max", "150000 100000\n")], Some(2));
        check("tiny", "0::/\n", &[("cpu.max", "1000 100000\n")], Some(1));
        check(
            "above",
            "0::/pod/box\n",
            &[("pod/cpu.max", "200000 100000"), ("pod/box/cpu.max", "400000 100000")],
            Some(2),
        );
        check("host-path", "0::/kubepods/x\n", &[("cpu.max", "300000 100000")], Some(3));
        let v1 = "4:cpu,cpuacct:/box\n3:memory:/box\n";
        let quota =
            [("cpu/box/cpu.cfs_quota_us", "400000"), ("cpu/box/cpu.cfs_period_us", "100000")];
        check("v1", v1, &quota, Some(4));
        let none = [("cpu/box/cpu.cfs_quota_us", "-1"), ("cpu/box/cpu.cfs_period_us", "100000")];
        check("v1-none", v1, &none, None);
    }

    #[test]
    fn usable_cpus_is_at_least_one() {
        assert!(1 <= usable_cpus());
    }
}
