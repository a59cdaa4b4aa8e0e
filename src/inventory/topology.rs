//! Cores and memory nodes, read from `/sys/devices/system`.

use std::fs;
use std::path::{Path, PathBuf};

use super::gpu::{VisibleDevices, uuids_in, visible_devices};
use crate::base::order;
use crate::plan::{NumaTopology, Topology};

/// Largest number of processors of a machine that the kernel supports.
const CPUS_MAX: u32 = 8192;

/// Reads a tree like `/sys/devices/system`. Missing files are tolerated: a processor without
/// siblings is a core of its own, and a machine without memory nodes has none in the result.
pub fn topology(system: &Path) -> Topology {
    let online = list(&system.join("cpu/online"));
    let mut cores: Vec<Vec<u32>> = online.iter().map(|cpu| siblings(system, *cpu)).collect();
    order::sort(&mut cores);
    cores.dedup();
    let nodes = list(&system.join("node/online"));
    let processors = |node: u32| list(&system.join(format!("node/node{node}/cpulist")));
    Topology { cores, memory: nodes.into_iter().map(|node| (node, processors(node))).collect() }
}

/// Reads what binding near GPUs needs, below `root`, which is `/` outside of tests. `visible` is the value
/// of `CUDA_VISIBLE_DEVICES`. Unknown memory nodes of GPUs are 0, as on machines with a single one.
pub fn numa_topology(root: &Path, visible: Option<&str>) -> NumaTopology {
    let system = root.join("sys/devices/system");
    let Topology { cores, memory } = topology(&system);
    let online = list(&system.join("cpu/online"));
    let number = |path: PathBuf| fs::read_to_string(path).ok()?.trim().parse::<i64>().ok();
    let socket = |cpu: u32| {
        let path = system.join(format!("cpu/cpu{cpu}/topology/physical_package_id"));
        (cpu, number(path).unwrap_or(0).max(0) as u32)
    };
    let mut complexes: Vec<_> = online.iter().map(|cpu| last_cache(&system, *cpu)).collect();
    order::sort(&mut complexes);
    complexes.dedup();
    let gpus = root.join("proc/driver/nvidia/gpus");
    let mut addresses: Vec<_> =
        gpus.read_dir().into_iter().flatten().flatten().map(|entry| entry.file_name()).collect();
    order::sort(&mut addresses);
    let selected = match visible_devices(addresses.len() as u32, visible) {
        VisibleDevices::Slots(slots) => slots.iter().map(|slot| slot.0 as usize).collect(),
        VisibleDevices::Uuids(uuids) => {
            let known = uuids_in(&gpus).unwrap_or_default();
            let place = |uuid: &String| known.iter().position(|known| known.starts_with(&**uuid));
            uuids.iter().filter_map(place).collect::<Vec<_>>()
        }
    };
    let near = |gpu: usize| {
        let address = addresses[gpu].to_string_lossy().to_lowercase();
        let path = root.join("sys/bus/pci/devices").join(address).join("numa_node");
        number(path).unwrap_or(0).max(0) as u32
    };
    NumaTopology {
        nodes: memory,
        cores,
        complexes,
        sockets: online.iter().copied().map(socket).collect(),
        gpus: selected.into_iter().map(near).collect(),
    }
}

/// Processors that share the last-level cache of `cpu`, including itself.
fn last_cache(system: &Path, cpu: u32) -> Vec<u32> {
    let caches = system.join(format!("cpu/cpu{cpu}/cache")).read_dir();
    let level = |directory: &Path| {
        let text = |name: &str| fs::read_to_string(directory.join(name)).ok();
        let is_of_data = matches!(text("type")?.trim(), "Unified" | "Data");
        is_of_data.then(|| text("level")?.trim().parse::<u32>().ok()).flatten()
    };
    let caches = caches.into_iter().flatten().flatten().map(|entry| entry.path());
    let last = caches.filter_map(|path| Some((level(&path)?, path))).max();
    let shared = last.map(|(_, path)| list(&path.join("shared_cpu_list")));
    shared.filter(|cpus| cpus.contains(&cpu)).unwrap_or_else(|| vec![cpu])
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

    #[test]
    fn gpus_are_near_memory_nodes_and_caches() {
        let gpus = "proc/driver/nvidia/gpus";
        let (one, two) = ("0000:19:00.0", "0000:DC:00.0");
        let root = tree(
            "near-gpus",
            &[
                ("sys/devices/system/cpu/online", "0-3\n"),
                ("sys/devices/system/node/online", "0-1\n"),
                ("sys/devices/system/node/node0/cpulist", "0-1\n"),
                ("sys/devices/system/node/node1/cpulist", "2-3\n"),
                ("sys/devices/system/cpu/cpu2/topology/physical_package_id", "1\n"),
                ("sys/devices/system/cpu/cpu3/topology/physical_package_id", "1\n"),
                ("sys/devices/system/cpu/cpu2/cache/index0/type", "Data\n"),
                ("sys/devices/system/cpu/cpu2/cache/index0/level", "1\n"),
                ("sys/devices/system/cpu/cpu2/cache/index0/shared_cpu_list", "2\n"),
                ("sys/devices/system/cpu/cpu2/cache/index3/type", "Unified\n"),
                ("sys/devices/system/cpu/cpu2/cache/index3/level", "3\n"),
                ("sys/devices/system/cpu/cpu2/cache/index3/shared_cpu_list", "2-3\n"),
                (&format!("{gpus}/{one}/information"), "GPU UUID: \t GPU-aa\n"),
                (&format!("{gpus}/{two}/information"), "GPU UUID: \t GPU-bb\n"),
                (&format!("sys/bus/pci/devices/{one}/numa_node"), "-1\n"),
                (&format!("sys/bus/pci/devices/{}/numa_node", two.to_lowercase()), "1\n"),
            ],
        );
        let found = numa_topology(&root, None);
        assert_eq!(found.gpus, [0, 1]);
        assert_eq!(found.nodes, [(0, vec![0, 1]), (1, vec![2, 3])]);
        assert_eq!(found.sockets, [(0, 0), (1, 0), (2, 1), (3, 1)].into());
        assert_eq!(found.complexes, [vec![0], vec![1], vec![2, 3], vec![3]]);
        assert_eq!(numa_topology(&root, Some("1")).gpus, [1]);
        assert_eq!(numa_topology(&root, Some("GPU-bb,GPU-a")).gpus, [1, 0]);
        assert_eq!(numa_topology(&root, Some("")).gpus, [0; 0]);
        fs::remove_dir_all(root).expect("removed");
    }
}
