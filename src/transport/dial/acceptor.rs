//! Node 0 accepts the agents of the other nodes and rejects all other connections. One task owns
//! the listener, the slots of the nodes and the connections; other tasks send it requests.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

use super::agent::DialledAgent;
use super::auth_failures::{AuthFailures, WrongKeys};
use super::bind::BoundListener;
use super::control_messages::{Control, JobOver, JoinRefusal};
use super::join_handshake::{Joiner, Rejection, UnfitNode, receive};
use super::relay::{LocalLink, RelayEvent, relay};
use super::rules::{KeyOrigin, Rules};
use crate::base::{Epoch, NodeRank, Status, WorkerExit, clock, lock};
use crate::os::tasks::{Tasks, sleep_until};
use crate::secure::HandshakeError;
use crate::transport::{Absence, Link, SessionInfo, memory_link};

/// Handshakes that run at the same time. Further connections wait in the kernel's queue and are not
/// closed.
pub const HANDSHAKES_MAX: usize = 64;
/// Longest time of one handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// Longest time of one handshake while [`HANDSHAKES_MAX`] handshakes run and others wait.
const HANDSHAKE_CROWDED: Duration = Duration::from_millis(500);
/// Pause after a failure of `accept`, for example for lack of file descriptors.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Signals of a node that wait for the launcher; further ones are dropped.
const SIGNALS_MAX: usize = 16;

/// A node that has joined.
pub struct Joined {
    /// Link to its agent.
    pub link: Link,
    /// Signals that the node's launcher process received, which are meant for the job.
    pub signals: mpsc::Receiver<i32>,
    /// Address of the node.
    pub peer: SocketAddr,
    /// The name of its machine.
    pub machine: String,
    /// Number of workers that its own line starts; `None`: it starts those that the launcher sends.
    pub own_workers: Option<u32>,
    /// First epoch of the job in which the node has not taken part.
    pub next_epoch: Epoch,
    /// Number of restarts that do not count against `--max_restarts`: no failure caused them.
    pub free_restarts: u32,
}

/// How a node joined; the sender is dropped if it does not join.
type JoinResult = Result<Joined, Absence>;

/// A request to the acceptor's task.
enum AcceptorRequest {
    WaitFor(NodeRank, oneshot::Sender<JoinResult>),
    WrongKeys(NodeRank, oneshot::Sender<Option<String>>),
    LastRejection(oneshot::Sender<Option<String>>),
    EpochStarted(Epoch, u32),
    /// Close all connections after this message, which nodes that join until this instant receive too.
    Close(Control, Option<Instant>),
}

/// Handle of the task that accepts nodes.
pub struct Acceptor {
    requests: mpsc::UnboundedSender<AcceptorRequest>,
    key_label: String,
}

impl Acceptor {
    /// Starts the task; `print` receives lines for the user. Must be called inside a runtime, whose
    /// `tasks` end some time after [`Acceptor::close`].
    pub fn open(
        bound: &BoundListener,
        rules: Rules,
        print: impl Fn(String) + Send + Sync + 'static,
        tasks: &mut Tasks,
    ) -> io::Result<Self> {
        // The launcher makes one request for each attempt to connect to a node, and connections that passed
        // the handshake end once: no peer fills these.
        let (sender, requests) = mpsc::unbounded_channel();
        let (ended_sender, ended) = mpsc::unbounded_channel();
        let key_label = key_label(&rules);
        let service = Service {
            listener: TcpListener::from_std(bound.listener.try_clone()?)?,
            nodes: rules.hosts.iter().map(|_| ExpectedNode::default()).collect(),
            rules: Arc::new(rules),
            handshakes: JoinSet::new(),
            handshake_peers: HashMap::new(),
            relays: Tasks::default(),
            ended_sender,
            ended_receiver: ended,
            requests,
            auth_failures: AuthFailures::default(),
            print: Box::new(print),
            accept_paused_until: None,
            has_noted_other_line: false,
        };
        tasks.spawn(service.run());
        Ok(Self { requests: sender, key_label })
    }

