//! The event loop of the launcher: select → step → perform. The handlers of single events and
//! effects are in the other files of this module.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use tokio::sync::mpsc;

use super::awaited::PendingNodes;
use super::finish::LaunchEnd;
use super::gather;
use super::grave::OrphanReaper;
use super::history::History;
use super::input::{self, Input};
use super::node::{Caller, Connector, NodeEvent, NodeHandle};
use super::options::{DialOptions, Framing, LaunchError, Options, Transport};
use super::pause::{Pause, PauseScope};
use super::probes::{HealthState, answer_probes};
use super::signals::{Signals, UserRequest};
use super::termination_log::leave_message;
use super::{orders, voice};
use crate::base::{Epoch, NodeRank, Rank, Status, clock};
use crate::job::{Effect, Event, Evidence, Job, OnEarlyLoss, OnFailure, Policy, StopReason};
use crate::os::tasks::Tasks;
use crate::os::{family, fds, heap, signals};
use crate::plan::{LaunchPlan, NodePlan, WorkerPlan};
use crate::report::record::EpochRecord;
use crate::report::summary::step;
use crate::report::{Consumed, OutputSender, Reporter, WorkerLabel};
use crate::transport::Fault;
use crate::transport::dial::HANDSHAKES_MAX;
use crate::transport::ssh::{Ssh, end_processes};
use crate::wire::{PreparedNode, Problem, ToAgent};

/// Time without a message of a node after which that is reported.
pub(super) const SILENCE_WARNING: Duration = Duration::from_secs(10);
/// Time without any line before the start after which the launcher reports the nodes that it waits
/// for.
const PATIENCE: Duration = Duration::from_millis(2500);
/// Maximum number of node events that wait for the loop; at this bound, links wait.
const EVENTS_MAX: usize = 1024;

