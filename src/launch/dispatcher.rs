//! The only loop of the launcher: select → step → perform.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use tokio::sync::mpsc;

use super::grave::{self, Grave};
use super::history::{Ended, History};
use super::input::Input;
use super::node::{Heard, Node, NodeEvent, Way};
use super::options::{LaunchError, Options, Transport};
use super::pause::{Pause, Who};
use super::recording;
use super::signals::{Signals, Wish};
use super::{orders, verdict, voice};
use crate::base::{NodeRank, Rank, Status, clock};
use crate::job::{
    Effect, End, Event, Job, NodeLoss, OnFailure, Policy, StartFailure, StartStep, StopReason,
};
use crate::os::tasks::Tasks;
use crate::os::{family, fds, heap, signals};
use crate::plan::{LaunchPlan, NodePlan, WorkerPlan};
use crate::report::summary::{count, processes, step};
use crate::report::{Consumed, Reporter, WorkerLabel, neutral};
use crate::transport::AgentEnd;
use crate::transport::ssh::{Fault, Ssh};
use crate::wire::{self, Found, FromAgent, OpenFailure, Problem, ToAgent, WorkerNote};

/// Silence of a node that is worth a line.
const SILENCE_WARNING: Duration = Duration::from_secs(10);
/// What nodes have said and nobody has heard; of more, a link has to wait.
const EVENTS_MAX: usize = 1024;
/// Agents that have said their last word end within this time, or are left to their links' end.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);

/// Starts the workers of a plan, sees them through, and says how it went. Returns the exit status.
pub fn run(plan: &LaunchPlan, options: &Options) -> Result<Status, LaunchError> {
    heap::share();
    signals::hear_of_children();
    family::become_subreaper();
    check_open_files(plan, &options.transport)?;
    // Before anything that starts a thread: it forks.
    let way = match &options.transport {
        Transport::Local => Way::Local,
        Transport::Ssh(ssh) => {
            // Who wants to hear little is given no hints.
            let hosts = if options.tell_port { plan.nodes.len() } else { 0 };
            Way::Ssh(Arc::new(Ssh::prepare(ssh, hosts)?))
        }
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(async {
        let mut dispatcher = Dispatcher::start(plan, options, &way)?;
        while dispatcher.job.verdict().is_none() {
            dispatcher.turn().await;
        }
        Ok(dispatcher.finish().await)
    })
}

/// Some for each link, two for the files of each rank, and some for ourselves.
fn check_open_files(plan: &LaunchPlan, transport: &Transport) -> Result<(), LaunchError> {
    const OWN_FDS: u64 = 24;
    let of_link = match transport {
        Transport::Local => 2,
        // Three pipes, the channel, the words of ssh and its end.
        Transport::Ssh(_) => 6,
    };
    let (links, ranks) = (of_link * plan.nodes.len() as u64, 2 * u64::from(plan.world_size));
    let (needed, limit) = (links + ranks + OWN_FDS, fds::raise_limit());
    if needed <= limit { Ok(()) } else { Err(LaunchError::OpenFiles { needed, limit }) }
}

struct Dispatcher<'a> {
    plan: &'a LaunchPlan,
    options: &'a Options,
    started: (Instant, Duration),
    /// Children that were here before us: whoever called `exec` left them, and they are not ours.
    inherited: Vec<Pid>,
    job: Job,
    nodes: Vec<Node>,
    /// Those that serve links.
    tasks: Tasks,
    found: Vec<Option<Found>>,
    problems: Vec<(NodeRank, Problem)>,
    /// What nodes wanted known, each once.
    noted: BTreeSet<String>,
    /// Whether workers were started.
    has_begun: bool,
    faults: Vec<(NodeRank, Fault)>,
    history: History,
    reporter: Reporter,
    events: mpsc::Receiver<NodeEvent>,
    consumed: mpsc::UnboundedReceiver<Consumed>,
    signals: Signals,
    stdin: Input,
    grave: Grave,
    wake: Option<Instant>,
    beat_at: Instant,
    pause: Pause,
    /// The screen has nothing more on its way.
    rested: mpsc::UnboundedReceiver<()>,
    tell_rested: mpsc::UnboundedSender<()>,
    /// When to say whom we wait for.
    waiting_at: Instant,
}