    /// Waits until the node has joined, or returns why it cannot take part. A node that has joined is requested to join
    /// again. `None`: the acceptor is closed.
    pub async fn wait_for(&self, node: NodeRank) -> Option<Result<Joined, Absence>> {
        self.ask(|reply| AcceptorRequest::WaitFor(node, reply)).await
    }

    /// Description of the connections that claimed to be this node with another key; `None` if
    /// there were none.
    pub async fn wrong_keys(&self, node: NodeRank) -> Option<String> {
        self.ask(|reply| AcceptorRequest::WrongKeys(node, reply)).await.flatten()
    }

    /// Where the connection came from that was rejected last, and why; `None` if there was none.
    pub async fn last_rejection(&self) -> Option<String> {
        self.ask(AcceptorRequest::LastRejection).await.flatten()
    }

    /// Sends a request, and waits for its answer; `None` if the acceptor is closed.
    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> AcceptorRequest,
    ) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        let _ = self.requests.send(request(sender));
        receiver.await.ok()
    }

    /// Fingerprint of node 0's key, and the file from which the key was read.
    pub fn key_label(&self) -> &str {
        &self.key_label
    }

    /// Informs every node that the workers of an epoch are about to start, and how many restarts so
    /// far do not count against `--max_restarts`.
    pub fn announce_epoch(&self, epoch: Epoch, free_restarts: u32) {
        let _ = self.requests.send(AcceptorRequest::EpochStarted(epoch, free_restarts));
    }

    /// Sends every joined node the result of the job; the task ends once they have received it. Nodes that have
    /// not joined yet receive it too if they connect until an instant.
    pub fn close(&self, over: JobOver, late: Option<Instant>) {
        let last = Control::JobEnded(over.truncated());
        let _ = self.requests.send(AcceptorRequest::Close(last, late));
    }

    /// Informs every node that another node 0 will continue the job; the task ends as after
    /// [`Acceptor::close`].
    pub fn leave(&self) {
        let _ = self.requests.send(AcceptorRequest::Close(Control::Leaving, None));
    }
}

/// The slot of a node.
#[derive(Default)]
struct ExpectedNode {
    /// The request that waits for the node.
    waiter: Option<oneshot::Sender<JoinResult>>,
    /// Sender to the connection that has the slot, and the peer's address.
    connection: Option<(mpsc::UnboundedSender<Control>, SocketAddr)>,
    /// Number of connections that had the slot; events of earlier connections are ignored.
    generation: u64,
    /// Connections that claimed to be this node with another key.
    wrong_keys: WrongKeys,
    /// Whether the node has joined, or reported that it cannot: it waits for no result.
    is_known: bool,
}

struct Service {
    listener: TcpListener,
    /// Shared with the handshakes.
    rules: Arc<Rules>,
    nodes: Vec<ExpectedNode>,
    handshakes: JoinSet<Result<Joiner, Rejection>>,
    handshake_peers: HashMap<Id, (Instant, SocketAddr, AbortHandle)>,
    relays: Tasks,
    /// Reports the slots whose connection has ended.
    ended_sender: mpsc::UnboundedSender<(NodeRank, u64)>,
    ended_receiver: mpsc::UnboundedReceiver<(NodeRank, u64)>,
    requests: mpsc::UnboundedReceiver<AcceptorRequest>,
    auth_failures: AuthFailures,
    print: Box<dyn Fn(String) + Send + Sync>,
    accept_paused_until: Option<Instant>,
    /// Whether a note has said that the lines of the nodes differ.
    has_noted_other_line: bool,
}

/// Events of the task.
enum AcceptorEvent {
    Accepted(io::Result<(TcpStream, SocketAddr)>),
    HandshakeDone(Result<(Id, Result<Joiner, Rejection>), JoinError>),
    Requested(Option<AcceptorRequest>),
    ConnectionEnded(NodeRank, u64),
    HandshakeTimeout,
    AcceptPauseOver,
}

