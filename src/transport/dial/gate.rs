//! Node 0 accepts the agents of the other nodes and rejects all other connections. One task owns
//! the listener, the slots of the nodes and the connections; other tasks send it requests.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

use super::bind::BoundListener;
use super::handshake::{Joiner, Turned, Unfit, receive};
use super::line::{SecureReader, SecureWriter};
use super::pump::{Local, Pumped, pump};
use super::strangers::{AuthFailures, WrongKeys};
use super::words::{Control, JobOver, JoinRefusal};
use crate::base::{Epoch, JobId, NodeRank, Status, WorkerExit, clock};
use crate::os::fds;
use crate::os::tasks::Tasks;
use crate::secure::JobKey;
use crate::transport::{AgentProcess, Arrival, Fault, Link, LinkReader, LinkWriter};

/// Handshakes that run at the same time. Further connections wait in the kernel's queue and are not
/// closed.
pub const HANDSHAKES_MAX: usize = 64;
/// Longest time of one handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// Longest time of one handshake while [`HANDSHAKES_MAX`] handshakes run and others wait.
const HANDSHAKE_CROWDED: Duration = Duration::from_millis(500);
/// Pause after a failure of `accept`, for example for lack of file descriptors.
const REST: Duration = Duration::from_millis(50);

/// Conditions that a joining node must meet.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Id of the job.
    pub job: JobId,
    /// Key of the job.
    pub key: JobKey,
    /// File from which the key was read.
    pub key_file: String,
    /// Time without data after which a link counts as lost.
    pub lease: Duration,
    /// Build of this binary.
    pub build: &'static str,
    /// Digest of the plan that all nodes must have.
    pub digest: [u8; 32],
    /// The plan in lines.
    pub outline: Vec<String>,
    /// Names of all nodes, for messages.
    pub hosts: Vec<String>,
}

/// A node that has joined.
pub struct Joined {
    /// Link to its agent.
    pub link: Link,
    /// Signals that the node's launcher process received, which are meant for the job.
    pub signals: mpsc::UnboundedReceiver<i32>,
    /// Address of the node.
    pub peer: SocketAddr,
    /// First epoch of the job in which the node has not taken part.
    pub fresh: Epoch,
    /// Number of earlier epochs that followed an epoch that did not fail.
    pub uncharged: u32,
}

/// How a node joined; the sender is dropped if it does not join.
type Coming = Result<Joined, Fault>;

/// A request to the gate's task.
enum Ask {
    Await(NodeRank, oneshot::Sender<Coming>),
    Impostors(NodeRank, oneshot::Sender<Option<String>>),
    Begun(Epoch, u32),
    /// Close all connections; this is the last message to send.
    End(Control),
}

/// Handle of the task that accepts nodes.
pub struct Acceptor {
    asks: mpsc::UnboundedSender<Ask>,
    own_key: String,
}

impl Acceptor {
    /// Starts the task; `print` receives lines for the user. Must be called inside a runtime, whose
    /// `tasks` end some time after [`Acceptor::close`].
    pub fn open(
        bound: BoundListener,
        rules: Rules,
        print: impl Fn(String) + Send + Sync + 'static,
        tasks: &mut Tasks,
    ) -> io::Result<Self> {
        let (sender, requests) = mpsc::unbounded_channel();
        let (ended_sender, ended) = mpsc::unbounded_channel();
        let key_label = format!("fingerprint {} ({})", rules.key.fingerprint(), rules.key_file);
        let service = Service {
            listener: TcpListener::from_std(bound.listener)?,
            seats: rules.hosts.iter().map(|_| Seat::default()).collect(),
            rules: Arc::new(rules),
            handshakes: JoinSet::new(),
            callers: HashMap::new(),
            pumps: Tasks::default(),
            tell_ended: ended_sender,
            ended,
            asked: requests,
            strangers: AuthFailures::default(),
            say: Box::new(print),
            rest_until: None,
        };
        tasks.spawn(service.run());
        Ok(Self { asks: sender, own_key: key_label })
    }

    /// Waits until the node has joined, or returns why it cannot take part. A node that has joined
    /// already is requested to join again. `None`: the gate is closed.
    pub async fn wait_for(&self, node: NodeRank) -> Option<Result<Joined, Fault>> {
        let (sender, receiver) = oneshot::channel();
        let _ = self.asks.send(Ask::Await(node, sender));
        receiver.await.ok()
    }

