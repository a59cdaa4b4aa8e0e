//! The launcher's links: what it reads from them becomes events of the job, and nodes are lost.

use std::collections::BTreeMap;
use std::time::Duration;

use super::clock::{MS, Micros, SECOND};
use super::incidents::Blame;
use super::mistakes::Mistake;
use super::processes::{LauncherEvent, LinkNews};
use super::scenario::Reach;
use super::story::Teller;
use super::world::{Happening, Simulation};
use crate::base::{NodeRank, Rank};
use crate::job::{Event, Evidence, FailureClass, NodeLoss, WorkerEnd};
use crate::launch::node::elastic::{self, Unreached};
use crate::launch::node::protocol::{self, Expected};
use crate::launch::user::pause::PauseScope;
use crate::wire::{AgentHello, FromAgent, ToAgent};

/// An agent that does not exit this long after its link has ended is no longer waited for.
const AGENT_EXIT_TIMEOUT: Micros = 500 * MS;
/// Time in which the launcher kills what a lost local node has left.
const REAP_TIME: Micros = 5 * MS;
const REAP_TIMEOUT: Micros = 2 * SECOND;
/// Upper bound of how far the clock of a node may appear to be ahead.
const CLOCK_AHEAD_MAX: Micros = SECOND;

impl Simulation {
    /// Reads a link to its present end: messages go to the launcher's queue.
    pub(super) fn read_link(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        connection.is_readable = false;
        if connection.is_over {
            return;
        }
        let (node, link) = (connection.node, connection.link);
        loop {
            let connection = &mut self.connections[index];
            connection.decoder.begin_epoch(connection.epoch);
            match connection.decoder.message::<FromAgent>() {
                Ok(Some(FromAgent::Output { bytes, .. })) => {
                    self.consume_soon(index, bytes.len());
                }
                Ok(Some(message)) => {
                    self.launcher.events.push_back(LauncherEvent {
                        node,
                        link,
                        news: LinkNews::Message(message),
                    });
                }
                Ok(None) => break,
                Err(why) => {
                    connection.is_over = true;
                    let news = LinkNews::InvalidData(why.to_string());
                    return self.launcher.events.push_back(LauncherEvent { node, link, news });
                }
            }
        }
        let connection = &mut self.connections[index];
        if !connection.has_ended {
            return;
        }
        connection.is_over = true;
        let exit = connection.exit;
        let (node, link, now) = (connection.node, connection.link, self.instant(self.now()));
        if self.launcher.table.is_current(node, link) {
            self.launcher.table.on_link_ended(node, now);
        }
        // The exit of the agent is awaited.
        let time = if exit.is_some() { MS } else { AGENT_EXIT_TIMEOUT };
        self.after(time, Happening::LinkIsReported { connection: index });
    }

    /// The end of a link is reported to the launcher's loop.
    pub(super) fn report_link_end(&mut self, index: usize) {
        let connection = &self.connections[index];
        if connection.launcher != self.launcher.number {
            return;
        }
        let (node, link, exit) = (connection.node, connection.link, connection.exit);
        self.queue_news(node, link, LinkNews::Closed(exit));
    }

    /// Handles an event of a link, unless the link was replaced.
    pub(super) fn on_link_news(&mut self, event: LauncherEvent) {
        let LauncherEvent { node, link, news } = event;
        let is_old = !self.launcher.table.is_current(node, link);
        if is_old && self.mistake != Some(Mistake::LauncherAcceptsOldLinks) {
            return;
        }
        let event = match news {
            LinkNews::Message(message)
                if elastic::is_obsolete(&self.launcher.job, node, &message) =>
            {
                None
            }
            LinkNews::Message(message) => {
                if let Some(why) = self.find_protocol_error(node, &message) {
                    self.fail_protocol(node, &why);
                    self.mark_node_lost(node, NodeLoss::InvalidData(why))
                } else {
                    let now = self.instant(self.now());
                    self.launcher.table.on_message(node, now);
                    self.on_agent_message(node, message)
                }
            }
            LinkNews::Connected => {
                let now = self.now();
                self.launcher.nodes[node.index()].hello_sent_at = now;
                self.launcher.table.on_message(node, self.start + Duration::from_micros(now));
                self.scenario.policy.elastic.is_some().then_some(Event::Arrived(node))
            }
            LinkNews::EarlierEpochs(epoch, free_restarts) => {
                self.truth.membership.was_told = true;
                Some(Event::EarlierEpochs { epoch, free_restarts })
            }
            LinkNews::Unreachable { is_late } => {
                match elastic::unreached(self.scenario.policy.elastic) {
                    Unreached::Replaced => self.reconnect(node, self.launcher.job.epoch()),
                    Unreached::Retried => self.retry_absent(node),
                    Unreached::Refused => self.refuse_unreachable(node, is_late),
                }
                return;
            }
            LinkNews::Closed(exit) => self.mark_node_lost(node, NodeLoss::LinkClosed(exit)),
            LinkNews::InvalidData(why) => {
                self.fail_protocol(node, &why);
                self.mark_node_lost(node, NodeLoss::InvalidData(why))
            }
            LinkNews::Signal(signal) => {
                self.truth.node_signals.push(signal);
                Some(Event::NodeSignal(node, signal))
            }
        };
        if let Some(event) = event {
            self.step_job(event);
        }
    }