/// Everything that can wake the launcher.
enum Happening {
    Node(NodeEvent),
    Consumed(Consumed),
    Wish(Wish),
    Stdin(Vec<u8>),
    Timer,
    TimedOut,
    Beat,
    Stopped(Who),
    Pause,
    Burial,
}

impl<'a> Dispatcher<'a> {
    fn start(plan: &'a LaunchPlan, options: &'a Options, way: &Way) -> Result<Self, LaunchError> {
        let inherited = family::children_of(rustix::process::getpid());
        let signals = Signals::listen()?;
        let (told, events) = mpsc::channel(EVENTS_MAX);
        let (shown, consumed) = mpsc::unbounded_channel();
        let (tell_rested, rested) = mpsc::unbounded_channel();
        let reporter = Reporter::start(
            &labels(plan),
            &options.style,
            fds::copy_above(rustix::stdio::stdout(), 3)?,
            fds::copy_above(rustix::stdio::stderr(), 3)?,
            move |bytes| {
                let _ = shown.send(bytes);
            },
        )?;
        let mut tasks = Tasks::default();
        let connect = |(place, node): (usize, &NodePlan)| {
            let (who, ways_back) =
                ((NodeRank(place as u32), &node.host), (told.clone(), reporter.sender()));
            Node::connect(way, who, &options.job, ways_back, &mut tasks)
        };
        let nodes = plan.nodes.iter().enumerate().map(connect).collect::<Result<Vec<_>, _>>()?;
        let failure = if options.lets_run { OnFailure::LetRun } else { OnFailure::StopAll };
        Ok(Self {
            plan,
            options,
            started: (clock::now(), clock::wall()),
            inherited,
            job: Job::new(Policy { grace: options.grace, failure }, orders::node_of_rank(plan)),
            found: vec![None; nodes.len()],
            nodes,
            tasks,
            problems: Vec::new(),
            noted: BTreeSet::new(),
            has_begun: false,
            faults: Vec::new(),
            history: History::new(plan),
            reporter,
            events,
            consumed,
            signals,
            stdin: Input::default(),
            grave: Grave::default(),
            wake: None,
            beat_at: clock::now() + wire::beat(options.lease),
            pause: Pause::default(),
            rested,
            tell_rested,
            waiting_at: clock::now() + SILENCE_WARNING,
        })
    }

    async fn turn(&mut self) {
        let happening = self.next().await;
        let event = match happening {
            Happening::Node(NodeEvent { node, what }) => self.hear(node, what),
            Happening::Consumed((node, bytes)) => {
                self.nodes[node.index()].tell(ToAgent::Consumed(bytes));
                None
            }
            Happening::Wish(wish) => self.wish(wish),
            Happening::Stdin(bytes) => {
                self.feed(&bytes);
                None
            }
            Happening::Timer => {
                self.wake = None;
                Some(Event::Timer)
            }
            Happening::TimedOut => Some(Event::TimedOut),
            Happening::Beat => self.beat(),
            Happening::Stopped(who) => {
                self.pause.stopped(who);
                None
            }
            Happening::Pause => Some(self.pause()),
            Happening::Burial => {
                self.bury();
                None
            }
        };
        if let Some(event) = event {
            self.step(event);
        }
    }

    async fn next(&mut self) -> Happening {
        let deadline =
            self.options.timeout.map(|timeout| self.started.0 + timeout + self.pause.total());
        tokio::select! {
            // The user and the clock first: they have little to say. What nodes say may be much.
            biased;
            wish = self.signals.next() => Happening::Wish(wish),
            never = self.tasks.watch() => match never {},
            () = sleep_until(self.wake) => Happening::Timer,
            () = sleep_until(deadline), if !self.job.is_stopping() => Happening::TimedOut,
            () = sleep_until(self.pause.stop_at()) => Happening::Pause,
            () = sleep_until(Some(self.beat_at)) => Happening::Beat,
            () = sleep_until(self.grave.look_at()) => Happening::Burial,
            happening = async { tokio::select! {
                Some(event) = self.events.recv() => Happening::Node(event),
                consumed = self.consumed.recv() => match consumed {
                    Some(consumed) => Happening::Consumed(consumed),
                    None => self.reporter.pass_on_panic(),
                },
                bytes = self.stdin.next() => Happening::Stdin(bytes),
                Some(()) = self.rested.recv() => Happening::Stopped(Who::Screen),
            } } => happening,
        }
    }

