//! The event loop of the launcher: select → step → perform. The handlers of single events and
//! effects are in the other files of this module.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use tokio::sync::mpsc;

use super::history::History;
use super::input::{self, Input};
use super::options::{LaunchError, Options, Transport};
use super::pause::{Pause, PauseScope};
use super::signals::{Signals, UserRequest};
use crate::base::{Epoch, NodeRank, Rank, clock};
use crate::job::{Effect, Event, Evidence, Job, OnEarlyLoss, OnFailure, Policy, StopReason};
use crate::launch::node::handle::{ConnectContext, Connector, NodeEvent, NodeHandle};
use crate::launch::node::orphan_reaper::OrphanReaper;
use crate::launch::pod::probes::HealthState;
use crate::launch::screen::messages;
use crate::launch::startup::pending::{NO_MESSAGE_WARNING, PendingNodes};
use crate::launch::startup::requests;
use crate::os::process::process_tree;
use crate::os::tasks::{Tasks, sleep_until};
use crate::plan::{LaunchPlan, NodePlan, WorkerPlan};
use crate::report::record::EpochRecord;
use crate::report::{Consumed, Reporter, WorkerLabel};
use crate::transport::Fault;
use crate::wire::{PreparedNode, Problem, ToAgent};

/// Time without any line before the start after which the launcher reports the nodes that it waits
/// for.
const FIRST_WAITING_REPORT: Duration = Duration::from_millis(2500);
/// Maximum number of node events that wait for the loop; at this bound, links wait.
const EVENTS_MAX: usize = 1024;

/// Time until the first report of nodes that are not ready. Nodes that connect by themselves have
/// been announced.
fn first_waiting_report(options: &Options) -> Duration {
    match options.transport {
        Transport::Local | Transport::Ssh(_) if options.output.shows_progress => {
            FIRST_WAITING_REPORT
        }
        Transport::Local | Transport::Ssh(_) | Transport::Dial(_) => NO_MESSAGE_WARNING,
    }
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
    pub(super) connect_context: ConnectContext<'a>,
    pub(super) job: Job,
    /// State for the answers to probes.
    pub(super) health: Arc<HealthState>,
    pub(super) nodes: Vec<NodeHandle>,
    /// Tasks that serve links.
    pub(super) tasks: Tasks,
    pub(super) prepared_nodes: Vec<Option<PreparedNode>>,
    /// Every epoch that has begun; the last one has not ended.
    pub(super) epochs: Vec<EpochRecord>,
    /// Nodes to be reached again, once the processes that lost nodes left here are reaped.
    pub(super) deferred_reconnects: Option<Vec<NodeRank>>,
    pub(super) problems: Vec<(NodeRank, Problem)>,
    /// Notes of nodes that were printed, each once.
    pub(super) printed_notes: BTreeSet<String>,
    /// The nodes that delayed a start until the time limit.
    pub(super) pending_at_timeout: Option<PendingNodes>,
    /// When workers were first started.
    pub(super) first_started_at: Option<Instant>,
    pub(super) faults: Vec<(NodeRank, Fault)>,
    pub(super) history: History,
    pub(super) reporter: Reporter,
    pub(super) events: mpsc::Receiver<NodeEvent>,
    pub(super) consumed: mpsc::UnboundedReceiver<Consumed>,
    pub(super) signals: Signals,
    pub(super) stdin: Input,
    pub(super) reaper: OrphanReaper,
    pub(super) timer_at: Option<Instant>,
    pub(super) heartbeat_at: Instant,
    pub(super) pause: Pause,
    /// Receives a message when the screen has no more output to write.
    pub(super) screen_idle: mpsc::UnboundedReceiver<()>,
    pub(super) screen_idle_sender: mpsc::UnboundedSender<()>,
    /// When to report the nodes that the launcher waits for.
    pub(super) waiting_report_at: Instant,
    /// Receives what workers printed about their failures, once it was requested.
    pub(super) evidence: mpsc::UnboundedReceiver<BTreeMap<Rank, Evidence>>,
    pub(super) evidence_sender: mpsc::UnboundedSender<BTreeMap<Rank, Evidence>>,
}

/// Everything that can wake the launcher.
enum LauncherEvent {
    Node(NodeEvent),
    Consumed(Consumed),
    UserRequest(UserRequest),
    Stdin(Vec<u8>),
    Timer,
    TimedOut,
    Heartbeat,
    ReadyToSuspend(PauseScope),
    Suspend,
    ReapOrphans,
    Evidence(BTreeMap<Rank, Evidence>),
}

