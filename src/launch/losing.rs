//! Heartbeats, suspension of the launcher and loss of nodes; reaps what lost nodes left here.

use std::time::Instant;

use rustix::process::Pid;

use super::dispatcher::{Dispatcher, SILENCE_WARNING};
use super::grave;
use super::metrics::JobNumbers;
use super::node::{Connector, NodeHandle};
use super::pause::PauseScope;
use super::voice;
use crate::base::{NodeRank, clock};
use crate::job::{Event, NodeLoss};
use crate::os::family;
use crate::report::summary::processes;
use crate::wire::ToAgent;

impl Dispatcher<'_> {
    pub(super) fn beat(&mut self) -> Option<Event> {
        let now = clock::now();
        self.stood_still(now);
        self.beat_at = now + self.options.beat;
        self.nodes.iter().for_each(NodeHandle::beat);
        if grave::is_everybodys_parent() {
            self.bury_the_dead();
        }
        self.update_metrics();
        self.say_early(now);
        self.say_waiting(now);
        self.give_up_late(now);
        let (mut expired, mut late) = (Vec::new(), Vec::new());
        for (place, node) in (0..).map(NodeRank).zip(&self.nodes) {
            let Some(heard) = node.heard.filter(|_| !node.lost) else { continue };
            let since_message = now.saturating_duration_since(heard);
            if self.options.lease < since_message {
                expired.push(place);
            } else if SILENCE_WARNING < since_message {
                late.push((self.plan.nodes[place.index()].host.as_str(), since_message));
            }
        }
        if let Some(line) = voice::silent(&late) {
            self.reporter.say(line);
        }
        expired.retain(|node| self.lose(*node, NodeLoss::Silent).is_some());
        (!expired.is_empty()).then_some(Event::Silent(expired))
    }

    /// Handles a suspension of the launcher: no node counts as silent for that time, because
    /// messages received meanwhile have not been read. The launcher sent no heartbeats either.
    fn stood_still(&mut self, now: Instant) {
        let late = now.saturating_duration_since(self.beat_at);
        for node in &mut self.nodes {
            node.heard = node.heard.map(|heard| now.min(heard + late));
            node.put_off(late);
        }
        if self.options.lease < late {
            self.reporter.say(voice::stood_still(late, self.options.lease));
        }
    }

    /// Updates the metrics; they are served until the next heartbeat.
    pub(super) fn update_metrics(&self) {
        if self.options.keeper.status_addr.is_none() {
            return;
        }
        let ended = || self.history.workers.iter().filter_map(|worker| worker.ended.as_ref());
        let failed = ended().filter(|ended| !ended.stopped && !ended.exit.is_success()).count();
        let nodes = self
            .plan
            .nodes
            .iter()
            .zip(&self.nodes)
            .map(|(plan, node)| (plan.host.to_string(), node.heard.filter(|_| !node.lost)));
        let numbers = JobNumbers {
            started: self.started.1,
            running: self.job.running(),
            exited: ended().count() - failed,
            failed,
            nodes: nodes.collect(),
        };
        self.pulse.set_job(numbers, &self.caller.traffic);
    }

    /// Handles the loss of a node. On this machine the launcher ends what the node left, together
    /// with an agent that still runs but is silent or sends invalid data. An agent on another
    /// machine exits when its link ends.
    pub(super) fn lose(&mut self, node: NodeRank, loss: NodeLoss) -> Option<Event> {
        let lost = &mut self.nodes[node.index()];
        if std::mem::replace(&mut lost.lost, true) {
            return None;
        }
        let agent = lost.agent();
        self.pause.stopped(PauseScope::Node(node));
        self.say_to_peers(node);
        match agent {
            Some(_) => self.grave.open(self.spared()),
            None => self.nodes[node.index()].hang_up(),
        }
        Some(Event::NodeLost { node, loss })
    }

    /// Reports a lost node to the others, because ranks that wait for its ranks in a collective do
    /// not notice a cut link. One rank is enough: the first one ends a group.
    fn say_to_peers(&self, node: NodeRank) {
        let first = self.plan.nodes[node.index()].workers.first();
        if let Some(worker) = first.filter(|_| !self.job.is_stopping()) {
            self.tell_all(&ToAgent::PeerGone(worker.rank));
        }
    }

    /// Reaps exited children that no other part of the launcher reaps. The tasks that start ssh
    /// reap its processes, and this loop does not know their pids.
    fn bury_the_dead(&self) {
        if let Connector::Ssh(_) = self.caller.way {
            return family::bury(self.spared(), |_, _| {});
        }
        let agents: Vec<Pid> = self.nodes.iter().filter_map(NodeHandle::agent).collect();
        let known = |pid| agents.contains(&pid) || self.inherited.contains(&pid);
        family::bury(known, |_, _| {});
    }

    /// Returns a test for children that must not be ended as leftovers of lost nodes.
    fn spared(&self) -> impl Fn(Pid) -> bool + Send + 'static {
        let agents = |lost: bool| {
            let agents = self.nodes.iter().filter(move |node| node.lost == lost);
            agents.filter_map(NodeHandle::agent).collect::<Vec<_>>()
        };
        let (living, lost) = (agents(false), agents(true));
        let (inherited, job) = (self.inherited.clone(), self.options.job.to_string());
        move |pid| {
            living.contains(&pid)
                || inherited.contains(&pid)
                || grave::is_everybodys_parent() && !grave::is_of_job(pid, &job, &lost)
        }
    }

    /// Checks whether everything that lost nodes left is gone.
    pub(super) fn bury(&mut self) {
        let left = self.grave.look();
        if self.grave.look_at().is_none()
            && let Some(cut_off) = self.renewal.take()
        {
            self.renew(cut_off);
        }
        if !left.is_empty() {
            let left = processes(left.len());
            self.reporter
                .say(format!("warning: {left} of a lost node still running after SIGKILL\n"));
        }
    }
}
