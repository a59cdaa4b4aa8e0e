//! Goal: processes become ranks through the contract with their agent, and a killed rank is an error
//! for all other ranks, never a hang.
//! Method: this binary starts itself as workers and acts as their agent: sockets, segments,
//! store, messages, and SIGKILL at any moment.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::num::NonZero;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use remuda::base::{Epoch, JobId, Rank, env_vars};
use remuda::runtime::contract::{self, FrameReader, NodeRanks, Note, ToWorker, Welcome};
use remuda::runtime::store::{Server, ServerOptions};
use remuda::runtime::tree::Lanes;
use remuda::runtime::{
    CollectiveError, Collectives, DividedReduction, Error, Group, InitOptions, Lend, Lent,
    ReduceOp, ReduceOrder,
};
use remuda::secure::{JobKey, derive_rank_key};
use rustix::io::FdFlags;

#[path = "../examples/tensor_parallel.rs"]
mod tensor_parallel;

/// Role of a worker. `sum`: one all-reduce; `loop`: all-reduces until one fails; the roles in [`ANY`]:
/// different operations until one fails; `early` and `loop-after-early`: all ranks run one all-reduce,
/// and then one rank exits; `meet`: [`meet`]; `product`: the example.
const ROLE: &str = "REMUDA_TEST_ROLE";
/// Roles that run different operations: with the settings of one machine, with those of several
/// machines, and with a ring.
const ANY: [&str; 3] = ["any", "any-as-machines", "any-in-a-ring"];
const TIMEOUT_MS: &str = "REMUDA_TEST_TIMEOUT_MS";

/// Main function of a worker that another test has started; without a role, a group of one rank.
#[test]
fn worker() {
    let Some(role) = env_vars::get_text(ROLE) else {
        return assert_eq!(work(&Group::single().unwrap(), "sum"), "1 of 0");
    };
    let timeout_ms = env_vars::get_text(TIMEOUT_MS).map_or(60_000, |text| text.parse().unwrap());
    let mut options =
        InitOptions { timeout: Duration::from_millis(timeout_ms), ..InitOptions::default() };
    if role == "any-as-machines" {
        (options.streams, options.overlap) = (NonZero::new(3), Some(true));
    }
    if role == "any-in-a-ring" {
        options.order = ReduceOrder::Any;
    }
    if role == "product" {
        return tensor_parallel::main().unwrap();
    }
    let result = match Group::init(&options) {
        Ok(group) => work(&group, &role),
        Err(error) => error.to_string(),
    };
    print_line(&format!("result: {result}"));
}

fn work(group: &Group, role: &str) -> String {
    let mut values = vec![group.rank() as i64 + 1; 100_000];
    if role.starts_with("any") {
        return run_any_operations(group).expect_err("the loop ends with an error");
    }
    if role == "meet" {
        return meet(group).map_or_else(|error| error.to_string(), |()| "no error".to_owned());
    }
    if role == "early" && group.rank() < 2 {
        return run_without_the_last_rank(group, &mut values);
    }
    let role = match (role, group.rank()) {
        ("early", _) | ("loop-after-early", 1) => "sum",
        (role, _) => role,
    };
    print_line("working");
    loop {
        match group.all_reduce(&mut values, ReduceOp::Sum) {
            Err(error) => return error.cause.to_string(),
            Ok(()) if role == "sum" => return format!("{} of {}", values[99_999], group.rank()),
            Ok(()) => values.fill(group.rank() as i64),
        }
    }
}

/// Ranks 0, 1 and 3 make a group by themselves and use it; then ranks 0 and 3 wait for rank 1, which does
/// not come a second time. Rank 2 takes no part.
fn meet(group: &Group) -> Result<(), Error> {
    const MEMBERS: [usize; 3] = [3, 0, 1];
    if group.rank() != 2 {
        let members = group.of(&MEMBERS, "members")?;
        let mut sum = [group.rank() as i64];
        members.all_reduce(&mut sum, ReduceOp::Sum)?;
        print_line(&format!("sum: {}", sum[0]));
    }
    print_line("working");
    if matches!(group.rank(), 0 | 3) {
        return group.of(&MEMBERS, "members").map(drop);
    }
    // Rank 1 is killed here, and rank 2 ends when its standard input does.
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("stdin is open");
    Ok(())
}

