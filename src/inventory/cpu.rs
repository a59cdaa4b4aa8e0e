//! Processors that we may use: our affinity, and the quota of our control groups.

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;

use rustix::thread::{CpuSet, sched_getaffinity};

use super::cgroup::{Group, groups};

/// Processor time of a control group: microseconds that it may run in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuQuota {
    /// Microseconds of processor time.
    pub quota_us: u64,
    /// Microseconds of a period.
    pub period_us: u64,
}

impl CpuQuota {
    /// As whole processors, rounded up; at least 1.
    pub fn cpus(self) -> usize {
        1.max(self.quota_us.div_ceil(self.period_us.max(1))) as usize
    }
}

/// How many processors this process may keep busy; at least 1.
pub fn usable_cpus() -> usize {
    // The set of rustix holds 1024 processors; a larger machine refuses to fill it.
    let allowed = sched_getaffinity(None)
        .map(|set: CpuSet| set.count() as usize)
        .or_else(|_| std::thread::available_parallelism().map(NonZeroUsize::get))
        .unwrap_or(1);
    let quota = cpu_quota(Path::new("/proc/self/cgroup"), Path::new("/sys/fs/cgroup"));
    1.max(allowed).min(quota.map_or(usize::MAX, CpuQuota::cpus))
}

/// The tightest quota of our control group and of all above it, in either version; `None`: no limit.
///
/// `membership` is `/proc/self/cgroup`, `root` where the hierarchies are mounted.
pub fn cpu_quota(membership: &Path, root: &Path) -> Option<CpuQuota> {
    let quotas = groups(membership, root, "cpu").into_iter().filter_map(|group| match group {
        Group::V1(group) => read_v1(&group),
        Group::V2(group) => read_v2(&group),
    });
    quotas.min_by_key(|quota| quota.cpus())
}

/// `cpu.max`: `max 100000` or `150000 100000`.
fn read_v2(group: &Path) -> Option<CpuQuota> {
    let text = fs::read_to_string(group.join("cpu.max")).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    Some(CpuQuota { quota_us: quota.parse().ok()?, period_us: period.parse().ok()? })
}

/// A quota of -1 is none.
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

    /// A made-up control group tree; returns the quota seen from it.
    #[track_caller]
    fn check(name: &str, membership: &str, files: &[(&str, &str)], expect: Option<usize>) {
        let (membership, root) = tree(name, membership, files);
        let found = cpu_quota(&membership, &root);
        assert_eq!(found.map(CpuQuota::cpus), expect, "for {name}");
    }

    #[test]
    fn the_tightest_quota_counts() {
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
    fn there_is_always_a_processor() {
        assert!(1 <= usable_cpus());
    }
}
