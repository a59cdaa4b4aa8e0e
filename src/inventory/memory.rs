//! Memory that new processes may use, by the available memory of the machine and the limits of the
//! control groups; and the processes that were killed because there was none.

use std::fs;
use std::path::Path;

use super::cgroup::{Cgroup, groups};

/// Bytes that new processes may use without swapping or being killed; `None`: unknown.
pub fn available_memory() -> Option<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo").ok();
    let free = meminfo.and_then(|text| parse_available(&text));
    let limit = memory_limit(Path::new("/proc/self/cgroup"), Path::new("/sys/fs/cgroup"));
    [free, limit].into_iter().flatten().min()
}

/// Parses `MemAvailable` of `/proc/meminfo`, in bytes.
fn parse_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024)
}

/// The smallest limit of this process's control group and its ancestors, in bytes; `None`: no
/// limit.
///
/// `membership` is `/proc/self/cgroup`, `root` the directory where the hierarchies are mounted.
pub fn memory_limit(membership: &Path, root: &Path) -> Option<u64> {
    groups(membership, root, "memory").iter().filter_map(limit_of).min()
}

fn limit_of(group: &Cgroup) -> Option<u64> {
    let file = match group {
        Cgroup::V1(group) => group.join("memory.limit_in_bytes"),
        Cgroup::V2(group) => group.join("memory.max"),
    };
    parse_limit(&fs::read_to_string(file).ok()?)
}

/// Parses a limit, `max` or bytes; `None`: no limit, which version 1 writes as the largest multiple
/// of the page size.
fn parse_limit(text: &str) -> Option<u64> {
    const UNLIMITED: u64 = i64::MAX as u64 / 65_536 * 65_536;
    text.trim().parse().ok().filter(|bytes| *bytes < UNLIMITED)
}

/// Number of processes that the kernel's OOM killer has killed since this machine started; 0 if the
/// kernel does not count them.
pub fn oom_kills() -> u64 {
    parse_oom_kills(&fs::read_to_string("/proc/vmstat").unwrap_or_default()).unwrap_or(0)
}

/// Parses `oom_kill` of `/proc/vmstat`.
fn parse_oom_kills(vmstat: &str) -> Option<u64> {
    vmstat.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::cgroup::tests::tree;
    use super::*;

    #[test]
    fn memory_limit_is_the_smallest_of_all_ancestors() {
        #[track_caller]
        fn check(name: &str, membership: &str, files: &[(&str, &str)], expect: Option<u64>) {
            let (membership, root) = tree(&format!("memory-{name}"), membership, files);
            assert_eq!(memory_limit(&membership, &root), expect, "for {name}");
        }
        check("none", "0::/\n", &[], None);
        check("unlimited", "0::/\n", &[("memory.max", "max\n")], None);
        check("own", "0::/box\n", &[("box/memory.max", "1048576\n")], Some(1 << 20));
        check(
            "above",
            "0::/pod/box\n",
            &[("pod/memory.max", "4096"), ("pod/box/memory.max", "8192")],
            Some(4096),
        );
        let v1 = "4:cpu,cpuacct:/box\n3:memory:/box\n";
        check("v1", v1, &[("memory/box/memory.limit_in_bytes", "65536\n")], Some(65_536));
        let none = [("memory/box/memory.limit_in_bytes", "9223372036854771712\n")];
        check("v1-none", v1, &none, None);
        let other = [("cpu/box/memory.limit_in_bytes", "65536\n")];
        check("v1-other", v1, &other, None);
    }

    #[test]
    fn available_memory_is_parsed_from_meminfo() {
        #[track_caller]
        fn check(text: &str, expect: Option<u64>) {
            assert_eq!(parse_available(text), expect, "{text:?}");
        }
        let text = "MemTotal:       24682416 kB\nMemFree:  1 kB\nMemAvailable:   20000000 kB\n";
        check(text, Some(20_480_000_000));
        check("MemTotal: 5 kB\n", None);
        check("MemAvailable: many kB\n", None);
        check("MemAvailable: 5\n", None);
        check(&format!("MemAvailable: {} kB\n", u64::MAX), None);
        check("", None);
    }

    #[test]
    fn oom_kills_are_parsed_from_vmstat() {
        #[track_caller]
        fn check(text: &str, expect: Option<u64>) {
            assert_eq!(parse_oom_kills(text), expect, "{text:?}");
        }
        check("nr_free_pages 7\noom_kill 12\nnuma_hit 3\n", Some(12));
        check("nr_free_pages 7\n", None);
        check("oom_kill many\n", None);
        check("oom_kill_other 3\n", None);
        check("", None);
    }

    #[test]
    fn available_memory_is_known_on_this_machine() {
        assert!(available_memory().is_some_and(|bytes| 1 << 20 < bytes));
    }
}