/// Starts the workers of a plan, supervises them, and reports the result. Returns the exit status.
pub fn run(plan: &LaunchPlan, options: &Options) -> Result<Status, LaunchError> {
    heap::share();
    signals::hear_of_children();
    family::become_subreaper();
    check_open_files(plan, &options.transport)?;
    // Until its handlers are installed a signal would end the launcher, and nothing would clean up
    // if the janitor is gone too.
    let blocked_signals = signals::let_requests_wait();
    // Before anything that starts a thread: it forks.
    let target = match &options.transport {
        Transport::Local => Reached::By(Connector::Local),
        Transport::Ssh(ssh) => {
            let ssh = Ssh::prepare(ssh, plan.nodes.iter().map(|node| &node.host))?;
            // Without progress messages no hints are printed either.
            let shows_progress = options.talks || options.framing != Framing::None;
            let ssh = if shows_progress { ssh } else { ssh.without_hints() };
            Reached::By(Connector::Ssh(Arc::new(ssh)))
        }
        Transport::Dial(dial) => Reached::At(dial),
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let status = runtime.block_on(async {
        let mut tasks = Tasks::default();
        let health = Arc::new(HealthState::default());
        answer_probes(options.keeper.status_addr, &health, &mut tasks).await?;
        match target {
            Reached::By(connector) => {
                health.set_ready(true);
                let ended =
                    see_through(plan, options, (&connector, health), |_| drop(blocked_signals))
                        .await?;
                let own = plan.nodes.first().map_or(NodeRank(0), |node| node.node_rank);
                let LaunchEnd { status, text, cause, .. } = ended;
                let file = options.keeper.termination_log.as_ref();
                leave_message(file, (&options.job, own), status, (&text, cause));
                Ok(status)
            }
            Reached::At(dial) => {
                gather::see_through(plan, options, (dial, health), blocked_signals).await
            }
        }
    });
    // The process does not wait for a name server that does not answer.
    runtime.shutdown_background();
    end_processes();
    status
}

/// Time until the first report of nodes that are not ready. Nodes that connect by themselves have
/// been announced.
fn patience(options: &Options) -> Duration {
    match options.transport {
        Transport::Local | Transport::Ssh(_) if options.talks => PATIENCE,
        Transport::Local | Transport::Ssh(_) | Transport::Dial(_) => SILENCE_WARNING,
    }
}

/// How nodes will be reached.
enum Reached<'a> {
    By(Connector),
    At(&'a DialOptions),
}

/// Supervises the job from the first link to the final report. `on_output_sender` receives the
/// sender of output.
pub(super) async fn see_through(
    plan: &LaunchPlan,
    options: &Options,
    (connector, health): (&Connector, Arc<HealthState>),
    on_output_sender: impl FnOnce(OutputSender),
) -> Result<LaunchEnd, LaunchError> {
    let stdout = fds::copy_above(rustix::stdio::stdout(), 3)?;
    let stderr = fds::copy_above(rustix::stdio::stderr(), 3)?;
    let mut dispatcher = Dispatcher::start(plan, options, connector, (stdout, stderr))?;
    dispatcher.pulse = health;
    on_output_sender(dispatcher.reporter.sender());
    dispatcher.until_the_verdict().await;
    Ok(dispatcher.finish().await)
}

/// Checks the limit of file descriptors: some for each link, two for the files of each rank, and
/// some for the launcher itself.
fn check_open_files(plan: &LaunchPlan, transport: &Transport) -> Result<(), LaunchError> {
    const OWN_FDS: u64 = 24;
    let of_link = match transport {
        Transport::Local => 2,
        // Three pipes, the channel, the messages of ssh, and its exit.
        Transport::Ssh(_) => 6,
        // The connection, and both ends of the link, each of them twice.
        Transport::Dial(_) => 5,
    };
    let handshakes = match transport {
        Transport::Local | Transport::Ssh(_) => 0,
        Transport::Dial(_) => HANDSHAKES_MAX as u64,
    };
    let (links, ranks) = (of_link * plan.nodes.len() as u64, 2 * u64::from(plan.world_size));
    let (needed, limit) = (links + ranks + handshakes + OWN_FDS, fds::raise_limit());
    if needed <= limit { Ok(()) } else { Err(LaunchError::OpenFiles { needed, limit }) }
}

/// State of a launch: the job, its nodes, and the sources of events.
pub(super) struct Dispatcher<'a> {
    pub(super) plan: &'a LaunchPlan,
    pub(super) options: &'a Options,
    pub(super) started: (Instant, Duration),
    /// Children that the process had before remuda started, left by a program that called `exec`:
    /// they do not belong to the job.
    pub(super) inherited: Vec<Pid>,
    /// How nodes are reached, also after a loss.
    pub(super) caller: Caller<'a>,
    pub(super) job: Job,
    /// State for the answers to probes.
    pub(super) pulse: Arc<HealthState>,
    pub(super) nodes: Vec<NodeHandle>,
    /// Tasks that serve links.
    pub(super) tasks: Tasks,
    pub(super) found: Vec<Option<PreparedNode>>,
    /// Every epoch that has begun; the last one has not ended.
    pub(super) epochs: Vec<EpochRecord>,
    /// Nodes to be reached again, once the processes that lost nodes left here are reaped.
    pub(super) renewal: Option<Vec<NodeRank>>,
    pub(super) problems: Vec<(NodeRank, Problem)>,
    /// Notes of nodes that were printed, each once.
    pub(super) noted: BTreeSet<String>,
    /// The nodes that delayed a start until the time limit.
    pub(super) awaited: Option<PendingNodes>,
    /// When workers were first started.
    pub(super) begun: Option<Instant>,
    pub(super) faults: Vec<(NodeRank, Fault)>,
    pub(super) history: History,
    pub(super) reporter: Reporter,
    pub(super) events: mpsc::Receiver<NodeEvent>,
    pub(super) consumed: mpsc::UnboundedReceiver<Consumed>,
    pub(super) signals: Signals,
    pub(super) stdin: Input,
    pub(super) grave: OrphanReaper,
    pub(super) wake: Option<Instant>,
    pub(super) beat_at: Instant,
    pub(super) pause: Pause,
    /// Receives a message when the screen has no more output to write.
    pub(super) rested: mpsc::UnboundedReceiver<()>,
    pub(super) tell_rested: mpsc::UnboundedSender<()>,
    /// When to report the nodes that the launcher waits for.
    pub(super) waiting_at: Instant,
    /// Receives what workers printed about their failures, once it was requested.
    pub(super) evidence: mpsc::UnboundedReceiver<BTreeMap<Rank, Evidence>>,
    pub(super) send_evidence: mpsc::UnboundedSender<BTreeMap<Rank, Evidence>>,
}

