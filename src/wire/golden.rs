//! Golden bytes of every message. A change of them needs a new [`VERSION`](super::VERSION), because
//! earlier builds would misread them.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;
use crate::base::{Epoch, LocalRank, NodeRank, Note, Rank, Slot, WorkerExit};
use crate::plan::NumaBinding;
use crate::secure::JobKey;

/// A line for each message: its version, its name and the hexadecimal bytes of its frame's body.
const GOLDEN: &str = include_str!("golden.txt");

#[test]
fn bytes_of_every_message_match_golden_bytes() {
    let mut lines = show(&messages_to_agent());
    lines.push_str(&show(&messages_from_agent()));
    assert_eq!(
        lines, GOLDEN,
        "after a new `VERSION`, src/wire/golden.txt gets these lines:\n{lines}"
    );
}

/// The lines of all variants of an enum, in their order.
fn show<M: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(messages: &[M]) -> String {
    let mut lines = String::new();
    for (index, message) in messages.iter().enumerate() {
        let frame = encode(Epoch(0), message);
        let body = &frame[8..];
        assert_eq!(usize::from(body[0]), index, "{message:?} stands in the order of its enum");
        assert_eq!(postcard::from_bytes(body).as_ref(), Ok(message));
        let name = format!("{message:?}");
        let name = name.split(|end: char| !end.is_alphanumeric()).next().expect("a name");
        write!(lines, "{VERSION} {name} ").expect("a string");
        for byte in body {
            write!(lines, "{byte:02x}").expect("a string");
        }
        lines.push('\n');
    }
    let next = u8::try_from(messages.len()).expect("few variants");
    let unknown = postcard::from_bytes::<M>(&[next]);
    assert_eq!(unknown, Err(postcard::Error::SerdeDeCustom), "every variant has a message here");
    lines
}

fn addr(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), port))
}

fn messages_to_agent() -> Vec<ToAgent> {
    vec![
        ToAgent::Hello(LauncherHello {
            version: 1,
            build: "b".into(),
            job: "j".into(),
            node: NodeRank(2),
        }),
        ToAgent::Prepare(Box::new(prepare())),
        ToAgent::Start(Start {
            workers: vec![WorkerStart {
                rank: Rank(3),
                local_rank: LocalRank(1),
                argv: vec![b"p".to_vec()],
                env: vec![(b"A".to_vec(), b"1".to_vec())],
                env_default: vec![(b"B".to_vec(), b"2".to_vec())],
                env_without_gpu: vec![(b"C".to_vec(), b"3".to_vec())],
                stdin: true,
            }],
            store: Some(addr(4)),
            window_bytes: 300,
            group_limit_ms: 5,
        }),
        ToAgent::Signal(15),
        ToAgent::Kill,
        ToAgent::Stdin { rank: Rank(1), bytes: b"in".to_vec() },
        ToAgent::PeerGone(Rank(2)),
        ToAgent::Consumed(300),
        ToAgent::Heartbeat { at_us: 300 },
        ToAgent::Pause,
        ToAgent::Resume,
        ToAgent::Bye,
        ToAgent::NextEpoch,
        ToAgent::Roster(vec![1, 2]),
        ToAgent::Examine(Box::new(Examine {
            cwd: b"/w".to_vec(),
            program: Some(b"p".to_vec()),
            is_python: true,
            script: Some(b"s".to_vec()),
            addr: Some("a".into()),
            others: vec!["o".into()],
            port: Some(PortRequest::Exact(1)),
            token: Token([7; 16]),
            depth: Depth::Full,
            spans_machines: false,
        })),
        ToAgent::Probe(vec![ProbeListener {
            owner: ListenerOwner::Node(NodeRank(1)),
            name: Some("n".into()),
            addr: addr(2),
            token: Token([8; 16]),
        }]),
        ToAgent::SkipToEpoch(Epoch(3)),
        ToAgent::ReportSuspended,
    ]
}

fn prepare() -> Prepare {
    Prepare {
        cwd: b"/w".to_vec(),
        program: b"p".to_vec(),
        script: Some(b"s".to_vec()),
        fds: 1,
        listen: Some(Listen {
            addr: Some("a".into()),
            port: PortRequest::Preferred(2),
            others: vec!["o".into()],
            store: true,
            store_port: 3,
        }),
        key: JobKey::from_random([9; 32]),
        rank_limit: 4,
        lease_ms: 5,
        heartbeat_ms: 6,
        grace_ms: 7,
        cores: Some(CoreRequest {
            list: Some(vec![8]),
            near_gpus: Some(NumaBinding::Socket),
            workers: 9,
        }),
        venv_script: Some(b"v".to_vec()),
        gpu_locks: Some(GpuLockRequest { slots: vec![Slot(10)], share: true }),
        files: vec![RequiredFile {
            path: b"f".to_vec(),
            state: FileState::NoFilesWithPrefix("r".into()),
            help: "h".into(),
            scope: ProblemScope::Job,
        }],
        spans_machines: true,
        package: Some(RequiredPackage {
            name: "m".into(),
            option: "--o".into(),
            env: vec![(b"A".to_vec(), b"1".to_vec())],
        }),
    }
}

