//! Heartbeats, suspension of the launcher and loss of nodes; reaps what lost nodes left here.

use std::time::Instant;

use rustix::process::Pid;

use crate::base::{NodeRank, clock};
use crate::job::{Event, NodeLoss};
use crate::launch::dispatcher::Dispatcher;
use crate::launch::node::handle::{Connector, NodeHandle};
use crate::launch::node::orphan_reaper;
use crate::launch::pause::PauseScope;
use crate::launch::pod::metrics::JobNumbers;
use crate::launch::screen::messages;
use crate::launch::startup::pending::NO_MESSAGE_WARNING;
use crate::os::process::process_tree;
use crate::report::text::show_processes;
use crate::wire::ToAgent;

impl Dispatcher<'_> {
    pub(in crate::launch) fn on_heartbeat_timer(&mut self) -> Option<Event> {
        let now = clock::now();
        self.on_suspension(now);
        self.heartbeat_at = now + self.options.limits.heartbeat_interval;
        self.nodes.iter().for_each(NodeHandle::send_heartbeat);
        if orphan_reaper::is_process_1() {
            self.reap_exited_children();
        }
        self.update_metrics();
        self.report_early_exits(now);
        self.report_waiting(now);
        self.refuse_late_nodes(now);
        let (mut expired, mut late) = (Vec::new(), Vec::new());
        for (place, node) in (0..).map(NodeRank).zip(&self.nodes) {
            let Some(heard) = node.last_message_at.filter(|_| !node.is_lost) else { continue };
            let since_message = now.saturating_duration_since(heard);
            if self.options.limits.lease < since_message {
                expired.push(place);
            } else if NO_MESSAGE_WARNING < since_message {
                late.push((self.plan.nodes[place.index()].host.as_str(), since_message));
            }
        }
        if let Some(line) = messages::not_responding(&late) {
            self.reporter.print_message(line);
        }
        expired.retain(|node| self.mark_node_lost(*node, NodeLoss::LeaseExpired).is_some());
        (!expired.is_empty()).then_some(Event::LeaseExpired(expired))
    }

    /// Handles a suspension of the launcher: no node counts as silent for that time, because
    /// messages received meanwhile have not been read. The launcher sent no heartbeats either.
    fn on_suspension(&mut self, now: Instant) {
        let late = now.saturating_duration_since(self.heartbeat_at);
        for node in &mut self.nodes {
            node.last_message_at = node.last_message_at.map(|heard| now.min(heard + late));
            node.postpone_deadline(late);
        }
        if self.options.limits.lease < late {
            self.reporter
                .print_message(messages::launcher_suspended(late, self.options.limits.lease));
        }
    }

    /// Updates the metrics; they are served until the next heartbeat.
    pub(in crate::launch) fn update_metrics(&self) {
        if self.options.supervisor.status_addr.is_none() {
            return;
        }
        let ended = || self.history.workers.iter().filter_map(|worker| worker.outcome.as_ref());
        let failed = ended().filter(|ended| !ended.stopped && !ended.exit.is_success()).count();
        let nodes = self.plan.nodes.iter().zip(&self.nodes).map(|(plan, node)| {
            (plan.host.to_string(), node.last_message_at.filter(|_| !node.is_lost))
        });
        let numbers = JobNumbers {
            started: self.started.1,
            running: self.job.running(),
            exited: ended().count() - failed,
            failed,
            nodes: nodes.collect(),
        };
        self.health.set_job(numbers, &self.connect_context.traffic);
    }

    /// Handles the loss of a node. On this machine the launcher ends what the node left, together
    /// with an agent that still runs but is silent or sends invalid data. An agent on another
    /// machine exits when its link ends.
    pub(in crate::launch) fn mark_node_lost(
        &mut self,
        node: NodeRank,
        loss: NodeLoss,
    ) -> Option<Event> {
        let lost = &mut self.nodes[node.index()];
        if std::mem::replace(&mut lost.is_lost, true) {
            return None;
        }
        let agent = lost.agent_pid();
        self.pause.on_stopped(PauseScope::Node(node));
        self.report_loss_to_peers(node);
        match agent {
            Some(_) => self.reaper.start(self.foreign_process_filter()),
            None => self.nodes[node.index()].close(),
        }
        Some(Event::NodeLost { node, loss })
    }

    /// Reports a lost node to the others, because ranks that wait for its ranks in a collective do
    /// not notice a cut link. One rank is enough: the first one ends a group.
    fn report_loss_to_peers(&self, node: NodeRank) {
        let first = self.plan.nodes[node.index()].workers.first();
        if let Some(worker) = first.filter(|_| !self.job.is_stopping()) {
            self.send_to_all(&ToAgent::PeerGone(worker.rank));
        }
    }

    /// Reaps exited children that no other part of the launcher reaps. The tasks that start ssh
    /// reap its processes, and this loop does not know their pids.
    fn reap_exited_children(&self) {
        if let Connector::Ssh(_) = self.connect_context.connector {
            return process_tree::reap_except(self.foreign_process_filter(), |_, _| {});
        }
        let agents: Vec<Pid> = self.nodes.iter().filter_map(NodeHandle::agent_pid).collect();
        let known = |pid| agents.contains(&pid) || self.inherited.contains(&pid);
        process_tree::reap_except(known, |_, _| {});
    }

    /// Returns a test for children that must not be ended as leftovers of lost nodes.
    fn foreign_process_filter(&self) -> impl Fn(Pid) -> bool + Send + 'static {
        let agents = |lost: bool| {
            let agents = self.nodes.iter().filter(move |node| node.is_lost == lost);
            agents.filter_map(NodeHandle::agent_pid).collect::<Vec<_>>()
        };
        let (living, lost) = (agents(false), agents(true));
        let (inherited, job) = (self.inherited.clone(), self.options.job.to_string());
        move |pid| {
            living.contains(&pid)
                || inherited.contains(&pid)
                || orphan_reaper::is_process_1() && !orphan_reaper::is_of_job(pid, &job, &lost)
        }
    }

    /// Checks whether everything that lost nodes left is gone.
    pub(in crate::launch) fn check_orphans(&mut self) {
        let left = self.reaper.check();
        if self.reaper.next_check_at().is_none()
            && let Some(cut_off) = self.deferred_reconnects.take()
        {
            self.prepare_epoch(cut_off);
        }
        if !left.is_empty() {
            let left = show_processes(left.len());
            self.reporter.print_message(format!(
                "warning: {left} of a lost node still running after SIGKILL\n"
            ));
        }
    }
}