/// Runs one operation after the other, on the group and on halves of it, large and small.
fn run_any_operations(group: &Group) -> Result<(), String> {
    let cause = |error: CollectiveError| error.cause.to_string();
    let half = group.split(group.rank() % 2, group.rank()).map_err(|error| error.to_string())?;
    let half = half.expect("every rank is in one half");
    print_line("working");
    for step in 0usize.. {
        let group = if step % 3 == 1 { &half } else { group };
        let (rank, world) = (group.rank(), group.world_size());
        let (root, next, left) = (step % world, (rank + 1) % world, (rank + world - 1) % world);
        let part = [1, 700, 40_000][step * 5 % 7 % 3];
        let (mut ours, mut all) = (vec![1i64; part], vec![1i64; part * world]);
        let values = ours.clone();
        match step * 7 % 17 {
            0 => group.all_reduce(&mut all, ReduceOp::Sum),
            1 => group.broadcast(&mut all, root),
            2 => group.all_gather(&ours, &mut all),
            3 => group.reduce_scatter(&all, &mut ours, ReduceOp::Max),
            4 => group.reduce(&mut all, ReduceOp::Sum, root),
            5 => group.gather(&ours, &mut all, root),
            6 => group.scatter(&all, &mut ours, root),
            7 => group.all_to_all(&all.clone(), &mut all),
            8 => group.send_recv(&values, next, &mut ours, left),
            9 => group.start_all_gather(ours, all).wait().map(drop),
            10..15 => run_sharded(group, step * 7 % 17, part),
            _ => group.barrier(),
        }
        .map_err(cause)?;
    }
    Ok(())
}

/// Runs one of the operations with a part for every rank on memory of the group.
fn run_sharded(group: &Group, operation: usize, part: usize) -> Result<(), CollectiveError> {
    let world = group.world_size();
    let lend = |len| Lend::lend(&mut group.alloc_shared(len).expect("memory"), &(0..len));
    let data = || -> Lent<i64> { lend(part * world) };
    let sum = DividedReduction::SUM;
    match operation {
        10 => group.submit_reduce_scatter_in_place(data(), sum).wait().map(drop),
        11 => group.submit_all_gather_in_place(data()).wait().map(drop),
        12 => group.submit_reduce_scatter(data(), lend(part), sum).wait().map(drop),
        13 => group.submit_all_gather(lend(part), data()).wait().map(drop),
        _ => {
            let lanes = Lanes { ranks: world, each: 3 };
            let pieces = lanes.pieces_of(group.rank()).into_iter().map(|_| data()).collect();
            group.submit_reduce_scatter_of_pieces(pieces, lend(part), 3, sum).wait().map(drop)
        }
    }
}

/// After one all-reduce of all ranks, ranks 0 and 1 exchange messages, and then call a barrier.
fn run_without_the_last_rank(group: &Group, values: &mut [i64]) -> String {
    group.all_reduce(values, ReduceOp::Sum).expect("all ranks are running");
    print_line("working");
    // Long enough for the agent's message to arrive; it must not fail these messages.
    let mut message = [0i64];
    for _ in 0..200 {
        std::thread::sleep(Duration::from_millis(1));
        match group.rank() {
            0 => group.send(&[7i64], 1).and_then(|()| group.recv(&mut message, 1)),
            _ => group.recv(&mut message, 0).and_then(|()| group.send(&[7i64], 0)),
        }
        .expect("both ranks are running");
    }
    print_line(&format!("message: {}", message[0]));
    group.barrier().expect_err("the last rank has exited").cause.to_string()
}

fn print_line(line: &str) {
    writeln!(std::io::stdout(), "{line}").expect("the test reads the output of workers");
}

