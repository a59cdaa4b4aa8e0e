//! Facts about nodes without problems, which tests modify.

use std::time::Duration;

use super::judge;
use crate::base::{HostName, Severity};
use crate::doctor::case::{Clock, ClusterFacts, MasterPort, NodeFacts, Patient, Seen, SlotsAre};
use crate::transport::Arrival;
use crate::wire::{
    Compute, EXAM_VERSION, Examination, FileSystemSpace, GpuReport, GpusReport, Limit, Machine,
    Network,
};

/// Nodes `n1`, `n2` and so on, with one slot each, on machines without GPUs.
pub(in crate::doctor) fn cluster(nodes: usize) -> ClusterFacts {
    let nodes = (1..=nodes).map(|number| NodeFacts {
        host: HostName::parse(&format!("n{number}")).expect("a name"),
        slots: 1,
        seen: Seen::Examined(Box::new(patient(number))),
    });
    let port = MasterPort::Rather(29500);
    ClusterFacts { nodes: nodes.collect(), slots_are: SlotsAre::GpusIfAny, port }
}

/// Facts of an examined node, to be modified.
pub(super) fn seen(cluster: &mut ClusterFacts, node: usize) -> &mut Patient {
    match &mut cluster.nodes[node].seen {
        Seen::Examined(examined) => examined,
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
        files: count,
        devices: (0..count).map(gpu).collect(),
        silent: None,
        driver: Some("550.54".to_owned()),
        cuda: Some("12.4".to_owned()),
        xids: Vec::new(),
    }
}

/// Checks all findings, each written as `error[D001] n2: message`.
#[track_caller]
pub(super) fn check(cluster: &ClusterFacts, expect: &[&str]) {
    let found = judge(cluster).into_iter().map(|finding| {
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

fn patient(number: usize) -> Patient {
    Patient {
        arrival: Arrival::default(),
        reached: Duration::from_millis(30),
        build: env!("CARGO_PKG_VERSION").to_owned(),
        clock: Clock { ahead_us: 40, error_us: 100 },
        report: report(number),
        dialed: None,
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
            door: Ok(([10, 0, 0, number as u8], 40000).into()),
            master: None,
        },
    }
}