    fn step(&mut self, event: Event) {
        tracing::debug!(?event);
        for effect in self.job.step(clock::now(), event) {
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        tracing::debug!(?effect);
        match effect {
            Effect::Start => self.start_workers(),
            Effect::Signal(signal) => self.tell_all(|| ToAgent::Signal(signal)),
            Effect::Kill => self.tell_all(|| ToAgent::Kill),
            Effect::Wake(at) => self.wake = Some(at),
            Effect::ShowOnly(rank) => self.reporter.hush(rank),
            Effect::Stopping(reason) => self.say_stopping(reason),
            Effect::Killing => self.reporter.say(step("Killing", "what is left")),
        }
    }

    fn tell_all(&self, message: impl Fn() -> ToAgent) {
        for node in &self.nodes {
            node.tell(message());
        }
    }

    /// What a node said, as an event of the job.
    fn hear(&mut self, node: NodeRank, what: Heard) -> Option<Event> {
        match what {
            Heard::Said(message) => {
                self.nodes[node.index()].heard = Some(clock::now());
                self.hear_agent(node, message)
            }
            Heard::Connected => {
                self.nodes[node.index()].connected();
                None
            }
            Heard::Unreachable(fault) => {
                self.faults.push((node, fault));
                Some(Event::Refused(node))
            }
            Heard::Closed(AgentEnd { exit, words }) => {
                if let Some(words) = words {
                    let host = &self.plan.nodes[node.index()].host;
                    self.reporter.say(step("Lost", &format!("{host}: {}", neutral(&words))));
                }
                self.lose(node, NodeLoss::LinkClosed(exit))
            }
            Heard::Garbled(why) => self.lose(node, NodeLoss::Garbled(why)),
        }
    }

    fn hear_agent(&mut self, node: NodeRank, message: FromAgent) -> Option<Event> {
        match message {
            FromAgent::Hello(hello) if hello.version != wire::VERSION => {
                let (theirs, ours) = (hello.version, wire::VERSION);
                let why = format!(
                    "it is build {} and speaks version {theirs}, we speak {ours}",
                    hello.build
                );
                self.lose(node, NodeLoss::Garbled(why))
            }
            FromAgent::Hello(hello) => {
                self.nodes[node.index()].greeted(hello.clock_us);
                let prepare =
                    orders::prepare(self.plan, self.options, &self.plan.nodes[node.index()]);
                self.nodes[node.index()].tell(ToAgent::Prepare(prepare));
                None
            }
            FromAgent::Ready(found) => {
                self.say_notes(node, &found.notes);
                self.found[node.index()] = Some(found);
                Some(Event::Ready(node))
            }
            FromAgent::Refused(problems) => {
                self.problems.extend(problems.into_iter().map(|problem| (node, problem)));
                Some(Event::Refused(node))
            }
            FromAgent::Started { rank, pid, at_us } => {
                let at = self.nodes[node.index()].instant(at_us);
                self.history.worker(rank).started = Some((pid, at));
                Some(Event::Started(rank))
            }
            FromAgent::StartFailed(failed) => {
                let failure = StartFailure { step: start_step(failed.step), errno: failed.errno };
                Some(Event::NotStarted { rank: failed.rank, failure })
            }
            FromAgent::Exited { rank, exit, at_us, sent, oom_kills } => {
                let at = self.nodes[node.index()].instant(at_us);
                let stopped = !sent.is_empty();
                self.stdin.gone(rank);
                self.history.worker(rank).ended =
                    Some(Ended { exit, at, stopped, oom_kills, told: false });
                if !exit.is_success() && !self.job.is_stopping() {
                    self.tell_all(|| ToAgent::PeerGone(rank));
                }
                Some(Event::Exited(End { rank, exit, at, sent }))
            }
            FromAgent::StdinTaken { rank, bytes } => {
                self.stdin.taken(rank, bytes);
                None
            }
            FromAgent::Leftovers { rank, processes } => {
                self.say_leftovers(rank, &processes);
                None
            }
            FromAgent::ShimDied => Some(Event::NodeLost { node, loss: NodeLoss::ShimDied }),
            FromAgent::Idle { undead } => {
                self.history.undead.extend(undead.into_iter().map(|process| (node, process)));
                Some(Event::Idle(node))
            }
            FromAgent::Paused => {
                self.pause.stopped(Who::Node(node));
                None
            }
            FromAgent::Clock { asked_us, clock_us } => {
                self.nodes[node.index()].set_clock(asked_us, clock_us);
                None
            }
            FromAgent::Note { rank, note: WorkerNote::PeerLost(peer) } => {
                self.history.worker(rank).lost_peer = true;
                Some(Event::PeerLost { rank, peer })
            }
            FromAgent::Note { note: WorkerNote::Ready | WorkerNote::Step { .. }, .. }
            | FromAgent::Beat
            | FromAgent::Output { .. }
            | FromAgent::OutputEnd { .. } => None,
        }
    }

    /// A node is gone. On this machine what it left has become ours to end; an agent that is still
    /// there, but silent or not to be understood, is ended with it. One on another machine ends
    /// itself with its link.
    fn lose(&mut self, node: NodeRank, loss: NodeLoss) -> Option<Event> {
        let lost = &mut self.nodes[node.index()];
        if std::mem::replace(&mut lost.lost, true) {
            return None;
        }
        let agent = lost.agent();
        self.pause.stopped(Who::Node(node));
        match agent {
            Some(_) => self.grave.open(self.spared()),
            None => self.nodes[node.index()].hang_up(),
        }
        Some(Event::NodeLost { node, loss })
    }

    /// Children that are nobody's leftovers.
    fn spared(&self) -> impl Fn(Pid) -> bool + Send + 'static {
        let agents = |lost: bool| {
            let agents = self.nodes.iter().filter(move |node| node.lost == lost);
            agents.filter_map(Node::agent).collect::<Vec<_>>()
        };
        let (living, lost) = (agents(false), agents(true));
        let (inherited, job) = (self.inherited.clone(), self.options.job.to_string());
        move |pid| {
            living.contains(&pid)
                || inherited.contains(&pid)
                || grave::is_everybodys_parent() && !grave::is_of_job(pid, &job, &lost)
        }
    }

