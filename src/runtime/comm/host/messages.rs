//! Messages in flight: started sends and receives make progress together, in any order between peers.
//!
//! The communication thread runs a batch of them until all are complete, and takes in those that are started
//! meanwhile. So ranks that start a send and then a receive cannot wait for each other in a cycle. Messages
//! to one peer stay in the order of their start, as do those from one peer. Within the node data moves as
//! described in [`mailbox`](super::mailbox); its counters are polled here, because several messages cannot wait
//! on one flag.

use std::collections::VecDeque;
use std::mem;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::base::{clock, lock};
use crate::runtime::comm::core::deadline::Deadline;
use crate::runtime::comm::core::error::{Cause, CollectiveError};
use crate::runtime::comm::core::ffi_memory::RawSlice;
use crate::runtime::comm::core::operation::{Operation, OperationCall};
use crate::runtime::comm::core::pending::Outcome;
use crate::runtime::comm::core::roster::RankRoster;
use crate::runtime::comm::core::spin::Spin;
use crate::runtime::comm::core::traffic::TrafficCounters;
use crate::runtime::comm::host::backend::HostBackend;
use crate::runtime::comm::host::mailbox::{LocalMessage, message_fingerprint};
use crate::runtime::comm::tcp::striping::Transfers;

/// Time between two checks of the deadlines while messages move.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Send,
    Recv,
}

/// A message that was started.
pub(crate) struct StartedMessage {
    pub(crate) direction: Direction,
    /// Rank in the group.
    pub(crate) peer: usize,
    pub(crate) memory: RawSlice,
    pub(crate) since: Instant,
    pub(crate) completion: Arc<Completion>,
}

/// Completion of the messages of one call.
pub(crate) struct Completion {
    call: MessageCall,
    traffic: Arc<TrafficCounters>,
    /// Number of messages that are not complete.
    left: Mutex<usize>,
    /// Has space for one outcome: the first one counts.
    outcome: SyncSender<Outcome>,
}

/// A call that has started messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageCall {
    pub(crate) op: Operation,
    pub(crate) messages: usize,
    /// Bytes of all messages.
    pub(crate) bytes: u64,
    /// Bytes of the messages from other ranks.
    pub(crate) received: u64,
}

impl Completion {
    /// Completion of a call, and the receiver of its outcome.
    pub(crate) fn new(
        call: MessageCall,
        traffic: &Arc<TrafficCounters>,
    ) -> (Arc<Self>, Receiver<Outcome>) {
        let (outcome, receiver) = mpsc::sync_channel(1);
        let left = Mutex::new(call.messages);
        let completion = Self { call, traffic: traffic.clone(), left, outcome };
        if call.messages == 0 {
            completion.succeed();
        }
        (Arc::new(completion), receiver)
    }

    fn succeed(&self) {
        self.traffic.record(self.call.op, self.call.received);
        // Sending fails if the owner has dropped the handle, or the call has failed before.
        let _ = self.outcome.try_send(Ok(()));
    }

    fn complete_one(&self) {
        let mut left = lock(&self.left);
        *left -= 1;
        if *left == 0 {
            self.succeed();
        }
    }

    fn fail(&self, error: &CollectiveError) {
        let error = CollectiveError { op: self.call.op, bytes: self.call.bytes, ..error.clone() };
        let _ = self.outcome.try_send(Err(error));
    }
}

/// Messages for one run of the communication thread, which takes in more while it runs.
pub(crate) struct MessageBatch {
    posted: Mutex<PostedMessages>,
}

struct PostedMessages {
    messages: Vec<StartedMessage>,
    /// Whether the run has ended.
    is_closed: bool,
}

impl MessageBatch {
    pub(crate) fn new(messages: Vec<StartedMessage>) -> Self {
        Self { posted: Mutex::new(PostedMessages { messages, is_closed: false }) }
    }

    /// Adds messages; returns them if the run has ended.
    pub(crate) fn post(&self, messages: Vec<StartedMessage>) -> Result<(), Vec<StartedMessage>> {
        let mut posted = lock(&self.posted);
        if posted.is_closed {
            return Err(messages);
        }
        posted.messages.extend(messages);
        Ok(())
    }

