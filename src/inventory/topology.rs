//! Cores and memory nodes, read from `/sys/devices/system`.

use std::fs;
use std::path::Path;

use crate::plan::Topology;

/// Largest number of processors of a machine that the kernel supports.
const CPUS_MAX: u32 = 8192;

/// Reads a tree like `/sys/devices/system`. Missing files are tolerated: a processor without
/// siblings is a core of its own, and a machine without memory nodes has none in the result.
pub fn topology(system: &Path) -> Topology {
    let online = list(&system.join("cpu/online"));
    let mut cores: Vec<Vec<u32>> = online.iter().map(|cpu| siblings(system, *cpu)).collect();
    cores.sort();
    cores.dedup();
    let nodes = list(&system.join("node/online"));
    let processors = |node: u32| list(&system.join(format!("node/node{node}/cpulist")));
    Topology { cores, memory: nodes.into_iter().map(|node| (node, processors(node))).collect() }
}

/// Processors that share a core with `cpu`, including itself.
fn siblings(system: &Path, cpu: u32) -> Vec<u32> {
    let topology = system.join(format!("cpu/cpu{cpu}/topology"));
    // Older kernels use the second name.
    let found = ["core_cpus_list", "thread_siblings_list"].map(|name| list(&topology.join(name)));
    found.into_iter().find(|list| list.contains(&cpu)).unwrap_or_else(|| vec![cpu])
}

fn list(path: &Path) -> Vec<u32> {
    fs::read_to_string(path).map_or_else(|_| Vec::new(), |text| parse_list(&text))
}

/// Parses a list of the kernel such as `0-3,8`: ascending, each number once.
fn parse_list(text: &str) -> Vec<u32> {
    let range = |item: &str| {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        (last < CPUS_MAX).then_some(first..=last)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::testing;
    use std::path::PathBuf;

    fn tree(name: &str, files: &[(&str, &str)]) -> PathBuf {
        testing::tree(&format!("systems/{name}"), files)
    }

    #[test]
    fn topology_groups_siblings_and_memory_nodes() {
        let root = tree(
            "flat-hbm",
            &[
                ("cpu/online", "0-3\n"),
                ("cpu/cpu0/topology/core_cpus_list", "0,2\n"),
                ("cpu/cpu1/topology/core_cpus_list", "1,3\n"),
                ("cpu/cpu2/topology/thread_siblings_list", "0,2\n"),
                ("cpu/cpu3/topology/core_cpus_list", "1,3\n"),
                ("node/online", "0,2\n"),
                ("node/node0/cpulist", "0-3\n"),
                ("node/node2/cpulist", "\n"),
            ],
        );
        let expect = Topology {
            cores: vec![vec![0, 2], vec![1, 3]],
            memory: vec![(0, vec![0, 1, 2, 3]), (2, vec![])],
        };
        assert_eq!(topology(&root), expect);
    }

    #[test]
    fn topology_without_siblings_has_a_core_per_cpu() {
        let root = tree("bare", &[("cpu/online", "0-1,4\n")]);
        let cores = vec![vec![0], vec![1], vec![4]];
        assert_eq!(topology(&root), Topology { cores, memory: Vec::new() });
        assert_eq!(topology(Path::new("/nowhere")), Topology::default());
    }

    #[test]
    fn topology_of_this_machine_has_a_core() {
        assert!(!topology(Path::new("/sys/devices/system")).cores.is_empty());
    }

    #[test]
    fn cpu_list_is_parsed_as_the_kernel_writes_it() {
        assert_eq!(parse_list("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert!(parse_list("\n").is_empty());
        assert!(parse_list("0-4294967295").is_empty());
    }
}