    /// Why a message is invalid now.
    fn find_protocol_error(&self, node: NodeRank, message: &FromAgent) -> Option<String> {
        let node_of = |rank| self.node_of(rank);
        let job = &self.launcher.job;
        Expected { node, job, node_of: &node_of, listen: None }.find_error(message)
    }

    fn on_agent_message(&mut self, node: NodeRank, message: FromAgent) -> Option<Event> {
        match message {
            FromAgent::Hello(hello) => {
                self.on_hello(node, &hello);
                None
            }
            FromAgent::Ready(found) => {
                self.launcher.table.on_ready(node, found);
                Some(Event::Ready(node))
            }
            FromAgent::Refused(_) => {
                if !elastic::waits_for_others(self.scenario.policy.elastic, node) {
                    self.stop_waiting_for_others(node);
                }
                self.refuse(node);
                None
            }
            FromAgent::Started { rank, .. } => Some(Event::Started(rank)),
            FromAgent::StartFailed(failed) => {
                let failure = protocol::start_failure(&failed);
                Some(Event::NotStarted { rank: failed.rank, failure })
            }
            FromAgent::Exited { rank, exit, at_us, signals_sent, .. } => {
                let at = self.instant(self.to_launcher_time(node, at_us));
                if !exit.is_success() && !self.launcher.job.is_stopping() {
                    self.send_to_all(&ToAgent::PeerGone(rank));
                }
                Some(Event::Exited(WorkerEnd { rank, exit, at, signals_sent }))
            }
            FromAgent::ShimExited => Some(self.node_lost(node, NodeLoss::ShimExited)),
            FromAgent::ShimHung => Some(self.node_lost(node, NodeLoss::ShimNotResponding)),
            FromAgent::Idle { .. } if self.mistake == Some(Mistake::IdleIsLost) => None,
            FromAgent::Idle { unkillable } => {
                Some(Event::Idle { node, is_clean: unkillable.is_empty() })
            }
            FromAgent::Clock { sent_us, clock_us } => {
                let received = self.launcher_clock_us();
                self.launcher.nodes[node.index()].clock.add(sent_us, clock_us, received);
                None
            }
            FromAgent::Paused => {
                self.launcher.pause.on_stopped(PauseScope::Node(node));
                None
            }
            _ => None,
        }
    }

    fn on_hello(&mut self, node: NodeRank, hello: &AgentHello) {
        let received = self.launcher_clock_us();
        let offset = received - self.now();
        let place = &mut self.launcher.nodes[node.index()];
        place.clock.add(place.hello_sent_at + offset, hello.clock_us, received);
        self.launcher.table.on_hello(node);
        self.send_heartbeat(node);
        let launcher = &self.launcher;
        if elastic::asks_at_hello(
            self.scenario.policy.elastic,
            &launcher.job,
            &launcher.table,
            node,
        ) {
            self.send_prepare(node);
        }
    }

    /// A node that cannot be reached is connected to again later.
    fn retry_absent(&mut self, node: NodeRank) {
        self.launcher.table.on_absent(node);
        self.reconnect(node, self.launcher.job.epoch());
        self.step_job(Event::Absent(node));
    }

    fn refuse_unreachable(&mut self, node: NodeRank, is_late: bool) {
        if !is_late {
            self.stop_waiting_for_others(node);
        }
        self.refuse(node);
    }

