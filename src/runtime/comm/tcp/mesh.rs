//! TCP mesh of the ranks of different nodes.
//!
//! Connections are made when they are first needed: the lower rank connects, the higher one accepts.
//! Ranks authenticate with keys that they published in the store; after that, data is not encrypted.
//! Between machines a connection has several streams, because networks limit the speed of one stream.
//! A rank that waits for a connection accepts all ranks, and only lower ranks connect to higher ones, so
//! ranks cannot deadlock in a cycle.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::num::NonZero;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use serde::{Deserialize, Serialize};

use crate::base::{JobId, Rank, clock, lock};
use crate::runtime::comm::core::deadline::Deadline;
use crate::runtime::comm::core::error::{Cause, Departure};
use crate::runtime::comm::core::fingerprint::Fingerprint;
use crate::runtime::comm::core::options::{InitOptions, STREAMS_MAX};
use crate::runtime::comm::shm::barrier::LocalNode;
use crate::runtime::comm::store::shared::{ABORT_KEY, STORE_TIMEOUT, SharedStore};
use crate::runtime::comm::store::{Client, ClientError, WAITED_KEYS_MAX, departed_key};
use crate::runtime::comm::tcp::connecting::Connecting;
use crate::runtime::comm::tcp::rank_handshake::{Dial, HandshakeState, PendingHandshake};
use crate::runtime::comm::tcp::socket::{Idle, backend_error, poll, set_stream_options};
use crate::runtime::comm::tcp::striping::{Connections, StripedConnection, Transfers};
use crate::secure::{PeerKey, PeerPublicKey, Preamble, Role, accept_peer, dial_peer, parse_flight};

/// Largest number of accepted connections that are not authenticated yet.
const HANDSHAKES_MAX: usize = 64;
/// Time limit for the first message of an accepted connection.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Address and key that a rank publishes in the store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct PeerInfo {
    pub(crate) address: SocketAddr,
    pub(crate) key: PeerPublicKey,
    pub(crate) host: String,
    pub(crate) settings: MeshSettings,
}

/// Settings of a rank for connections to other nodes. All ranks know all settings and choose the same.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct MeshSettings {
    /// Largest number of streams of a connection.
    pub(crate) streams: u8,
    /// Whether rounds overlap.
    overlaps: bool,
}

impl MeshSettings {
    /// Settings from the options; defaults depend on the address: networks and clouds limit the
    /// bandwidth of one stream, and their latency can be overlapped; loopback has neither property.
    fn from_options(options: &InitOptions, address: IpAddr) -> Self {
        let is_near = address.is_loopback();
        let streams = options.streams.map(NonZero::get);
        Self {
            streams: streams.unwrap_or(if is_near { 1 } else { 4 }),
            overlaps: options.overlap.unwrap_or(!is_near),
        }
    }
}

/// Connections of this rank to ranks of other nodes, and its listener.
pub(crate) struct Mesh {
    job: JobId,
    rank: usize,
    /// Listener; `None` once the group has failed.
    listener: Option<MeshListener>,
    store: SharedStore,
    peers: Vec<PeerInfo>,
    /// All streams to every connected peer.
    connections: BTreeMap<usize, StripedConnection>,
    /// Accepted streams of connections that are not complete.
    accepted: BTreeMap<(usize, u8), TcpStream>,
    handshakes: Vec<PendingHandshake>,
    /// Connections that messages in flight wait for: every stream, authenticated or not.
    dials: BTreeMap<usize, Vec<DialedStream>>,
    /// Keys in the store for abort records: that of this group first, then those of its parents.
    abort_keys: Vec<String>,
}

/// Listener of a rank, with its key.
pub(crate) struct MeshListener {
    socket: TcpListener,
    key: PeerKey,
    address: SocketAddr,
}

impl MeshListener {
    fn open(mut address: SocketAddr) -> Result<Self, ClientError> {
        address.set_port(0);
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { socket: listener, key: PeerKey::generate()?, address })
    }

    /// Address, key and settings of this listener, for the other ranks.
    pub(crate) fn info(&self, host: &str, settings: MeshSettings) -> PeerInfo {
        let Self { key, address, .. } = self;
        PeerInfo { address: *address, key: key.public(), host: host.to_owned(), settings }
    }
}