impl Service {
    async fn run(mut self) {
        loop {
            match self.next_event().await {
                AcceptorEvent::Accepted(Ok((stream, peer))) => self.on_accepted(stream, peer),
                AcceptorEvent::Accepted(Err(_)) => {
                    self.accept_paused_until = Some(clock::now() + ACCEPT_RETRY_PAUSE);
                }
                AcceptorEvent::HandshakeDone(Ok((id, result))) => {
                    self.on_handshake_done(id, result);
                }
                AcceptorEvent::HandshakeDone(Err(error)) => self.on_handshake_aborted(error),
                AcceptorEvent::Requested(Some(AcceptorRequest::WaitFor(node, reply))) => {
                    self.on_wait_request(node, reply);
                }
                AcceptorEvent::Requested(Some(AcceptorRequest::WrongKeys(node, reply))) => {
                    let _ = reply.send(self.nodes[node.index()].wrong_keys.describe());
                }
                AcceptorEvent::Requested(Some(AcceptorRequest::LastRejection(reply))) => {
                    let _ = reply.send(self.auth_failures.last());
                }
                AcceptorEvent::Requested(Some(AcceptorRequest::EpochStarted(
                    epoch,
                    free_restarts,
                ))) => {
                    for (sender, _) in self.nodes.iter().filter_map(|slot| slot.connection.as_ref())
                    {
                        let _ = sender.send(Control::EpochStarted(epoch, free_restarts));
                    }
                }
                AcceptorEvent::Requested(Some(AcceptorRequest::Close(last, late))) => {
                    return self.finish(last, late).await;
                }
                AcceptorEvent::Requested(None) => return,
                AcceptorEvent::ConnectionEnded(node, times) => {
                    self.on_connection_ended(node, times);
                }
                AcceptorEvent::HandshakeTimeout => self.abort_slow_handshakes(),
                AcceptorEvent::AcceptPauseOver => self.accept_paused_until = None,
            }
        }
    }

    /// Frees the slot for the same node or for its replacement: the connection that has it is no
    /// longer used.
    fn on_wait_request(&mut self, node: NodeRank, waiter: oneshot::Sender<JoinResult>) {
        let slot = &mut self.nodes[node.index()];
        slot.waiter = Some(waiter);
        if let Some((sender, _)) = slot.connection.take() {
            let _ = sender.send(Control::Rejoin);
        }
    }

    async fn next_event(&mut self) -> AcceptorEvent {
        let has_room = self.handshakes.len() < HANDSHAKES_MAX;
        let late = self.oldest_handshake().map(|since| since + self.handshake_timeout());
        tokio::select! {
            biased;
            request = self.requests.recv() => AcceptorEvent::Requested(request),
            Some((node, times)) = self.ended_receiver.recv() => AcceptorEvent::ConnectionEnded(node, times),
            Some(result) = self.handshakes.join_next_with_id() => AcceptorEvent::HandshakeDone(result),
            () = sleep_until(late) => AcceptorEvent::HandshakeTimeout,
            () = sleep_until(self.accept_paused_until) => AcceptorEvent::AcceptPauseOver,
            never = self.relays.propagate_panics() => match never {},
            accepted = self.listener.accept(), if has_room && self.accept_paused_until.is_none() => {
                AcceptorEvent::Accepted(accepted)
            }
        }
    }

    fn oldest_handshake(&self) -> Option<Instant> {
        self.handshake_peers.values().map(|(since, ..)| *since).min()
    }

    /// The time limit of a handshake, which is shorter when many run.
    fn handshake_timeout(&self) -> Duration {
        if self.handshakes.len() < HANDSHAKES_MAX { HANDSHAKE_MAX } else { HANDSHAKE_CROWDED }
    }

    fn on_accepted(&mut self, stream: TcpStream, peer: SocketAddr) {
        let rules = Arc::clone(&self.rules);
        let task = async move { receive(stream, peer, &rules).await };
        let handle = self.handshakes.spawn(task);
        self.handshake_peers.insert(handle.id(), (clock::now(), peer, handle));
    }

    fn abort_slow_handshakes(&mut self) {
        let (now, timeout) = (clock::now(), self.handshake_timeout());
        let late = self.handshake_peers.values().filter(|(since, ..)| *since + timeout <= now);
        late.for_each(|(.., handle)| handle.abort());
    }

