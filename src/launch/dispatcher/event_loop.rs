//! The parts of a launch, and the loop: select → step → perform.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::base::{HostName, NodeRank, Rank, clock};
use crate::job::{
    Effect, Event, Evidence, Job, OnEarlyLoss, OnFailure, Policy, StopReason, Verdict,
};
use crate::launch::history::History;
use crate::launch::node::handle::{ConnectContext, Connector, NodeEvent};
use crate::launch::node::nodes::Nodes;
use crate::launch::node::orphan_reaper::OrphanReaper;
use crate::launch::node::table::NodeLimits;
use crate::launch::options::{LaunchError, Options};
use crate::launch::pod::probes::HealthState;
use crate::launch::run_record::RunRecorder;
use crate::launch::screen::job_report::JobReport;
use crate::launch::screen::messages;
use crate::launch::startup::requests;
use crate::launch::startup::state::Startup;
use crate::launch::user::allocation_timer::AllocationTimer;
use crate::launch::user::pause::PauseScope;
use crate::launch::user::requests::UserRequests;
use crate::launch::user::signals::UserRequest;
use crate::os::tasks::sleep_until;
use crate::plan::{LaunchPlan, NodePlan, WorkerPlan};
use crate::report::{Consumed, Reporter, WorkerLabel};
use crate::wire::ToAgent;

/// Maximum number of node events that wait for the loop; at this bound, links wait.
const EVENTS_MAX: usize = 1024;

/// What other tasks send to the loop.
pub(super) struct Inbox {
    /// Messages of nodes.
    pub(super) nodes: mpsc::Receiver<NodeEvent>,
    /// Output that was shown and stored.
    consumed: mpsc::UnboundedReceiver<Consumed>,
    /// What workers printed about their failures, once it was requested.
    evidence: mpsc::UnboundedReceiver<BTreeMap<Rank, Evidence>>,
    evidence_sender: mpsc::UnboundedSender<BTreeMap<Rank, Evidence>>,
}

/// A launch: the job, what it needs to know and to do, and the sources of events.
pub(in crate::launch) struct Dispatcher<'a> {
    pub(super) plan: &'a LaunchPlan,
    pub(super) options: &'a Options,
    pub(in crate::launch) job: Job,
    /// When the job wants to be woken.
    timer_at: Option<Instant>,
    pub(super) nodes: Nodes<'a>,
    pub(super) startup: Startup,
    pub(in crate::launch) history: History,
    pub(super) recorder: RunRecorder,
    pub(in crate::launch) reporter: Reporter,
    pub(super) user: UserRequests,
    pub(super) reaper: OrphanReaper,
    pub(super) inbox: Inbox,
    /// State for the answers to probes.
    pub(super) health: Arc<HealthState>,
}

/// Everything that can wake the launcher.
enum LauncherEvent {
    Node(NodeEvent),
    Consumed(Consumed),
    UserRequest(UserRequest),
    /// The allocation with this name ends after this time.
    AllocationEnds(String, Duration),
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
            Connector::Local | Connector::Ssh(_) | Connector::Managed(..) => OnEarlyLoss::EndJob,
            #[cfg(test)]
            Connector::Simulated(_) => OnEarlyLoss::EndJob,
        },
        has_evidence: true,
    }
}

