//! Epochs of the simulated launcher: the nodes are asked, started, connected to again and waited for, as the
//! dispatcher does it.

use std::time::Duration;

use super::connecting::hello_to;
use super::mistakes::Mistake;
use super::output::WINDOW_BYTES;
use super::processes::SimulatedLauncher;
use super::scenario::Reach;
use super::story::Teller;
use super::world::Simulation;
use crate::base::{Epoch, LocalRank, NodeRank, Rank};
use crate::job::Event;
use crate::launch::node::elastic;
use crate::launch::node::epoch_steps::{AnswerStep, LinkStep, NodeSituation, NodeStep};
use crate::wire::{NodeRoster, Start, ToAgent, WorkerStart};

impl Simulation {
    pub(super) fn start_epoch(&mut self) {
        let epoch = self.launcher.job.epoch();
        self.tell(Teller::Launcher, || format!("starts the workers of epoch {epoch}"));
        self.truth.has_evidence = false;
        let is_elastic = self.scenario.policy.elastic.is_some();
        let members: Vec<NodeRank> = self.launcher.table.all().collect();
        let members =
            members.into_iter().filter(|node| !is_elastic || self.launcher.job.is_member(*node));
        let members: Vec<(NodeRank, u32)> =
            members.map(|node| (node, self.scenario.workers[node.index()])).collect();
        let ranks = members.iter().flat_map(|(node, count)| vec![*node; *count as usize]);
        self.check_members(ranks.collect());
        let nodes = members.iter().map(|(node, workers)| (format!("n{node}"), *workers));
        let roster = NodeRoster { nodes: nodes.collect() };
        let roster = ToAgent::Roster(roster.pack());
        let mut first = 0;
        for (node, count) in members {
            if self.launcher.table.prepared(node).is_some() {
                let worker = |local: u32| WorkerStart {
                    rank: Rank(first + local),
                    local_rank: LocalRank(local),
                    argv: Vec::new(),
                    env: Vec::new(),
                    env_default: Vec::new(),
                    env_without_gpu: Vec::new(),
                    stdin: false,
                };
                let workers = (0..count).map(worker).collect();
                let start =
                    Start { workers, store: None, window_bytes: WINDOW_BYTES, group_limit_ms: 0 };
                self.send_to(node, &roster);
                self.send_to(node, &ToAgent::Start(start));
                let host = self.host_of(node);
                self.hosts[host].next_epoch = epoch.next();
            }
            first += count;
        }
        self.launcher.has_started = true;
        self.announce_epoch(epoch);
        self.wait_for_disk();
    }

    /// Nodes that have joined learn which epoch has begun, also those without a part in it.
    fn announce_epoch(&mut self, epoch: Epoch) {
        if self.scenario.policy.elastic.is_none() {
            return;
        }
        let table = &self.launcher.table;
        let there = table.all().filter(|node| table.is_connected(*node) && !table.is_lost(*node));
        let links = there.filter_map(|node| self.launcher.nodes[node.index()].connection);
        for link in links.collect::<Vec<_>>() {
            let free_restarts = self.launcher.job.free_restarts();
            let host = &mut self.hosts[self.connections[link].host];
            (host.next_epoch, host.free_restarts) = (epoch.next(), free_restarts);
        }
    }

    pub(super) fn prepare_epoch(&mut self, disconnected: Vec<NodeRank>) {
        let Some(disconnected) = self.launcher.table.defer_epoch(disconnected) else { return };
        let epoch = self.launcher.job.epoch();
        self.reset_preparation();
        let is_elastic = self.scenario.policy.elastic.is_some();
        let had_workers = |node| !is_elastic || self.had_part(node);
        for step in self.node_situation().begin_epoch(&disconnected, had_workers) {
            self.take_step(step, epoch);
        }
    }

    pub(super) fn skip_to_epoch(&mut self, epoch: Epoch) {
        self.reset_preparation();
        for step in self.node_situation().skip_epochs() {
            self.take_step(step, epoch);
        }
    }