    fn on_handshake_done(&mut self, id: Id, result: Result<Joiner, Rejection>) {
        let caller = self.handshake_peers.remove(&id);
        match result {
            Ok(joiner) => self.admit(joiner),
            Err(Rejection::Unfit(unfit)) => self.on_unfit_node(*unfit),
            Err(why) => {
                let peer = caller.map(|(_, peer, _)| peer);
                if let (Rejection::OtherKey(node, _), Some(peer)) = (&why, peer) {
                    self.nodes[node.index()].wrong_keys.record(peer.ip().to_canonical());
                }
                match &why {
                    Rejection::OtherKey(node, _) => {
                        let other = show_other_key(&self.rules);
                        self.report_rejection(peer, &format!("as node {node}: {other}"));
                    }
                    Rejection::Handshake(HandshakeError::Key) => {
                        self.report_rejection(peer, &show_other_key(&self.rules));
                    }
                    _ => self.report_rejection(peer, &why),
                }
            }
        }
    }

    /// Reports to the launcher why a node with the key cannot take part: a wait for a replacement would not help.
    fn on_unfit_node(&mut self, unfit: UnfitNode) {
        let UnfitNode { node, why, absence } = unfit;
        let node = node.or_else(|| self.first_free());
        if let Some(node) = node {
            self.nodes[node.index()].is_known = true;
        }
        let waiter =
            node.and_then(|node| self.nodes[node.index()].waiter.take_if(|_| absence.is_some()));
        match (waiter, absence) {
            (Some(waiter), Some(absence)) => drop(waiter.send(Err(absence))),
            _ => (self.print)(format!("warning: {why}")),
        }
    }

    /// Handles a handshake that was too slow, or that panicked because of a bug.
    fn on_handshake_aborted(&mut self, error: JoinError) {
        let caller = self.handshake_peers.remove(&error.id());
        if let Ok(panic) = error.try_into_panic() {
            std::panic::resume_unwind(panic);
        }
        let why = "the handshake timed out";
        self.report_rejection(caller.map(|(_, peer, _)| peer), &why);
    }

    fn report_rejection(&mut self, peer: Option<SocketAddr>, why: &dyn std::fmt::Display) {
        let Some(peer) = peer else { return };
        if let Some(line) = self.auth_failures.record(clock::now(), peer.ip().to_canonical(), why) {
            (self.print)(line);
        }
    }

    /// Gives a node with the key and the plan its slot, if the slot is free and requested.
    fn admit(&mut self, joiner: Joiner) {
        let Some(node) = joiner.node.or_else(|| self.first_free()) else {
            return self.refuse(joiner, JoinRefusal::complete(self.nodes.len()));
        };
        self.note_other_line(&joiner);
        let slot = &mut self.nodes[node.index()];
        let name = self.rules.name_of(node);
        if let Some((_, peer)) = &slot.connection {
            let from = peer.ip().to_canonical();
            let text = format!("{name} has already joined, from {from}\n");
            self.report_rejection(Some(joiner.peer), &text.trim_end());
            return self.refuse(joiner, transient_refusal(text));
        }
        let Some(waiter) = slot.waiter.take().filter(|waiter| !waiter.is_closed()) else {
            let text = format!("{name} is no longer expected\n");
            return self.refuse(joiner, transient_refusal(text));
        };
        self.connect(node, joiner, waiter);
    }

    /// Notes the first node that executes another line than node 0.
    fn note_other_line(&mut self, joiner: &Joiner) {
        let Some(difference) = &joiner.other_line else { return };
        if !std::mem::replace(&mut self.has_noted_other_line, true) {
            (self.print)(format!(
                "note: every node executes its own line, and the lines differ\n{difference}"
            ));
        }
    }

    fn refuse(&mut self, joiner: Joiner, refusal: JoinRefusal) {
        let Joiner { mut writer, .. } = joiner;
        self.relays.spawn(async move {
            let sent = async {
                let _ = writer.send_control(&Control::Refused(refusal)).await;
                writer.shutdown().await;
            };
            let _ = tokio::time::timeout(HANDSHAKE_MAX, sent).await;
        });
    }

