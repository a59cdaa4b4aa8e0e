//! Messages between ranks of different nodes, over TCP.
//!
//! Connections are made when they are first needed: the lower rank calls, the higher one accepts.
//! Who is who is proved by keys that the ranks published in the store; afterwards bytes are plain.
//! A rank that waits to be called accepts everybody, and calls go upwards only, so no circle of
//! ranks can wait for each other.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use serde::{Deserialize, Serialize};

use crate::base::{JobId, Rank, clock};
use crate::runtime::error::{Cause, Departure, Fingerprint};
use crate::runtime::node::{LocalNode, Patience, Roster, mismatch};
use crate::runtime::store::{Client, ClientError, WAITED_KEYS_MAX, gone_key};
use crate::secure::{
    FIRST_FLIGHT_BYTES_MAX, PeerKey, PeerPublicKey, Preamble, Role, accept_peer, dial_peer,
    parse_flight, parse_reply,
};

/// How often a wait looks up from its sockets.
const TICK: Duration = Duration::from_millis(50);
/// Ticks without a byte after which an alarm is believed: what a rank sent before it ended may still
/// be on its way.
const QUIET_TICKS: u32 = 4;
/// Where in the store the first rank of a job that gives up says so.
pub(crate) const ABORT_KEY: &str = "abort";
/// How long one question to the store may take while a peer is waited for.
const STORE_PATIENCE: Duration = Duration::from_secs(1);
/// How long one attempt to call a peer may take.
const ATTEMPT: Duration = Duration::from_secs(5);
/// Callers that have not shown a key.
const GREETINGS_MAX: usize = 64;
const GREETING_MAX: Duration = Duration::from_secs(5);

/// What a rank publishes about itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PeerInfo {
    pub(crate) address: SocketAddr,
    pub(crate) key: PeerPublicKey,
    pub(crate) host: String,
}

pub(crate) struct Net {
    job: JobId,
    rank: usize,
    /// Closed once the group is given up.
    door: Option<Door>,
    store: SharedStore,
    peers: Vec<PeerInfo>,
    connections: BTreeMap<usize, TcpStream>,
    greetings: Vec<Greeting>,
    notices: Vec<String>,
}

/// A connection to the store that all groups of a rank share.
pub(crate) type SharedStore = Arc<Mutex<Client>>;

/// Where a rank waits to be called, and what it shows there.
pub(crate) struct Door {
    listener: TcpListener,
    key: PeerKey,
    address: SocketAddr,
}

impl Door {
    fn open(mut address: SocketAddr) -> Result<Self, ClientError> {
        address.set_port(0);
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, key: PeerKey::generate()?, address })
    }

    pub(crate) fn info(&self, host: &str) -> PeerInfo {
        PeerInfo { address: self.address, key: self.key.public(), host: host.to_owned() }
    }
}

/// A caller that has not said all of its first message.
struct Greeting {
    stream: TcpStream,
    received: Vec<u8>,
    since: Instant,
}

/// A message to a peer.
pub(crate) struct Outgoing<'a> {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) peer: usize,
    pub(crate) bytes: &'a [u8],
}

/// A message of known length from a peer.
pub(crate) struct Incoming<'a> {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) peer: usize,
    pub(crate) bytes: &'a mut [u8],
}

fn backend(action: &str) -> impl Fn(&dyn std::fmt::Display) -> Cause {
    move |error| Cause::Backend(format!("cannot {action}: {error}"))
}

impl Net {
    /// Listens at this address, or at the one from which the store was reached, publishes where and under
    /// which key, and learns the same of all others.
    pub(crate) fn join(
        job: JobId,
        rank: usize,
        world: usize,
        (host, at): (&str, Option<IpAddr>),
        mut store: Client,
        deadline: Instant,
    ) -> Result<Self, ClientError> {
        let reached = store.local_address()?;
        let door = Door::open(at.map_or(reached, |at| SocketAddr::new(at, 0)))?;
        let value = postcard::to_allocvec(&door.info(host)).expect("texts and numbers serialize");
        store.set(&format!("peer/{rank}"), &value, deadline)?;
        let mut peers = Vec::with_capacity(world);
        for start in (0..world).step_by(WAITED_KEYS_MAX) {
            let end = world.min(start + WAITED_KEYS_MAX);
            let keys = (start..end).map(|rank| format!("peer/{rank}")).collect();
            for value in store.wait(keys, deadline)? {
                peers.push(postcard::from_bytes(&value).map_err(|_| ClientError::Nonsense)?);
            }
        }
        let store = Arc::new(Mutex::new(store));
        Ok(Self::new(job, rank, door, store, peers, vec![ABORT_KEY.to_owned()]))
    }