/// The policy of a job, by its options and the way to its nodes.
fn policy(options: &Options, connector: &Connector) -> Policy {
    Policy {
        grace: options.limits.grace,
        failure: if options.failure.lets_others_run {
            OnFailure::LetRun
        } else {
            OnFailure::StopAll
        },
        silence_max: options.limits.lease + 2 * options.limits.heartbeat_interval,
        restarts_max: options.failure.restarts_max,
        warning: options.failure.warning,
        on_term: options.supervisor.on_term,
        early_loss: match connector {
            Connector::Dial(..) => OnEarlyLoss::AwaitReplacement,
            Connector::Local | Connector::Ssh(_) => OnEarlyLoss::EndJob,
            #[cfg(test)]
            Connector::Simulated(_) => OnEarlyLoss::EndJob,
        },
        has_evidence: true,
    }
}

impl<'a> Dispatcher<'a> {
    pub(super) fn start(
        plan: &'a LaunchPlan,
        options: &'a Options,
        connector: &'a Connector,
        (stdout, stderr): (OwnedFd, OwnedFd),
    ) -> Result<Self, LaunchError> {
        let inherited = process_tree::children_of(rustix::process::getpid());
        let signals = Signals::listen()?;
        let (event_sender, events) = mpsc::channel(EVENTS_MAX);
        let (consumed_sender, consumed) = mpsc::unbounded_channel();
        let (tell_rested, rested) = mpsc::unbounded_channel();
        let (send_evidence, evidence) = mpsc::unbounded_channel();
        let reporter =
            Reporter::start(&labels(plan), &options.output.style, stdout, stderr, move |bytes| {
                let _ = consumed_sender.send(bytes);
            })?;
        let mut tasks = Tasks::default();
        let caller = ConnectContext::new(connector, &options.job, event_sender, reporter.sender());
        let connect = |node| NodeHandle::connect(&caller, node, (0, Epoch(0)), &mut tasks);
        let nodes = requests::nodes_to_connect(plan).map(connect).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            plan,
            options,
            started: (clock::now(), clock::wall()),
            inherited,
            connect_context: caller,
            job: Job::new(policy(options, connector), requests::node_of_rank(plan)),
            health: Arc::default(),
            epochs: Vec::new(),
            deferred_reconnects: None,
            prepared_nodes: vec![None; nodes.len()],
            nodes,
            tasks,
            problems: Vec::new(),
            printed_notes: BTreeSet::new(),
            pending_at_timeout: None,
            first_started_at: None,
            faults: Vec::new(),
            history: History::new(plan),
            reporter,
            events,
            consumed,
            signals,
            stdin: Input::default(),
            reaper: OrphanReaper::default(),
            timer_at: None,
            heartbeat_at: clock::now() + options.limits.heartbeat_interval,
            pause: Pause::default(),
            screen_idle: rested,
            screen_idle_sender: tell_rested,
            waiting_report_at: clock::now() + first_waiting_report(options),
            evidence,
            evidence_sender: send_evidence,
        })
    }

    /// Runs the loop until the job has a verdict.
    pub(super) async fn run_until_verdict(&mut self) {
        while self.job.verdict().is_none() {
            self.handle_next_event().await;
        }
    }

    async fn handle_next_event(&mut self) {
        let wakeup = self.next_event().await;
        let event = match wakeup {
            LauncherEvent::Node(event) => self.on_node_event(event),
            LauncherEvent::Consumed(((node, link), bytes)) => {
                let node = &self.nodes[node.index()];
                // An agent that replaced another one did not send it.
                if node.link == link {
                    node.send(&ToAgent::Consumed(bytes));
                }
                None
            }
            LauncherEvent::UserRequest(request) => self.on_user_request(request, None),
            LauncherEvent::Stdin(bytes) => {
                if bytes.contains(&b'\n') && input::is_terminal() {
                    self.reporter.end_prompt();
                }
                self.forward_stdin(&bytes);
                None
            }
            LauncherEvent::Timer => {
                self.timer_at = None;
                Some(Event::Timer)
            }
            LauncherEvent::TimedOut => {
                if self.job.is_preparing() {
                    self.pending_at_timeout = Some(self.pending_nodes());
                }
                Some(Event::TimedOut)
            }
            LauncherEvent::Heartbeat => self.on_heartbeat_timer(),
            LauncherEvent::ReadyToSuspend(scope) => {
                self.pause.on_stopped(scope);
                None
            }
            LauncherEvent::Suspend => Some(self.suspend_launcher()),
            LauncherEvent::ReapOrphans => {
                self.check_orphans();
                None
            }
            LauncherEvent::Evidence(printed) => {
                Some(Event::Evidence(self.history.with_error_files(printed)))
            }
        };
        if let Some(event) = event {
            self.step(event);
        }
    }

    async fn next_event(&mut self) -> LauncherEvent {
        let deadline =
            self.options.limits.job.map(|timeout| self.started.0 + timeout + self.pause.total());
        tokio::select! {
            // The user and the clock first: they cause few events. Messages of nodes may be many.
            biased;
            request = self.signals.next() => LauncherEvent::UserRequest(request),
            never = self.tasks.propagate_panics() => match never {},
            () = sleep_until(self.timer_at) => LauncherEvent::Timer,
            () = sleep_until(deadline), if !self.job.is_stopping() => LauncherEvent::TimedOut,
            () = sleep_until(self.pause.stop_at()) => LauncherEvent::Suspend,
            () = sleep_until(Some(self.heartbeat_at)) => LauncherEvent::Heartbeat,
            () = sleep_until(self.reaper.next_check_at()) => LauncherEvent::ReapOrphans,
            event = async { tokio::select! {
                Some(event) = self.events.recv() => LauncherEvent::Node(event),
                consumed = self.consumed.recv() => match consumed {
                    Some(consumed) => LauncherEvent::Consumed(consumed),
                    None => self.reporter.resume_panic(),
                },
                bytes = self.stdin.next() => LauncherEvent::Stdin(bytes),
                Some(()) = self.screen_idle.recv() => LauncherEvent::ReadyToSuspend(PauseScope::Screen),
                Some(printed) = self.evidence.recv() => LauncherEvent::Evidence(printed),
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
            Effect::Signal(signal) => self.send_to_all(&ToAgent::Signal(signal)),
            Effect::Warn(warning) => {
                self.reporter.print_message(messages::warning_sent(warning));
                self.send_to_all(&ToAgent::Signal(warning.signal));
            }
            Effect::Kill => self.send_to_all(&ToAgent::Kill),
            Effect::Wake(at) => self.timer_at = Some(at),
            Effect::ShowOnly(rank) => self.reporter.show_only(rank),
            Effect::ReportStopping(reason) => self.report_stopping(reason),
            Effect::CollectEvidence(ranks) => {
                let answer = self.evidence_sender.clone();
                self.reporter.collect_evidence(ranks, move |printed| drop(answer.send(printed)));
            }
            Effect::PauseBeforeRestart { verdict, next, pause } => {
                self.report_restart(&verdict, next, pause);
            }
            Effect::BeginEpoch(disconnected) => self.prepare_epoch(disconnected),
            Effect::Replace(lost) => self.await_replacements(&lost),
            Effect::SkipToEpoch(epoch) => self.skip_to_epoch(epoch),
            Effect::ReportKilling => {
                let running = self.history.workers.iter().filter(|worker| worker.is_running());
                let running: Vec<u32> = running.map(|worker| worker.rank.0).collect();
                self.reporter.print_message(messages::killing(&running));
            }
        }
    }

    pub(super) fn send_to_all(&self, message: &ToAgent) {
        self.nodes.iter().for_each(|node| node.send(message));
    }

    fn forward_stdin(&self, bytes: &[u8]) {
        for rank in self.stdin.readers() {
            let node = self.history.workers[rank.index()].node;
            self.nodes[node.index()].send(&ToAgent::Stdin { rank, bytes: bytes.to_vec() });
        }
    }

    fn report_stopping(&mut self, reason: StopReason) {
        self.history.stop_requested_at.get_or_insert_with(clock::now);
        self.reporter.end_status();
        if reason == StopReason::Failure
            && self.history.has_reported_findings(self.options.failure.cause_rule)
        {
            return;
        }
        let noun = if self.options.failure.lets_others_run { "command" } else { "worker" };
        let line =
            messages::stopping(reason, (self.job.running(), noun), self.options.limits.grace);
        if let Some(line) = line {
            self.reporter.print_message(line);
        }
    }

    /// Reports workers that exited with 0 before the others, which is a fault only if the others
    /// wait for them.
    pub(super) fn report_early_exits(&mut self, now: Instant) {
        if self.job.is_stopping() {
            return;
        }
        let early = self.history.take_early_exits(now);
        if let (true, Some(line)) =
            (self.options.output.shows_progress, messages::early_exits(&early, self.job.running()))
        {
            self.reporter.print_message(line);
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
            job_rank: worker.rank,
            local_rank: worker.local_rank,
            node: node_rank,
            host: host.clone(),
        };
        node.workers.iter().map(label).collect::<Vec<_>>()
    };
    plan.nodes.iter().flat_map(of_node).collect()
}