    /// Converts a time of a node's clock to the launcher's.
    fn to_launcher_time(&self, node: NodeRank, at_us: u64) -> Micros {
        let now_us = self.launcher_clock_us();
        let own_us = self.launcher.nodes[node.index()].clock.to_launcher_clock(at_us);
        let ahead = own_us.saturating_sub(now_us);
        let past = self.now().saturating_sub(now_us.saturating_sub(own_us));
        if ahead < CLOCK_AHEAD_MAX { past + ahead } else { self.now() }
    }

    /// A node cannot take part.
    pub(super) fn refuse(&mut self, node: NodeRank) {
        self.launcher.table.on_refused(node);
        if self.launcher.job.may_answer(node) {
            self.step_job(Event::Refused(node));
        }
    }

    /// Where another system starts the nodes, the launcher stops waiting for those that have not
    /// joined.
    fn stop_waiting_for_others(&mut self, node: NodeRank) {
        if self.scenario.reach != Reach::Dial {
            return;
        }
        for other in self.node_situation().given_up_with(node) {
            self.launcher.nodes[other.index()].is_awaited = false;
            self.refuse(other);
        }
    }

    /// Handles the loss of a node, once. A local one is ended with all its processes.
    pub(super) fn mark_node_lost(&mut self, node: NodeRank, loss: NodeLoss) -> Option<Event> {
        if !self.launcher.table.mark_lost(node) {
            return None;
        }
        let connection = self.launcher.nodes[node.index()].connection;
        self.launcher.pause.on_stopped(PauseScope::Node(node));
        self.tell(Teller::Launcher, || format!("loses node {node}: {loss:?}"));
        if let Some(connection) = connection {
            if self.connections[connection].is_local {
                self.reap_lost_nodes();
            } else {
                self.close_by_launcher(connection);
            }
        }
        if !self.launcher.job.is_stopping() {
            let ranks = &self.scenario.workers[..node.index()];
            self.send_to_all(&ToAgent::PeerGone(Rank(ranks.iter().sum())));
        }
        if self.launcher.job.is_preparing() {
            self.send_heartbeats();
        }
        Some(self.node_lost(node, loss))
    }

    fn node_lost(&self, node: NodeRank, loss: NodeLoss) -> Event {
        let since = self.launcher.table.begin_of_loss(node, self.instant(self.now()));
        Event::NodeLost { node, loss, since: Some(since) }
    }

    /// Kills what lost local nodes have left.
    fn reap_lost_nodes(&mut self) {
        let table = &self.launcher.table;
        let lost = table.all().filter(|node| table.is_lost(*node));
        let links = lost.filter_map(|node| self.launcher.nodes[node.index()].connection);
        let links = links.map(|link| &self.connections[link]);
        let agents: Vec<_> = links.filter(|it| it.is_local).map(|link| link.agent).collect();
        for agent in agents {
            self.kill_node_processes(agent);
        }
        let is_stuck = self.workers.iter().any(|worker| {
            worker.is_alive && self.scenario.habits[worker.rank.index()].is_unkillable
        });
        let time = if is_stuck { REAP_TIMEOUT } else { REAP_TIME };
        self.launcher.table.hold_reconnects();
        self.launcher.reaping_until = Some(self.now() + time);
    }

    pub(super) fn finish_reaping(&mut self) {
        self.launcher.reaping_until = None;
        if let Some(disconnected) = self.launcher.table.allow_reconnects() {
            self.prepare_epoch(disconnected);
        }
        for node in self.launcher.table.take_held_back() {
            self.reconnect(node, self.launcher.job.epoch());
        }
    }

    /// What workers that lost their peers have printed.
    pub(super) fn evidence_about(&mut self, ranks: &[Rank]) -> BTreeMap<Rank, Evidence> {
        self.truth.has_evidence = true;
        let epoch = self.launcher.job.epoch();
        let is_asked = |incident: &&super::incidents::Incident| match incident.blame {
            Blame::Witness { rank, epoch: of, .. } => of == epoch && ranks.contains(&rank),
            _ => false,
        };
        let found = self.truth.incidents.iter().filter(is_asked);
        let evidence = |incident: &super::incidents::Incident| {
            let Blame::Witness { rank, .. } = incident.blame else { unreachable!() };
            let evidence = Evidence::printed(FailureClass::LostPeer, self.instant(incident.at));
            (rank, evidence)
        };
        found.map(evidence).collect()
    }
}