    /// Takes the messages that were added; if there are none and `may_end`, ends the run.
    fn take(&self, may_end: bool) -> Option<Vec<StartedMessage>> {
        let mut posted = lock(&self.posted);
        if may_end && posted.messages.is_empty() {
            posted.is_closed = true;
            return None;
        }
        Some(mem::take(&mut posted.messages))
    }

    /// Ends the run after a failure; returns the messages that were added last.
    fn close(&self) -> Vec<StartedMessage> {
        let mut posted = lock(&self.posted);
        posted.is_closed = true;
        mem::take(&mut posted.messages)
    }
}

/// A message in flight.
struct InFlight {
    number: u64,
    message: StartedMessage,
    progress: Progress,
}

/// Progress of a message.
enum Progress {
    /// It waits for an earlier message of the peer, or for a connection.
    Waiting,
    /// To or from a rank of this node.
    Local(LocalMessage),
    /// To or from a rank of another node.
    Remote,
    Complete,
}

/// Memory of a message to or from another node.
struct RemoteMemory {
    number: u64,
    memory: RawSlice,
}

impl AsRef<[u8]> for RemoteMemory {
    fn as_ref(&self) -> &[u8] {
        self.memory.as_bytes()
    }
}

impl AsMut<[u8]> for RemoteMemory {
    fn as_mut(&mut self) -> &mut [u8] {
        self.memory.as_bytes_mut()
    }
}

/// All messages of a run.
struct Flight {
    messages: VecDeque<InFlight>,
    transfers: Transfers<RemoteMemory, RemoteMemory>,
    started: u64,
}

impl Flight {
    fn take_in(&mut self, messages: Vec<StartedMessage>) {
        for message in messages {
            self.started += 1;
            let progress = Progress::Waiting;
            self.messages.push_back(InFlight { number: self.started, message, progress });
        }
    }

    /// Marks a message to or from another node as complete.
    fn complete_remote(&mut self, number: u64) {
        let found = self.messages.iter_mut().find(|in_flight| in_flight.number == number);
        found.expect("a message in transit is in flight").progress = Progress::Complete;
    }

    /// Removes complete messages.
    fn remove_complete(&mut self) {
        self.messages.retain(|in_flight| {
            let is_complete = matches!(in_flight.progress, Progress::Complete);
            if is_complete {
                in_flight.message.completion.complete_one();
            }
            !is_complete
        });
    }

    /// Whether an earlier message has the same direction and peer.
    fn is_first(&self, at: usize) -> bool {
        let StartedMessage { direction, peer, .. } = self.messages[at].message;
        let mut earlier = self.messages.iter().take(at).map(|in_flight| &in_flight.message);
        !earlier.any(|other| other.direction == direction && other.peer == peer)
    }

    /// The operation that a failure has ended: that of the oldest message to or from the rank at fault.
    fn operation_of(&self, cause: &Cause, roster: &RankRoster) -> Operation {
        let at_fault = |message: &StartedMessage| {
            let peer = roster.job_rank(message.peer);
            match cause {
                // A message is compared by its receiver.
                Cause::Mismatch { own_call, peer: other, .. } => {
                    *other == peer
                        && (own_call.op == Operation::Recv)
                            == (message.direction == Direction::Recv)
                }
                Cause::PeerLost { rank, .. } => *rank == peer,
                Cause::Deadline { waiting_for, .. } => waiting_for.contains(&peer),
                _ => true,
            }
        };
        let messages = self.messages.iter().map(|in_flight| &in_flight.message);
        let found = messages.clone().find(|message| at_fault(message)).or(messages.clone().next());
        found.map_or(Operation::Exchange, |message| message.completion.call.op)
    }

    fn peers(&self) -> Vec<usize> {
        let mut peers: Vec<_> = self.messages.iter().map(|other| other.message.peer).collect();
        peers.sort_unstable();
        peers.dedup();
        peers
    }
}

impl HostBackend {
    /// Runs a batch of messages until none is left. A failure ends all of them.
    pub(crate) fn run_messages(&mut self, batch: &MessageBatch) {
        let mut flight =
            Flight { messages: VecDeque::new(), transfers: Transfers::new(), started: 0 };
        let call = OperationCall::new(Operation::Exchange, 0);
        // Each call of the batch is counted when its messages are complete.
        let outcome = self.run_several(call, 1, |backend, deadline| {
            let moved = backend.move_messages(batch, &mut flight, deadline);
            moved.map_err(|cause| (flight.operation_of(&cause, &backend.roster), cause))
        });
        if let Err(error) = outcome {
            let in_flight = flight.messages.drain(..).map(|in_flight| in_flight.message);
            for message in in_flight.chain(batch.close()) {
                message.completion.fail(&error);
            }
        }
    }

