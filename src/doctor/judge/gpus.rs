//! Findings about GPUs: their number compared with the slots, their state and their software.

use crate::base::order;
use crate::base::{NodeRank, Severity};
use crate::doctor::codes;
use crate::doctor::facts::{ClusterFacts, ExaminedNode, Finding, SlotDevice};
use crate::doctor::judge::outliers::outliers;
use crate::report::text::show_count;
use crate::wire::{GpuProcess, GpuReport, GpusReport};

pub(super) fn findings(cluster: &ClusterFacts) -> Vec<Finding> {
    let has_gpus =
        cluster.examined_nodes().any(|(_, _, examined)| 0 < examined.report.gpus.device_files);
    let are_counted = match cluster.slot_device {
        SlotDevice::Gpus => true,
        SlotDevice::GpusIfAny => has_gpus,
        SlotDevice::SharedGpus | SlotDevice::Other => false,
    };
    if cluster.slot_device == SlotDevice::Other {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (rank, node, examined) in cluster.examined_nodes() {
        let gpus = &examined.report.gpus;
        if are_counted {
            found.extend(slots(rank, node.slots, gpus));
        }
        found.extend(health(rank, gpus));
    }
    found.extend(kinds(cluster));
    found.extend(drivers(cluster));
    for name in ["NCCL", "CUDA runtime"] {
        found.extend(libraries(cluster, name));
    }
    found
}

fn slots(rank: NodeRank, slots: u32, gpus: &GpusReport) -> Option<Finding> {
    let there = show_count(gpus.device_files as usize, "GPU");
    if gpus.device_files < slots {
        let message = format!("{there}, but the job uses {}", show_count(slots as usize, "slot"));
        return Some(
            Finding::new(codes::TOO_FEW_GPUS, Severity::Error, rank, message)
                .help("correct `slots=`, or see `nvidia-smi` there for a missing GPU"),
        );
    }
    (slots < gpus.device_files).then(|| {
        let message = format!("{there}, of which the job uses {slots}");
        Finding::new(codes::UNUSED_GPUS, Severity::Note, rank, message)
    })
}

fn health(rank: NodeRank, gpus: &GpusReport) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Some(why) = &gpus.nvml_error {
        found.push(
            Finding::new(
                codes::NO_DRIVER,
                Severity::Error,
                rank,
                "its GPU driver does not respond",
            )
            .detail(why.clone())
            .help("run `nvidia-smi` there; library and kernel module may have different versions"),
        );
    }
    let numbered = || gpus.devices.iter().enumerate();
    if let Some(which) = which(numbered().filter(|(_, gpu)| gpu.mig)) {
        let message = format!("{which} partitioned (MIG)");
        found.push(
            Finding::new(codes::MIG, Severity::Warning, rank, message)
                .help("NCCL connects whole GPUs only: `nvidia-smi -mig 0`"),
        );
    }
    let has_errors = |gpu: &GpuReport| gpu.ecc_errors.is_some_and(|errors| 0 < errors);
    if let Some(which) = which(numbered().filter(|(_, gpu)| has_errors(gpu))) {
        let message = format!("uncorrected memory errors: {which}");
        found.push(Finding::new(codes::ECC, Severity::Error, rank, message).help(
            "leave the node out with --exclude, then reset the GPU: `nvidia-smi --gpu-reset -i \
                     INDEX`; `nvidia-smi -q -d ECC,ROW_REMAPPER` shows the errors",
        ));
    }
    if let Some(newest) = gpus.xids.last() {
        found.push(
            Finding::new(codes::XID, Severity::Warning, rank, "its driver has logged errors (Xid)")
                .detail(newest.clone())
                .help("NVIDIA's list of Xid errors shows which of them need a reset or a repair"),
        );
    }
    found.extend(numbered().filter_map(|(number, gpu)| in_use(rank, number, gpu)));
    found
}

