//! Messages between ranks of different nodes, over TCP.
//!
//! Connections are made when they are first needed: the lower rank calls, the higher one accepts.
//! Who is who is proved by keys that the ranks published in the store; afterwards bytes are plain.
//! Between machines a connection has several streams: networks and clouds bound what one may carry.
//! A rank that waits for a connection accepts all ranks, and only lower ranks connect to higher ones, so
//! ranks cannot deadlock in a cycle.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::num::NonZero;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use serde::{Deserialize, Serialize};

use crate::base::{JobId, Rank, clock};
use crate::runtime::error::{Cause, Departure, Fingerprint};
use crate::runtime::group::InitOptions;
use crate::runtime::node::{LocalNode, Patience};
use crate::runtime::store::{Client, ClientError, WAITED_KEYS_MAX, gone_key};
use crate::runtime::traffic::{STREAMS_MAX, Streams, Traffic, is_temporary};
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
/// How long one question to the store may take while others wait.
pub(crate) const STORE_PATIENCE: Duration = Duration::from_secs(1);
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
    pub(crate) manner: Manner,
}

/// Settings of a rank for connections to other nodes. All ranks know all settings and choose the same.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Manner {
    /// Streams of a connection, at most.
    pub(crate) streams: u8,
    /// Whether rounds overlap.
    overlaps: bool,
}

impl Manner {
    /// What is not said depends on what lies between: networks and clouds bound what one stream may
    /// carry, and take time in which something else can be done; loopback does neither.
    fn of(options: &InitOptions, address: IpAddr) -> Self {
        let is_near = address.is_loopback();
        let streams = options.streams.map(NonZero::get);
        Self {
            streams: streams.unwrap_or(if is_near { 1 } else { 4 }),
            overlaps: options.overlap.unwrap_or(!is_near),
        }
    }
}

pub(crate) struct Net {
    job: JobId,
    rank: usize,
    /// Closed once the group is given up.
    door: Option<Door>,
    store: SharedStore,
    peers: Vec<PeerInfo>,
    /// All streams to every peer that there was something to say to.
    connections: BTreeMap<usize, Vec<TcpStream>>,
    /// Streams of calls that are not complete.
    called: BTreeMap<(usize, u8), TcpStream>,
    greetings: Vec<Greeting>,
    notices: Vec<String>,
}

/// A connection to the store that all groups of a rank share.
pub(crate) type SharedStore = Arc<Mutex<Client>>;