    /// Description of the connections that claimed to be this node with another key; `None` if
    /// there were none.
    pub async fn impostors(&self, node: NodeRank) -> Option<String> {
        let (sender, receiver) = oneshot::channel();
        let _ = self.asks.send(Ask::Impostors(node, sender));
        receiver.await.ok().flatten()
    }

    /// Fingerprint of node 0's key, and the file from which the key was read.
    pub fn own_key(&self) -> &str {
        &self.own_key
    }

    /// Informs every node that the workers of an epoch are about to start, and how many earlier
    /// epochs followed an epoch that did not fail.
    pub fn begun(&self, epoch: Epoch, uncharged: u32) {
        let _ = self.asks.send(Ask::Begun(epoch, uncharged));
    }

    /// Sends every joined node the result of the job; the task ends once they have received it.
    pub fn close(&self, over: JobOver) {
        let _ = self.asks.send(Ask::End(Control::Over(over.clipped())));
    }

    /// Informs every node that another node 0 will continue the job; the task ends as after
    /// [`Acceptor::close`].
    pub fn leave(&self) {
        let _ = self.asks.send(Ask::End(Control::Leaving));
    }
}

/// The slot of a node.
#[derive(Default)]
struct Seat {
    /// The request that waits for the node.
    awaited: Option<oneshot::Sender<Coming>>,
    /// Sender to the connection that has the slot, and the peer's address.
    taken: Option<(mpsc::UnboundedSender<Control>, SocketAddr)>,
    /// Number of connections that had the slot; events of earlier connections are ignored.
    times: u64,
    /// Connections that claimed to be this node with another key.
    impostors: WrongKeys,
}

struct Service {
    listener: TcpListener,
    /// Shared with the handshakes.
    rules: Arc<Rules>,
    seats: Vec<Seat>,
    handshakes: JoinSet<Result<Joiner, Turned>>,
    callers: HashMap<Id, (Instant, SocketAddr, AbortHandle)>,
    pumps: Tasks,
    /// Reports the slots whose connection has ended.
    tell_ended: mpsc::UnboundedSender<(NodeRank, u64)>,
    ended: mpsc::UnboundedReceiver<(NodeRank, u64)>,
    asked: mpsc::UnboundedReceiver<Ask>,
    strangers: AuthFailures,
    say: Box<dyn Fn(String) + Send + Sync>,
    rest_until: Option<Instant>,
}

/// Events of the task.
enum Happening {
    Called(io::Result<(TcpStream, SocketAddr)>),
    Shook(Result<(Id, Result<Joiner, Turned>), JoinError>),
    Asked(Option<Ask>),
    Ended(NodeRank, u64),
    Late,
    Rested,
}

impl Service {
    async fn run(mut self) {
        loop {
            match self.next().await {
                Happening::Called(Ok((stream, peer))) => self.called(stream, peer),
                Happening::Called(Err(_)) => self.rest_until = Some(clock::now() + REST),
                Happening::Shook(Ok((id, result))) => self.shook(id, result),
                Happening::Shook(Err(error)) => self.gave_up(error),
                Happening::Asked(Some(Ask::Await(node, reply))) => self.await_node(node, reply),
                Happening::Asked(Some(Ask::Impostors(node, reply))) => {
                    let _ = reply.send(self.seats[node.index()].impostors.words());
                }
                Happening::Asked(Some(Ask::Begun(epoch, uncharged))) => {
                    for (sender, _) in self.seats.iter().filter_map(|slot| slot.taken.as_ref()) {
                        let _ = sender.send(Control::Begun(epoch, uncharged));
                    }
                }
                Happening::Asked(Some(Ask::End(last))) => return self.finish(last).await,
                Happening::Asked(None) => return,
                Happening::Ended(node, times) => self.ended(node, times),
                Happening::Late => self.drop_late(),
                Happening::Rested => self.rest_until = None,
            }
        }
    }

    /// Frees the slot for the same node or for its replacement: the connection that has it is no
    /// longer used.
    fn await_node(&mut self, node: NodeRank, waiter: oneshot::Sender<Coming>) {
        let slot = &mut self.seats[node.index()];
        slot.awaited = Some(waiter);
        if let Some((sender, _)) = slot.taken.take() {
            let _ = sender.send(Control::Again);
        }
    }