fn messages_from_agent() -> Vec<FromAgent> {
    let leftover = Leftover { pid: 300, name: "x".into() };
    vec![
        FromAgent::Hello(AgentHello { version: 1, build: "b".into(), pid: 2, clock_us: 3 }),
        FromAgent::Ready(PreparedNode {
            master: Some(MasterEndpoint { addr: "a".into(), port: 1 }),
            store: Some(addr(2)),
            cpus: 3,
            notes: vec!["n".into()],
        }),
        FromAgent::Refused(vec![problem()]),
        FromAgent::Started { rank: Rank(1), pid: 300, at_us: 2 },
        FromAgent::StartFailed(FailedStart {
            rank: Rank(1),
            step: WorkerStartStep::Exec,
            errno: 2,
        }),
        FromAgent::Output { rank: Rank(1), stream: Stream::Stderr, bytes: b"out".to_vec() },
        FromAgent::OutputEnd { rank: Rank(1), stream: Stream::Stdout, is_held_open: true },
        FromAgent::Exited {
            rank: Rank(5),
            exit: WorkerExit::Signal { signal: 9, core: false },
            at_us: 300,
            signals_sent: vec![15],
            kernel: KernelReport { oom_kills: 1, xids: vec!["x".into()] },
        },
        FromAgent::Leftovers { rank: Rank(1), processes: vec![leftover.clone()] },
        FromAgent::Note {
            rank: Rank(1),
            note: Note::Step { step: 2, steps: Some(3), loss: Some(0.5), tokens_per_s: None },
        },
        FromAgent::ShimExited,
        FromAgent::Idle { unkillable: vec![leftover] },
        FromAgent::Heartbeat,
        FromAgent::Paused,
        FromAgent::Clock { sent_us: 1, clock_us: 300 },
        FromAgent::StdinConsumed { rank: Rank(1), bytes: 300 },
        FromAgent::Examined(Box::new(examination())),
        FromAgent::Probed(vec![ProbeResult {
            owner: ListenerOwner::Master,
            outcome: Err(ProbeFault::Other("e".into())),
            resolved: Some(vec![Ipv4Addr::new(10, 0, 0, 2).into()]),
        }]),
        FromAgent::Suspended(vec![Rank(1)]),
        FromAgent::Ungrouped { master: "m".into(), seconds: 60 },
        FromAgent::ErrorFile { rank: Rank(1), at_us: 2, bytes: b"{}".to_vec() },
        FromAgent::ShimHung,
        FromAgent::Stack { rank: Rank(1), text: b"s".to_vec() },
    ]
}

fn problem() -> Problem {
    Problem { message: "m".into(), help: Some("h".into()), status: 69, scope: ProblemScope::Node }
}

fn examination() -> Examination {
    Examination {
        version: EXAM_VERSION,
        machine: Machine {
            host_name: "h".into(),
            boot_id: "b".into(),
            kernel: "k".into(),
            arch: "a".into(),
            user: Some("u".into()),
            uid: 1,
            clock_us: 2,
            wall_us: 3,
        },
        cwd: Ok(()),
        program: Some(Err(problem())),
        script: Some(Ok(())),
        python: Some(Python { version: Ok("3".into()) }),
        compute: Compute {
            cpus: 1,
            memory_bytes: Some(2),
            memory_limit_bytes: None,
            shm: Ok(FileSystemSpace { total_bytes: 3, free_bytes: 4 }),
            memlock: Limit { soft: Some(5), hard: None },
            nofile: Limit { soft: Some(6), hard: Some(7) },
        },
        gpus: gpus(),
        libraries: vec![LibraryReport {
            name: "l".into(),
            version: Some("v".into()),
            path: "p".into(),
        }],
        network: Network {
            interfaces: vec![Interface {
                name: "i".into(),
                speed_mbit: Some(1),
                mtu: 2,
                has_listener: true,
            }],
            adapters: vec![Adapter { name: "a".into(), state: "s".into(), rate: "r".into() }],
            listener: Ok(addr(1)),
            master: Some(Err(problem())),
        },
    }
}

fn gpus() -> GpusReport {
    GpusReport {
        device_files: 1,
        devices: vec![GpuReport {
            name: "g".into(),
            uuid: "u".into(),
            memory_bytes: 2,
            mig: true,
            ecc_errors: Some(3),
            processes: vec![GpuProcess { pid: 4, name: Some("p".into()), memory_bytes: Some(5) }],
        }],
        nvml_error: Some("e".into()),
        driver: Some("d".into()),
        cuda: Some("c".into()),
        xids: vec!["x".into()],
    }
}
