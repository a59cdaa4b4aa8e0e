//! The agent's one loop: select → turn → act.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, PanicHookInfo};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, Semaphore, mpsc};

use super::listen::Listening;
use super::output::{self, Forward, Outbox, StreamEnd};
use super::prepare::{self, Prepared};
use super::rank_link::{self, Welcomes};
use super::shim::{FromShim, Shim, ShimHandle, ShimWorker, ToShim};
use crate::base::{JobId, Rank, Status, WorkerExit, clock, env_vars};
use crate::inventory;
use crate::os::{family, signals};
use crate::report::print_error;
use crate::runtime::contract::{self, ToWorker};
use crate::transport::{self, LinkReader, LinkWriter, ssh};
use crate::wire::{
    self, AgentHello, Decoder, FailedStart, Found, FromAgent, Leftover, Prepare, Start, Stream,
    ToAgent, WorkerStart,
};

/// A stream that somebody still holds open after its worker ended is given up after this time.
const HELD_STREAM_LIMIT: Duration = Duration::from_secs(1);
/// How often we say that we live until we know the lease.
const FIRST_BEAT: Duration = Duration::from_secs(3);
/// Silence of the launcher that is worth a line.
const SILENCE_WARNING: Duration = Duration::from_secs(10);
const LINK_READ_BYTES: usize = 64 * 1024;

/// Who started this agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The launcher itself: the link is a link from its first byte.
    Launcher,
    /// A login shell, which may have printed something first.
    Shell,
    /// The same, and this executable is new here.
    Pushed,
}

