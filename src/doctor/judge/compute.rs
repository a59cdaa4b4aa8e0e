//! Findings about processors, memory and limits.

use crate::base::{NodeRank, Severity};
use crate::doctor::codes;
use crate::doctor::facts::{ClusterFacts, ExaminedNode, Finding, NodeFacts};
use crate::doctor::judge::outliers::outliers;
use crate::report::text::show_count;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Smallest size of `/dev/shm` for NCCL and data loaders; containers have 64 MiB by default.
pub const SHM_BYTES_MIN: u64 = 512 * MIB;
/// Smallest free space in `/dev/shm`.
const SHM_FREE_BYTES_MIN: u64 = 64 * MIB;
/// Smallest limit of open files; data loaders and sockets of NCCL use up a lower one.
const FILES_MIN: u64 = 4096;
/// Smallest available memory for each worker; with less it is killed while it loads its libraries.
const WORKER_BYTES_MIN: u64 = GIB;

pub(super) fn findings(cluster: &ClusterFacts) -> Vec<Finding> {
    let mut found = Vec::new();
    for (rank, node, examined) in cluster.examined_nodes() {
        found.extend(shared_memory(rank, examined));
        found.extend(limits(rank, examined));
        found.extend(worker_resources(rank, node, examined));
    }
    found.extend(same_machine(cluster));
    found
}

fn shared_memory(rank: NodeRank, examined: &ExaminedNode) -> Option<Finding> {
    let finding = |severity, message: String| Finding::new(codes::SHM, severity, rank, message);
    let more =
        "give the container more: `--shm-size` of docker, an emptyDir with medium Memory in a pod";
    match &examined.report.compute.shm {
        Err(why) => Some(
            finding(Severity::Error, format!("/dev/shm cannot be used: {why}"))
                .help("NCCL and data loaders need it: mount a tmpfs there"),
        ),
        Ok(room) if room.total_bytes < SHM_BYTES_MIN => {
            let size = room.total_bytes / MIB;
            Some(finding(Severity::Warning, format!("/dev/shm has only {size} MiB")).help(more))
        }
        Ok(room) if room.free_bytes < SHM_FREE_BYTES_MIN => Some(
            finding(Severity::Warning, "/dev/shm is full".to_owned())
                .detail(format!("{} MiB left", room.free_bytes / MIB))
                .help("see `ls -l /dev/shm` there for files of ended jobs"),
        ),
        Ok(_) => None,
    }
}

fn limits(rank: NodeRank, examined: &ExaminedNode) -> Vec<Finding> {
    let mut found = Vec::new();
    let compute = &examined.report.compute;
    // Only a process that registers memory with an adapter locks much of it.
    let has_adapters = !examined.report.network.adapters.is_empty();
    if let Some(hard) = compute.memlock.hard.filter(|_| has_adapters) {
        let message = format!("only {} MiB may be locked in memory", hard / MIB);
        found.push(
            Finding::new(codes::MEMLOCK, Severity::Warning, rank, message).help(
                "InfiniBand needs `memlock unlimited`, in limits.conf or the service of sshd",
            ),
        );
    }
    if let Some(hard) = compute.nofile.hard.filter(|hard| *hard < FILES_MIN) {
        let message = format!("only {hard} files may be open");
        found.push(
            Finding::new(codes::NOFILE, Severity::Warning, rank, message)
                .help("raise `nofile` in limits.conf, or `--ulimit nofile=` of docker"),
        );
    }
    found
}

fn worker_resources(rank: NodeRank, node: &NodeFacts, examined: &ExaminedNode) -> Vec<Finding> {
    let mut found = Vec::new();
    let (compute, slots) = (&examined.report.compute, node.slots);
    if compute.cpus < slots {
        let cpus = show_count(compute.cpus as usize, "processor");
        let message = format!("{cpus} for {}", show_count(slots as usize, "worker"));
        found.push(
            Finding::new(codes::FEW_CPUS, Severity::Warning, rank, message)
                .help("see the CPU affinity and quota of the container or the allocation"),
        );
    }
    if let Some(bytes) = compute.memory_bytes
        && bytes / u64::from(slots.max(1)) < WORKER_BYTES_MIN
    {
        let message = "less than 1 GiB of memory for each worker".to_owned();
        found.push(
            Finding::new(codes::LITTLE_MEMORY, Severity::Warning, rank, message)
                .detail(format!("{} MiB for {}", bytes / MIB, show_count(slots as usize, "worker")))
                .help("see which processes use it, and the memory limit of the container"),
        );
    }
    found
}

