//! All nodes of a job: what is known of them, and the links to them.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::handle::{ConnectContext, Connector, NewLink, NodeHandle};
use super::join_limit::JoinLimit;
use super::table::{NodeLimits, NodeTable};
use crate::base::{Epoch, NodeRank, clock};
use crate::launch::pod::metrics::LinkTraffic;
use crate::launch::startup::requests::{self, NodeToConnect};
use crate::os::tasks::Tasks;
use crate::plan::LaunchPlan;
use crate::wire::{Prepare, Start, ToAgent};

/// Agents that are processes of this machine.
#[derive(Default)]
pub(in crate::launch) struct LocalAgents {
    pub(in crate::launch) living: Vec<Pid>,
    /// Agents of lost nodes.
    pub(in crate::launch) lost: Vec<Pid>,
}

/// All nodes of a job. The table decides; this sends, connects and closes.
pub(in crate::launch) struct Nodes<'a> {
    pub(in crate::launch) table: NodeTable,
    plan: &'a LaunchPlan,
    context: ConnectContext<'a>,
    handles: Vec<NodeHandle>,
    /// Tasks that serve links.
    tasks: Tasks,
}

impl<'a> Nodes<'a> {
    /// Starts to connect to all nodes of a plan.
    pub(in crate::launch) fn connect(
        plan: &'a LaunchPlan,
        limits: NodeLimits,
        context: ConnectContext<'a>,
    ) -> io::Result<Self> {
        let table = NodeTable::new(plan.nodes.len(), limits, clock::now());
        let mut nodes = Self { table, plan, context, handles: Vec::new(), tasks: Tasks::default() };
        for node in requests::nodes_to_connect(plan) {
            let handle = nodes.connect_node(node, Epoch(0))?;
            nodes.handles.push(handle);
        }
        Ok(nodes)
    }

    /// Starts to connect to a node, by the link that the table has numbered.
    fn connect_node(&mut self, to: NodeToConnect<'_>, epoch: Epoch) -> io::Result<NodeHandle> {
        let node = to.node;
        let (number, asked_at) = (self.table.link(node), self.table.asked_at());
        let pause = self.table.retry_pause(node);
        let link = NewLink { number, epoch, join_from: asked_at, pause };
        let handle = NodeHandle::connect(&self.context, to, link, &mut self.tasks)?;
        if handle.agent_pid().is_some() {
            self.table.on_message(node, clock::now());
        }
        Ok(handle)
    }

    fn handle(&self, node: NodeRank) -> &NodeHandle {
        &self.handles[node.index()]
    }