/// Job with the agents of all nodes, the store and the workers.
struct Job {
    nodes: Vec<Vec<Rank>>,
    workers: Vec<Worker>,
    _store: Server,
}

struct Worker {
    rank: Rank,
    process: Child,
    output: BufReader<std::process::ChildStdout>,
    agent: Option<UnixStream>,
}

fn secret() -> JobKey {
    JobKey::from_random([5; 32])
}

fn start(ranks_of_nodes: &[u32], role: &str, timeout_ms: u64) -> Job {
    let options = ServerOptions {
        job: JobId("j".into()),
        epoch: Epoch(0),
        key_of: Box::new(|rank| Some(derive_rank_key(&secret(), Epoch(0), rank))),
        on_refused: Box::new(|_, _| {}),
    };
    let store = Server::bind("127.0.0.1:0".parse().unwrap(), options).unwrap();
    let mut next = 0;
    let nodes: Vec<NodeRanks> = ranks_of_nodes
        .iter()
        .enumerate()
        .map(|(node, ranks)| {
            let first = next;
            next += ranks;
            NodeRanks { host: format!("n{node}"), ranks: (first..next).map(Rank).collect() }
        })
        .collect();
    let mut workers = Vec::new();
    for node in &nodes {
        let segment = contract::create_segment(node.ranks.len()).unwrap();
        for rank in &node.ranks {
            let welcome = Welcome {
                job: JobId("j".into()),
                epoch: Epoch(0),
                rank: *rank,
                nodes: nodes.clone(),
                key: derive_rank_key(&secret(), Epoch(0), *rank),
                store: Some(store.address()),
            };
            workers.push(spawn(&welcome, &segment, role, timeout_ms));
        }
    }
    let nodes = nodes.into_iter().map(|node| node.ranks).collect();
    Job { nodes, workers, _store: store }
}

fn spawn(welcome: &Welcome, segment: &OwnedFd, role: &str, timeout_ms: u64) -> Worker {
    let (agent, theirs) = contract::create_rank_socket().unwrap();
    let mut agent = UnixStream::from(agent);
    let mut command = worker_command(role, timeout_ms);
    command.env(env_vars::REMUDA_RANK_FD, theirs.as_raw_fd().to_string());
    command.env(env_vars::REMUDA_SHM_FD, segment.as_raw_fd().to_string());
    let process = spawn_with(&mut command, &[&theirs, segment]);
    let message = ToWorker::Welcome(Box::new(welcome.clone()));
    agent.write_all(&contract::encode_frame(&message)).unwrap();
    Worker::new(welcome.rank, process, Some(agent))
}