/// Finding for two host names of one machine: a note, because one machine may play several on
/// purpose, but a warning if it has GPUs.
fn same_machine(cluster: &ClusterFacts) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut seen: Vec<(&str, &str, NodeRank)> = Vec::new();
    for (rank, _, examined) in cluster.examined_nodes() {
        let machine = &examined.report.machine;
        let (boot, name) = (&*machine.boot_id, &*machine.host_name);
        let before = seen.iter().find(|(other, of, _)| (*other, *of) == (boot, name));
        match before {
            Some((.., first)) if !boot.is_empty() => {
                let has_gpus = 0 < examined.report.gpus.device_files;
                let severity = if has_gpus { Severity::Warning } else { Severity::Note };
                let message = format!("is the same machine as {}", cluster.host(*first));
                found.push(
                    Finding::new(codes::SAME_MACHINE, severity, rank, message)
                        .help("list the machine once, with all of its slots"),
                );
            }
            _ => seen.push((boot, name, rank)),
        }
    }
    found
}

/// Findings for interfaces with another speed than those of most nodes.
pub(super) fn speed_outliers(cluster: &ClusterFacts) -> Vec<Finding> {
    let speed = |(rank, _, examined): (_, _, &ExaminedNode)| {
        let nics = &examined.report.network.interfaces;
        Some((rank, nics.iter().find(|nic| nic.has_listener)?.speed_mbit?))
    };
    let speeds: Vec<_> = cluster.examined_nodes().filter_map(speed).collect();
    let Some((usual, odd)) = outliers(&speeds) else { return Vec::new() };
    let finding = |(rank, speed): (_, u32)| {
        let message = format!("its network runs at {speed} Mbit/s, most at {usual}");
        let severity = if speed < usual { Severity::Warning } else { Severity::Note };
        Finding::new(codes::OTHER_SPEED, severity, rank, message)
            .help("see `ethtool` there: cable, port and autonegotiation")
    };
    odd.into_iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, cluster, examined_mut, gpus};
    use super::*;
    use crate::wire::{Adapter, FileSystemSpace, Interface, Limit};

    #[test]
    fn doctor_checks_shared_memory() {
        #[track_caller]
        fn with(shm: Result<FileSystemSpace, String>, expect: &[&str]) {
            let mut one = cluster(2);
            examined_mut(&mut one, 1).report.compute.shm = shm;
            check(&one, expect);
        }
        let room = |total_bytes, free_bytes| Ok(FileSystemSpace { total_bytes, free_bytes });
        with(room(GIB, GIB), &[]);
        with(room(64 * MIB, 64 * MIB), &["warning[D024] n2: /dev/shm has only 64 MiB"]);
        with(room(8 * GIB, MIB), &["warning[D024] n2: /dev/shm is full"]);
        let gone = Err("no such file or directory".to_owned());
        with(gone, &["error[D024] n2: /dev/shm cannot be used: no such file or directory"]);
    }

    #[test]
    fn doctor_reports_low_limits() {
        let limit = |number| Limit { soft: Some(number), hard: Some(number) };
        let mut one = cluster(2);
        examined_mut(&mut one, 0).report.compute.memlock = limit(8 * MIB);
        check(&one, &[]);
        examined_mut(&mut one, 0).report.network.adapters = vec![Adapter {
            name: "mlx5_0/1".to_owned(),
            state: "ACTIVE".to_owned(),
            rate: String::new(),
        }];
        check(&one, &["warning[D025] n1: only 8 MiB may be locked in memory"]);
        let mut one = cluster(2);
        examined_mut(&mut one, 0).report.compute.nofile = limit(1024);
        check(&one, &["warning[D026] n1: only 1024 files may be open"]);
    }

    #[test]
    fn doctor_checks_processors_and_memory_per_worker() {
        let mut one = cluster(2);
        one.nodes[1].slots = 8;
        examined_mut(&mut one, 1).report.compute.cpus = 4;
        check(&one, &["warning[D027] n2: 4 processors for 8 workers"]);
        examined_mut(&mut one, 1).report.compute.cpus = 8;
        examined_mut(&mut one, 1).report.compute.memory_bytes = Some(4 * GIB);
        check(&one, &["warning[D028] n2: less than 1 GiB of memory for each worker"]);
    }

    #[test]
    fn doctor_reports_two_names_of_one_machine() {
        let mut one = cluster(3);
        let first = examined_mut(&mut one, 0).report.machine.clone();
        examined_mut(&mut one, 2).report.machine = first;
        check(&one, &["note[D035] n3: is the same machine as n1"]);
        for node in 0..3 {
            examined_mut(&mut one, node).report.gpus = gpus(1);
        }
        check(&one, &["warning[D035] n3: is the same machine as n1"]);
    }

    #[test]
    fn doctor_reports_slow_interfaces() {
        let mut one = cluster(3);
        for (node, speed) in [100_000, 1_000, 100_000].into_iter().enumerate() {
            examined_mut(&mut one, node).report.network.interfaces = vec![Interface {
                name: "eth0".to_owned(),
                speed_mbit: Some(speed),
                mtu: 1500,
                has_listener: true,
            }];
        }
        check(&one, &["warning[D033] n2: its network runs at 1000 Mbit/s, most at 100000"]);
    }
}