/// List of GPUs for a message, such as `GPU 3` or `GPUs 0,3`; `None` if it is empty.
fn which<'a>(gpus: impl Iterator<Item = (usize, &'a GpuReport)>) -> Option<String> {
    let numbers: Vec<String> = gpus.map(|(number, _)| number.to_string()).collect();
    match &numbers[..] {
        [] => None,
        [only] => Some(format!("GPU {only}")),
        _ => Some(format!("GPUs {}", numbers.join(","))),
    }
}

/// Finding for a GPU with processes; they belong to another job, because remuda runs none during an
/// examination.
fn in_use(rank: NodeRank, number: usize, gpu: &GpuReport) -> Option<Finding> {
    let show = |process: &GpuProcess| {
        let name = process.name.as_deref().unwrap_or("a process");
        let memory = process.memory_bytes.map_or(String::new(), |bytes| {
            format!(", {:.1} GiB", bytes as f64 / f64::from(1u32 << 30))
        });
        format!("{name} (pid {}{memory})", process.pid)
    };
    let users: Vec<String> = gpu.processes.iter().map(show).collect();
    (!users.is_empty()).then(|| {
        let message = format!("GPU {number} is in use");
        Finding::new(codes::GPU_IN_USE, Severity::Warning, rank, message)
            .detail(users.join(", "))
            .help("wait for it, ask its owner, or leave the slot out with --exclude")
    })
}

fn kinds(cluster: &ClusterFacts) -> Vec<Finding> {
    let kind = |(rank, _, examined): (_, _, &ExaminedNode)| {
        let gpus = &examined.report.gpus.devices;
        let mut kinds: Vec<(String, u64)> =
            gpus.iter().map(|gpu| (gpu.name.clone(), gpu.memory_bytes >> 30)).collect();
        order::sort(&mut kinds);
        kinds.dedup();
        (!kinds.is_empty()).then_some((rank, kinds))
    };
    let found: Vec<_> = cluster.examined_nodes().filter_map(kind).collect();
    let show = |kinds: &[(String, u64)]| {
        let kinds = kinds.iter().map(|(name, gib)| format!("{name} ({gib} GiB)"));
        kinds.collect::<Vec<_>>().join(" and ")
    };
    let Some((usual, odd)) = outliers(&found) else { return Vec::new() };
    let finding = |(rank, kinds): (_, Vec<_>)| {
        let message = format!("its GPUs are {}, most are {}", show(&kinds), show(&usual));
        Finding::new(codes::OTHER_GPUS, Severity::Warning, rank, message)
            .help("the slowest and the smallest GPU limit the whole job")
    };
    odd.into_iter().map(finding).collect()
}

fn drivers(cluster: &ClusterFacts) -> Vec<Finding> {
    let driver = |(rank, _, examined): (_, _, &ExaminedNode)| {
        Some((rank, examined.report.gpus.driver.clone()?))
    };
    let drivers: Vec<_> = cluster.examined_nodes().filter_map(driver).collect();
    let Some((usual, odd)) = outliers(&drivers) else { return Vec::new() };
    let finding = |(rank, driver)| {
        let message = format!("driver {driver}, most have {usual}");
        Finding::new(codes::OTHER_DRIVER, Severity::Warning, rank, message)
            .help("install one driver version on all nodes")
    };
    odd.into_iter().map(finding).collect()
}