#[expect(clippy::disallowed_methods, reason = "tests start workers as agents would")]
fn worker_command(role: &str, timeout_ms: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "workers::worker", "--nocapture"]);
    command.env(ROLE, role).env(TIMEOUT_MS, timeout_ms.to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// Lets exactly this child inherit exactly these descriptors.
fn spawn_with(command: &mut Command, fds: &[&OwnedFd]) -> Child {
    static SPAWNING: Mutex<()> = Mutex::new(());
    let _guard = SPAWNING.lock();
    for fd in fds {
        rustix::io::fcntl_setfd(fd, FdFlags::empty()).unwrap();
    }
    let child = command.spawn().unwrap();
    for fd in fds {
        rustix::io::fcntl_setfd(fd, FdFlags::CLOEXEC).unwrap();
    }
    child
}

impl Worker {
    fn new(rank: Rank, mut process: Child, agent: Option<UnixStream>) -> Self {
        let output = BufReader::new(process.stdout.take().expect("stdout is piped"));
        Self { rank, process, output, agent }
    }

    /// Reads until a line begins with `start`; returns the rest of the line.
    fn read_until(&mut self, start: &str) -> String {
        for line in self.output.by_ref().lines() {
            if let Some(rest) = line.unwrap().strip_prefix(start) {
                return rest.to_owned();
            }
        }
        panic!("worker {} exited without printing `{start}`", self.rank);
    }

    fn send(&mut self, message: &ToWorker) {
        let agent = self.agent.as_mut().expect("the agent is connected");
        // A worker that has detected the failure itself may have exited already.
        let _ = agent.write_all(&contract::encode_frame(message));
    }

    fn notes(&mut self) -> Vec<Note> {
        let mut bytes = Vec::new();
        let mut agent = self.agent.take().expect("the agent is connected");
        match agent.read_to_end(&mut bytes) {
            Ok(_) => {}
            // The worker exited with unread messages; its notes are in `bytes`.
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
        }
        let mut reader = FrameReader::from_worker();
        reader.push(&bytes);
        std::iter::from_fn(|| reader.next().unwrap()).collect()
    }

    fn wait(mut self) {
        assert!(self.process.wait().unwrap().success());
    }
}

#[test]
fn processes_sum_over_shared_memory_and_tcp() {
    let mut job = start(&[2, 1], "sum", 60_000);
    for (rank, worker) in job.workers.iter_mut().enumerate() {
        assert_eq!(worker.read_until("result: "), format!("6 of {rank}"));
        assert_eq!(worker.notes(), [Note::Ready]);
    }
    job.workers.into_iter().for_each(Worker::wait);
}

#[test]
fn every_other_rank_names_a_killed_rank() {
    let mut job = start(&[2, 2], "loop", 60_000);
    job.workers.iter_mut().for_each(|worker| drop(worker.read_until("working")));
    let mut victim = job.workers.remove(1);
    victim.process.kill().unwrap();
    victim.process.wait().unwrap();
    // Only the agent of its node has detected it; ranks of the other node detect it themselves.
    job.workers[0].send(&ToWorker::PeerGone { rank: Rank(1) });
    for worker in &mut job.workers {
        assert_eq!(worker.read_until("result: "), "rank 1 on host `n0` is gone");
        assert_eq!(worker.notes(), [Note::Ready, Note::PeerLost { rank: Rank(1) }]);
    }
    job.workers.into_iter().for_each(Worker::wait);
}

#[test]
fn group_of_members_names_a_member_that_was_killed() {
    for nodes in [&[4][..], &[2, 2], &[1, 1, 2]] {
        let mut job = start(nodes, "meet", 60_000);
        for worker in &mut job.workers {
            if worker.rank != Rank(2) {
                assert_eq!(worker.read_until("sum: "), "4");
            }
            worker.read_until("working");
        }
        let mut victim = job.workers.remove(1);
        victim.process.kill().unwrap();
        victim.process.wait().unwrap();
        let node = job.nodes.iter().position(|ranks| ranks.contains(&victim.rank)).unwrap();
        for worker in &mut job.workers {
            if job.nodes[node].contains(&worker.rank) {
                worker.send(&ToWorker::PeerGone { rank: victim.rank });
            }
        }
        for worker in &mut job.workers {
            drop(worker.process.stdin.take());
            let expect = match worker.rank {
                Rank(2) => "no error".to_owned(),
                rank => {
                    format!(
                        "creating a group failed on rank {rank}: rank 1 on host `n{node}` is gone"
                    )
                }
            };
            assert_eq!(worker.read_until("result: "), expect, "{nodes:?}");
        }
        job.workers.into_iter().for_each(Worker::wait);
    }
}

#[test]
fn example_multiplies_on_one_node_and_on_several() {
    for nodes in [&[4][..], &[2, 2], &[1, 2, 1], &[3]] {
        let mut job = start(nodes, "product", 60_000);
        let rows = if nodes == [3] { "3 × 1" } else { "2 × 2" };
        let error = job.workers[0].read_until(&format!("{rows} tiles, largest error "));
        assert!(error.parse::<f32>().unwrap() < 1e-4, "{error}");
        job.workers.into_iter().for_each(Worker::wait);
    }
}

/// `scripts/prove peer_death 500`: a rank is killed at any moment of any operation, and every other rank
/// names it.
#[test]
fn prove_peer_death() {
    let number = |name: &str, default: u64| {
        env_vars::get_text(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let (count, seed) = (number("PROVE_COUNT", 3), number("PROVE_SEED", 1));
    for case in 0..count {
        let mut state = (seed + case).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        let mut nodes: Vec<u32> = (0..=draw(3)).map(|_| 1 + draw(3) as u32).collect();
        if nodes == [1] {
            nodes.push(1);
        }
        let world: u64 = nodes.iter().map(|ranks| u64::from(*ranks)).sum();
        let victim = draw(world) as usize;
        // Not a wait for an event: the rank is killed at any moment.
        let moment = Duration::from_micros(draw(20_000));
        let role = ANY[(seed + case) as usize % ANY.len()];
        eprint_case(seed + case, &nodes, victim, moment);
        kill_one(&nodes, role, victim, moment);
    }
}

fn eprint_case(seed: u64, nodes: &[u32], victim: usize, moment: Duration) {
    let line =
        format!("PROVE_SEED={seed} PROVE_COUNT=1: {nodes:?}, rank {victim} after {moment:?}");
    writeln!(std::io::stderr(), "{line}").expect("stderr is open");
}

fn kill_one(nodes: &[u32], role: &str, victim: usize, moment: Duration) {
    let mut job = start(nodes, role, 60_000);
    job.workers.iter_mut().for_each(|worker| drop(worker.read_until("working")));
    std::thread::sleep(moment);
    let mut killed = job.workers.remove(victim);
    killed.process.kill().unwrap();
    killed.process.wait().unwrap();
    let node = job.nodes.iter().position(|ranks| ranks.contains(&killed.rank)).unwrap();
    for worker in &mut job.workers {
        if job.nodes[node].contains(&worker.rank) {
            worker.send(&ToWorker::PeerGone { rank: killed.rank });
        }
    }
    for worker in &mut job.workers {
        let expect = format!("rank {victim} on host `n{node}` is gone");
        assert_eq!(worker.read_until("result: "), expect);
    }
    job.workers.into_iter().for_each(Worker::wait);
}

/// Three ranks, of which the last one exits early.
#[test]
fn exit_of_a_rank_fails_only_operations_that_need_it() {
    let mut job = start(&[3], "early", 60_000);
    let mut early = job.workers.remove(2);
    assert_eq!(early.read_until("result: "), "6 of 2");
    early.wait();
    for worker in &mut job.workers {
        worker.read_until("working");
        worker.send(&ToWorker::PeerEnded { rank: Rank(2) });
        assert_eq!(worker.read_until("message: "), "7");
    }
    for worker in &mut job.workers {
        let expect = "rank 2 on host `n0` exited with 0 before it took part";
        assert_eq!(worker.read_until("result: "), expect);
        assert_eq!(worker.notes(), [Note::Ready, Note::PeerLost { rank: Rank(2) }]);
    }
    job.workers.into_iter().for_each(Worker::wait);
}

/// The other rank of the node fails at once, and then the rank of the other node.
#[test]
fn early_exit_on_one_node_is_reported_on_the_other() {
    let mut job = start(&[2, 1], "loop-after-early", 60_000);
    let mut early = job.workers.remove(1);
    assert_eq!(early.read_until("result: "), "6 of 1");
    early.wait();
    job.workers[0].send(&ToWorker::PeerEnded { rank: Rank(1) });
    for worker in &mut job.workers {
        let result = worker.read_until("result: ");
        // The connection to the other node may close before the reason is known there.
        let expected = [
            "rank 1 on host `n0` exited with 0 before it took part",
            "rank 1 on host `n0` is gone",
        ];
        assert!(expected.contains(&result.as_str()), "{result}");
    }
    job.workers.into_iter().for_each(Worker::wait);
}

#[test]
fn killed_rank_that_no_agent_reports_exceeds_the_deadline() {
    let mut job = start(&[3], "loop", 1000);
    job.workers.iter_mut().for_each(|worker| drop(worker.read_until("working")));
    let mut victim = job.workers.remove(2);
    victim.process.kill().unwrap();
    victim.process.wait().unwrap();
    for worker in &mut job.workers {
        let result = worker.read_until("result: ");
        // The first rank that times out reports the reason to the other.
        assert!(
            result.contains("the deadline passed while waiting for rank 2, after "),
            "{result}"
        );
    }
    job.workers.into_iter().for_each(Worker::wait);
}

#[test]
fn worker_fails_without_its_agent() {
    let mut job = start(&[2], "loop", 60_000);
    job.workers.iter_mut().for_each(|worker| drop(worker.read_until("working")));
    for worker in &mut job.workers {
        worker.agent = None;
    }
    for worker in &mut job.workers {
        let result = worker.read_until("result: ");
        let expect = "aborted the group: the connection to the agent of this node was lost";
        assert!(result.ends_with(expect), "{result}");
    }
    job.workers.into_iter().for_each(Worker::wait);
}

#[test]
fn worker_rejects_a_different_contract_version() {
    let segment = contract::create_segment(1).unwrap();
    let (agent, theirs) = contract::create_rank_socket().unwrap();
    let mut command = worker_command("sum", 60_000);
    command.env(env_vars::REMUDA_RANK_FD, theirs.as_raw_fd().to_string());
    command.env(env_vars::REMUDA_SHM_FD, segment.as_raw_fd().to_string());
    let process = spawn_with(&mut command, &[&theirs, &segment]);
    let mut agent = UnixStream::from(agent);
    agent.write_all(&[9, 0, 0, 0, 77]).unwrap();
    let mut worker = Worker::new(Rank(0), process, Some(agent));
    let expect = "invalid message from the agent: the peer uses contract version 77, this program uses \
                  version 3";
    assert_eq!(worker.read_until("result: "), expect);
    worker.wait();
}

#[test]
fn process_without_the_descriptors_of_its_worker_says_so() {
    // Neither is open, or another file has the number of the segment.
    for shm_fd in ["801", "0"] {
        let mut command = worker_command("sum", 60_000);
        command.env(env_vars::REMUDA_RANK_FD, "800").env(env_vars::REMUDA_SHM_FD, shm_fd);
        command.env(env_vars::RANK, "3");
        let mut worker = Worker::new(Rank(3), spawn_with(&mut command, &[]), None);
        let expect = "this process was started by the worker of rank 3, and is not that worker: it has not \
                      inherited the descriptors by which the worker joins its job";
        assert_eq!(worker.read_until("result: "), expect);
        worker.wait();
    }
}

#[test]
fn key_file_connects_ranks_of_another_launcher() {
    let key_file = std::env::temp_dir().join(format!("remuda-key-{}", std::process::id()));
    std::fs::write(&key_file, b"sixteen bytes or more").unwrap();
    // Rank 0 needs a fixed port: one that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut workers: Vec<_> = (0..3)
        .map(|rank| {
            let mut command = worker_command("sum", 60_000);
            command.env(env_vars::REMUDA_KEY_FILE, &key_file);
            command.env(env_vars::RANK, rank.to_string()).env(env_vars::WORLD_SIZE, "3");
            command.env(env_vars::MASTER_ADDR, "127.0.0.1");
            command.env(env_vars::MASTER_PORT, port.to_string());
            Worker::new(Rank(rank), spawn_with(&mut command, &[]), None)
        })
        .collect();
    for (rank, worker) in workers.iter_mut().enumerate() {
        assert_eq!(worker.read_until("result: "), format!("6 of {rank}"));
    }
    workers.into_iter().for_each(Worker::wait);
    std::fs::remove_file(key_file).unwrap();
}

#[test]
fn missing_environment_error_names_the_command() {
    let Err(error @ Error::NoEnvironment { .. }) = Group::from_env() else {
        panic!("this process is not a worker");
    };
    let text = error.to_string();
    assert!(text.contains("type `remuda run -n 2 "), "{text}");
}