/// Parts of a rank's mesh from which those of subgroups are made, each with connections of its own.
pub(crate) struct MeshSeed {
    job: JobId,
    address: SocketAddr,
    pub(crate) store: SharedStore,
    /// Settings of this rank, which apply to subgroups too.
    pub(crate) settings: MeshSettings,
    /// Keys in the store for abort records: that of the group first, then those of its parents.
    pub(crate) abort_keys: Vec<String>,
}

impl MeshSeed {
    /// Opens a listener for a subgroup.
    pub(crate) fn open_listener(&self) -> Result<MeshListener, ClientError> {
        MeshListener::open(self.address)
    }

    /// Creates the mesh of a subgroup. `abort_key` is the key in the store for its abort record.
    pub(crate) fn mesh(
        &self,
        rank: usize,
        listener: MeshListener,
        peers: Vec<PeerInfo>,
        abort_key: String,
    ) -> Mesh {
        let abort_keys =
            std::iter::once(abort_key).chain(self.abort_keys.iter().cloned()).collect();
        Mesh::new(self.job.clone(), rank, listener, self.store.clone(), peers, abort_keys)
    }
}

/// Message to send to a peer.
pub(crate) struct Outgoing<'a> {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) peer: usize,
    pub(crate) bytes: &'a [u8],
}

/// Message of known length to receive from a peer.
pub(crate) struct Incoming<'a> {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) peer: usize,
    pub(crate) bytes: &'a mut [u8],
}

/// One stream of a connection that is being opened.
enum DialedStream {
    /// The stream with this number is being connected.
    Connecting(u8, Connecting),
    Waiting(Box<Dial>),
    Open(TcpStream),
}

impl DialedStream {
    /// Reads the reply as far as it has arrived.
    fn advance(self, peer: usize, lost: impl Fn() -> Cause) -> Result<Self, Cause> {
        let mut dial = match self {
            Self::Waiting(dial) => dial,
            Self::Connecting(..) | Self::Open(_) => return Ok(self),
        };
        Ok(match dial.read_reply(peer, lost)? {
            Some(message) => Self::Open(dial.finish(&message)?),
            None => Self::Waiting(dial),
        })
    }

    fn into_stream(self) -> Option<TcpStream> {
        match self {
            Self::Open(stream) => Some(stream),
            Self::Connecting(..) | Self::Waiting(_) => None,
        }
    }
}

impl Mesh {
    /// Listens on the local address of the connection to the store, publishes address and key, and
    /// reads those of all other ranks.
    pub(crate) fn join(
        job: JobId,
        rank: usize,
        world: usize,
        host: &str,
        options: &InitOptions,
        mut store: Client,
        deadline: Instant,
    ) -> Result<Self, ClientError> {
        let listener = MeshListener::open(store.local_address()?)?;
        let info = listener.info(host, MeshSettings::from_options(options, listener.address.ip()));
        let value = postcard::to_allocvec(&info).expect("texts and numbers serialize");
        store.set(&format!("peer/{rank}"), &value, deadline)?;
        let mut peers = Vec::with_capacity(world);
        for start in (0..world).step_by(WAITED_KEYS_MAX) {
            let end = world.min(start + WAITED_KEYS_MAX);
            let keys = (start..end).map(|rank| format!("peer/{rank}")).collect();
            for value in store.wait(keys, deadline)? {
                peers.push(postcard::from_bytes(&value).map_err(|_| ClientError::UnexpectedReply)?);
            }
        }
        let store = Arc::new(Mutex::new(store));
        Ok(Self::new(job, rank, listener, store, peers, vec![ABORT_KEY.to_owned()]))
    }