/// Everything that can wake the launcher.
enum Happening {
    Node(NodeEvent),
    Consumed(Consumed),
    Wish(UserRequest),
    Stdin(Vec<u8>),
    Timer,
    TimedOut,
    Beat,
    Stopped(PauseScope),
    Pause,
    Burial,
    Evidence(BTreeMap<Rank, Evidence>),
}

impl<'a> Dispatcher<'a> {
    pub(super) fn start(
        plan: &'a LaunchPlan,
        options: &'a Options,
        connector: &'a Connector,
        (stdout, stderr): (OwnedFd, OwnedFd),
    ) -> Result<Self, LaunchError> {
        let inherited = family::children_of(rustix::process::getpid());
        let signals = Signals::listen()?;
        let (event_sender, events) = mpsc::channel(EVENTS_MAX);
        let (consumed_sender, consumed) = mpsc::unbounded_channel();
        let (tell_rested, rested) = mpsc::unbounded_channel();
        let (send_evidence, evidence) = mpsc::unbounded_channel();
        let reporter =
            Reporter::start(&labels(plan), &options.style, stdout, stderr, move |bytes| {
                let _ = consumed_sender.send(bytes);
            })?;
        let mut tasks = Tasks::default();
        let (job, output) = (&options.job, reporter.sender());
        let traffic = Arc::default();
        let caller = Caller {
            way: connector,
            job,
            asked: clock::now(),
            events: event_sender,
            output,
            traffic,
        };
        let connect = |node| NodeHandle::connect(&caller, node, (0, Epoch(0)), &mut tasks);
        let nodes = orders::callees(plan).map(connect).collect::<Result<Vec<_>, _>>()?;
        let policy = Policy {
            grace: options.grace,
            failure: if options.lets_run { OnFailure::LetRun } else { OnFailure::StopAll },
            restarts_max: options.restarts_max,
            warning: options.warning,
            on_term: options.keeper.on_term,
            early_loss: match connector {
                Connector::Dial(..) => OnEarlyLoss::AwaitsAnother,
                Connector::Local | Connector::Ssh(_) => OnEarlyLoss::EndsJob,
                #[cfg(test)]
                Connector::Played(_) => OnEarlyLoss::EndsJob,
            },
            has_evidence: true,
        };
        Ok(Self {
            plan,
            options,
            started: (clock::now(), clock::wall()),
            inherited,
            caller,
            job: Job::new(policy, orders::node_of_rank(plan)),
            pulse: Arc::default(),
            epochs: Vec::new(),
            renewal: None,
            found: vec![None; nodes.len()],
            nodes,
            tasks,
            problems: Vec::new(),
            noted: BTreeSet::new(),
            awaited: None,
            begun: None,
            faults: Vec::new(),
            history: History::new(plan),
            reporter,
            events,
            consumed,
            signals,
            stdin: Input::default(),
            grave: OrphanReaper::default(),
            wake: None,
            beat_at: clock::now() + options.beat,
            pause: Pause::default(),
            rested,
            tell_rested,
            waiting_at: clock::now() + patience(options),
            evidence,
            send_evidence,
        })
    }

    /// Runs the loop until the job has a verdict.
    pub(super) async fn until_the_verdict(&mut self) {
        while self.job.verdict().is_none() {
            self.turn().await;
        }
    }