    /// Looks whether everything that lost nodes left is gone.
    fn bury(&mut self) {
        let left = self.grave.look();
        if !left.is_empty() {
            let left = processes(left.len());
            self.reporter.say(format!("warning: {left} of a lost node would not die\n"));
        }
    }

    fn start_workers(&mut self) {
        let found: Vec<Found> = self.found.iter().flatten().cloned().collect();
        self.begin_record();
        if let (true, Some(line)) = (self.options.tell_port, voice::port(self.plan, &found)) {
            self.reporter.say(line);
        }
        let starts = orders::starts(self.plan, self.options, &found);
        for (node, start) in self.nodes.iter().zip(starts) {
            node.tell(ToAgent::Start(start));
        }
        let ranks = (0..).map(Rank).zip(&self.history.workers);
        let readers = ranks.filter(|(_, worker)| self.options.stdin.includes(worker.rank));
        self.stdin = Input::start(readers.map(|(rank, _)| rank));
    }

    /// From now on the job is one to be kept.
    fn begin_record(&mut self) {
        self.has_begun = true;
        let Some(run_dir) = &self.options.run_dir else {
            return;
        };
        run_dir.begin();
        // Whoever kills us leaves at least this; a failure to write it is told at the end.
        let record = recording::begun(self.plan, self.options, self.started.1);
        let _ = run_dir.write_record(&record.to_json());
        if self.options.tell_record {
            self.reporter.say(step("Record", &run_dir.path().display().to_string()));
        }
    }