    /// The first node that is expected and has not joined.
    fn first_free(&self) -> Option<NodeRank> {
        let is_free = |slot: &ExpectedNode| {
            let waits = slot.waiter.as_ref().is_some_and(|waiter| !waiter.is_closed());
            waits && slot.connection.is_none()
        };
        (0..).map(NodeRank).zip(&self.nodes).find(|(_, slot)| is_free(slot)).map(|(node, _)| node)
    }

    fn connect(&mut self, node: NodeRank, joiner: Joiner, waiter: oneshot::Sender<JoinResult>) {
        let Joiner { peer, machine, next_epoch, free_restarts, own_workers, .. } = joiner;
        let Joiner { mut writer, reader, .. } = joiner;
        let [(link_reader, link_writer), (reader_of_relay, writer_of_relay)] = memory_link();
        let local = LocalLink { reader: reader_of_relay, writer: writer_of_relay, filter: None };
        let (exit_sender, exit) = oneshot::channel();
        let (signal_sender, signals) = mpsc::channel(SIGNALS_MAX);
        let link = Link {
            reader: link_reader,
            writer: link_writer,
            agent: Box::new(DialledAgent(exit)),
            early: Vec::new(),
            session: SessionInfo::default(),
        };
        // Holds one message for each epoch, and the last ones.
        let (control_sender, controls) = mpsc::unbounded_channel();
        let slot = &mut self.nodes[node.index()];
        slot.generation += 1;
        slot.is_known = true;
        let weak_sender = control_sender.downgrade();
        slot.connection = Some((control_sender, peer));
        let (times, ended) = (slot.generation, self.ended_sender.clone());
        let handlers = ControlHandlers {
            controls: weak_sender,
            signals: signal_sender,
            exit: Mutex::new(Some(exit_sender)),
        };
        self.relays.spawn(async move {
            if writer.send_control(&Control::Joined(node)).await.is_ok() {
                let on_event = |event| handlers.handle(&event);
                relay(local, (writer, reader), controls, on_event).await;
            }
            let _ = ended.send((node, times));
        });
        let joined =
            Joined { link, signals, peer, machine, own_workers, next_epoch, free_restarts };
        let _ = waiter.send(Ok(joined));
    }

    fn on_connection_ended(&mut self, node: NodeRank, times: u64) {
        let slot = &mut self.nodes[node.index()];
        if slot.generation == times {
            slot.connection = None;
        }
    }

    /// Sends the last message to every node, and waits until the nodes have closed their connections.
    async fn finish(mut self, last: Control, late: Option<Instant>) {
        for (sender, _) in self.nodes.iter_mut().filter_map(|slot| slot.connection.take()) {
            let _ = sender.send(last.clone());
        }
        if let Some(until) = late {
            tokio::select! {
                () = self.tell_late_nodes(&last) => {}
                () = sleep_until(Some(until)) => {}
            }
        }
        drop(self.listener);
        self.handshakes.abort_all();
        self.relays.join_all().await;
    }
}

impl Service {
    /// Sends the last message to nodes that connect only now, until all nodes have received it or reported that
    /// they cannot take part.
    async fn tell_late_nodes(&mut self, last: &Control) {
        while let Some(missing) = self.first_unknown() {
            match self.next_event().await {
                AcceptorEvent::Accepted(Ok((stream, peer))) => self.on_accepted(stream, peer),
                AcceptorEvent::Accepted(Err(_)) => {
                    self.accept_paused_until = Some(clock::now() + ACCEPT_RETRY_PAUSE);
                }
                AcceptorEvent::HandshakeDone(Ok((id, done))) => {
                    self.handshake_peers.remove(&id);
                    let node = match done {
                        Ok(joiner) => {
                            let node = joiner.node.unwrap_or(missing);
                            self.tell(joiner, node, last.clone());
                            node
                        }
                        Err(Rejection::Unfit(unfit)) => unfit.node.unwrap_or(missing),
                        // Another program, or a node of another job.
                        Err(_) => continue,
                    };
                    self.nodes[node.index()].is_known = true;
                }
                AcceptorEvent::HandshakeDone(Err(error)) => self.on_handshake_aborted(error),
                AcceptorEvent::HandshakeTimeout => self.abort_slow_handshakes(),
                AcceptorEvent::AcceptPauseOver => self.accept_paused_until = None,
                AcceptorEvent::ConnectionEnded(..) | AcceptorEvent::Requested(Some(_)) => {}
                AcceptorEvent::Requested(None) => return,
            }
        }
    }