    /// How nodes are reached.
    pub(in crate::launch) fn connector(&self) -> &'a Connector {
        self.context.connector
    }

    /// Counters of the links.
    pub(in crate::launch) fn traffic(&self) -> &Arc<LinkTraffic> {
        &self.context.traffic
    }

    /// How long nodes that connect by themselves are waited for.
    pub(in crate::launch) fn join_limit(&self) -> JoinLimit {
        self.context.join_limit()
    }

    /// How long a node that connects by itself is still waited for.
    pub(in crate::launch) fn time_to_join(&self, now: Instant) -> Duration {
        self.context.join_limit().time.saturating_sub(now - self.table.asked_at())
    }

    /// Sends a message to a node, now or once there is a link.
    pub(in crate::launch) fn send(&self, node: NodeRank, message: &ToAgent) {
        self.handle(node).send(message);
    }

    pub(in crate::launch) fn send_to_all(&self, message: &ToAgent) {
        self.handles.iter().for_each(|node| node.send(message));
    }

    /// Sends a heartbeat over every link.
    pub(in crate::launch) fn send_heartbeats(&self) {
        let connected = self.table.all().filter(|node| self.table.is_connected(*node));
        connected.for_each(|node| self.handle(node).send_heartbeat());
    }

    /// Asks a node whether it can start.
    pub(in crate::launch) fn ask(&mut self, node: NodeRank, prepare: Prepare) {
        self.table.on_asked(node, clock::now());
        self.send(node, &ToAgent::Prepare(Box::new(prepare)));
    }

    /// Starts the workers of a node. The roster was encoded once for all nodes.
    pub(in crate::launch) fn start(&self, node: NodeRank, roster: &Arc<[u8]>, start: Start) {
        self.handle(node).send_encoded(roster);
        self.send(node, &ToAgent::Start(start));
    }

    /// The link to the node was made.
    pub(in crate::launch) fn on_connected(&mut self, node: NodeRank) {
        self.handles[node.index()].on_connected();
        self.table.on_message(node, clock::now());
    }

    /// Handles the agent's hello, which contains the time of its clock.
    pub(in crate::launch) fn on_hello(&mut self, node: NodeRank, clock_us: u64) {
        self.table.on_hello(node);
        self.handles[node.index()].on_hello(clock_us);
    }

    /// Handles the answer to a heartbeat.
    pub(in crate::launch) fn on_clock(&mut self, node: NodeRank, asked_us: u64, clock_us: u64) {
        self.handles[node.index()].on_clock(asked_us, clock_us);
    }

    /// Converts a time of a node's clock to an instant of the launcher's.
    pub(in crate::launch) fn to_instant(&self, node: NodeRank, at_us: u64) -> Instant {
        self.handle(node).to_instant(at_us)
    }

    /// Begins the next epoch on the link that exists.
    pub(in crate::launch) fn begin_epoch(&self, node: NodeRank, epoch: Epoch) {
        self.handle(node).begin_epoch(epoch);
    }

    /// Changes the epoch of a link on which nothing was started, or which is not made yet.
    pub(in crate::launch) fn skip_to_epoch(&self, node: NodeRank, epoch: Epoch) {
        self.handle(node).skip_to_epoch(epoch);
    }

    /// Greets a node once more, in the epoch of its link.
    pub(in crate::launch) fn greet(&self, node: NodeRank) {
        self.handle(node).send_hello(self.context.job, node);
    }

    /// Notes which ranks the nodes of an epoch may report on.
    pub(in crate::launch) fn assign_ranks(&self, plan: &LaunchPlan) {
        for NodeToConnect { node, ranks, .. } in requests::nodes_to_connect(plan) {
            self.handle(node).assign_ranks(ranks);
        }
    }

    /// Makes a new link in place of one that has ended, or that leads to an agent that cannot start
    /// anything.
    pub(in crate::launch) fn reconnect(&mut self, node: NodeRank, epoch: Epoch) -> io::Result<()> {
        self.send(node, &ToAgent::Bye);
        if self.handle(node).agent_pid().is_none() && self.table.is_lost(node) {
            self.close(node);
        }
        self.table.replace_link(node);
        let to = requests::nodes_to_connect(self.plan)
            .nth(node.index())
            .expect("every node was connected to before");
        self.handles[node.index()] = self.connect_node(to, epoch)?;
        Ok(())
    }

    /// Closes the link, or aborts the attempt to make one. An agent on another machine then exits.
    pub(in crate::launch) fn close(&self, node: NodeRank) {
        self.handle(node).close();
    }

    /// Closes the link to a lost node unless its agent is a process of this machine, which is ended
    /// with all that it has started. Returns whether that is to be done.
    pub(in crate::launch) fn close_lost(&self, node: NodeRank) -> bool {
        let is_local = self.handle(node).agent_pid().is_some();
        if !is_local {
            self.close(node);
        }
        is_local
    }

    /// Whether the agent of the node is a process of this machine.
    pub(in crate::launch) fn is_local(&self, node: NodeRank) -> bool {
        self.handle(node).agent_pid().is_some()
    }

    /// These nodes are to be replaced before anything was started. Returns those that are connected to now.
    pub(in crate::launch) fn await_replacements(&mut self, lost: &[NodeRank]) -> Vec<NodeRank> {
        let Self { table, handles, .. } = self;
        table.await_replacements(lost, |node| handles[node.index()].agent_pid().is_some())
    }

    pub(in crate::launch) fn local_agents(&self) -> LocalAgents {
        let agents = |lost: bool| {
            let nodes = self.table.all().filter(|node| self.table.is_lost(*node) == lost);
            nodes.filter_map(|node| self.handle(node).agent_pid()).collect()
        };
        LocalAgents { living: agents(false), lost: agents(true) }
    }

    /// Waits for ever, unless a task that serves a link panics: then this panics too.
    pub(in crate::launch) async fn propagate_panics(&mut self) -> std::convert::Infallible {
        self.tasks.propagate_panics().await
    }

    /// Takes leave of all nodes; ends attempts to connect.
    pub(in crate::launch) fn say_goodbye(&mut self) {
        self.send_to_all(&ToAgent::Bye);
        for node in self.table.all().filter(|node| !self.table.is_connected(*node)) {
            self.close(node);
        }
        self.handles.clear();
    }

    /// Waits until all links have ended, at most this long.
    pub(in crate::launch) async fn wait_for_ends(&mut self, limit: Duration) {
        let _ = tokio::time::timeout(limit, self.tasks.join_all()).await;
    }
}