    fn new(
        job: JobId,
        rank: usize,
        listener: MeshListener,
        store: SharedStore,
        peers: Vec<PeerInfo>,
        abort_keys: Vec<String>,
    ) -> Self {
        Self {
            job,
            rank,
            listener: Some(listener),
            store,
            peers,
            connections: BTreeMap::new(),
            accepted: BTreeMap::new(),
            dials: BTreeMap::new(),
            handshakes: Vec::new(),
            abort_keys,
        }
    }

    /// What the meshes of subgroups are made from; `None` once the group has failed.
    pub(crate) fn seed(&self) -> Option<MeshSeed> {
        Some(MeshSeed {
            job: self.job.clone(),
            address: self.listener.as_ref()?.address,
            store: self.store.clone(),
            settings: self.settings(),
            abort_keys: self.abort_keys.clone(),
        })
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

    /// Settings of this rank, which apply to subgroups too.
    pub(crate) fn settings(&self) -> MeshSettings {
        self.peers[self.rank].settings
    }

    /// Whether rounds overlap: if the settings of all ranks allow it.
    pub(crate) fn overlaps(&self) -> bool {
        self.peers.iter().all(|peer| peer.settings.overlaps)
    }

    /// Closes every connection and the listener, so that waiting peers notice it.
    pub(crate) fn close(&mut self) {
        self.connections.clear();
        self.accepted.clear();
        self.handshakes.clear();
        self.listener = None;
    }

    fn listener(&self) -> Result<&MeshListener, Cause> {
        self.listener.as_ref().ok_or_else(|| Cause::Backend("the group has failed".to_owned()))
    }

    /// Sends and receives at once, at most one message in each direction with every peer; a message
    /// of another operation is an error.
    pub(crate) fn exchange(
        &mut self,
        outgoing: &[Outgoing<'_>],
        incoming: &mut [Incoming<'_>],
        node: &LocalNode,
        deadline: Deadline,
    ) -> Result<(), Cause> {
        let peers = outgoing.iter().map(|m| m.peer).chain(incoming.iter().map(|m| m.peer));
        for peer in peers {
            self.connect(peer, node, deadline)?;
        }
        let mut transfers = Transfers::new();
        for Outgoing { fingerprint, peer, bytes } in outgoing {
            transfers.post_send(*fingerprint, *peer, *bytes, self);
        }
        for Incoming { fingerprint, peer, bytes } in incoming {
            transfers.post_recv(*fingerprint, *peer, &mut **bytes, self);
        }
        self.drive(&mut transfers, Transfers::is_idle, node, deadline)
    }

    /// Continues the transfers until `is_over` returns true.
    pub(crate) fn drive<S: AsRef<[u8]>, R: AsRef<[u8]> + AsMut<[u8]>>(
        &self,
        transfers: &mut Transfers<S, R>,
        is_over: impl Fn(&Transfers<S, R>) -> bool,
        node: &LocalNode,
        deadline: Deadline,
    ) -> Result<(), Cause> {
        let mut idle = Idle::new(deadline);
        while !is_over(transfers) {
            let moved = transfers.pump(self, &node.roster)?;
            if idle.should_poll_again(moved) {
                continue;
            }
            let timed_out = self.poll(transfers)?;
            idle.after_poll(timed_out, || node.check(deadline, || transfers.missing_peers()))?;
        }
        Ok(())
    }

    /// Sleeps until a stream is ready, for at most a tick; returns whether none was.
    fn poll<S: AsRef<[u8]>, R: AsRef<[u8]> + AsMut<[u8]>>(
        &self,
        transfers: &Transfers<S, R>,
    ) -> Result<bool, Cause> {
        let mut fds = Vec::new();
        transfers.visit_pending(self, |stream, sends, receives| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::OUT, sends);
            flags.set(PollFlags::IN, receives);
            fds.push(PollFd::new(stream, flags));
        });
        poll(&mut fds)
    }

    /// Connects to a peer, unless it is connected already.
    pub(crate) fn connect(
        &mut self,
        peer: usize,
        node: &LocalNode,
        deadline: Deadline,
    ) -> Result<(), Cause> {
        if self.connections.contains_key(&peer) {
            return Ok(());
        }
        if peer < self.rank {
            return self.wait_accepted(peer, node, deadline);
        }
        let connect_stream = |stream| {
            let opened = self.open(peer).wait(peer, node, deadline)?;
            self.dial((peer, stream), opened, node)?.wait(peer, node, deadline)
        };
        let streams = (0..self.stream_count(peer)).map(connect_stream).collect::<Result<_, _>>()?;
        self.connections.insert(peer, StripedConnection::new(streams));
        Ok(())
    }

    /// Continues to connect to a peer without waiting for it; returns whether it is connected.
    pub(crate) fn advance_connect(&mut self, peer: usize, node: &LocalNode) -> Result<bool, Cause> {
        if self.connections.contains_key(&peer) {
            return Ok(true);
        }
        self.accept();
        self.read_handshakes();
        if peer < self.rank {
            return Ok(self.connections.contains_key(&peer));
        }
        let dials = self.dials.remove(&peer);
        let open = |stream| DialedStream::Connecting(stream, self.open(peer));
        let dials = dials.unwrap_or_else(|| (0..self.stream_count(peer)).map(open).collect());
        let advance = |dial| self.advance_dial(peer, dial, node);
        let dials = dials.into_iter().map(advance).collect::<Result<Vec<_>, Cause>>()?;
        if dials.iter().any(|dial| !matches!(dial, DialedStream::Open(_))) {
            self.dials.insert(peer, dials);
            return Ok(false);
        }
        let streams = dials.into_iter().filter_map(DialedStream::into_stream).collect();
        self.connections.insert(peer, StripedConnection::new(streams));
        Ok(true)
    }

    /// Number of streams to a peer, which is the minimum of both sides and so equal on both.
    fn stream_count(&self, peer: usize) -> u8 {
        let streams = [self.rank, peer].map(|rank| self.peers[rank].settings.streams);
        streams[0].min(streams[1]).clamp(1, STREAMS_MAX as u8)
    }

    /// Starts to open a stream to a peer.
    fn open(&self, peer: usize) -> Connecting {
        Connecting::new(self.peers[peer].address)
    }

    /// Continues to open and to authenticate a stream to a peer without waiting for it.
    fn advance_dial(
        &self,
        peer: usize,
        dial: DialedStream,
        node: &LocalNode,
    ) -> Result<DialedStream, Cause> {
        let dial = match dial {
            DialedStream::Connecting(number, mut connecting) => {
                match connecting.advance(peer, node)? {
                    None => DialedStream::Connecting(number, connecting),
                    Some(opened) => {
                        DialedStream::Waiting(Box::new(self.dial((peer, number), opened, node)?))
                    }
                }
            }
            DialedStream::Waiting(_) | DialedStream::Open(_) => dial,
        };
        dial.advance(peer, || node.roster.peer_lost(peer, Departure::Gone))
    }

    /// Sends the first message of the handshake on a stream that is connected to a peer. The message
    /// always fits the buffer of a new socket.
    fn dial(
        &self,
        (peer, stream): (usize, u8),
        mut opened: TcpStream,
        node: &LocalNode,
    ) -> Result<Dial, Cause> {
        let failed = backend_error("connect to a peer");
        let info = &self.peers[peer];
        let lost = || node.roster.peer_lost(peer, Departure::Gone);
        let role = Role::Peer { from: Rank(self.rank as u32), to: Rank(peer as u32), stream };
        let preamble = Preamble { job: self.job.clone(), role };
        let (dialed, flight) = dial_peer(&preamble, &self.listener()?.key, info.key)
            .map_err(|error| failed(&error))?;
        opened.write_all(&flight).and_then(|()| set_stream_options(&opened)).map_err(|_| lost())?;
        Ok(Dial { stream: opened, dialed, received: Vec::new() })
    }

    /// Waits until a peer has connected; accepts all ranks meanwhile.
    fn wait_accepted(
        &mut self,
        peer: usize,
        node: &LocalNode,
        deadline: Deadline,
    ) -> Result<(), Cause> {
        let mut idle = Idle::new(deadline);
        while !self.connections.contains_key(&peer) {
            let mut fds = vec![PollFd::new(&self.listener()?.socket, PollFlags::IN)];
            let handshakes = self.handshakes.iter();
            fds.extend(handshakes.map(|handshake| PollFd::new(&handshake.stream, PollFlags::IN)));
            let timed_out = poll(&mut fds)?;
            idle.after_poll(timed_out, || node.check(deadline, || vec![peer]))?;
            if idle.is_check_due() && self.is_peer_lost(node.roster.job_rank(peer)) {
                return Err(node.roster.peer_lost(peer, Departure::Gone));
            }
            self.accept();
            self.read_handshakes();
        }
        Ok(())
    }

    /// Whether a rank without a connection to this one is lost: it has left the store, or the group
    /// has failed.
    fn is_peer_lost(&self, rank: Rank) -> bool {
        let gone_key = departed_key(rank);
        let keys = self.abort_keys.iter().chain([&gone_key]);
        let deadline = clock::now() + STORE_TIMEOUT;
        let mut store = self.store();
        keys.into_iter().any(|key| matches!(store.peek(key, deadline), Ok(Some(_))))
    }

    /// Keys in the store for abort records: that of this group, then those of its parent groups.
    pub(crate) fn abort_keys(&self) -> &[String] {
        &self.abort_keys
    }

    /// Accepts all waiting connections, and closes those that did not authenticate in time.
    fn accept(&mut self) {
        let now = clock::now();
        self.handshakes.retain(|handshake| now < handshake.since + HANDSHAKE_TIMEOUT);
        while self.handshakes.len() < HANDSHAKES_MAX {
            // An error concerns a peer that is not authenticated, so it is ignored.
            let Some(Ok((stream, _))) =
                self.listener.as_ref().map(|listener| listener.socket.accept())
            else {
                return;
            };
            if set_stream_options(&stream).is_ok() {
                self.handshakes.push(PendingHandshake { stream, received: Vec::new(), since: now });
            }
        }
    }

    /// Reads from all connections that are not authenticated.
    fn read_handshakes(&mut self) {
        for mut handshake in std::mem::take(&mut self.handshakes) {
            match handshake.read() {
                HandshakeState::Incomplete => self.handshakes.push(handshake),
                HandshakeState::Complete => self.authenticate(handshake),
                HandshakeState::Closed => {}
            }
        }
    }

    /// Authenticates a peer and sends the reply; a connection with a different key is closed without a
    /// reply.
    fn authenticate(&mut self, handshake: PendingHandshake) {
        let Ok(Some(flight)) = parse_flight(&handshake.received) else { return };
        let Role::Peer { from, to, stream: number } = flight.preamble.role else { return };
        let is_addressed = flight.preamble.job == self.job && to.index() == self.rank;
        // The first message of a handshake can be replayed, which must not end a connection.
        let is_expected = is_addressed && !self.connections.contains_key(&from.index());
        let Some(info) = self.peers.get(from.index()).filter(|_| is_expected) else { return };
        let Ok(listener) = self.listener() else { return };
        let Ok(accepted) = accept_peer(&flight, &listener.key, info.key) else { return };
        let mut stream = handshake.stream;
        // A reply of about 50 bytes always fits the buffer of a new socket.
        if stream.write_all(&accepted.reply).is_ok() {
            self.accepted.insert((from.index(), number), stream);
            self.complete_connection(from.index());
        }
    }

    /// Completes the connection of a peer, once all of its streams are accepted.
    fn complete_connection(&mut self, peer: usize) {
        let streams = 0..self.stream_count(peer);
        if streams.clone().all(|stream| self.accepted.contains_key(&(peer, stream))) {
            let streams = streams.filter_map(|stream| self.accepted.remove(&(peer, stream)));
            let streams = streams.collect();
            self.connections.insert(peer, StripedConnection::new(streams));
        }
    }
}

impl Connections for Mesh {
    fn connection(&self, peer: usize) -> &StripedConnection {
        &self.connections[&peer]
    }
}
