//! Simulated nodes for `scripts/bench pods` and `scale`: they all connect at once, with the real handshake and
//! the real frames, and their workers exit with 0 as soon as they are started. Node 0 is real.
//!
//! ```text
//! remuda run --no_ssh --node_rank 0 -H HOSTS --key_file KEY --master_addr 127.0.0.1 \
//!     --master_port PORT --accelerator cpu --no_python --no_local_rank true &
//! crowd NODES PORT KEY
//! ```
//!
//! `HOSTS` contains `n0 slots=1`, `n1 slots=1` and so on. Two lines are printed: the seconds until
//! every node had joined, and until the job was complete.

use std::error::Error;
use std::time::{Duration, Instant};

use remuda::base::{Epoch, HostName, NodeRank, Rank, Slot, WorkerExit, clock};
use remuda::os::files::fds;
use remuda::os::tasks::Tasks;
use remuda::plan::{
    self, Accelerator, Conventions, JobSpec, LaunchPlan, MasterAddr, Program, RendezvousPort,
};
use remuda::secure::{JobKey, derive_job_id};
use remuda::transport::dial::{AttachedMember, Dialer, KeyOrigin, MemberEvent, NameStart};
use remuda::transport::{LinkReader, LinkWriter, memory_link};
use remuda::wire::{self, AgentHello, Decoder, FromAgent, KernelReport, PreparedNode, ToAgent};
use tokio::task::JoinSet;

/// Longer than ten thousand nodes need on one core.
const LIMIT: Duration = Duration::from_secs(600);

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().collect();
    let [_, nodes, port, key_file] = &words[..] else { return Err("crowd NODES PORT KEY".into()) };
    let (nodes, port): (u32, u16) = (nodes.parse()?, port.parse()?);
    let key = JobKey::from_text(&std::fs::read(key_file)?)?;
    fds::raise_limit();
    let plan = plan_of(nodes, port)?;
    let first = Dialer {
        addresses: vec!["127.0.0.1".to_owned()],
        port: port + 1,
        typed_port: None,
        name_start: NameStart::Early,
        local_addr: None,
        node: None,
        job: derive_job_id(&key, port),
        key,
        key_origin: KeyOrigin::File(key_file.clone()),
        lease: LIMIT,
        build: env!("CARGO_PKG_VERSION"),
        digest: plan::digest(&plan),
        own_workers: None,
        outline: plan::outline(&plan),
        next_epoch: Epoch(0),
        free_restarts: 0,
        problems: Vec::new(),
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(crowd(&first, nodes))
}

fn plan_of(nodes: u32, port: u16) -> Result<LaunchPlan, Box<dyn Error>> {
    let host = |node| Ok((HostName::parse(&format!("n{node}"))?, vec![Slot(0)]));
    let nodes: Result<Vec<_>, Box<dyn Error>> = (0..nodes).map(host).collect();
    Ok(plan::plan(&JobSpec {
        nodes: nodes?,
        accelerator: Accelerator::Cpu,
        device_names: Vec::new(),
        program: Program::Exec { program: "true".into(), local_rank: false },
        args: Vec::new(),
        master_addr: MasterAddr::Given("127.0.0.1".to_owned()),
        master_port: RendezvousPort::Given(port),
        conventions: Conventions::DeepSpeed,
        restarts_max: 0,
        exports: Vec::new(),
    })?)
}

async fn crowd(first: &Dialer, nodes: u32) -> Result<(), Box<dyn Error>> {
    let start = clock::now();
    let mut joining = JoinSet::new();
    for node in (1..nodes).map(NodeRank) {
        let dialer = Dialer { node: Some(node), ..first.clone() };
        joining.spawn(async move { dialer.join(LIMIT, |_, _| {}).await });
    }
    let mut agents = JoinSet::new();
    while let Some(joined) = joining.join_next().await {
        let mut tasks = Tasks::default();
        let [agent_end, (reader, writer)] = memory_link();
        let attached = joined??.attach(reader, writer, None, &mut tasks);
        agents.spawn(simulate_agent(agent_end, attached, tasks));
    }
    print_elapsed("joined", start);
    while let Some(agent) = agents.join_next().await {
        agent?;
    }
    print_elapsed("over", start);
    Ok(())
}

#[expect(clippy::disallowed_macros, reason = "this is a program of its own")]
fn print_elapsed(event: &str, start: Instant) {
    println!("{event} {:.6}", (clock::now() - start).as_secs_f64());
}

/// Simulates an agent: answers the launcher's messages, then waits for the end of the job.
async fn simulate_agent(
    link: (LinkReader, LinkWriter),
    mut attached: AttachedMember,
    _tasks: Tasks,
) {
    answer_launcher(link).await;
    attached.report_agent_exit(Some(WorkerExit::Code(0)));
    while !matches!(attached.next().await, None | Some(MemberEvent::JobEnded(_))) {}
}

async fn answer_launcher((reader, writer): (LinkReader, LinkWriter)) {
    let mut decoder = Decoder::default();
    loop {
        while let Ok(Some(message)) = decoder.message() {
            if matches!(message, ToAgent::Bye) {
                return;
            }
            let _ = writer.write_all(&answer(message), &[]).await;
        }
        if !matches!(reader.read(decoder.room(4096)).await, Ok(1..)) {
            return;
        }
    }
}

fn answer(message: ToAgent) -> Vec<u8> {
    let at_us = clock::machine_us();
    match message {
        ToAgent::Hello(_) => frame(&FromAgent::Hello(AgentHello {
            version: wire::VERSION,
            build: env!("CARGO_PKG_VERSION").to_owned(),
            pid: 1,
            clock_us: at_us,
        })),
        ToAgent::Prepare(_) => frame(&FromAgent::Ready(PreparedNode {
            master: None,
            store: None,
            cpus: 1,
            notes: Vec::new(),
        })),
        ToAgent::Start(request) => {
            let ranks = request.workers.iter().map(|worker| worker.rank);
            let mut bytes: Vec<u8> = ranks.flat_map(|rank| worker_messages(rank, at_us)).collect();
            bytes.extend(frame(&FromAgent::Idle { unkillable: Vec::new() }));
            bytes
        }
        ToAgent::Heartbeat { at_us: asked_us } => {
            frame(&FromAgent::Clock { sent_us: asked_us, clock_us: at_us })
        }
        _ => Vec::new(),
    }
}

fn worker_messages(rank: Rank, at_us: u64) -> Vec<u8> {
    let exit = WorkerExit::Code(0);
    let started = frame(&FromAgent::Started { rank, pid: 1, at_us });
    let exited = FromAgent::Exited {
        rank,
        exit,
        at_us,
        signals_sent: Vec::new(),
        kernel: KernelReport::default(),
    };
    [started, frame(&exited)].concat()
}

fn frame(message: &FromAgent) -> Vec<u8> {
    wire::encode(Epoch(0), message)
}