    /// Moves the messages of a batch until none is left.
    fn move_messages(
        &mut self,
        batch: &MessageBatch,
        flight: &mut Flight,
        deadline: Deadline,
    ) -> Result<(), Cause> {
        let limit = deadline.until.saturating_duration_since(deadline.since);
        let (mut pauses, mut checked_at) = (0, clock::now());
        while let Some(messages) = batch.take(flight.messages.is_empty()) {
            flight.take_in(messages);
            let has_moved = self.advance_messages(flight)?;
            flight.remove_complete();
            if has_moved {
                pauses = 0;
                // Another message may not move meanwhile.
                if CHECK_INTERVAL < clock::now().saturating_duration_since(checked_at) {
                    self.check_messages(flight, limit)?;
                    checked_at = clock::now();
                }
            } else {
                self.pause_messages(flight, pauses, limit)?;
                pauses += 1;
            }
        }
        Ok(())
    }

    /// Advances every message as far as possible; returns whether any has advanced.
    fn advance_messages(&mut self, flight: &mut Flight) -> Result<bool, Cause> {
        let mut has_moved = false;
        for at in 0..flight.messages.len() {
            if matches!(flight.messages[at].progress, Progress::Waiting) && flight.is_first(at) {
                has_moved |= self.begin_message(flight, at)?;
            }
            let InFlight { message, progress, .. } = &mut flight.messages[at];
            if let Progress::Local(local) = progress {
                has_moved |= match message.direction {
                    Direction::Send => self.advance_send(&message.memory, local),
                    Direction::Recv => self.advance_recv(&mut message.memory, local)?,
                };
                if self.is_local_complete(message.direction, local) {
                    *progress = Progress::Complete;
                }
            }
        }
        if let Some(inter_node) = &self.inter_node {
            has_moved |= flight.transfers.pump(inter_node.net(), &self.roster)?;
            let sent: Vec<_> = flight.transfers.take_sent().collect();
            let received: Vec<_> = flight.transfers.take_received().collect();
            for RemoteMemory { number, .. } in sent.into_iter().chain(received) {
                flight.complete_remote(number);
            }
        }
        Ok(has_moved)
    }

    /// Begins a message, unless it waits for a connection or for its other half on this rank.
    fn begin_message(&mut self, flight: &mut Flight, at: usize) -> Result<bool, Cause> {
        let peer = flight.messages[at].message.peer;
        if peer == self.roster.rank {
            return copy_to_self(flight, at);
        }
        if self.is_local(peer) {
            let StartedMessage { direction, memory, .. } = &flight.messages[at].message;
            let (op, dtype) = (Operation::Send, memory.dtype());
            let local = match direction {
                Direction::Send => self.begin_local_send(op, peer, dtype, memory.as_bytes()),
                Direction::Recv => self.begin_local_recv(op, peer, dtype, memory.count()),
            };
            flight.messages[at].progress = Progress::Local(local);
            return Ok(true);
        }
        self.begin_remote(flight, at)
    }

    /// Posts a message to or from another node, as soon as there is a connection.
    fn begin_remote(&mut self, flight: &mut Flight, at: usize) -> Result<bool, Cause> {
        let InFlight { number, message, progress } = &mut flight.messages[at];
        let Self { inter_node, node, sent, received, .. } = self;
        let inter_node = inter_node.as_mut().expect("a rank of another node has a connection");
        if !inter_node.advance_connect(message.peer, node)? {
            return Ok(false);
        }
        let counters = match message.direction {
            Direction::Send => sent,
            Direction::Recv => received,
        };
        let before = counters[message.peer];
        counters[message.peer] = before.wrapping_add(1);
        let (dtype, count) = (message.memory.dtype(), message.memory.count());
        let fingerprint = message_fingerprint(Operation::Send, dtype, count, before);
        let memory = RemoteMemory { number: *number, memory: message.memory.alias() };
        let net = inter_node.net();
        match message.direction {
            Direction::Send => flight.transfers.post_send(fingerprint, message.peer, memory, net),
            Direction::Recv => flight.transfers.post_recv(fingerprint, message.peer, memory, net),
        }
        *progress = Progress::Remote;
        Ok(true)
    }