/// The process `remuda agent`: serves the link on its standard input and output until it ends.
pub fn main(origin: Origin) -> Status {
    std::panic::set_hook(Box::new(explain_panic));
    family::set_name(c"remuda-agent");
    signals::hear_of_children();
    family::become_subreaper();
    signals::block_requests();
    // Before anything that starts a thread.
    let started = Shim::fork().and_then(|shim| Ok((shim, transport::adopt_stdio()?)));
    let Ok((shim, (input, output))) = started else {
        return Status::OsLimit;
    };
    if origin != Origin::Launcher && arrive(origin, &output).is_err() {
        return Status::Io;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
    let Ok(runtime) = runtime else {
        return Status::OsLimit;
    };
    // Unwinding closes the way to the shim, which then kills the workers.
    let served = AssertUnwindSafe(|| runtime.block_on(serve(input, output, shim)));
    match std::panic::catch_unwind(served) {
        Ok(Ok(())) => Status::Success,
        Ok(Err(_)) => Status::Io,
        Err(_) => Status::Bug,
    }
}

/// Behind a shell: leaves its directory, and says that the link begins.
fn arrive(origin: Origin, output: &OwnedFd) -> io::Result<()> {
    rustix::process::chdir("/")?;
    ssh::announce(output)?;
    if origin == Origin::Pushed {
        ssh::prune_cache(clock::wall());
    }
    Ok(())
}

fn explain_panic(info: &PanicHookInfo<'_>) {
    announce(&format!("this is our bug, please report it: {info}"));
}

fn announce(text: &str) {
    print_error(&format!("remuda agent: {text}\n"));
}

async fn serve(input: OwnedFd, output: OwnedFd, shim: Shim) -> io::Result<()> {
    let (told, inner) = mpsc::unbounded_channel();
    let mut agent = Agent {
        reader: Some(LinkReader::new(input)?),
        decoder: Decoder::default(),
        outbox: Arc::new(Outbox::new(LinkWriter::new(output)?)),
        shim: Some(shim.watch()?),
        window: Arc::new(Semaphore::new(0)),
        workers: Vec::new(),
        undead: None,
        job: JobId(String::new()),
        welcomes: None,
        prepare: None,
        alarms: Alarms::default(),
        heard: clock::now(),
        paused: false,
        told,
        inner,
    };
    agent.alarms.set(clock::now() + FIRST_BEAT, Alarm::Beat);
    while agent.turn().await {}
    agent.dismiss_shim();
    Ok(())
}

struct Agent {
    /// `None` once the launcher is gone.
    reader: Option<LinkReader>,
    decoder: Decoder,
    outbox: Arc<Outbox>,
    /// `None` once it is dead.
    shim: Option<ShimHandle>,
    window: Arc<Semaphore>,
    workers: Vec<Worker>,
    /// Set once the shim said that nothing is left, but for these.
    undead: Option<Vec<Leftover>>,
    job: JobId,
    welcomes: Option<Welcomes>,
    prepare: Option<(Prepare, Prepared)>,
    alarms: Alarms,
    /// When the launcher last said something.
    heard: Instant,
    paused: bool,
    told: mpsc::UnboundedSender<Inner>,
    inner: mpsc::UnboundedReceiver<Inner>,
}

struct Worker {
    rank: Rank,
    /// Frames for its rank socket.
    frames: Option<mpsc::UnboundedSender<Vec<u8>>>,
    lives: bool,
    /// Streams that have not ended, with what ends waiting for them.
    streams: BTreeMap<Stream, Arc<Notify>>,
    /// The way to its standard input; input may come before the worker has been forked.
    stdin: Option<mpsc::UnboundedSender<Vec<u8>>>,
    /// The other end, until there is a pipe to write to.
    pieces: Option<mpsc::UnboundedReceiver<Vec<u8>>>,
    oom_kills: u64,
}

/// What our own tasks say.
enum Inner {
    StreamEnded { worker: usize, stream: Stream, end: StreamEnd },
}

enum Turn {
    Told(ToAgent),
    LauncherGone,
    Shim(FromShim, Vec<OwnedFd>),
    ShimDied,
    Inner(Inner),
    Alarm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Alarm {
    /// Say that we live; see whether the launcher does.
    Beat,
    /// A worker's streams should have ended by now.
    Held(usize),
    /// What a worker left behind had its grace.
    Sweep(usize),
    /// Workers that nobody supervises had their grace.
    Orphaned,
}

impl Agent {
    /// Waits for one thing and deals with it; false at the end.
    async fn turn(&mut self) -> bool {
        match self.next().await {
            Turn::Told(ToAgent::Bye) => return false,
            Turn::Told(message) => self.obey(message),
            Turn::LauncherGone => self.launcher_gone(),
            Turn::Shim(message, fds) => self.hear_shim(message, fds),
            Turn::ShimDied => self.bury_shim(),
            Turn::Inner(Inner::StreamEnded { worker, stream, end }) => {
                self.stream_ended(worker, stream, end);
            }
            Turn::Alarm => self.ring(),
        }
        self.reader.is_some() || self.undead.is_none() && self.has_workers()
    }

    async fn next(&mut self) -> Turn {
        let wake = tokio::time::sleep_until(self.alarms.next().into());
        tokio::select! {
            message = next_message(self.reader.as_ref(), &mut self.decoder) => match message {
                Some(message) => Turn::Told(message),
                None => Turn::LauncherGone,
            },
            packet = next_packet(self.shim.as_ref()) => match packet {
                Some((message, fds)) => Turn::Shim(message, fds),
                None => Turn::ShimDied,
            },
            Some(inner) = self.inner.recv() => Turn::Inner(inner),
            () = wake => Turn::Alarm,
        }
    }

    fn obey(&mut self, message: ToAgent) {
        self.heard = clock::now();
        match message {
            ToAgent::Hello(hello) => {
                self.job = JobId(hello.job);
                let hello = AgentHello {
                    version: wire::VERSION,
                    build: env!("CARGO_PKG_VERSION").to_owned(),
                    pid: rustix::process::getpid().as_raw_pid() as u32,
                    clock_us: clock::machine_us(),
                };
                self.outbox.send(&FromAgent::Hello(hello));
            }
            ToAgent::Prepare(prepare) => self.prepare(prepare),
            ToAgent::Start(start) => self.start(start),
            ToAgent::Signal(signal) => self.tell_shim(&ToShim::Signal(signal)),
            ToAgent::Kill => self.tell_shim(&ToShim::Kill),
            ToAgent::Stdin { rank, bytes } => self.feed(rank, bytes),
            ToAgent::PeerGone(rank) => self.tell_peers(rank),
            ToAgent::Consumed(bytes) => self.window.add_permits(bytes as usize),
            ToAgent::Beat | ToAgent::Bye => {}
            ToAgent::Pause => self.paused = true,
            ToAgent::Resume => self.paused = false,
        }
    }

    fn tell_shim(&self, message: &ToShim) {
        if let Some(shim) = &self.shim {
            shim.send(message);
        }
    }

    fn prepare(&mut self, prepare: Prepare) {
        let answer = match prepare::examine(&self.job, &prepare) {
            Ok(prepared) => {
                let found = Found {
                    master: prepared.listening.as_ref().map(Listening::master),
                    store: prepared.listening.as_ref().and_then(Listening::store),
                    cpus: inventory::usable_cpus() as u32,
                };
                let beat = wire::beat(millis(prepare.lease_ms));
                self.alarms.set(clock::now() + beat, Alarm::Beat);
                self.prepare = Some((prepare, prepared));
                FromAgent::Ready(found)
            }
            Err(problems) => FromAgent::Refused(problems),
        };
        self.outbox.send(&answer);
    }

    fn start(&mut self, start: Start) {
        let Some((prepare, prepared)) = &mut self.prepare else {
            return;
        };
        if let Some(listening) = &mut prepared.listening {
            listening.let_go_of_port();
        }
        self.window.add_permits(start.window_bytes as usize);
        let workers: Vec<_> =
            start.workers.iter().map(|worker| resolve(worker, prepare, prepared)).collect();
        let oom_kills = oom_kills();
        self.workers = start.workers.iter().map(|worker| Worker::new(worker, oom_kills)).collect();
        let spawned = spawn(self.shim.as_ref(), &workers);
        self.welcomes = Some(Welcomes::new(self.job.clone(), prepare, start));
        match spawned {
            // A shim that has just died is buried by whoever hears it.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(error) => self.all_failed(&error),
            Ok(()) => {}
        }
    }

    fn all_failed(&mut self, error: &io::Error) {
        let errno = error.raw_os_error().unwrap_or(0);
        for index in 0..self.workers.len() {
            self.failed(index, wire::OpenFailure::Fork, errno);
        }
        self.undead = Some(Vec::new());
        self.report_if_idle();
    }

    fn failed(&mut self, worker: usize, step: wire::OpenFailure, errno: i32) {
        self.workers[worker].lives = false;
        let rank = self.workers[worker].rank;
        self.outbox.send(&FromAgent::StartFailed(FailedStart { rank, step, errno }));
    }

    fn hear_shim(&mut self, message: FromShim, fds: Vec<OwnedFd>) {
        tracing::debug!(?message, "shim");
        match message {
            FromShim::Forked { worker, pid, at_us } => {
                self.forked(worker as usize, pid, at_us, fds);
            }
            FromShim::Failed { worker, step, errno } => {
                self.failed(worker as usize, step, errno);
            }
            FromShim::Ended { worker, exit, at_us, sent } => {
                self.ended(worker as usize, exit, at_us, sent);
            }
            FromShim::Leftovers { worker, processes } => {
                self.sweep(worker as usize, processes);
            }
            FromShim::Empty { undead } => {
                self.undead = Some(undead);
                self.report_if_idle();
            }
        }
    }

    fn forked(&mut self, index: usize, pid: u32, at_us: u64, fds: Vec<OwnedFd>) {
        let mut fds = fds.into_iter();
        let worker = &mut self.workers[index];
        let rank = worker.rank;
        for (stream, pipe) in [Stream::Stdout, Stream::Stderr].into_iter().zip(fds.by_ref()) {
            let let_go = Arc::new(Notify::new());
            worker.streams.insert(stream, Arc::clone(&let_go));
            let (outbox, window) = (Arc::clone(&self.outbox), Arc::clone(&self.window));
            let forward = Forward { rank, stream, outbox, window, let_go };
            let told = self.told.clone();
            tokio::spawn(async move {
                // A read error ends the stream as its end does.
                let end = forward.run(pipe).await.unwrap_or(StreamEnd::Closed);
                let _ = told.send(Inner::StreamEnded { worker: index, stream, end });
            });
        }
        if let (Some(socket), Some(welcomes)) = (fds.next(), &self.welcomes) {
            let (frames, receiver) = mpsc::unbounded_channel();
            let _ = frames.send(welcomes.frame(rank));
            worker.frames = Some(frames);
            if let Ok(copy) = socket.try_clone() {
                tokio::spawn(rank_link::tell(copy, receiver));
            }
            tokio::spawn(rank_link::hear(socket, rank, Arc::clone(&self.outbox)));
        }
        if let (Some(pipe), Some(pieces)) = (fds.next(), worker.pieces.take()) {
            tokio::spawn(output::write_stdin(pipe, rank, pieces, Arc::clone(&self.outbox)));
        }
        self.outbox.send(&FromAgent::Started { rank, pid, at_us });
    }

    fn ended(&mut self, index: usize, exit: WorkerExit, at_us: u64, sent: Vec<i32>) {
        let worker = &mut self.workers[index];
        worker.lives = false;
        worker.stdin = None;
        worker.frames = None;
        let (rank, before) = (worker.rank, worker.oom_kills);
        if !worker.streams.is_empty() {
            self.alarms.set(clock::now() + HELD_STREAM_LIMIT, Alarm::Held(index));
        }
        if !exit.is_success() {
            self.tell_peers(rank);
        }
        let oom_kills = match exit {
            WorkerExit::Signal { signal: libc::SIGKILL, .. } => oom_kills().saturating_sub(before),
            _ => 0,
        };
        self.outbox.send(&FromAgent::Exited { rank, exit, at_us, sent, oom_kills });
    }

    /// Operations that need this worker fail at once instead of at their deadline.
    fn tell_peers(&self, gone: Rank) {
        let frame = contract::encode_frame(&ToWorker::PeerGone { rank: gone });
        for frames in self.workers.iter().filter_map(|worker| worker.frames.as_ref()) {
            let _ = frames.send(frame.clone());
        }
    }

    fn sweep(&mut self, index: usize, processes: Vec<Leftover>) {
        self.tell_shim(&ToShim::Sweep { worker: index as u32, signal: libc::SIGTERM });
        self.alarms.set(clock::now() + self.grace(), Alarm::Sweep(index));
        let rank = self.workers[index].rank;
        self.outbox.send(&FromAgent::Leftovers { rank, processes });
    }

    fn stream_ended(&mut self, index: usize, stream: Stream, end: StreamEnd) {
        let worker = &mut self.workers[index];
        worker.streams.remove(&stream);
        let (rank, held) = (worker.rank, end == StreamEnd::Held);
        self.outbox.send(&FromAgent::OutputEnd { rank, stream, held });
        self.report_if_idle();
    }

    /// The last word about the job: nothing of it is left here, and everything it wrote was sent.
    fn report_if_idle(&mut self) {
        let streaming = self.workers.iter().any(|worker| !worker.streams.is_empty());
        if let (false, Some(undead)) = (streaming, &self.undead) {
            self.outbox.send(&FromAgent::Idle { undead: undead.clone() });
        }
    }

    fn ring(&mut self) {
        while let Some(alarm) = self.alarms.due(clock::now()) {
            match alarm {
                Alarm::Beat => self.beat(),
                Alarm::Held(worker) => self.let_go(worker),
                Alarm::Sweep(worker) => {
                    let worker = worker as u32;
                    self.tell_shim(&ToShim::Sweep { worker, signal: libc::SIGKILL });
                }
                Alarm::Orphaned => self.tell_shim(&ToShim::Kill),
            }
        }
    }

    /// No longer waits for what somebody holds open beyond the life of its worker.
    fn let_go(&self, index: usize) {
        for stream in self.workers[index].streams.values() {
            stream.notify_one();
        }
    }

    fn beat(&mut self) {
        let lease = self.prepare.as_ref().map(|(prepare, _)| millis(prepare.lease_ms));
        self.alarms.set(clock::now() + lease.map_or(FIRST_BEAT, wire::beat), Alarm::Beat);
        if self.reader.is_none() {
            return;
        }
        self.outbox.send(&FromAgent::Beat);
        let silence = clock::now() - self.heard;
        if self.paused || lease.is_none() {
            return;
        }
        if lease < Some(silence) {
            // Act first: whoever reads our words may be as silent as the launcher.
            self.launcher_gone();
            announce("the launcher has been silent for the whole lease; stopping the workers");
        } else if SILENCE_WARNING < silence {
            announce(&format!("nothing heard from the launcher for {} s", silence.as_secs()));
        }
    }

    /// End of the link, or of the lease: TERM, grace, KILL, and then our own end.
    fn launcher_gone(&mut self) {
        self.reader = None;
        // Output has nowhere to go; it is read all the same, so that no worker waits or dies of it.
        self.window.close();
        self.tell_shim(&ToShim::Signal(libc::SIGTERM));
        self.alarms.set(clock::now() + self.grace(), Alarm::Orphaned);
    }

    fn grace(&self) -> Duration {
        self.prepare.as_ref().map_or(Duration::ZERO, |(prepare, _)| millis(prepare.grace_ms))
    }

    fn has_workers(&self) -> bool {
        !self.workers.is_empty()
    }

    /// The workers have become our children; they are killed, since nobody else can wait for them.
    fn bury_shim(&mut self) {
        let shim = self.shim.take().map(|shim| shim.pid());
        // After its last word nobody needs it any more.
        if self.undead.is_none() {
            self.outbox.send(&FromAgent::ShimDied);
        }
        let left = family::kill_descendants(&[], family::KILL_LIMIT, |_, _| {});
        let kill = WorkerExit::Signal { signal: libc::SIGKILL, core: false };
        for index in 0..self.workers.len() {
            if self.workers[index].lives {
                self.ended(index, kill, clock::machine_us(), vec![libc::SIGKILL]);
            }
        }
        let describe = |pid: &rustix::process::Pid| {
            let name = family::Stat::of(*pid)?.name;
            Some(Leftover { pid: pid.as_raw_pid() as u32, name })
        };
        let undead = left.iter().filter(|pid| Some(**pid) != shim).filter_map(describe).collect();
        self.undead = Some(undead);
        self.report_if_idle();
    }

    /// Ends the shim and buries it, so that nobody inherits it from us.
    fn dismiss_shim(&mut self) {
        if let Some(shim) = self.shim.take() {
            let pid = shim.pid();
            drop(shim);
            family::wait_for(pid);
        }
    }

    fn feed(&mut self, rank: Rank, bytes: Vec<u8>) {
        let Some(worker) = self.workers.iter_mut().find(|worker| worker.rank == rank) else {
            return;
        };
        if bytes.is_empty() {
            worker.stdin = None;
        } else if let Some(stdin) = &worker.stdin {
            let _ = stdin.send(bytes);
        }
    }
}

impl Worker {
    fn new(start: &WorkerStart, oom_kills: u64) -> Self {
        let (stdin, pieces) = mpsc::unbounded_channel();
        Self {
            rank: start.rank,
            frames: None,
            lives: true,
            streams: BTreeMap::new(),
            stdin: Some(stdin),
            pieces: Some(pieces),
            oom_kills,
        }
    }
}

async fn next_message(reader: Option<&LinkReader>, decoder: &mut Decoder) -> Option<ToAgent> {
    let Some(reader) = reader else {
        return std::future::pending().await;
    };
    loop {
        match decoder.message() {
            Ok(Some(message)) => return Some(message),
            Ok(None) => {}
            // A launcher that we cannot understand is as good as gone.
            Err(_) => return None,
        }
        match reader.read(decoder.room(LINK_READ_BYTES)).await {
            Ok(0) | Err(_) => return None,
            Ok(_) => {}
        }
    }
}

async fn next_packet(shim: Option<&ShimHandle>) -> Option<(FromShim, Vec<OwnedFd>)> {
    match shim {
        Some(shim) => shim.recv().await,
        None => std::future::pending().await,
    }
}

/// The shared memory is the workers' alone: our own copy is closed as soon as they have it.
fn spawn(shim: Option<&ShimHandle>, workers: &[ShimWorker]) -> io::Result<()> {
    let Some(shim) = shim else {
        return Ok(()); // The launcher knows.
    };
    let segment = contract::create_segment(workers.len()).map_err(io::Error::other)?;
    shim.spawn(workers, Some(segment.as_fd()))
}

/// A worker as the shim needs it: our environment, what must be set, what is set if nothing is.
fn resolve(worker: &WorkerStart, prepare: &Prepare, prepared: &Prepared) -> ShimWorker {
    let mut env = env_vars::all();
    for (name, value) in &worker.env_default {
        env.entry(name.clone()).or_insert_with(|| value.clone());
    }
    env.extend(worker.env.iter().cloned());
    ShimWorker {
        path: prepared.path.as_bytes().to_vec(),
        argv: worker.argv.clone(),
        env: env.into_iter().collect(),
        cwd: prepare.cwd.clone(),
        rank: worker.rank.to_string(),
        stdin: worker.stdin,
    }
}

/// How many processes the kernel has killed for want of memory since this machine started.
fn oom_kills() -> u64 {
    let text = std::fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

fn millis(ms: u32) -> Duration {
    Duration::from_millis(u64::from(ms))
}

/// When to be woken, and what for.
#[derive(Default)]
struct Alarms(Vec<(Instant, Alarm)>);

impl Alarms {
    /// Replaces an earlier wish for the same.
    fn set(&mut self, at: Instant, alarm: Alarm) {
        self.0.retain(|(_, other)| *other != alarm);
        self.0.push((at, alarm));
    }

    fn next(&self) -> Instant {
        self.0.iter().map(|(at, _)| *at).min().expect("the beat never stops")
    }

    fn due(&mut self, now: Instant) -> Option<Alarm> {
        let index = self.0.iter().position(|(at, _)| *at <= now)?;
        Some(self.0.swap_remove(index).1)
    }
}
