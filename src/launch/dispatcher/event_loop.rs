//! The parts of a launch, and its loop: select → step → perform.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::base::{Rank, clock};
use crate::job::{Effect, Event, Evidence, JobState};
use crate::launch::history::History;
use crate::launch::node::handle::NodeEvent;
use crate::launch::node::machine_names::MachineNames;
use crate::launch::node::nodes::Nodes;
use crate::launch::node::orphan_reaper::OrphanReaper;
use crate::launch::options::Options;
use crate::launch::pod::probes::HealthState;
use crate::launch::run_record::RunRecorder;
use crate::launch::screen::messages;
use crate::launch::startup::state::Startup;
use crate::launch::user::pause::PauseScope;
use crate::launch::user::requests::UserRequests;
use crate::launch::user::signals::UserRequest;
use crate::os::tasks::sleep_until;
use crate::plan::LaunchPlan;
use crate::report::{Consumed, Reporter};
use crate::wire::ToAgent;

/// What other tasks send to the loop.
pub(super) struct Inbox {
    /// Messages of nodes.
    pub(super) nodes: mpsc::Receiver<NodeEvent>,
    /// Output that was shown and stored.
    pub(super) consumed: mpsc::UnboundedReceiver<Consumed>,
    /// What workers printed about their failures, once it was requested.
    pub(super) evidence: mpsc::UnboundedReceiver<BTreeMap<Rank, Evidence>>,
    pub(super) evidence_sender: mpsc::UnboundedSender<BTreeMap<Rank, Evidence>>,
}

/// A launch: the job, what it needs to know and to do, and the sources of events.
pub(in crate::launch) struct Dispatcher<'a> {
    /// All nodes that may take part.
    pub(super) plan: Cow<'a, LaunchPlan>,
    /// The nodes of the current epoch, with the ranks of their workers.
    pub(super) epoch_plan: Cow<'a, LaunchPlan>,
    /// Names of the machines where the lines of the nodes have none; `None`: hosts have names.
    pub(super) machines: Option<MachineNames>,
    pub(super) options: &'a Options,
    pub(in crate::launch) job: JobState,
    /// When the job wants to be woken.
    pub(super) timer_at: Option<Instant>,
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
    ScreenStopped,
    Suspend,
    ReapOrphans,
    Evidence(BTreeMap<Rank, Evidence>),
}

impl Dispatcher<'_> {
    /// Runs the loop until the job has a verdict.
    pub(in crate::launch) async fn run_until_verdict(&mut self) {
        while self.job.verdict().is_none() {
            self.handle_next_event().await;
        }
    }

    async fn handle_next_event(&mut self) {
        let wakeup = self.next_event().await;
        if let Some(event) = self.handle(wakeup) {
            let is_without = matches!(event, Event::Absent(_) | Event::Refused(_));
            self.step(event);
            if is_without {
                self.end_join_time(clock::now());
            }
        }
    }

    /// The event of the job for a wakeup.
    fn handle(&mut self, wakeup: LauncherEvent) -> Option<Event> {
        match wakeup {
            LauncherEvent::Node(event) => self.on_node_event(event),
            LauncherEvent::UserRequest(request) => self.on_user_request(request, None),
            LauncherEvent::AllocationEnds(name, left) => {
                self.reporter.print_message(messages::allocation_ends(&name, left));
                self.recorder.end_allocation(name, left);
                Some(Event::Signal(libc::SIGTERM))
            }
            LauncherEvent::Timer => self.on_job_timer(),
            LauncherEvent::TimedOut => self.on_time_limit(),
            LauncherEvent::Heartbeat => self.on_heartbeat_timer(),
            LauncherEvent::Suspend => Some(self.suspend_launcher()),
            LauncherEvent::Evidence(printed) => {
                Some(Event::Evidence(self.history.evidence_with(printed)))
            }
            LauncherEvent::Consumed(consumed) => {
                self.acknowledge(consumed);
                None
            }
            LauncherEvent::Stdin(bytes) => {
                self.forward_stdin(&bytes);
                None
            }
            LauncherEvent::ScreenStopped => {
                self.user.pause.on_stopped(PauseScope::Screen);
                None
            }
            LauncherEvent::ReapOrphans => {
                self.check_orphans();
                None
            }
        }
    }

    /// Waits for the next event.
    async fn next_event(&mut self) -> LauncherEvent {
        let heartbeat_at = self.nodes.table.heartbeat_at();
        let paused = self.user.pause.total();
        let deadline =
            self.options.limits.job.map(|limit| self.limit_runs_since() + limit + paused);
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
                Some(()) = self.user.screen_idle.recv() => LauncherEvent::ScreenStopped,
                Some(printed) = self.inbox.evidence.recv() => LauncherEvent::Evidence(printed),
            } } => event,
        }
    }

    /// Steps the job and performs its effects.
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
            Effect::ReportKilling => self.report_killing(),
        }
    }
}