    async fn next(&mut self) -> Happening {
        let has_room = self.handshakes.len() < HANDSHAKES_MAX;
        let late = self.oldest().map(|since| since + self.patience());
        tokio::select! {
            biased;
            request = self.asked.recv() => Happening::Asked(request),
            Some((node, times)) = self.ended.recv() => Happening::Ended(node, times),
            Some(result) = self.handshakes.join_next_with_id() => Happening::Shook(result),
            () = sleep_until(late) => Happening::Late,
            () = sleep_until(self.rest_until) => Happening::Rested,
            never = self.pumps.watch() => match never {},
            accepted = self.listener.accept(), if has_room && self.rest_until.is_none() => {
                Happening::Called(accepted)
            }
        }
    }

    fn oldest(&self) -> Option<Instant> {
        self.callers.values().map(|(since, ..)| *since).min()
    }

    /// The time limit of a handshake, which is shorter when many run.
    fn patience(&self) -> Duration {
        if self.handshakes.len() < HANDSHAKES_MAX { HANDSHAKE_MAX } else { HANDSHAKE_CROWDED }
    }

    fn called(&mut self, stream: TcpStream, peer: SocketAddr) {
        let rules = Arc::clone(&self.rules);
        let task = async move { receive(stream, peer, &rules).await };
        let handle = self.handshakes.spawn(task);
        self.callers.insert(handle.id(), (clock::now(), peer, handle));
    }

    fn drop_late(&mut self) {
        let (now, timeout) = (clock::now(), self.patience());
        let late = self.callers.values().filter(|(since, ..)| *since + timeout <= now);
        late.for_each(|(.., handle)| handle.abort());
    }

    fn shook(&mut self, id: Id, result: Result<Joiner, Turned>) {
        let caller = self.callers.remove(&id);
        match result {
            Ok(joiner) => self.seat(joiner),
            Err(Turned::Told(unfit)) => self.turn_away(unfit),
            Err(why) => {
                let peer = caller.map(|(_, peer, _)| peer);
                if let (Turned::OtherKey(node, _), Some(peer)) = (&why, peer) {
                    self.seats[node.index()].impostors.came(peer.ip().to_canonical());
                }
                self.tell_stranger(peer, &why);
            }
        }
    }

    /// Reports a node that has the key and cannot take part: its own fault is shown in full,
    /// because a wait for a replacement would not help.
    fn turn_away(&mut self, unfit: Unfit) {
        let Unfit { node, why, fault } = unfit;
        let slot = &mut self.seats[node.index()];
        let Some(fault) = fault.filter(|_| slot.awaited.is_some()) else {
            return (self.say)(format!("warning: {why}"));
        };
        if let Some(waiter) = slot.awaited.take() {
            let _ = waiter.send(Err(fault));
        }
    }

    /// Handles a handshake that was too slow, or that panicked because of a bug.
    fn gave_up(&mut self, error: JoinError) {
        let caller = self.callers.remove(&error.id());
        if let Ok(panic) = error.try_into_panic() {
            std::panic::resume_unwind(panic);
        }
        let why = "the handshake timed out";
        self.tell_stranger(caller.map(|(_, peer, _)| peer), &why);
    }

    fn tell_stranger(&mut self, peer: Option<SocketAddr>, why: &dyn std::fmt::Display) {
        let Some(peer) = peer else { return };
        if let Some(line) = self.strangers.refused(clock::now(), peer.ip().to_canonical(), why) {
            (self.say)(line);
        }
    }

    /// Gives a node with the key and the plan its slot, if the slot is free and requested.
    fn seat(&mut self, joiner: Joiner) {
        let node = joiner.node;
        let slot = &mut self.seats[node.index()];
        let host = &self.rules.hosts[node.index()];
        if let Some((_, peer)) = &slot.taken {
            let peer = peer.ip().to_canonical();
            let text = format!("node {node} ({host}) has already joined, from {peer}\n");
            return self.refuse(joiner, JoinRefusal { may_pass: true, ..refusal(text) });
        }
        let Some(waiter) = slot.awaited.take().filter(|waiter| !waiter.is_closed()) else {
            let text = format!("node {node} ({host}) is no longer expected\n");
            return self.refuse(joiner, JoinRefusal { may_pass: true, ..refusal(text) });
        };
        if let Err(error) = self.connect(joiner, waiter) {
            (self.say)(format!("warning: cannot set up the link to node {node}: {error}\n"));
        }
    }

