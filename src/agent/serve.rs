//! The agent's one loop: select → turn → act.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use tokio::sync::mpsc;

use super::alarms::{Alarm, Alarms};
use super::crew::{Crew, StreamEnded};
use super::listen::Listening;
use super::output::Outbox;
use super::prepare::{self, Prepared};
use super::rank_link::Welcomes;
use super::shim::{FromShim, Shim, ShimHandle, ShimWorker, ToShim};
use crate::base::{JobId, Status, WorkerExit, clock, env_vars};
use crate::inventory;
use crate::os::family::{self, Burial};
use crate::os::tasks::Tasks;
use crate::os::{fds, signals};
use crate::report;
use crate::runtime::contract::{self, ToWorker};
use crate::transport::{self, LinkReader, LinkWriter, ssh};
use crate::wire::{
    self, AgentHello, Decoder, Found, FromAgent, Leftover, Prepare, Problem, Start, ToAgent,
    WorkerStart,
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
    fds::never_wait_for_stderr();
    report::explain_panics("remuda agent");
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
    let served = std::panic::catch_unwind(served);
    // A look at a file system that has gone away is not waited for.
    runtime.shutdown_background();
    match served {
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

fn announce(text: &str) {
    report::print_error_now(&format!("remuda agent: {text}\n"));
}

async fn serve(input: OwnedFd, output: OwnedFd, shim: Shim) -> io::Result<()> {
    let mut tasks = Tasks::default();
    let (told, inner) = mpsc::unbounded_channel();
    let outbox = Arc::new(Outbox::new(LinkWriter::new(output)?, &mut tasks));
    let streams = told.clone();
    let on_stream_end = Arc::new(move |ended| {
        let _ = streams.send(Inner::StreamEnded(ended));
    });
    let mut agent = Agent {
        launcher: Some(Launcher::new(LinkReader::new(input)?)),
        crew: Crew::new(Arc::clone(&outbox), on_stream_end),
        outbox,
        tasks,
        shim: ShimState::Lives(shim.watch()?),
        phase: Phase::Greeting,
        terms: Terms { lease: None, grace: Duration::ZERO },
        job: JobId(String::new()),
        undead: None,
        alarms: Alarms::default(),
        told,
        inner,
    };
    agent.alarms.set(clock::now() + FIRST_BEAT, Alarm::Beat);
    while agent.turn().await {}
    agent.dismiss_shim();
    Ok(())
}

struct Agent {
    /// `None` once it is gone.
    launcher: Option<Launcher>,
    outbox: Arc<Outbox>,
    tasks: Tasks,
    shim: ShimState,
    phase: Phase,
    terms: Terms,
    job: JobId,
    crew: Crew,
    /// Set once nothing is left, but for these.
    undead: Option<Vec<Leftover>>,
    alarms: Alarms,
    told: mpsc::UnboundedSender<Inner>,
    inner: mpsc::UnboundedReceiver<Inner>,
}

/// The other end of the link.
struct Launcher {
    reader: LinkReader,
    decoder: Decoder,
    /// When it last said something.
    heard: Instant,
    /// It has said that it is about to stand still.
    paused: bool,
}

enum ShimState {
    Lives(ShimHandle),
    /// It is dead, and what it left is being killed.
    Buried(Pid, Burial),
    /// Nothing of it is left.
    Gone,
}

/// How far the job has come here.
enum Phase {
    Greeting,
    /// Somebody looks whether the workers could start here.
    Examining,
    Ready(Box<(Prepare, Prepared)>),
    /// What listens on node 0 lives as long as the workers may.
    Started {
        welcomes: Box<Welcomes>,
        _listening: Option<Listening>,
    },
}

/// What the launcher has told about times.
struct Terms {
    /// Silence after which the workers are stopped.
    lease: Option<Duration>,
    /// Between TERM and KILL.
    grace: Duration,
}

/// What our own tasks say.
enum Inner {
    StreamEnded(StreamEnded),
    Examined(Box<(Prepare, Result<Prepared, Vec<Problem>>)>),
}

enum Turn {
    Told(ToAgent),
    LauncherGone,
    Shim(FromShim, Vec<OwnedFd>),
    ShimDied,
    Inner(Inner),
    Alarm,
}

impl Agent {
    /// Waits for one thing and deals with it; false at the end.
    async fn turn(&mut self) -> bool {
        match self.next().await {
            Turn::Told(ToAgent::Bye) => return false,
            Turn::Told(message) => self.obey(message),
            Turn::LauncherGone => self.launcher_gone(),
            Turn::Shim(message, fds) => self.hear_shim(message, fds),
            Turn::ShimDied => self.shim_died(),
            Turn::Inner(Inner::StreamEnded(ended)) => {
                self.crew.stream_ended(&ended);
                self.report_if_idle();
            }
            Turn::Inner(Inner::Examined(found)) => self.examined(found.0, found.1),
            Turn::Alarm => self.ring(),
        }
        self.launcher.is_some() || self.undead.is_none() && !self.crew.is_empty()
    }

    async fn next(&mut self) -> Turn {
        let wake = tokio::time::sleep_until(self.alarms.next().into());
        tokio::select! {
            message = next_message(self.launcher.as_mut()) => match message {
                Some(message) => Turn::Told(message),
                None => Turn::LauncherGone,
            },
            packet = next_packet(&self.shim) => match packet {
                Some((message, fds)) => Turn::Shim(message, fds),
                None => Turn::ShimDied,
            },
            Some(inner) = self.inner.recv() => Turn::Inner(inner),
            () = wake => Turn::Alarm,
            never = self.tasks.watch() => match never {},
        }
    }

    fn obey(&mut self, message: ToAgent) {
        let Some(launcher) = &mut self.launcher else {
            return;
        };
        launcher.heard = clock::now();
        match message {
            ToAgent::Hello(hello) => {
                let epoch = launcher.decoder.epoch().expect("its frame had one");
                self.outbox = Arc::new(self.outbox.of(epoch));
                self.crew.speak(Arc::clone(&self.outbox));
                self.job = JobId(hello.job);
                self.outbox.send(&FromAgent::Hello(our_hello()));
            }
            ToAgent::Prepare(prepare) => self.prepare(prepare),
            ToAgent::Start(start) => self.start(start),
            ToAgent::Signal(signal) => self.tell_shim(&ToShim::Signal(signal)),
            ToAgent::Kill => self.tell_shim(&ToShim::Kill),
            ToAgent::Stdin { rank, bytes } => self.crew.feed(rank, bytes),
            ToAgent::PeerGone(rank) => self.crew.tell(&ToWorker::PeerGone { rank }),
            ToAgent::Consumed(bytes) => self.crew.open_window(bytes),
            ToAgent::Beat { at_us } => {
                let clock_us = clock::machine_us();
                self.outbox.send(&FromAgent::Clock { asked_us: at_us, clock_us });
            }
            ToAgent::Bye => {}
            ToAgent::Pause => {
                launcher.paused = true;
                self.tell_shim(&ToShim::Signal(libc::SIGSTOP));
                self.outbox.send(&FromAgent::Paused);
            }
            ToAgent::Resume => {
                launcher.paused = false;
                self.tell_shim(&ToShim::Signal(libc::SIGCONT));
            }
        }
    }

    fn tell_shim(&self, message: &ToShim) {
        if let ShimState::Lives(shim) = &self.shim {
            shim.send(message);
        }
    }

    /// File systems and resolvers may be slow: we look on a thread of its own, and go on beating.
    fn prepare(&mut self, prepare: Prepare) {
        self.phase = Phase::Examining;
        let lease = millis(prepare.lease_ms);
        self.terms = Terms { lease: Some(lease), grace: millis(prepare.grace_ms) };
        self.alarms.set(clock::now() + wire::beat(lease), Alarm::Beat);
        let (job, epoch) = (self.job.clone(), self.outbox.epoch());
        let told = self.told.clone();
        self.tasks.spawn_blocking(move || {
            let result = prepare::examine(&job, epoch, &prepare);
            let _ = told.send(Inner::Examined(Box::new((prepare, result))));
        });
    }

    fn examined(&mut self, prepare: Prepare, result: Result<Prepared, Vec<Problem>>) {
        let answer = match result {
            Ok(prepared) => {
                let listening = prepared.listening.as_ref();
                let found = Found {
                    master: listening.map(Listening::master),
                    store: listening.and_then(Listening::store),
                    cpus: inventory::usable_cpus() as u32,
                    notes: prepared.notes.clone(),
                };
                self.phase = Phase::Ready(Box::new((prepare, prepared)));
                FromAgent::Ready(found)
            }
            Err(problems) => {
                self.phase = Phase::Greeting;
                FromAgent::Refused(problems)
            }
        };
        self.outbox.send(&answer);
    }

    fn start(&mut self, start: Start) {
        let phase = std::mem::replace(&mut self.phase, Phase::Greeting);
        let Phase::Ready(ready) = phase else {
            self.phase = phase;
            return;
        };
        let (prepare, mut prepared) = *ready;
        if let Some(listening) = &mut prepared.listening {
            listening.let_go_of_port();
        }
        self.crew.open_window(start.window_bytes);
        self.crew.engage(&start.workers);
        let workers: Vec<_> =
            start.workers.iter().map(|worker| resolve(worker, &prepare, &prepared)).collect();
        let welcomes = Welcomes::new(self.job.clone(), self.outbox.epoch(), &prepare, start);
        let welcomes = Box::new(welcomes);
        self.phase = Phase::Started { welcomes, _listening: prepared.listening };
        match self.spawn(&workers) {
            // A shim that has just died is buried by whoever hears it.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(error) => self.all_failed(&error),
            Ok(()) => {}
        }
    }

    /// The shared memory is the workers' alone: our own copy is closed as soon as they have it.
    fn spawn(&self, workers: &[ShimWorker]) -> io::Result<()> {
        let ShimState::Lives(shim) = &self.shim else {
            return Ok(()); // The launcher knows.
        };
        let segment = contract::create_segment(workers.len()).map_err(io::Error::other)?;
        shim.spawn(workers, Some(segment.as_fd()))
    }

    fn all_failed(&mut self, error: &io::Error) {
        let errno = error.raw_os_error().unwrap_or(0);
        for index in self.crew.places() {
            self.crew.failed(index, wire::OpenFailure::Fork, errno);
        }
        self.undead = Some(Vec::new());
        self.report_if_idle();
    }

    fn hear_shim(&mut self, message: FromShim, fds: Vec<OwnedFd>) {
        tracing::debug!(?message, "shim");
        match message {
            FromShim::Forked { worker, pid, at_us } => {
                if let Phase::Started { welcomes, .. } = &self.phase {
                    let index = worker as usize;
                    self.crew.forked(index, (pid, at_us), fds, welcomes, &mut self.tasks);
                }
            }
            FromShim::Failed { worker, step, errno } => {
                self.crew.failed(worker as usize, step, errno);
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

    fn ended(&mut self, index: usize, exit: WorkerExit, at_us: u64, sent: Vec<i32>) {
        if self.crew.is_streaming(index) {
            self.alarms.set(clock::now() + HELD_STREAM_LIMIT, Alarm::Held(index));
        }
        self.crew.ended(index, exit, at_us, sent);
    }

    fn sweep(&mut self, index: usize, processes: Vec<Leftover>) {
        self.tell_shim(&ToShim::Sweep { worker: index as u32, signal: libc::SIGTERM });
        self.alarms.set(clock::now() + self.terms.grace, Alarm::Sweep(index));
        let rank = self.crew.rank(index);
        self.outbox.send(&FromAgent::Leftovers { rank, processes });
    }

    /// The last word about the job: nothing of it is left here, and everything it wrote was sent.
    fn report_if_idle(&mut self) {
        let streaming = self.crew.places().any(|index| self.crew.is_streaming(index));
        if let (false, Some(undead)) = (streaming, &self.undead) {
            self.outbox.send(&FromAgent::Idle { undead: undead.clone() });
        }
    }

    fn ring(&mut self) {
        while let Some(alarm) = self.alarms.due(clock::now()) {
            match alarm {
                Alarm::Beat => self.beat(),
                Alarm::Held(worker) => self.crew.let_go(worker),
                Alarm::Sweep(worker) => {
                    let worker = worker as u32;
                    self.tell_shim(&ToShim::Sweep { worker, signal: libc::SIGKILL });
                }
                Alarm::Orphaned => self.tell_shim(&ToShim::Kill),
                Alarm::Bury => self.bury(),
            }
        }
    }

    fn beat(&mut self) {
        let interval = self.terms.lease.map_or(FIRST_BEAT, wire::beat);
        self.alarms.set(clock::now() + interval, Alarm::Beat);
        let Some(launcher) = &self.launcher else {
            return;
        };
        self.outbox.send(&FromAgent::Beat);
        let silence = clock::now() - launcher.heard;
        let (Some(lease), false) = (self.terms.lease, launcher.paused) else {
            return;
        };
        if lease < silence {
            // Act first: whoever reads our words may be as silent as the launcher.
            self.launcher_gone();
            announce("the launcher has been silent for the whole lease; stopping the workers");
        } else if SILENCE_WARNING < silence {
            announce(&format!("nothing heard from the launcher for {} s", silence.as_secs()));
        }
    }

    /// End of the link, or of the lease: TERM, grace, KILL, and then our own end.
    fn launcher_gone(&mut self) {
        let was_paused = self.launcher.take().is_some_and(|launcher| launcher.paused);
        self.crew.discard_output();
        self.tell_shim(&ToShim::Signal(libc::SIGTERM));
        if was_paused {
            // Who stands still cannot answer.
            self.tell_shim(&ToShim::Signal(libc::SIGCONT));
        }
        self.alarms.set(clock::now() + self.terms.grace, Alarm::Orphaned);
    }

    /// The workers have become our children; they are killed, since nobody else can wait for them.
    fn shim_died(&mut self) {
        let ShimState::Lives(shim) = &self.shim else {
            return;
        };
        // After its last word nobody needs it any more.
        if self.undead.is_none() {
            self.outbox.send(&FromAgent::ShimDied);
        }
        self.shim = ShimState::Buried(shim.pid(), Burial::new(family::KILL_LIMIT, |_| false));
        self.bury();
    }

    /// Looks once; death takes a moment, and meanwhile we go on.
    fn bury(&mut self) {
        let ShimState::Buried(shim, burial) = &self.shim else {
            return;
        };
        let shim = *shim;
        let Some(left) = burial.look(|_, _| {}) else {
            self.alarms.set(clock::now() + Burial::PAUSE, Alarm::Bury);
            return;
        };
        self.shim = ShimState::Gone;
        let kill = WorkerExit::Signal { signal: libc::SIGKILL, core: false };
        for index in self.crew.living() {
            self.ended(index, kill, clock::machine_us(), vec![libc::SIGKILL]);
        }
        let undead = left.into_iter().filter(|pid| *pid != shim).filter_map(describe).collect();
        self.undead = Some(undead);
        self.report_if_idle();
    }

    /// Ends the shim and buries it, so that nobody inherits it from us.
    fn dismiss_shim(&mut self) {
        if let ShimState::Lives(shim) = std::mem::replace(&mut self.shim, ShimState::Gone) {
            let pid = shim.pid();
            drop(shim);
            family::wait_for(pid);
        }
    }
}

impl Launcher {
    fn new(reader: LinkReader) -> Self {
        Self { reader, decoder: Decoder::default(), heard: clock::now(), paused: false }
    }

    /// The next message; `None` at the end of the link.
    async fn next(&mut self) -> Option<ToAgent> {
        loop {
            match self.decoder.message() {
                Ok(Some(message)) => return Some(message),
                Ok(None) => {}
                // A launcher that we cannot understand is as good as gone.
                Err(_) => return None,
            }
            match self.reader.read(self.decoder.room(LINK_READ_BYTES)).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }
}

async fn next_message(launcher: Option<&mut Launcher>) -> Option<ToAgent> {
    match launcher {
        Some(launcher) => launcher.next().await,
        None => std::future::pending().await,
    }
}

async fn next_packet(shim: &ShimState) -> Option<(FromShim, Vec<OwnedFd>)> {
    match shim {
        ShimState::Lives(shim) => shim.recv().await,
        ShimState::Buried(..) | ShimState::Gone => std::future::pending().await,
    }
}

fn our_hello() -> AgentHello {
    AgentHello {
        version: wire::VERSION,
        build: env!("CARGO_PKG_VERSION").to_owned(),
        pid: rustix::process::getpid().as_raw_pid() as u32,
        clock_us: clock::machine_us(),
    }
}

/// A worker as the shim needs it: our environment, what must be set, what is set if nothing is.
fn resolve(worker: &WorkerStart, prepare: &Prepare, prepared: &Prepared) -> ShimWorker {
    let mut env = prepared.env.clone();
    let bound = prepared.shares.get(worker.local_rank.index());
    if let Some(share) = bound {
        // What the user asked for comes after this, and wins.
        let threads = share.cpus.len().to_string();
        env.insert(env_vars::OMP_NUM_THREADS.into(), threads.into());
    }
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
        bound: bound.cloned(),
    }
}

fn describe(pid: Pid) -> Option<Leftover> {
    let name = family::Stat::of(pid)?.name;
    Some(Leftover { pid: pid.as_raw_pid() as u32, name })
}

fn millis(ms: u32) -> Duration {
    Duration::from_millis(u64::from(ms))
}