impl<'a> Dispatcher<'a> {
    /// Begins to connect to the nodes.
    pub(in crate::launch) fn start(
        plan: &'a LaunchPlan,
        options: &'a Options,
        (connector, health): (&'a Connector, Arc<HealthState>),
        (stdout, stderr): (OwnedFd, OwnedFd),
    ) -> Result<Self, LaunchError> {
        let reaper = OrphanReaper::new(&options.job);
        let mut user = UserRequests::listen()?;
        user.allocation = AllocationTimer::new(options.limits.allocation.as_ref());
        let (node_sender, nodes) = mpsc::channel(EVENTS_MAX);
        let (consumed_sender, consumed) = mpsc::unbounded_channel();
        let (evidence_sender, evidence) = mpsc::unbounded_channel();
        let reporter =
            Reporter::start(&labels(plan), &options.output.style, stdout, stderr, move |bytes| {
                let _ = consumed_sender.send(bytes);
            })?;
        let context = ConnectContext::new(connector, &options.job, node_sender, reporter.sender());
        let limits = NodeLimits {
            lease: options.limits.lease,
            heartbeat_interval: options.limits.heartbeat_interval,
            preflight: options.limits.preflight,
        };
        Ok(Self {
            plan,
            options,
            job: Job::new(policy(options, connector), requests::node_of_rank(plan)),
            timer_at: None,
            nodes: Nodes::connect(plan, limits, context)?,
            startup: Startup::new(options, clock::now()),
            history: History::new(plan),
            recorder: RunRecorder::new(),
            reporter,
            user,
            reaper,
            inbox: Inbox { nodes, consumed, evidence, evidence_sender },
            health,
        })
    }

    /// Runs the loop until the job has a verdict.
    pub(in crate::launch) async fn run_until_verdict(&mut self) {
        while self.job.verdict().is_none() {
            self.handle_next_event().await;
        }
    }

    async fn handle_next_event(&mut self) {
        let wakeup = self.next_event().await;
        let event = match wakeup {
            LauncherEvent::Node(event) => self.on_node_event(event),
            LauncherEvent::Consumed(((node, link), bytes)) => {
                // An agent that replaced another one did not send it.
                if self.nodes.table.is_current(node, link) {
                    self.nodes.send(node, &ToAgent::Consumed(bytes));
                }
                None
            }
            LauncherEvent::UserRequest(request) => self.on_user_request(request, None),
            LauncherEvent::AllocationEnds(name, left) => {
                self.reporter.print_message(messages::allocation_ends(&name, left));
                Some(Event::Signal(libc::SIGTERM))
            }
            LauncherEvent::Stdin(bytes) => {
                self.forward_stdin(&bytes);
                None
            }
            LauncherEvent::Timer => {
                self.timer_at = None;
                Some(Event::Timer)
            }
            LauncherEvent::TimedOut => {
                if self.job.is_preparing() {
                    self.startup.pending_at_timeout = Some(self.pending_nodes());
                }
                Some(Event::TimedOut)
            }
            LauncherEvent::Heartbeat => self.on_heartbeat_timer(),
            LauncherEvent::ReadyToSuspend(scope) => {
                self.user.pause.on_stopped(scope);
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
        let heartbeat_at = self.nodes.table.heartbeat_at();
        let paused = self.user.pause.total();
        let deadline = self.options.limits.job.map(|limit| self.recorder.began_at + limit + paused);
        tokio::select! {
            // The user and the clock first: they cause few events. Messages of nodes may be many.
            biased;
            request = self.user.signals.next() => LauncherEvent::UserRequest(request),
            never = self.nodes.propagate_panics() => match never {},
            () = sleep_until(self.timer_at) => LauncherEvent::Timer,
            () = sleep_until(deadline), if !self.job.is_stopping() => LauncherEvent::TimedOut,
            (name, left) = self.user.allocation.wait(), if !self.job.is_stopping() => {
                LauncherEvent::AllocationEnds(name, left)
            }
            () = sleep_until(self.user.pause.stop_at()) => LauncherEvent::Suspend,
            () = sleep_until(Some(heartbeat_at)) => LauncherEvent::Heartbeat,
            () = sleep_until(self.reaper.next_check_at()) => LauncherEvent::ReapOrphans,
            event = async { tokio::select! {
                Some(event) = self.inbox.nodes.recv() => LauncherEvent::Node(event),
                consumed = self.inbox.consumed.recv() => match consumed {
                    Some(consumed) => LauncherEvent::Consumed(consumed),
                    None => self.reporter.resume_panic(),
                },
                bytes = self.user.stdin.next() => LauncherEvent::Stdin(bytes),
                Some(()) = self.user.screen_idle.recv() => LauncherEvent::ReadyToSuspend(PauseScope::Screen),
                Some(printed) = self.inbox.evidence.recv() => LauncherEvent::Evidence(printed),
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
            Effect::Signal(signal) => self.nodes.send_to_all(&ToAgent::Signal(signal)),
            Effect::Warn(warning) => {
                self.reporter.print_message(messages::warning_sent(warning));
                self.nodes.send_to_all(&ToAgent::Signal(warning.signal));
            }
            Effect::Kill => self.nodes.send_to_all(&ToAgent::Kill),
            Effect::Wake(at) => self.timer_at = Some(at),
            Effect::ShowOnly(rank) => self.reporter.show_only(rank),
            Effect::ReportStopping(reason) => self.report_stopping(reason),
            Effect::CollectEvidence(ranks) => {
                let answer = self.inbox.evidence_sender.clone();
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

    /// What is known about the job, for a report.
    pub(super) fn report<'b>(&'b self, verdict: &'b Verdict) -> JobReport<'b> {
        JobReport {
            plan: self.plan,
            options: self.options,
            verdict,
            history: &self.history,
            startup: &self.startup,
            recorder: &self.recorder,
        }
    }

    pub(super) fn host(&self, node: NodeRank) -> &'a HostName {
        &self.plan.nodes[node.index()].host
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