    fn wish(&mut self, wish: Wish) -> Option<Event> {
        match wish {
            Wish::Stop(signal) => Some(Event::Signal(signal)),
            Wish::Tell => {
                self.say_state();
                None
            }
            Wish::Suspend => {
                self.suspend();
                None
            }
            Wish::Forward(signal) => {
                self.tell_all(|| ToAgent::Signal(signal));
                None
            }
        }
    }

    /// Ctrl-Z: the workers stop, then we do.
    fn suspend(&mut self) {
        let nodes = (0..).map(NodeRank).zip(&self.nodes).filter(|(_, node)| !node.lost);
        let nodes = nodes.map(|(node, _)| Who::Node(node));
        if !self.pause.ask(clock::now(), nodes.chain([Who::Screen])) {
            return;
        }
        self.tell_all(|| ToAgent::Pause);
        self.reporter.say(step("Paused", &format!("{}; `fg` goes on", self.count_workers())));
        let rested = self.tell_rested.clone();
        self.reporter.rest(move || {
            let _ = rested.send(());
        });
    }

    /// Returns when somebody continues us; then the workers go on too.
    fn pause(&mut self) -> Event {
        let since = clock::now();
        signals::stop_self();
        let now = clock::now();
        self.pause.resumed(now - since);
        for node in self.nodes.iter_mut().filter(|node| node.heard.is_some()) {
            node.heard = Some(now);
        }
        self.beat_at = now + wire::beat(self.options.lease);
        self.tell_all(|| ToAgent::Resume);
        self.reporter.say(step("Running", &self.count_workers()));
        self.reporter.wake();
        Event::StoodStill(now - since)
    }

    fn feed(&self, bytes: &[u8]) {
        for rank in self.stdin.readers() {
            let node = self.history.workers[rank.index()].node;
            self.nodes[node.index()].tell(ToAgent::Stdin { rank, bytes: bytes.to_vec() });
        }
    }

    fn beat(&mut self) -> Option<Event> {
        let now = clock::now();
        self.beat_at = now + wire::beat(self.options.lease);
        self.nodes.iter().for_each(Node::beat);
        if grave::is_everybodys_parent() {
            family::bury(self.spared(), |_, _| {});
        }
        self.say_early(now);
        self.say_waiting(now);
        let linked = self.nodes.iter().enumerate().filter(|(_, node)| !node.lost);
        let (index, silence) = linked
            .filter_map(|(index, node)| Some((index, now.saturating_duration_since(node.heard?))))
            .max_by_key(|(_, silence)| *silence)?;
        let node = NodeRank(index as u32);
        if self.options.lease < silence {
            return self.lose(node, NodeLoss::Silent);
        }
        if SILENCE_WARNING < silence {
            let host = self.plan.nodes[index].host.as_str();
            self.reporter.say(voice::silent(host, silence));
        }
        None
    }

    /// Says whom we wait for before anything can start, not more often than somebody would read.
    fn say_waiting(&mut self, now: Instant) {
        if now < self.waiting_at || self.job.is_stopping() {
            return;
        }
        self.waiting_at = now + SILENCE_WARNING;
        let has_answered = |node: &&NodePlan| {
            let (node, index) = (node.node_rank, node.node_rank.index());
            self.found[index].is_some()
                || self.nodes[index].lost
                || self.faults.iter().any(|(faulty, _)| *faulty == node)
                || self.problems.iter().any(|(refusing, _)| *refusing == node)
        };
        let missing = self.plan.nodes.iter().filter(|node| !has_answered(node));
        let hosts: Vec<_> = missing.map(|node| node.host.as_str()).collect();
        if !hosts.is_empty() {
            self.reporter.say(voice::waiting(&hosts, now - self.started.0));
        }
    }

    fn say_stopping(&mut self, reason: StopReason) {
        self.reporter.end_status();
        let line = voice::stopping(reason, self.job.running(), self.options.grace);
        if let Some(line) = line {
            self.reporter.say(line);
        }
    }