    /// The first node that is expected and has neither joined nor reported anything.
    fn first_unknown(&self) -> Option<NodeRank> {
        let mut nodes = (0..).map(NodeRank).zip(&self.nodes);
        let is_unknown = |node, slot: &ExpectedNode| self.rules.expects(node) && !slot.is_known;
        nodes.find(|(node, slot)| is_unknown(*node, slot)).map(|(node, _)| node)
    }

    /// Accepts a node only to send it the last message.
    fn tell(&mut self, joiner: Joiner, node: NodeRank, last: Control) {
        let Joiner { mut writer, mut reader, .. } = joiner;
        self.relays.spawn(async move {
            let told = async {
                for message in [Control::Joined(node), last] {
                    let _ = writer.send_control(&message).await;
                }
                writer.shutdown().await;
                // The node closes the connection when it has received the message.
                while let Ok(Some(_)) = reader.next().await {}
            };
            let _ = tokio::time::timeout(HANDSHAKE_MAX, told).await;
        });
    }
}

/// Formats why the key of a peer is wrong. What nodes without a secret have in common is the name of the job.
fn show_other_key(rules: &Rules) -> String {
    match &rules.key_origin {
        origin @ KeyOrigin::RunId(_) => match origin.given_run_id() {
            Some(own) => {
                format!("the peer has another run id than this job (`{own}`), or a key file")
            }
            None => "the peer has a run id or a key file, and this job has none".to_owned(),
        },
        KeyOrigin::File(_) => {
            format!(
                "the peer has a different key; the key of this node has the {}",
                key_label(rules)
            )
        }
    }
}

/// Fingerprint of node 0's key, and where the key is from.
fn key_label(rules: &Rules) -> String {
    format!("fingerprint {} ({})", rules.key.fingerprint(), rules.key_origin)
}

/// The refusal of a node that may be accepted later.
fn transient_refusal(text: String) -> JoinRefusal {
    JoinRefusal { status: Status::Config.code(), text, is_transient: true }
}

/// Handlers of the control messages that a node sends beside its link.
struct ControlHandlers {
    /// Weak, so that messages that are sent after the connection was closed are dropped.
    controls: mpsc::WeakUnboundedSender<Control>,
    signals: mpsc::Sender<i32>,
    /// Taken by the first message about the agent's exit.
    exit: Mutex<Option<oneshot::Sender<Option<WorkerExit>>>>,
}

impl ControlHandlers {
    fn handle(&self, event: &RelayEvent) {
        match event {
            RelayEvent::LocalEnded => {
                if let Some(sender) = self.controls.upgrade() {
                    let _ = sender.send(Control::LinkEnded);
                }
            }
            // If the launcher has so many to handle, one more requests nothing new.
            RelayEvent::Control(Control::Signal(signal)) => drop(self.signals.try_send(*signal)),
            RelayEvent::Control(Control::AgentEnded(exit)) => {
                let sender = lock(&self.exit).take();
                if let Some(sender) = sender {
                    let _ = sender.send(*exit);
                }
            }
            // Nodes send no other messages to node 0 after the join.
            RelayEvent::Control(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_cannot_fill_the_queue_of_signals() {
        let (controls, _queue) = mpsc::unbounded_channel();
        let (signals, mut received) = mpsc::channel(SIGNALS_MAX);
        let exit = Mutex::default();
        let handlers = ControlHandlers { controls: controls.downgrade(), signals, exit };
        for signal in 0..1000 {
            handlers.handle(&RelayEvent::Control(Control::Signal(signal)));
        }
        let waiting = std::iter::from_fn(|| received.try_recv().ok());
        assert_eq!(waiting.collect::<Vec<_>>(), (0..SIGNALS_MAX as i32).collect::<Vec<_>>());
    }
}
