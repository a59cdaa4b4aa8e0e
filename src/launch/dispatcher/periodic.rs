//! What is due after a time: heartbeats, silence and loss of nodes, limits, metrics.

use std::time::{Duration, Instant};

use crate::base::Status;
use crate::base::{NodeRank, clock};
use crate::job::{Event, MeetingPoint, NodeLoss};
use crate::launch::dispatcher::Dispatcher;
use crate::launch::node::elastic;
use crate::launch::node::handle::Connector;
use crate::launch::node::heartbeats::Silence;
use crate::launch::node::orphan_reaper;
use crate::launch::node::table::StartStage;
use crate::launch::options::Transport;
use crate::launch::pod::metrics::JobNumbers;
use crate::launch::screen::messages;
use crate::launch::startup::pending;
use crate::launch::user::pause::PauseScope;
use crate::report::text::{show_duration, show_help, show_processes};
use crate::transport::{Fault, FaultKind};
use crate::wire::{Problem, ToAgent};

impl Dispatcher<'_> {
    /// The instant has come that the job asked for. If the launcher was suspended, the job gets more time first
    /// and may ask for another instant.
    pub(super) fn on_job_timer(&mut self) -> Option<Event> {
        if self.nodes.table.was_suspended(clock::now()) {
            return self.on_heartbeat_timer();
        }
        self.timer_at = None;
        Some(Event::Timer)
    }

    /// The time limit of the job has passed.
    pub(super) fn on_time_limit(&mut self) -> Option<Event> {
        if self.job.is_preparing() {
            if self.refuse_silent_nodes() {
                return None;
            }
            self.startup.pending_at_timeout = Some(self.pending_nodes());
        }
        Some(Event::TimedOut)
    }

    /// Since when the time limit runs. A command that runs on each host for itself has the whole time,
    /// also after a wait for hosts that did not answer.
    pub(super) fn limit_runs_since(&self) -> Instant {
        let began_at = self.recorder.began_at;
        let started_at = self.recorder.first_started_at();
        started_at.filter(|_| self.options.failure.lets_others_run).unwrap_or(began_at)
    }

    /// Gives up the nodes that have not answered within the time limit, if the command runs on each node
    /// for itself and others are ready; returns whether it did.
    fn refuse_silent_nodes(&mut self) -> bool {
        let silent: Vec<_> = self.nodes.table.unanswered().collect();
        let is_ready = |node| self.nodes.table.prepared(node).is_some();
        let has_ready = self.nodes.table.all().any(is_ready);
        if silent.is_empty() || !has_ready || !self.options.failure.lets_others_run {
            return false;
        }
        let limit = show_duration(self.options.limits.job.unwrap_or_default());
        for (node, stage) in silent {
            let kind = match stage {
                StartStage::Connecting | StartStage::Preparing(_) => FaultKind::NoAnswer,
                StartStage::LoggedIn => FaultKind::Hangs,
            };
            let mut fault = Fault::new(kind, format!("no answer within {limit} (--timeout)"));
            if let Transport::Ssh(ssh) = &self.options.transport {
                fault.commands.ssh_args = ssh.shown_args(&self.plan.nodes[node.index()].host);
            }
            self.startup.faults.push((node, fault));
            self.nodes.close(node);
            if let Some(refusal) = self.refuse(node) {
                self.step(refusal);
            }
        }
        true
    }

    /// Does what is due with every heartbeat.
    pub(super) fn on_heartbeat_timer(&mut self) -> Option<Event> {
        let now = clock::now();
        if let Some(suspended) = self.nodes.table.on_heartbeat_timer(now) {
            let lease = self.options.limits.lease;
            if lease < suspended {
                self.reporter.print_message(messages::launcher_suspended(suspended, lease));
            }
            self.step(Event::Stalled(suspended));
        }
        self.nodes.send_heartbeats();
        if orphan_reaper::is_process_1() {
            let by_ssh = matches!(self.nodes.connector(), Connector::Ssh(_));
            self.reaper.reap_exited_children(by_ssh, self.nodes.local_agents());
        }
        self.update_metrics();
        self.record_progress();
        self.report_early_exits(now);
        self.report_waiting(now);
        self.refuse_late_nodes(now);
        self.end_join_time(now);
        let Silence { late, mut expired } = self.nodes.table.silence(now);
        let host = |(node, time): &(NodeRank, _)| (self.host(*node).as_str(), *time);
        if let Some(line) = messages::not_responding(&late.iter().map(host).collect::<Vec<_>>()) {
            self.reporter.print_message(line);
        }
        expired.retain(|lost| self.mark_node_lost(lost.node, NodeLoss::LeaseExpired).is_some());
        (!expired.is_empty()).then_some(Event::LeaseExpired(expired))
    }

    /// Updates the metrics; they are served until the next heartbeat.
    pub(super) fn update_metrics(&self) {
        if self.options.supervisor.status_addr.is_none() {
            return;
        }
        let ended = || self.history.workers.iter().filter_map(|worker| worker.outcome.as_ref());
        let failed = ended().filter(|ended| !ended.stopped && !ended.exit.is_success()).count();
        let table = &self.nodes.table;
        let nodes =
            table.all().map(|node| (self.host(node).to_string(), table.last_message_at(node)));
        let numbers = JobNumbers {
            started: self.recorder.began_wall,
            running: self.job.running(),
            exited: ended().count() - failed,
            failed,
            nodes: nodes.collect(),
        };
        self.health.set_job(numbers, self.nodes.traffic());
    }

    /// Reports workers that exited with 0 before the others, which is a fault only if the others
    /// wait for them.
    fn report_early_exits(&mut self, now: Instant) {
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

    /// Reports the nodes that delay the start, at intervals that double.
    fn report_waiting(&mut self, now: Instant) {
        let asked_at = self.nodes.table.asked_at();
        let is_elastic = self.options.elastic.is_some();
        let is_waiting = !is_elastic || self.job.is_preparing() && 0 < self.job.missing();
        if self.job.is_stopping() || !is_waiting || !self.startup.is_report_due(now, asked_at) {
            return;
        }
        let pending = self.pending_nodes();
        for line in pending.show_waiting(now - asked_at, self.join_limit_text().as_deref()) {
            self.reporter.print_message(line);
        }
        let Transport::Dial(dial) = &self.options.transport else { return };
        let help = dial.wait_help.not_started.as_deref();
        let help =
            help.filter(|help| !pending.connecting.is_empty() && self.startup.is_new_note(help));
        self.reporter.print_message(show_help(help));
    }

    /// How long nodes that connect by themselves are waited for, as text.
    pub(super) fn join_limit_text(&self) -> Option<String> {
        let limit = self.nodes.join_limit();
        (!limit.time.is_zero()).then(|| limit.show())
    }

    /// Gives up nodes when their checks exceed the time limit.
    fn refuse_late_nodes(&mut self, now: Instant) {
        for node in self.nodes.table.overdue(now) {
            let limit = show_duration(self.options.limits.preflight);
            let message =
                format!("preflight checks did not finish within {limit} (--agent_timeout)");
            let help = pending::help_for_preparing(self.options, self.host(node));
            self.startup.add_timeout(node, Problem::new(Status::Unreachable, message).help(help));
            self.nodes.close(node);
            if let Some(refusal) = self.refuse(node) {
                self.step(refusal);
            }
        }
    }

    /// Gives up the start if too few nodes have joined in time.
    pub(super) fn end_join_time(&mut self, now: Instant) {
        let limit = self.time_to_join(now);
        let Some(missed) = elastic::missed_nodes(&self.job, &self.nodes.table, limit) else {
            return;
        };
        let joins = self.options.meets_at(MeetingPoint::Node0);
        for node in missed.into_iter().filter(|_| joins) {
            let limit = self.nodes.join_limit().show();
            let message = format!("node {node} did not join within {limit}");
            self.startup.faults.push((node, Fault::new(FaultKind::NotJoined, message)));
        }
        self.step(Event::JoinTimeOver);
    }

    /// How long nodes that are missing are still waited for.
    fn time_to_join(&self, now: Instant) -> Duration {
        let Some(elastic) = self.options.elastic else { return self.nodes.time_to_join(now) };
        let is_first = self.recorder.first_started_at().is_none();
        let waited = now - self.nodes.table.asked_at();
        let join_limit = self.nodes.join_limit().time;
        elastic::time_to_join(elastic, is_first, (join_limit, waited))
    }

    /// Handles the loss of a node. On this machine the launcher ends what the node left, together
    /// with an agent that still runs but is silent or sends invalid data. An agent on another
    /// machine exits when its link ends.
    pub(super) fn mark_node_lost(&mut self, node: NodeRank, loss: NodeLoss) -> Option<Event> {
        if !self.nodes.table.mark_lost(node) {
            return None;
        }
        self.user.pause.on_stopped(PauseScope::Node(node));
        self.report_loss_to_peers(node);
        if self.nodes.close_lost(node) {
            self.nodes.table.hold_reconnects();
            self.reaper.start(self.nodes.local_agents(), clock::now());
        }
        if self.job.is_preparing() {
            // The job may go on waiting for other nodes. Their answers tell whether they were there when this one was
            // lost, if they are lost later.
            self.nodes.send_heartbeats();
        }
        Some(self.node_lost(node, loss))
    }

    /// The event that a node is lost.
    pub(super) fn node_lost(&self, node: NodeRank, loss: NodeLoss) -> Event {
        let since = self.nodes.table.begin_of_loss(node, clock::now());
        Event::NodeLost { node, loss, since: Some(since) }
    }

    /// Reports a lost node to the others, because ranks that wait for its ranks in a collective do
    /// not notice a cut link. One rank is enough: the first one ends a group.
    fn report_loss_to_peers(&self, node: NodeRank) {
        let first = self.epoch_plan.nodes[node.index()].workers.first();
        if let Some(worker) = first.filter(|_| !self.job.is_stopping()) {
            self.nodes.send_to_all(&ToAgent::PeerGone(worker.rank));
        }
    }

    /// Checks whether everything that lost nodes left is gone. An epoch that has waited for it
    /// begins.
    pub(super) fn check_orphans(&mut self) {
        let Some(left) = self.reaper.check(clock::now()) else { return };
        if let Some(disconnected) = self.nodes.table.allow_reconnects() {
            self.prepare_epoch(disconnected);
        }
        for node in self.nodes.table.take_held_back() {
            self.reconnect(node, self.job.epoch());
        }
        if !left.is_empty() {
            let left = show_processes(left.len());
            self.reporter.print_message(format!(
                "warning: {left} of a lost node still running after SIGKILL\n"
            ));
        }
    }
}