    fn new(
        job: JobId,
        rank: usize,
        door: Door,
        store: SharedStore,
        peers: Vec<PeerInfo>,
        notices: Vec<String>,
    ) -> Self {
        let (connections, greetings) = (BTreeMap::new(), Vec::new());
        Self { job, rank, door: Some(door), store, peers, connections, greetings, notices }
    }

    /// A door for a part of the group.
    pub(crate) fn open_door(&self) -> Result<Door, ClientError> {
        let address = self.door.as_ref().map(|door| door.address);
        Door::open(address.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?)
    }

    /// For a part of the group, with connections of its own.
    pub(crate) fn part(
        &self,
        rank: usize,
        door: Door,
        peers: Vec<PeerInfo>,
        notice: String,
    ) -> Self {
        let notices = std::iter::once(notice).chain(self.notices.iter().cloned()).collect();
        Self::new(self.job.clone(), rank, door, self.store.clone(), peers, notices)
    }

    pub(crate) fn store(&self) -> MutexGuard<'_, Client> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn peers(&self) -> &[PeerInfo] {
        &self.peers
    }

    /// Closes every connection and the door, so that whoever waits for us, or calls, learns it.
    pub(crate) fn close(&mut self) {
        self.connections.clear();
        self.greetings.clear();
        self.door = None;
    }

    fn door(&self) -> Result<&Door, Cause> {
        self.door.as_ref().ok_or_else(|| Cause::Backend("the group was given up".to_owned()))
    }

    /// Sends and receives at once, at most one message each way with every peer; a message of
    /// another operation is an error.
    pub(crate) fn exchange(
        &mut self,
        outgoing: &[Outgoing<'_>],
        incoming: &mut [Incoming<'_>],
        node: &LocalNode,
        patience: Patience,
    ) -> Result<(), Cause> {
        let peers = outgoing.iter().map(|m| m.peer).chain(incoming.iter().map(|m| m.peer));
        for peer in peers {
            self.connect(peer, node, patience)?;
        }
        let mut sends: Vec<_> = outgoing.iter().map(Sending::new).collect();
        let mut recvs: Vec<_> = incoming.iter_mut().map(Receiving::new).collect();
        let mut idle = Idle::new(patience);
        loop {
            let moved = self.pump(&mut sends, &mut recvs, &node.roster)?;
            sends.retain(|send| !send.is_done());
            recvs.retain(|recv| !recv.is_done());
            if sends.is_empty() && recvs.is_empty() {
                return Ok(());
            }
            if idle.should_look_again(moved) {
                continue;
            }
            let timed_out = self.poll(&sends, &recvs)?;
            idle.after_poll(timed_out, || node.check(patience, || waited_for(&sends, &recvs)))?;
        }
    }

    /// Moves bytes as far as sockets take and give them; whether any moved.
    fn pump(
        &self,
        sends: &mut [Sending<'_>],
        recvs: &mut [Receiving<'_>],
        roster: &Roster,
    ) -> Result<bool, Cause> {
        let mut moved = false;
        for send in sends {
            let pumped = send.pump(&self.connections[&send.peer]);
            moved |= pumped.map_err(|_| roster.lost(send.peer, Departure::Gone))?;
        }
        for recv in recvs {
            moved |= recv.pump(&self.connections[&recv.peer], roster)?;
        }
        Ok(moved)
    }

    /// Sleeps until a socket is ready; whether none was.
    fn poll(&self, sends: &[Sending<'_>], recvs: &[Receiving<'_>]) -> Result<bool, Cause> {
        let fd =
            |peer: &usize, flags| PollFd::from_borrowed_fd(self.connections[peer].as_fd(), flags);
        let mut fds: Vec<_> = sends.iter().map(|send| fd(&send.peer, PollFlags::OUT)).collect();
        fds.extend(recvs.iter().map(|recv| fd(&recv.peer, PollFlags::IN)));
        poll(&mut fds)
    }

    fn connect(&mut self, peer: usize, node: &LocalNode, patience: Patience) -> Result<(), Cause> {
        if self.connections.contains_key(&peer) {
            return Ok(());
        }
        let stream = if self.rank < peer {
            self.dial(peer, node, patience)?
        } else {
            return self.await_call(peer, node, patience);
        };
        self.connections.insert(peer, stream);
        Ok(())
    }

    fn dial(&self, peer: usize, node: &LocalNode, patience: Patience) -> Result<TcpStream, Cause> {
        let failed = backend("connect to a peer");
        let info = &self.peers[peer];
        let lost = || node.roster.lost(peer, Departure::Gone);
        let mut stream = connect(peer, info.address, node, patience)?;
        let role = Role::Peer { from: Rank(self.rank as u32), to: Rank(peer as u32) };
        let preamble = Preamble { job: self.job.clone(), role };
        let (dialed, flight) =
            dial_peer(&preamble, &self.door()?.key, info.key).map_err(|error| failed(&error))?;
        stream.write_all(&flight).and_then(|()| prepare(&stream)).map_err(|_| lost())?;
        let message = await_reply(&mut stream, peer, node, patience)?;
        dialed.finish(&message).map_err(|error| failed(&error))?;
        Ok(stream)
    }

    fn await_call(
        &mut self,
        peer: usize,
        node: &LocalNode,
        patience: Patience,
    ) -> Result<(), Cause> {
        let mut idle = Idle::new(patience);
        while !self.connections.contains_key(&peer) {
            let mut fds = vec![PollFd::new(&self.door()?.listener, PollFlags::IN)];
            let greetings = self.greetings.iter();
            fds.extend(greetings.map(|greeting| PollFd::new(&greeting.stream, PollFlags::IN)));
            let timed_out = poll(&mut fds)?;
            idle.after_poll(timed_out, || node.check(patience, || vec![peer]))?;
            if idle.is_time_to_ask() && self.is_pointless(node.roster.name(peer)) {
                return Err(node.roster.lost(peer, Departure::Gone));
            }
            self.accept();
            self.hear_greetings();
        }
        Ok(())
    }

    /// Whether a rank has left the store, or the group was given up. Without a connection to it
    /// nothing else would tell.
    fn is_pointless(&self, rank: Rank) -> bool {
        let gone = gone_key(rank);
        let keys = self.notices.iter().chain([&gone]);
        let deadline = clock::now() + STORE_PATIENCE;
        let mut store = self.store();
        keys.into_iter().any(|key| matches!(store.peek(key, deadline), Ok(Some(_))))
    }

    /// Where in the store those who give up say so: this group's key, then those of the groups of
    /// which it is a part.
    pub(crate) fn notices(&self) -> &[String] {
        &self.notices
    }

    fn accept(&mut self) {
        let now = clock::now();
        self.greetings.retain(|greeting| now < greeting.since + GREETING_MAX);
        while self.greetings.len() < GREETINGS_MAX {
            // Whatever goes wrong concerns a caller that nobody has identified.
            let Some(Ok((stream, _))) = self.door.as_ref().map(|door| door.listener.accept())
            else {
                return;
            };
            if prepare(&stream).is_ok() {
                self.greetings.push(Greeting { stream, received: Vec::new(), since: now });
            }
        }
    }

    fn hear_greetings(&mut self) {
        for mut greeting in std::mem::take(&mut self.greetings) {
            match greeting.hear() {
                Heard::Nothing => self.greetings.push(greeting),
                Heard::Whole => self.admit(greeting),
                Heard::End => {}
            }
        }
    }

    /// Checks the key of a caller; who has another one is closed without a word.
    fn admit(&mut self, greeting: Greeting) {
        let Ok(Some(flight)) = parse_flight(&greeting.received) else { return };
        let Role::Peer { from, to } = flight.preamble.role else { return };
        let for_us = flight.preamble.job == self.job && to.index() == self.rank;
        let Some(info) = self.peers.get(from.index()).filter(|_| for_us) else { return };
        let Ok(door) = self.door() else { return };
        let Ok(accepted) = accept_peer(&flight, &door.key, info.key) else { return };
        let mut stream = greeting.stream;
        // A reply of some 50 bytes always fits an empty socket.
        if stream.write_all(&accepted.reply).is_ok() {
            self.connections.insert(from.index(), stream);
        }
    }
}

/// Whose messages are missing; where none is, who does not take ours.
fn waited_for(sends: &[Sending<'_>], recvs: &[Receiving<'_>]) -> Vec<usize> {
    if recvs.is_empty() {
        sends.iter().map(|send| send.peer).collect()
    } else {
        recvs.iter().map(|recv| recv.peer).collect()
    }
}

/// Calls a peer. Attempts are short, so that who waits for a host that does not answer hears of an
/// alarm.
fn connect(
    peer: usize,
    address: SocketAddr,
    node: &LocalNode,
    patience: Patience,
) -> Result<TcpStream, Cause> {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, TimedOut};
    loop {
        let left = patience.deadline.saturating_duration_since(clock::now());
        let error = match TcpStream::connect_timeout(&address, left.clamp(TICK, ATTEMPT)) {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        match error.kind() {
            TimedOut => node.check(patience, || vec![peer])?,
            // Its listener lives as long as the rank; one that dies now resets who waits at it.
            ConnectionRefused | ConnectionReset | ConnectionAborted => {
                return Err(node.roster.lost(peer, Departure::Gone));
            }
            _ => return Err(backend("connect to a peer")(&error)),
        }
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)
}

fn poll(fds: &mut [PollFd<'_>]) -> Result<bool, Cause> {
    let tick = Timespec { tv_sec: 0, tv_nsec: i64::from(TICK.subsec_nanos()) };
    match rustix::event::poll(fds, Some(&tick)) {
        Ok(ready) => Ok(ready == 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(backend("poll sockets")(&error)),
    }
}

fn await_reply(
    stream: &mut TcpStream,
    peer: usize,
    node: &LocalNode,
    patience: Patience,
) -> Result<Vec<u8>, Cause> {
    let gone = || node.roster.lost(peer, Departure::Gone);
    let mut received = Vec::new();
    let mut idle = Idle::new(patience);
    loop {
        let reply = parse_reply(&received).map_err(|error| backend("greet a peer")(&error))?;
        if let Some((message, bytes)) = reply {
            // The peer says nothing more until it has heard from us.
            return if bytes == received.len() {
                Ok(message)
            } else {
                Err(Cause::Backend(format!("rank {peer} spoke out of turn")))
            };
        }
        // Not a byte more than the reply: what follows it belongs to the first message.
        let wanted = match received.first_chunk::<2>() {
            None => 2 - received.len(),
            Some(head) => 2 + usize::from(u16::from_le_bytes(*head)) - received.len(),
        };
        let mut bytes = vec![0; wanted];
        match stream.read(&mut bytes) {
            Ok(0) => return Err(gone()),
            Ok(count) => received.extend_from_slice(&bytes[..count]),
            Err(error) if is_temporary(&error) => {
                let timed_out = poll(&mut [PollFd::new(&*stream, PollFlags::IN)])?;
                idle.after_poll(timed_out, || node.check(patience, || vec![peer]))?;
            }
            Err(_) => return Err(gone()),
        }
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

enum Heard {
    Nothing,
    Whole,
    End,
}

impl Greeting {
    fn hear(&mut self) -> Heard {
        let mut bytes = [0; FIRST_FLIGHT_BYTES_MAX];
        let room = FIRST_FLIGHT_BYTES_MAX - self.received.len();
        match self.stream.read(&mut bytes[..room]) {
            Ok(0) => return Heard::End,
            Ok(count) => self.received.extend_from_slice(&bytes[..count]),
            Err(error) if is_temporary(&error) => return Heard::Nothing,
            Err(_) => return Heard::End,
        }
        match parse_flight(&self.received) {
            Ok(None) => Heard::Nothing,
            Ok(Some(flight)) if flight.bytes == self.received.len() => Heard::Whole,
            Ok(Some(_)) | Err(_) => Heard::End,
        }
    }
}

/// Decides between looking again at once and sleeping, and when to look for reasons to give up.
struct Idle {
    looks: u32,
    looks_max: u32,
    quiet_ticks: u32,
}

impl Idle {
    fn new(patience: Patience) -> Self {
        Self { looks: 0, looks_max: patience.spin.yields, quiet_ticks: 0 }
    }

    fn should_look_again(&mut self, moved: bool) -> bool {
        if moved {
            self.looks = 0;
            self.quiet_ticks = 0;
            return true;
        }
        self.looks += 1;
        if self.looks <= self.looks_max {
            std::thread::yield_now();
        }
        self.looks <= self.looks_max
    }

    /// Now and then while nothing happens.
    fn is_time_to_ask(&self) -> bool {
        0 < self.quiet_ticks && self.quiet_ticks.is_multiple_of(QUIET_TICKS)
    }

    fn after_poll(
        &mut self,
        timed_out: bool,
        check: impl FnOnce() -> Result<(), Cause>,
    ) -> Result<(), Cause> {
        if !timed_out {
            self.quiet_ticks = 0;
            return Ok(());
        }
        self.quiet_ticks += 1;
        match check() {
            Err(cause @ Cause::Deadline { .. }) => Err(cause),
            Err(cause) if QUIET_TICKS <= self.quiet_ticks => Err(cause),
            _ => Ok(()),
        }
    }
}

const HEADER_BYTES: usize = 40;
const HEADER_MAGIC: u64 = u64::from_le_bytes(*b"remudat1");

/// Every message begins with what it belongs to: magic, length, fingerprint.
fn show_header(fingerprint: Fingerprint, bytes: usize) -> [u8; HEADER_BYTES] {
    let [kinds, count, seq] = fingerprint.encode();
    let words = [HEADER_MAGIC, bytes as u64, kinds, count, seq].map(u64::to_le_bytes);
    let mut header = [0; HEADER_BYTES];
    header.as_chunks_mut::<8>().0.copy_from_slice(&words);
    header
}

struct Sending<'a> {
    peer: usize,
    header: [u8; HEADER_BYTES],
    bytes: &'a [u8],
    sent: usize,
}

impl<'a> Sending<'a> {
    fn new(message: &Outgoing<'a>) -> Self {
        let header = show_header(message.fingerprint, message.bytes.len());
        Self { peer: message.peer, header, bytes: message.bytes, sent: 0 }
    }

    fn is_done(&self) -> bool {
        self.sent == HEADER_BYTES + self.bytes.len()
    }

    fn pump(&mut self, mut stream: &TcpStream) -> io::Result<bool> {
        let before = self.sent;
        while !self.is_done() {
            let header = &self.header[self.sent.min(HEADER_BYTES)..];
            let bytes = &self.bytes[self.sent.saturating_sub(HEADER_BYTES)..];
            match stream.write_vectored(&[IoSlice::new(header), IoSlice::new(bytes)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if is_temporary(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(before < self.sent)
    }
}

struct Receiving<'a> {
    peer: usize,
    fingerprint: Fingerprint,
    header: [u8; HEADER_BYTES],
    bytes: &'a mut [u8],
    received: usize,
}

impl<'a> Receiving<'a> {
    fn new(message: &'a mut Incoming<'_>) -> Self {
        let Incoming { fingerprint, peer, bytes } = message;
        let header = [0; HEADER_BYTES];
        Self { peer: *peer, fingerprint: *fingerprint, header, bytes, received: 0 }
    }

    fn is_done(&self) -> bool {
        self.received == HEADER_BYTES + self.bytes.len()
    }

    fn pump(&mut self, mut stream: &TcpStream, roster: &Roster) -> Result<bool, Cause> {
        let gone = |peer| roster.lost(peer, Departure::Gone);
        let before = self.received;
        while !self.is_done() {
            let target = match self.received.checked_sub(HEADER_BYTES) {
                None => &mut self.header[self.received..],
                Some(at) => &mut self.bytes[at..],
            };
            match stream.read(target) {
                Ok(0) => return Err(gone(self.peer)),
                Ok(count) => self.received += count,
                Err(error) if is_temporary(&error) => break,
                Err(_) => return Err(gone(self.peer)),
            }
            if self.received == HEADER_BYTES {
                self.check_header(roster)?;
            }
        }
        Ok(before < self.received)
    }

    fn check_header(&self, roster: &Roster) -> Result<(), Cause> {
        let ours = show_header(self.fingerprint, self.bytes.len());
        if self.header == ours {
            return Ok(());
        }
        let mut words = [0; 5];
        for (word, bytes) in words.iter_mut().zip(self.header.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Err(mismatch(self.fingerprint, roster.name(self.peer), [words[2], words[3], words[4]]))
    }
}