pub(crate) fn lock(store: &SharedStore) -> MutexGuard<'_, Client> {
    store.lock().unwrap_or_else(PoisonError::into_inner)
}

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

    pub(crate) fn info(&self, host: &str, manner: Manner) -> PeerInfo {
        let Self { key, address, .. } = self;
        PeerInfo { address: *address, key: key.public(), host: host.to_owned(), manner }
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
    /// Listens at the address from which the store was reached, publishes where and under which
    /// key, and learns the same of all others.
    pub(crate) fn join(
        job: JobId,
        rank: usize,
        world: usize,
        host: &str,
        options: &InitOptions,
        mut store: Client,
        deadline: Instant,
    ) -> Result<Self, ClientError> {
        let door = Door::open(store.local_address()?)?;
        let info = door.info(host, Manner::of(options, door.address.ip()));
        let value = postcard::to_allocvec(&info).expect("texts and numbers serialize");
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
        Self {
            job,
            rank,
            door: Some(door),
            store,
            peers,
            connections: BTreeMap::new(),
            called: BTreeMap::new(),
            greetings: Vec::new(),
            notices,
        }
    }

    /// A door for a part of the group.
    pub(crate) fn open_door(&self) -> Result<Door, ClientError> {
        let door =
            self.door.as_ref().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
        Door::open(door.address)
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

    pub(crate) fn shared_store(&self) -> SharedStore {
        self.store.clone()
    }

    pub(crate) fn store(&self) -> MutexGuard<'_, Client> {
        lock(&self.store)
    }

    pub(crate) fn peers(&self) -> &[PeerInfo] {
        &self.peers
    }

    /// How this rank talks, and its parts do.
    pub(crate) fn manner(&self) -> Manner {
        self.peers[self.rank].manner
    }

    /// Whether rounds overlap: all ranks want it.
    pub(crate) fn overlaps(&self) -> bool {
        self.peers.iter().all(|peer| peer.manner.overlaps)
    }

    /// Closes every connection and the listener, so that waiting peers notice it.
    pub(crate) fn close(&mut self) {
        self.connections.clear();
        self.called.clear();
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
        let mut traffic = Traffic::new();
        for Outgoing { fingerprint, peer, bytes } in outgoing {
            traffic.post_send(*fingerprint, *peer, *bytes, self);
        }
        for Incoming { fingerprint, peer, bytes } in incoming {
            traffic.post_recv(*fingerprint, *peer, &mut **bytes, self);
        }
        self.drive(&mut traffic, Traffic::is_idle, node, patience)
    }

    /// Moves what is under way until `is_over`.
    pub(crate) fn drive<S: AsRef<[u8]>, R: AsRef<[u8]> + AsMut<[u8]>>(
        &self,
        traffic: &mut Traffic<S, R>,
        is_over: impl Fn(&Traffic<S, R>) -> bool,
        node: &LocalNode,
        patience: Patience,
    ) -> Result<(), Cause> {
        let mut idle = Idle::new(patience);
        while !is_over(traffic) {
            let moved = traffic.pump(self, &node.roster)?;
            if idle.should_look_again(moved) {
                continue;
            }
            let timed_out = self.poll(traffic)?;
            idle.after_poll(timed_out, || node.check(patience, || traffic.waited_for()))?;
        }
        Ok(())
    }

    /// Sleeps until a stream is ready; whether none was.
    fn poll<S: AsRef<[u8]>, R: AsRef<[u8]> + AsMut<[u8]>>(
        &self,
        traffic: &Traffic<S, R>,
    ) -> Result<bool, Cause> {
        let mut fds = Vec::new();
        traffic.wanted(self, |stream, sends, takes| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::OUT, sends);
            flags.set(PollFlags::IN, takes);
            fds.push(PollFd::new(stream, flags));
        });
        poll(&mut fds)
    }

    /// Makes sure that there is a connection to a peer.
    pub(crate) fn connect(
        &mut self,
        peer: usize,
        node: &LocalNode,
        patience: Patience,
    ) -> Result<(), Cause> {
        if self.connections.contains_key(&peer) {
            return Ok(());
        }
        if peer < self.rank {
            return self.await_call(peer, node, patience);
        }
        let dial = |stream| self.dial(peer, stream, node, patience);
        let streams = (0..self.streams_to(peer)).map(dial).collect::<Result<_, _>>()?;
        self.connections.insert(peer, streams);
        Ok(())
    }

    /// As many as both sides want: the same on both.
    fn streams_to(&self, peer: usize) -> u8 {
        let wanted = [self.rank, peer].map(|rank| self.peers[rank].manner.streams);
        wanted[0].min(wanted[1]).clamp(1, STREAMS_MAX as u8)
    }

    fn dial(
        &self,
        peer: usize,
        stream: u8,
        node: &LocalNode,
        patience: Patience,
    ) -> Result<TcpStream, Cause> {
        let failed = backend("connect to a peer");
        let info = &self.peers[peer];
        let lost = || node.roster.lost(peer, Departure::Gone);
        let role = Role::Peer { from: Rank(self.rank as u32), to: Rank(peer as u32), stream };
        let preamble = Preamble { job: self.job.clone(), role };
        let mut stream = connect(peer, info.address, node, patience)?;
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
            // Whatever goes wrong concerns a peer that is not identified.
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
        let Role::Peer { from, to, stream: number } = flight.preamble.role else { return };
        let for_us = flight.preamble.job == self.job && to.index() == self.rank;
        let Some(info) = self.peers.get(from.index()).filter(|_| for_us) else { return };
        let Ok(door) = self.door() else { return };
        let Ok(accepted) = accept_peer(&flight, &door.key, info.key) else { return };
        let mut stream = greeting.stream;
        // A reply of some 50 bytes always fits an empty socket.
        if stream.write_all(&accepted.reply).is_ok() {
            self.called.insert((from.index(), number), stream);
            self.complete(from.index());
        }
    }

    /// Makes a connection of the streams of a peer that has called with all of them.
    fn complete(&mut self, peer: usize) {
        let streams = 0..self.streams_to(peer);
        if streams.clone().all(|stream| self.called.contains_key(&(peer, stream))) {
            let streams = streams.filter_map(|stream| self.called.remove(&(peer, stream)));
            let streams = streams.collect();
            self.connections.insert(peer, streams);
        }
    }
}

impl Streams for Net {
    fn streams(&self, peer: usize) -> &[TcpStream] {
        &self.connections[&peer]
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
