//! Facts about nodes without problems, which tests modify.

use std::time::Duration;

use crate::base::{HostName, Severity};
use crate::doctor::facts::{
    Clock, ClusterFacts, ExamOutcome, ExaminedNode, MasterPort, NodeFacts, SlotDevice,
};
use crate::doctor::judge::diagnose::diagnose;
use crate::transport::SessionInfo;
use crate::wire::{
    Compute, EXAM_VERSION, Examination, FileSystemSpace, GpuReport, GpusReport, Limit, Machine,
    Network,
};

/// Nodes `n1`, `n2` and so on, with one slot each, on machines without GPUs.
pub(in crate::doctor) fn cluster(nodes: usize) -> ClusterFacts {
    let nodes = (1..=nodes).map(|number| NodeFacts {
        host: HostName::parse(&format!("n{number}")).expect("a name"),
        slots: 1,
        outcome: ExamOutcome::Examined(Box::new(examined_node(number))),
    });
    let port = MasterPort::Preferred(29500);
    ClusterFacts { nodes: nodes.collect(), slot_device: SlotDevice::GpusIfAny, port }
}

/// Facts of an examined node, to be modified.
pub(in crate::doctor) fn examined_mut(
    cluster: &mut ClusterFacts,
    node: usize,
) -> &mut ExaminedNode {
    match &mut cluster.nodes[node].outcome {
        ExamOutcome::Examined(examined) => examined,
        other => panic!("{other:?}"),
    }
}

/// GPUs without problems.
pub(super) fn gpus(count: u32) -> GpusReport {
    let gpu = |number| GpuReport {
        name: "NVIDIA H200".to_owned(),
        uuid: format!("GPU-{number}"),
        memory_bytes: 140 << 30,
        mig: false,
        ecc_errors: Some(0),
        processes: Vec::new(),
    };
    GpusReport {
        device_files: count,
        devices: (0..count).map(gpu).collect(),
        nvml_error: None,
        driver: Some("550.54".to_owned()),
        cuda: Some("12.4".to_owned()),
        xids: Vec::new(),
    }
}

/// Checks all findings, each written as `error[D001] n2: message`.
#[track_caller]
pub(super) fn check(cluster: &ClusterFacts, expect: &[&str]) {
    let found = diagnose(cluster).into_iter().map(|finding| {
        let severity = match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        };
        let host = cluster.host(finding.node);
        format!("{severity}[{}] {host}: {}", finding.code, finding.message)
    });
    assert_eq!(found.collect::<Vec<_>>(), expect);
}

fn examined_node(number: usize) -> ExaminedNode {
    ExaminedNode {
        session: SessionInfo::default(),
        connect_time: Duration::from_millis(30),
        build: env!("CARGO_PKG_VERSION").to_owned(),
        clock: Clock { ahead_us: 40, error_us: 100 },
        report: report(number),
        probes: None,
    }
}

fn report(number: usize) -> Examination {
    let unlimited = Limit { soft: None, hard: None };
    Examination {
        version: EXAM_VERSION,
        machine: Machine {
            host_name: format!("n{number}"),
            boot_id: format!("boot {number}"),
            kernel: "6.1".to_owned(),
            arch: "x86_64".to_owned(),
            user: Some("ada".to_owned()),
            uid: 1000,
            clock_us: 0,
            wall_us: 0,
        },
        cwd: Ok(()),
        program: None,
        script: None,
        python: None,
        compute: Compute {
            cpus: 64,
            memory_bytes: Some(256 << 30),
            memory_limit_bytes: None,
            shm: Ok(FileSystemSpace { total_bytes: 64 << 30, free_bytes: 60 << 30 }),
            memlock: unlimited,
            nofile: unlimited,
        },
        gpus: GpusReport::default(),
        libraries: Vec::new(),
        network: Network {
            interfaces: Vec::new(),
            adapters: Vec::new(),
            listener: Ok(([10, 0, 0, number as u8], 40000).into()),
            master: None,
        },
    }
}