    fn count_workers(&self) -> String {
        count(self.history.workers.len(), "worker")
    }

    /// While a job is being stopped, children that die a little later than their parents are no
    /// news.
    fn say_leftovers(&self, rank: Rank, processes: &[crate::wire::Leftover]) {
        if self.job.is_stopping() || processes.is_empty() {
            return;
        }
        self.reporter.say(voice::leftovers(rank, processes));
    }

    /// Nothing is wrong with a worker that is over before the others, unless they wait for it.
    fn say_early(&mut self, now: Instant) {
        if self.job.is_stopping() {
            return;
        }
        let early = self.history.take_early(now);
        if let Some(line) = voice::early(&early, self.job.running()) {
            self.reporter.say(line);
        }
    }

    /// Nodes of a kind say the same: once is enough.
    fn say_notes(&mut self, node: NodeRank, notes: &[String]) {
        for note in notes {
            if self.noted.insert(note.clone()) {
                let host = &self.plan.nodes[node.index()].host;
                self.reporter.say(format!("note: {host}: {note}\n"));
            }
        }
    }

    fn say_state(&self) {
        let now = clock::now();
        for worker in &self.history.workers {
            self.reporter.say(voice::state(worker, now));
        }
    }

    /// Ends the links, waits for what was written, says how it went, leaves a record.
    async fn finish(mut self) -> Status {
        let verdict = self.job.verdict().expect("the loop ended because there is one").clone();
        self.nodes.iter().for_each(|node| node.tell(ToAgent::Bye));
        let limit = if verdict.unconfirmed.is_empty() { CLOSE_LIMIT } else { Duration::ZERO };
        self.nodes.iter().filter(|node| node.heard.is_none()).for_each(Node::hang_up);
        drop(std::mem::take(&mut self.nodes));
        // What they still say is no news, and must not hold them up.
        self.events.close();
        let _ = tokio::time::timeout(limit, self.tasks.finish()).await;
        while let (Some(at), true) = (self.grave.look_at(), verdict.unconfirmed.is_empty()) {
            sleep_until(Some(at)).await;
            self.bury();
        }
        let mut pages = self.reporter.finish();
        pages.finish();
        self.problems.sort_by_key(|(node, _)| *node);
        self.faults.sort_by_key(|(node, fault)| (fault.kind, *node));
        let story = verdict::Story {
            plan: self.plan,
            options: self.options,
            verdict: &verdict,
            history: &self.history,
            problems: &self.problems,
            faults: &self.faults,
            started: self.started.1,
        };
        let status = match (story.status(), pages.output_failure()) {
            (Status::Success, Some(_)) => Status::Io,
            (status, _) => status,
        };
        let text = story.last_words(&mut pages);
        let recorded = match &self.options.run_dir {
            Some(run_dir) if !self.has_begun => {
                run_dir.discard();
                String::new()
            }
            _ => story.write_record(status),
        };
        pages.say(&text);
        pages.say(&recorded);
        pages.finish();
        status
    }
}

fn labels(plan: &LaunchPlan) -> Vec<WorkerLabel> {
    let mut ranks = (0..).map(Rank);
    let of_node = |node: &NodePlan| {
        let host = node.host.clone();
        let node_rank = node.node_rank;
        let label = |worker: &WorkerPlan| WorkerLabel {
            rank: ranks.next().expect("there is always one more"),
            shown: worker.rank,
            local_rank: worker.local_rank,
            node: node_rank,
            host: host.clone(),
        };
        node.workers.iter().map(label).collect::<Vec<_>>()
    };
    plan.nodes.iter().flat_map(of_node).collect()
}

/// The wire and the job are versioned apart.
fn start_step(step: OpenFailure) -> StartStep {
    match step {
        OpenFailure::Fork => StartStep::Fork,
        OpenFailure::Setup => StartStep::Setup,
        OpenFailure::Chdir => StartStep::Chdir,
        OpenFailure::Exec => StartStep::Exec,
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