    async fn turn(&mut self) {
        let wakeup = self.next().await;
        let event = match wakeup {
            Happening::Node(event) => self.hear(event),
            Happening::Consumed(((node, link), bytes)) => {
                let node = &self.nodes[node.index()];
                // An agent that replaced another one did not send it.
                if node.link == link {
                    node.tell(&ToAgent::Consumed(bytes));
                }
                None
            }
            Happening::Wish(request) => self.wish(request, None),
            Happening::Stdin(bytes) => {
                if bytes.contains(&b'\n') && input::is_terminal() {
                    self.reporter.end_prompt();
                }
                self.feed(&bytes);
                None
            }
            Happening::Timer => {
                self.wake = None;
                Some(Event::Timer)
            }
            Happening::TimedOut => {
                if self.job.is_preparing() {
                    self.awaited = Some(self.awaited());
                }
                Some(Event::TimedOut)
            }
            Happening::Beat => self.beat(),
            Happening::Stopped(scope) => {
                self.pause.stopped(scope);
                None
            }
            Happening::Pause => Some(self.pause()),
            Happening::Burial => {
                self.bury();
                None
            }
            Happening::Evidence(printed) => {
                Some(Event::Evidence(self.history.with_error_files(printed)))
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
            // The user and the clock first: they cause few events. Messages of nodes may be many.
            biased;
            request = self.signals.next() => Happening::Wish(request),
            never = self.tasks.watch() => match never {},
            () = sleep_until(self.wake) => Happening::Timer,
            () = sleep_until(deadline), if !self.job.is_stopping() => Happening::TimedOut,
            () = sleep_until(self.pause.stop_at()) => Happening::Pause,
            () = sleep_until(Some(self.beat_at)) => Happening::Beat,
            () = sleep_until(self.grave.look_at()) => Happening::Burial,
            event = async { tokio::select! {
                Some(event) = self.events.recv() => Happening::Node(event),
                consumed = self.consumed.recv() => match consumed {
                    Some(consumed) => Happening::Consumed(consumed),
                    None => self.reporter.pass_on_panic(),
                },
                bytes = self.stdin.next() => Happening::Stdin(bytes),
                Some(()) = self.rested.recv() => Happening::Stopped(PauseScope::Screen),
                Some(printed) = self.evidence.recv() => Happening::Evidence(printed),
            } } => event,
        }
    }

    pub(super) fn step(&mut self, event: Event) {
        tracing::debug!(?event);
        for effect in self.job.step(clock::now(), event) {
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        tracing::debug!(?effect);
        match effect {
            Effect::Start => self.start_workers(),
            Effect::Signal(signal) => self.tell_all(&ToAgent::Signal(signal)),
            Effect::Warn(warning) => {
                self.reporter.say(voice::warned(warning));
                self.tell_all(&ToAgent::Signal(warning.signal));
            }
            Effect::Kill => self.tell_all(&ToAgent::Kill),
            Effect::Wake(at) => self.wake = Some(at),
            Effect::ShowOnly(rank) => self.reporter.hush(rank),
            Effect::Stopping(reason) => self.say_stopping(reason),
            Effect::CollectEvidence(ranks) => {
                let answer = self.send_evidence.clone();
                self.reporter.collect_evidence(ranks, move |printed| drop(answer.send(printed)));
            }
            Effect::Rest { verdict, next, pause } => self.rest(&verdict, next, pause),
            Effect::Renew(disconnected) => self.renew(disconnected),
            Effect::Replace(lost) => self.replace(&lost),
            Effect::Skip(epoch) => self.skip(epoch),
            Effect::Killing => self.reporter.say(step("Killing", "the remaining processes")),
        }
    }

    pub(super) fn tell_all(&self, message: &ToAgent) {
        self.nodes.iter().for_each(|node| node.tell(message));
    }

    fn feed(&self, bytes: &[u8]) {
        for rank in self.stdin.readers() {
            let node = self.history.workers[rank.index()].node;
            self.nodes[node.index()].tell(&ToAgent::Stdin { rank, bytes: bytes.to_vec() });
        }
    }

    fn say_stopping(&mut self, reason: StopReason) {
        self.history.stop_asked.get_or_insert_with(clock::now);
        self.reporter.end_status();
        if reason == StopReason::Failure && self.history.is_judged(self.options.judge) {
            return;
        }
        let line = voice::stopping(reason, self.job.running(), self.options.grace);
        if let Some(line) = line {
            self.reporter.say(line);
        }
    }

    /// Reports workers that exited with 0 before the others, which is a fault only if the others
    /// wait for them.
    pub(super) fn say_early(&mut self, now: Instant) {
        if self.job.is_stopping() {
            return;
        }
        let early = self.history.take_early(now);
        if let (true, Some(line)) = (self.options.talks, voice::early(&early, self.job.running())) {
            self.reporter.say(line);
        }
    }
}

fn labels(plan: &LaunchPlan) -> Vec<WorkerLabel> {
    let mut ranks = (0..).map(Rank);
    let of_node = |node: &NodePlan| {
        let host = node.host.clone();
        let node_rank = node.node_rank;
        let label = |worker: &WorkerPlan| WorkerLabel {
            rank: ranks.next().expect("ranks do not run out"),
            shown: worker.rank,
            local_rank: worker.local_rank,
            node: node_rank,
            host: host.clone(),
        };
        node.workers.iter().map(label).collect::<Vec<_>>()
    };
    plan.nodes.iter().flat_map(of_node).collect()
}

pub(super) async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