    /// Posts all chunks whose half of the share is free.
    fn advance_send(&self, memory: &RawSlice, local: &mut LocalMessage) -> bool {
        let mut has_moved = false;
        let received = &self.mailbox_to(local.peer).received;
        while !local.is_done() && received.has_reached(local.free_at()) {
            self.post_chunk(local, memory.as_bytes());
            has_moved = true;
        }
        has_moved
    }

    /// Receives all chunks that are posted.
    fn advance_recv(
        &mut self,
        memory: &mut RawSlice,
        local: &mut LocalMessage,
    ) -> Result<bool, Cause> {
        let mut has_moved = false;
        while !local.is_done()
            && self.mailbox_from(local.peer).posted.has_reached(local.posted_at())
        {
            if !local.is_announced() {
                self.read_announcement(local)?;
            }
            self.receive_chunk(local, memory.as_bytes_mut())?;
            has_moved = true;
        }
        Ok(has_moved)
    }

    /// Whether a message within the node is complete: its receiver has read all chunks.
    fn is_local_complete(&self, direction: Direction, local: &LocalMessage) -> bool {
        let is_read = || match direction {
            Direction::Send => {
                self.mailbox_to(local.peer).received.has_reached(local.complete_at())
            }
            Direction::Recv => true,
        };
        local.is_done() && is_read()
    }

    /// Waits a moment; fails if a peer is lost, the group was aborted or a deadline has passed.
    fn pause_messages(&self, flight: &Flight, pauses: u32, limit: Duration) -> Result<(), Cause> {
        const SPINS: u32 = 200;
        const YIELDS: u32 = 400;
        const SLEEP: Duration = Duration::from_micros(50);
        const SLEEP_LONG: Duration = Duration::from_micros(500);
        const LONG_AFTER: u32 = 2000;
        match pauses {
            ..SPINS => std::hint::spin_loop(),
            SPINS..YIELDS => std::thread::yield_now(),
            YIELDS..LONG_AFTER => std::thread::sleep(SLEEP),
            LONG_AFTER.. => std::thread::sleep(SLEEP_LONG),
        }
        if YIELDS <= pauses { self.check_messages(flight, limit) } else { Ok(()) }
    }

    /// Fails if a peer is lost, the group was aborted or a deadline has passed.
    fn check_messages(&self, flight: &Flight, limit: Duration) -> Result<(), Cause> {
        match flight.messages.front() {
            // The first is the oldest, so its deadline is the first to pass.
            Some(first) => self.node.check(deadline_of(&first.message, limit), || flight.peers()),
            None => Ok(()),
        }
    }
}

/// Copies a message of this rank to itself, once both halves are started.
fn copy_to_self(flight: &mut Flight, at: usize) -> Result<bool, Cause> {
    let StartedMessage { direction, peer, .. } = flight.messages[at].message;
    let is_other_half = |other: &InFlight| {
        other.message.peer == peer
            && other.message.direction != direction
            && matches!(other.progress, Progress::Waiting)
    };
    let Some(other) = flight.messages.iter().position(is_other_half) else { return Ok(false) };
    let (send, recv) = if direction == Direction::Send { (at, other) } else { (other, at) };
    let source = flight.messages[send].message.memory.alias();
    let target = &mut flight.messages[recv].message.memory;
    if (source.dtype(), source.count()) != (target.dtype(), target.count()) {
        let problem = format!(
            "this rank sends {} × {} to itself, but receives {} × {}",
            source.count(),
            source.dtype(),
            target.count(),
            target.dtype()
        );
        return Err(Cause::Argument(problem));
    }
    target.as_bytes_mut().copy_from_slice(source.as_bytes());
    flight.messages[send].progress = Progress::Complete;
    flight.messages[recv].progress = Progress::Complete;
    Ok(true)
}

/// Deadline of a message.
fn deadline_of(message: &StartedMessage, limit: Duration) -> Deadline {
    let since = message.since;
    Deadline { since, until: clock::after(since, limit), spin: Spin::BRIEF }
}