    fn take_step(&mut self, NodeStep { node, link, answer }: NodeStep, epoch: Epoch) {
        match link {
            LinkStep::Reconnect => self.reconnect(node, epoch),
            LinkStep::Begin => {
                self.send_to(node, &ToAgent::NextEpoch);
                self.set_epoch(node, epoch);
            }
            LinkStep::Skip { greets_again } => {
                if self.launcher.nodes[node.index()].epoch < epoch {
                    self.send_to(node, &ToAgent::SkipToEpoch(epoch));
                    self.set_epoch(node, epoch);
                }
                if greets_again && self.mistake != Some(Mistake::LauncherGreetsOnce) {
                    self.send_to(node, &hello_to(node));
                }
            }
        }
        match answer {
            AnswerStep::Ask => self.send_prepare(node),
            AnswerStep::Refuse => self.launcher.table.on_refused(node),
            AnswerStep::Wait => {}
        }
    }

    pub(super) fn await_replacements(&mut self, lost: &[NodeRank]) {
        let (launcher, connections) = (&mut self.launcher, &self.connections);
        let nodes = &launcher.nodes;
        let is_local = |node: NodeRank| {
            nodes[node.index()].connection.is_some_and(|link| connections[link].is_local)
        };
        for node in launcher.table.await_replacements(lost, is_local) {
            self.reconnect(node, self.launcher.job.epoch());
        }
    }

    /// What decides about the nodes.
    pub(super) fn node_situation(&self) -> NodeSituation<'_> {
        let SimulatedLauncher { job, table, .. } = &self.launcher;
        NodeSituation { job, table, elastic: self.scenario.policy.elastic }
    }

    fn set_epoch(&mut self, node: NodeRank, epoch: Epoch) {
        let place = &mut self.launcher.nodes[node.index()];
        place.epoch = epoch;
        if let Some(connection) = place.connection {
            self.connections[connection].epoch = epoch;
        }
    }

    fn reset_preparation(&mut self) {
        let now = self.instant(self.now());
        self.launcher.table.begin_preparation(now);
        self.truth.epoch_began_at = self.now();
        self.truth.previously_noticed_at = self.truth.noticed_at.take();
        self.truth.refusals = 0;
        self.truth.gave_up_suspended = false;
    }

    pub(super) fn reconnect(&mut self, node: NodeRank, epoch: Epoch) {
        self.send_to(node, &ToAgent::Bye);
        let connection = self.launcher.nodes[node.index()].connection;
        let is_lost = self.launcher.table.is_lost(node);
        let is_remote = connection.is_none_or(|connection| !self.connections[connection].is_local);
        if let (true, true, Some(connection)) = (is_remote, is_lost, connection) {
            self.close_by_launcher(connection);
        }
        self.launcher.table.replace_link(node);
        self.connect(node, epoch);
        let connection = self.launcher.nodes[node.index()].connection;
        let is_local = connection.is_some_and(|connection| self.connections[connection].is_local);
        if is_local && self.scenario.policy.elastic.is_some() {
            self.step_job(Event::Arrived(node));
        }
    }

    /// Gives up the start of an elastic job if too few nodes have joined in time.
    pub(super) fn end_join_time(&mut self) {
        let Some(elastic) = self.scenario.policy.elastic else { return };
        let launcher = &self.launcher;
        let waited = self.instant(self.now()) - launcher.table.asked_at();
        let join_limit = match self.scenario.reach {
            Reach::Dial | Reach::Managed => Duration::from_micros(self.scenario.join_limit),
            Reach::Local | Reach::Ssh => Duration::ZERO,
        };
        let left = elastic::time_to_join(elastic, !launcher.has_started, (join_limit, waited));
        if elastic::missed_nodes(&launcher.job, &launcher.table, left).is_some() {
            self.truth.refusals += 1;
            self.step_job(Event::JoinTimeOver);
        }
    }
}