/// Findings for nodes on which a worker would load another version of a library than on most.
fn libraries(cluster: &ClusterFacts, name: &'static str) -> Vec<Finding> {
    let first = |(rank, _, examined): (_, _, &ExaminedNode)| {
        let mut of_name = examined.report.libraries.iter().filter(|library| library.name == name);
        (rank, of_name.next().map(|library| library.version.clone()))
    };
    let found: Vec<_> = cluster.examined_nodes().map(first).collect();
    let show = |version: &Option<Option<String>>| match version {
        None => format!("no {name}"),
        Some(None) => format!("{name} of an unknown version"),
        Some(Some(version)) => format!("{name} {version}"),
    };
    let code = if name == "NCCL" { codes::OTHER_NCCL } else { codes::OTHER_CUDA };
    let Some((usual, odd)) = outliers(&found) else { return Vec::new() };
    let finding = |(rank, version)| {
        let message = format!("{}, most have {}", show(&version), show(&usual));
        Finding::new(code, Severity::Warning, rank, message)
            .help("give all nodes the same environment; `--json` shows the path of each library")
    };
    odd.into_iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, cluster, examined_mut, gpus};
    use super::*;
    use crate::wire::LibraryReport;

    #[test]
    fn doctor_compares_slots_with_gpus_if_any_node_has_gpus() {
        let mut one = cluster(2);
        one.nodes[1].slots = 4;
        check(&one, &[]);
        examined_mut(&mut one, 0).report.gpus = gpus(2);
        check(
            &one,
            &[
                "error[D013] n2: 0 GPUs, but the job uses 4 slots",
                "note[D014] n1: 2 GPUs, of which the job uses 1",
            ],
        );
        one.slot_device = SlotDevice::SharedGpus;
        check(&one, &[]);
        one.slot_device = SlotDevice::Other;
        check(&one, &[]);
    }

    #[test]
    fn doctor_reports_gpu_problems() {
        #[track_caller]
        fn check_problem(add_problem: impl Fn(&mut GpusReport), expect: &str) {
            let mut one = cluster(2);
            one.nodes.iter_mut().for_each(|node| node.slots = 2);
            for node in 0..2 {
                examined_mut(&mut one, node).report.gpus = gpus(2);
            }
            add_problem(&mut examined_mut(&mut one, 1).report.gpus);
            check(&one, &[expect]);
        }
        check_problem(
            |gpus| gpus.nvml_error = Some("library mismatch".to_owned()),
            "error[D015] n2: its GPU driver does not respond",
        );
        check_problem(
            |gpus| gpus.devices[1].name = "NVIDIA L4".to_owned(),
            "warning[D016] n2: its GPUs are NVIDIA H200 (140 GiB) and NVIDIA L4 (140 GiB), most are \
             NVIDIA H200 (140 GiB)",
        );
        check_problem(
            |gpus| gpus.driver = Some("535.1".to_owned()),
            "warning[D017] n2: driver 535.1, most have 550.54",
        );
        check_problem(
            |gpus| gpus.devices[0].mig = true,
            "warning[D018] n2: GPU 0 partitioned (MIG)",
        );
        check_problem(
            |gpus| gpus.devices.iter_mut().for_each(|gpu| gpu.ecc_errors = Some(2)),
            "error[D019] n2: uncorrected memory errors: GPUs 0,1",
        );
        check_problem(
            |gpus| gpus.xids = vec!["Xid (PCI:1): 79".to_owned()],
            "warning[D020] n2: its driver has logged errors (Xid)",
        );
        let process = GpuProcess { pid: 7, name: None, memory_bytes: Some(1 << 30) };
        check_problem(
            |gpus| gpus.devices[1].processes = vec![process.clone()],
            "warning[D021] n2: GPU 1 is in use",
        );
    }

    #[test]
    fn doctor_compares_the_first_library_of_each_name() {
        let library = |name: &str, version: &str| LibraryReport {
            name: name.to_owned(),
            version: Some(version.to_owned()),
            path: String::new(),
        };
        let mut one = cluster(3);
        for node in 0..3 {
            examined_mut(&mut one, node).report.libraries =
                vec![library("NCCL", "2.21.5"), library("CUDA runtime", "12.4.127")];
        }
        examined_mut(&mut one, 0).report.libraries.push(library("NCCL", "2.18.1"));
        check(&one, &[]);
        examined_mut(&mut one, 2).report.libraries.remove(0);
        check(&one, &["warning[D022] n3: no NCCL, most have NCCL 2.21.5"]);
        examined_mut(&mut one, 2).report.libraries = vec![library("NCCL", "2.21.5")];
        check(&one, &["warning[D023] n3: no CUDA runtime, most have CUDA runtime 12.4.127"]);
    }
}