    fn refuse(&mut self, joiner: Joiner, refusal: JoinRefusal) {
        let Joiner { mouth: mut writer, .. } = joiner;
        self.pumps.spawn(async move {
            let sent = async {
                let _ = writer.say(&Control::Refused(refusal)).await;
                writer.end().await;
            };
            let _ = tokio::time::timeout(HANDSHAKE_MAX, sent).await;
        });
    }

    fn connect(&mut self, joiner: Joiner, waiter: oneshot::Sender<Coming>) -> io::Result<()> {
        let Joiner { node, peer, fresh, uncharged, mouth: mut writer, ear: reader } = joiner;
        let (near, far) = fds::stream_pair()?;
        let local =
            Local { reader: LinkReader::new(far.try_clone()?)?, writer: LinkWriter::new(far)? };
        let (exit_sender, exit) = oneshot::channel();
        let (signal_sender, signals) = mpsc::unbounded_channel();
        let link = Link {
            reader: LinkReader::new(near.try_clone()?)?,
            writer: LinkWriter::new(near)?,
            agent: AgentProcess::Dialled(exit),
            early: Vec::new(),
            arrival: Arrival::default(),
        };
        let (control_sender, controls) = mpsc::unbounded_channel();
        let slot = &mut self.seats[node.index()];
        slot.times += 1;
        slot.taken = Some((control_sender.clone(), peer));
        let (times, ended) = (slot.times, self.tell_ended.clone());
        let handlers = Hearing {
            words: control_sender,
            signalled: signal_sender,
            ended: Mutex::new(Some(exit_sender)),
        };
        self.pumps.spawn(async move {
            if writer.say(&Control::Joined).await.is_ok() {
                serve(local, (writer, reader), controls, handlers).await;
            }
            let _ = ended.send((node, times));
        });
        let _ = waiter.send(Ok(Joined { link, signals, peer, fresh, uncharged }));
        Ok(())
    }

    fn ended(&mut self, node: NodeRank, times: u64) {
        let slot = &mut self.seats[node.index()];
        if slot.times == times {
            slot.taken = None;
        }
    }

    /// Sends the last message to every node, and waits until the nodes have closed their
    /// connections.
    async fn finish(mut self, last: Control) {
        for (sender, _) in self.seats.iter_mut().filter_map(|slot| slot.taken.take()) {
            let _ = sender.send(last.clone());
        }
        drop(self.listener);
        self.handshakes.abort_all();
        self.pumps.finish().await;
    }
}

fn refusal(text: String) -> JoinRefusal {
    JoinRefusal { status: Status::Config.code(), text, may_pass: false }
}

/// Handlers of the control messages that a node sends beside its link.
struct Hearing {
    words: mpsc::UnboundedSender<Control>,
    signalled: mpsc::UnboundedSender<i32>,
    /// Taken by the first message about the agent's exit.
    ended: Mutex<Option<oneshot::Sender<Option<WorkerExit>>>>,
}

async fn serve(
    local: Local,
    connection: (SecureWriter, SecureReader),
    controls: mpsc::UnboundedReceiver<Control>,
    handlers: Hearing,
) {
    let Hearing { words: control_sender, signalled: signal_sender, ended: exit_sender } = handlers;
    // Messages that are sent after the connection was closed are dropped.
    let control_sender = control_sender.downgrade();
    let on_event = |event| match event {
        Pumped::LocalEnded => {
            if let Some(sender) = control_sender.upgrade() {
                let _ = sender.send(Control::LinkEnded);
            }
        }
        Pumped::Word(Control::Signal(signal)) => drop(signal_sender.send(signal)),
        Pumped::Word(Control::AgentEnded(exit)) => {
            let sender = exit_sender.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(sender) = sender {
                let _ = sender.send(exit);
            }
        }
        // Nodes send no other messages to node 0 after the join.
        Pumped::Word(_) => {}
    };
    pump(local, connection, controls, on_event).await;
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
