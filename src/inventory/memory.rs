//! Memory that new processes may use, by the available memory of the machine and the limits of the
//! control groups.

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
    fn available_memory_is_known_on_this_machine() {
        assert!(available_memory().is_some_and(|bytes| 1 << 20 < bytes));
    }
}
