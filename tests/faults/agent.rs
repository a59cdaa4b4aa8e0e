//! An agent alone: the test is its launcher and sends messages that no launcher sends.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use remuda::base::{Epoch, LocalRank, NodeRank, Rank};
use remuda::secure::JobKey;
use remuda::wire::{
    self, Decoder, FromAgent, LauncherHello, Listen, NodeRoster, PortRequest, Prepare, Start,
    ToAgent, WorkerStart,
};
use rustix::process::{Pid, Signal};

use crate::support::delays::without_delays;
use crate::support::launch::{REMUDA, command};
use crate::support::process::{MARK, assert_clean, marked};
use crate::support::{wait_for, wait_for_or};

/// The epoch of a job that was restarted once.
const EPOCH: Epoch = Epoch(1);

/// Number of jobs of this test program so far.
static JOBS: AtomicU32 = AtomicU32::new(0);

/// An agent whose launcher is the test.
struct Agent {
    child: Child,
    link: ChildStdin,
    decoder: Decoder,
    mark: String,
    /// Name of the job in the hello.
    job: String,
}

impl Agent {
    fn start(name: &str, stderr: impl Into<Stdio>) -> Self {
        let mark = format!("{}-{name}", std::process::id());
        let mut command = command(REMUDA);
        command.args(["agent", "job=x", "node=0"]).env(MARK, &mark).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(stderr).spawn().expect("started");
        let link = child.stdin.take().expect("a pipe");
        Self { child, link, decoder: Decoder::default(), mark, job: String::new() }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn say(&mut self, epoch: Epoch, message: &ToAgent) {
        self.link.write_all(&wire::encode(epoch, message)).expect("it listens");
    }

    /// Reads messages, all of [`EPOCH`], until one satisfies the predicate.
    fn wait_until_it_says(&mut self, wanted: impl Fn(&FromAgent) -> bool) {
        let stdout = self.child.stdout.as_mut().expect("a pipe");
        loop {
            while let Some(message) = self.decoder.message().expect("frames") {
                assert_eq!(self.decoder.epoch(), Some(EPOCH));
                if wanted(&message) {
                    return;
                }
            }
            let mut buffer = [0; 1024];
            let length = stdout.read(&mut buffer).expect("it answers");
            assert!(0 < length, "it ended");
            self.decoder.push(&buffer[..length]);
        }
    }

    /// Sends the messages that start a job with one worker.
    fn start_job(&mut self, lease_ms: u32) {
        let [hello, prepare, roster, start] = start_of_a_job(lease_ms);
        if let ToAgent::Hello(hello) = &hello {
            self.job.clone_from(&hello.job);
        }
        self.say(EPOCH, &hello);
        self.say(EPOCH, &prepare);
        self.wait_until_it_says(|message| matches!(message, FromAgent::Ready(_)));
        self.say(EPOCH, &roster);
        self.say(EPOCH, &start);
    }

    /// Waits until the worker has become its program.
    fn wait_for_worker(&self) {
        wait_for("the worker", || {
            let all = marked(&self.mark, self.pid());
            all.iter().any(|process| process.command.starts_with("sleep 1000")).then_some(())
        });
    }

    /// The exit code of the agent, once none of its processes is left.
    fn end(mut self) -> Option<i32> {
        let status = wait_for_or(|| "its end".to_owned(), || self.child.try_wait().expect("ours"));
        assert_clean(&self.mark, self.pid());
        status.code()
    }

    fn stderr(&mut self) -> String {
        let mut text = String::new();
        let stderr = self.child.stderr.as_mut().expect("a pipe");
        stderr.read_to_string(&mut text).expect("text");
        without_delays(&text)
    }
}

#[test]
fn agent_exits_on_invalid_data() {
    let mut agent = Agent::start("nonsense", Stdio::inherit());
    agent.link.write_all(&[0xff; 64]).expect("it listens");
    let mut said = Vec::new();
    agent.child.stdout.take().expect("a pipe").read_to_end(&mut said).expect("its end");
    assert_eq!((agent.end(), said), (Some(76), vec![]), "the agent sends nothing");
}

/// Over ssh only the shim can end an agent that is stopped.
#[test]
fn stopped_agent_is_killed_with_its_workers() {
    let mut agent = Agent::start("stopped", Stdio::inherit());
    agent.start_job(10_000);
    agent.wait_for_worker();
    // The agent has sent a ping before its second heartbeat.
    for _ in 0..2 {
        agent.say(EPOCH, &ToAgent::Heartbeat { at_us: 0 });
        agent.wait_until_it_says(|message| matches!(message, FromAgent::Heartbeat));
    }
    rustix::process::kill_process(agent.pid(), Signal::STOP).expect("it runs");
    assert_eq!(agent.end(), None, "it was killed");
}

/// A request that no launcher sends: the answer would be longer than a frame, which panics.
#[test]
fn agent_panic_is_reported_and_stops_workers() {
    let mut agent = Agent::start("panic", Stdio::piped());
    agent.start_job(60_000);
    agent.wait_for_worker();
    let [_, prepare, _, _] = start_of_a_job(60_000);
    let ToAgent::Prepare(prepare) = prepare else { unreachable!("it is the second") };
    // Each of these bytes is three in a text.
    let program = vec![0xff; wire::FRAME_BYTES_MAX / 2];
    agent.say(EPOCH, &ToAgent::Prepare(Box::new(Prepare { program, listen: None, ..*prepare })));
    let stderr = agent.stderr();
    assert!(
        stderr.starts_with("remuda agent: internal error in remuda, please report it: "),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert_eq!(agent.end(), Some(70));
}

#[test]
fn agent_rejects_credit_beyond_sent_output() {
    let mut agent = Agent::start("consumed", Stdio::piped());
    agent.start_job(60_000);
    agent.wait_for_worker();
    agent.say(EPOCH, &ToAgent::Consumed(1));
    let expected = "remuda agent: protocol error from the launcher: acknowledged more output \
                    than was sent; stopping the workers\n";
    assert_eq!(agent.stderr(), expected);
    assert_eq!(agent.end(), Some(76));
}

/// The shim is suspended, so the worker outlives its agent for a while: a second agent must not start
/// another worker beside it.
#[test]
fn agent_lock_is_released_with_its_shim() {
    let mut first = Agent::start("place", Stdio::inherit());
    first.start_job(60_000);
    first.wait_for_worker();
    let all = marked(&first.mark, first.pid());
    let shim = all.iter().find(|process| process.name == "remuda-shim").expect("its child");
    let name = format!("@remuda/agent/{}/0", first.job);
    let is_held = || {
        let names = std::fs::read_to_string("/proc/net/unix").expect("mounted");
        names.lines().any(|line| line.ends_with(&name))
    };
    assert!(is_held());
    shim.signal(Signal::STOP);
    first.child.kill().expect("ours");
    first.child.wait().expect("ours");
    assert!(is_held(), "the shim still has a worker");
    shim.signal(Signal::CONT);
    wait_for("its place", || (!is_held()).then_some(()));
    assert_clean(&first.mark, first.pid());
}

#[test]
fn agent_exits_with_a_stopped_shim() {
    let agent = Agent::start("stopped", Stdio::inherit());
    let shim = wait_for("its shim", || {
        let all = marked(&agent.mark, agent.pid());
        all.into_iter().find(|process| process.name == "remuda-shim")
    });
    shim.signal(Signal::STOP);
    let Agent { mut child, link, mark, .. } = agent;
    drop(link);
    let status = wait_for("its end", || child.try_wait().expect("a child of the test"));
    assert_clean(&mark, Pid::from_child(&child));
    assert_eq!(status.code(), Some(0));
}

/// The reader of the agent's standard error may block like the launcher.
#[test]
fn agent_with_full_stderr_stops_workers() {
    let (unread, full) = std::io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&full, true).expect("a pipe");
    while rustix::io::write(&full, b"full").is_ok() {}
    rustix::io::ioctl_fionbio(&full, false).expect("a pipe");
    let mut agent = Agent::start("unread", full);
    agent.start_job(10_000);
    // The lease expires, because the test sends no heartbeat.
    assert_eq!(agent.end(), Some(75));
    drop(unread);
}

#[test]
fn agent_ignores_messages_of_earlier_epochs() {
    let mut agent = Agent::start("earlier", Stdio::inherit());
    agent.start_job(60_000);
    agent.wait_for_worker();
    agent.say(Epoch(0), &ToAgent::Kill);
    agent.say(EPOCH, &ToAgent::Signal(libc::SIGTERM));
    agent.wait_until_it_says(|message| match message {
        FromAgent::Exited { signals_sent: sent, .. } => {
            assert_eq!(*sent, [libc::SIGTERM]);
            true
        }
        _ => false,
    });
    agent.say(EPOCH, &ToAgent::Bye);
    assert_eq!(agent.end(), Some(0));
}

#[test]
fn agent_rejects_messages_of_later_epochs() {
    let mut agent = Agent::start("later", Stdio::inherit());
    agent.start_job(60_000);
    agent.wait_for_worker();
    agent.say(Epoch(2), &ToAgent::Heartbeat { at_us: 0 });
    assert_eq!(agent.end(), Some(76));
}

/// A script that forms no group, with a file that only has the name of torch's library, as the agent
/// sees nothing else of it.
const MAPS_TORCH: &str = "\
import mmap, os, socket, sys, time
if sys.argv[2] == 'listen':
    listener = socket.create_server(('127.0.0.1', int(os.environ['MASTER_PORT'])))
path = os.path.join(sys.argv[1], 'libtorch_cpu.so')
with open(path, 'wb') as file:
    file.write(b'x' * 4096)
file = open(path, 'rb')
mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
# Long enough for many looks.
time.sleep(1 if sys.argv[2] == 'listen' else 1000)
";

/// Starts two workers, of which rank 0 does `what`.
fn start_ungrouped(agent: &mut Agent, dir: &Path, what: &str, group_limit_ms: u32) {
    let [hello, prepare, _, start] = start_of_a_job(60_000);
    let (ToAgent::Prepare(prepare), ToAgent::Start(start)) = (prepare, start) else {
        unreachable!("they are in this order")
    };
    if let ToAgent::Hello(hello) = &hello {
        agent.job.clone_from(&hello.job);
    }
    let free = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("there are ports");
    let port = free.local_addr().expect("bound").port().to_string();
    drop(free);
    let worker = |rank: u32| {
        let what = if rank == 0 { what } else { "run" };
        let argv = ["python3", "-c", MAPS_TORCH, dir.to_str().expect("text"), what];
        let env = [("RANK", &*rank.to_string()), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1")];
        let env = env.into_iter().chain([("MASTER_PORT", &*port)]);
        WorkerStart {
            rank: Rank(rank),
            local_rank: LocalRank(rank),
            argv: argv.map(Into::into).to_vec(),
            env: env.map(|(name, value)| (name.into(), value.into())).collect(),
            ..start.workers[0].clone()
        }
    };
    let workers = vec![worker(0), worker(1)];
    let prepare = Prepare { program: b"python3".to_vec(), rank_limit: 2, listen: None, ..*prepare };
    let roster = NodeRoster { nodes: vec![("n0".to_owned(), 2)] }.pack();
    agent.say(EPOCH, &hello);
    agent.say(EPOCH, &ToAgent::Prepare(Box::new(prepare)));
    agent.wait_until_it_says(|message| matches!(message, FromAgent::Ready(_)));
    agent.say(EPOCH, &ToAgent::Roster(roster));
    agent.say(EPOCH, &ToAgent::Start(Start { workers, group_limit_ms, ..start }));
}

#[test]
fn agent_reports_torch_workers_without_a_connection() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("torch-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let mut agent = Agent::start("ungrouped", Stdio::inherit());
    start_ungrouped(&mut agent, &dir, "run", 1_000);
    agent.wait_until_it_says(|message| match message {
        FromAgent::Ungrouped { master, .. } => {
            assert!(master.starts_with("127.0.0.1:"), "{master}");
            true
        }
        _ => false,
    });
    agent.say(EPOCH, &ToAgent::Kill);
    agent.wait_until_it_says(|message| matches!(message, FromAgent::Idle { .. }));
    agent.say(EPOCH, &ToAgent::Bye);
    assert_eq!(agent.end(), Some(0));
    // One that listens at the port of rank 0 has a group, or will have one.
    let mut agent = Agent::start("grouped", Stdio::inherit());
    start_ungrouped(&mut agent, &dir, "listen", 30);
    agent.wait_until_it_says(|message| {
        assert!(!matches!(message, FromAgent::Ungrouped { .. }), "{message:?}");
        matches!(message, FromAgent::Exited { rank: Rank(0), .. })
    });
    agent.say(EPOCH, &ToAgent::Kill);
    agent.wait_until_it_says(|message| matches!(message, FromAgent::Idle { .. }));
    agent.say(EPOCH, &ToAgent::Bye);
    assert_eq!(agent.end(), Some(0));
    std::fs::remove_dir_all(dir).expect("ours");
}

/// Messages of a launcher until a worker runs.
fn start_of_a_job(lease_ms: u32) -> [ToAgent; 4] {
    let hello = LauncherHello {
        version: wire::VERSION,
        build: String::new(),
        // Agents for one node of one job wait for each other.
        job: format!("x{}n{}", std::process::id(), JOBS.fetch_add(1, Ordering::Relaxed)),
        node: NodeRank(0),
    };
    let prepare = Prepare {
        cwd: b"/".to_vec(),
        program: b"sleep".to_vec(),
        script: None,
        fds: 8,
        listen: Some(Listen {
            addr: Some("127.0.0.1".to_owned()),
            port: PortRequest::Preferred(0),
            others: Vec::new(),
            store: false,
            store_port: 0,
        }),
        key: JobKey::from_random([0; 32]),
        rank_limit: 1,
        lease_ms,
        heartbeat_ms: 3_000.min(lease_ms / 4),
        grace_ms: 10_000,
        cores: None,
        venv_script: None,
        gpu_locks: None,
        files: Vec::new(),
        spans_machines: false,
        package: None,
    };
    let worker = WorkerStart {
        rank: Rank(0),
        local_rank: LocalRank(0),
        argv: vec![b"sleep".to_vec(), b"1000".to_vec()],
        env: Vec::new(),
        env_default: Vec::new(),
        env_without_gpu: Vec::new(),
        stdin: false,
    };
    let start =
        Start { workers: vec![worker], store: None, window_bytes: 1 << 20, group_limit_ms: 0 };
    let roster = NodeRoster { nodes: vec![("n0".to_owned(), 1)] }.pack();
    [
        ToAgent::Hello(hello),
        ToAgent::Prepare(Box::new(prepare)),
        ToAgent::Roster(roster),
        ToAgent::Start(start),
    ]
}
