//! Server of a [`State`] on one thread: a poll loop over nonblocking sockets.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

use crate::base::{Epoch, JobId, Rank, clock};
use crate::runtime::comm::store::connection::{Connection, FirstFlight, ReadProgress};
use crate::runtime::comm::store::state::{
    ClientId, Reply, State, StoreRefusal, StoreRequest, departed_key,
};
use crate::secure::{Preamble, Purpose, RankKey, Role};

/// Largest number of connections that have not authenticated yet.
pub(crate) const PENDING_MAX: usize = 64;
/// Time limit for the authentication of a connection.
pub(crate) const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// Time limit for the authentication while further connections wait.
const HANDSHAKE_CROWDED_MAX: Duration = Duration::from_millis(500);
/// Interval at which time limits are checked, while there are any.
const TICK: Duration = Duration::from_millis(50);
/// Client id of the server's own requests; no connection has it.
const SERVER_CLIENT: ClientId = ClientId(u64::MAX);
/// Largest number of connections.
const CONNECTIONS_MAX: usize = 1 << 18;

/// Callback for a refused connection and the reason; the peer's connection is closed without a reply.
pub type OnRefused = Box<dyn Fn(SocketAddr, &dyn Display) + Send>;

/// Options of the server.
pub struct ServerOptions {
    /// Job that clients must belong to.
    pub job: JobId,
    /// Epoch: number of the start of the job.
    pub epoch: Epoch,
    /// Returns the key of a rank; `None` if there is no such rank.
    pub key_of: Box<dyn Fn(Rank) -> Option<RankKey> + Send>,
    /// Callback for refused connections.
    pub on_refused: OnRefused,
}

/// Running server of a store; dropping it stops the server.
pub struct Server {
    address: SocketAddr,
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens at `address` only (port 0: a free port) and serves until it is dropped.
    pub fn bind(address: SocketAddr, options: ServerOptions) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let service = Service {
            listener,
            stop: stop.try_clone()?,
            options,
            state: State::default(),
            connections: BTreeMap::new(),
            connected: HashSet::new(),
            next_id: 0,
            accept_paused_until: None,
        };
        let thread = std::thread::Builder::new().name("remuda-store".to_owned());
        let thread = thread.spawn(move || service.run())?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Returns the address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Writing to an eventfd fails only when its counter is full, and then the thread wakes
        // anyway.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported by the panic hook.
            let _ = thread.join();
        }
    }
}

struct Service {
    listener: TcpListener,
    stop: OwnedFd,
    options: ServerOptions,
    state: State,
    connections: BTreeMap<ClientId, Connection>,
    connected: HashSet<(Rank, Purpose)>,
    next_id: u64,
    /// Time until which the listener is not polled, after accepting failed, for example for lack of
    /// descriptors.
    accept_paused_until: Option<Instant>,
}

/// Sockets that `poll` has reported as ready.
struct Ready {
    stop: bool,
    listener: bool,
    clients: Vec<ClientId>,
}

impl Service {
    fn run(mut self) {
        while let Ok(ready) = self.poll() {
            if ready.stop {
                return;
            }
            for id in ready.clients {
                self.progress(id);
            }
            self.close_overdue(clock::now());
            if ready.listener {
                self.accept();
            }
        }
    }

    fn unauthenticated(&self) -> impl Iterator<Item = (ClientId, Instant)> {
        self.connections
            .iter()
            .filter_map(|(id, connection)| Some((*id, connection.handshake_since()?)))
    }

    fn poll(&mut self) -> io::Result<Ready> {
        let now = clock::now();
        self.accept_paused_until = self.accept_paused_until.filter(|until| now < *until);
        let has_room = self.connections.len() < CONNECTIONS_MAX && self.make_room(now);
        let listens = has_room && self.accept_paused_until.is_none();
        let timed = self.accept_paused_until.is_some() || self.unauthenticated().next().is_some();
        let tick = Timespec { tv_sec: 0, tv_nsec: i64::from(TICK.subsec_nanos()) };
        let accepting = if listens { PollFlags::IN } else { PollFlags::empty() };
        let mut fds =
            vec![PollFd::new(&self.stop, PollFlags::IN), PollFd::new(&self.listener, accepting)];
        fds.extend(self.connections.values().map(|connection| {
            PollFd::from_borrowed_fd(connection.stream.as_fd(), connection.poll_flags())
        }));
        match rustix::event::poll(&mut fds, timed.then_some(&tick)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let ids = self.connections.keys().zip(&fds[2..]);
        Ok(Ready {
            stop: is_ready(&fds[0]),
            listener: is_ready(&fds[1]),
            clients: ids.filter(|(_, fd)| is_ready(fd)).map(|(id, _)| *id).collect(),
        })
    }

    /// Whether one more unauthenticated connection may be accepted; if there are too many, the
    /// oldest one that has exceeded the shorter limit is closed.
    fn make_room(&mut self, now: Instant) -> bool {
        if self.unauthenticated().count() < PENDING_MAX {
            return true;
        }
        let oldest = self.unauthenticated().min_by_key(|(_, since)| *since);
        match oldest {
            Some((id, since)) if HANDSHAKE_CROWDED_MAX <= now - since => {
                self.refuse(id, &"handshake timed out (500 ms while other connections wait)");
                true
            }
            _ => false,
        }
    }

    fn close_overdue(&mut self, now: Instant) {
        let is_late = |(_, since): &(ClientId, Instant)| HANDSHAKE_MAX <= now - *since;
        for (id, _) in self.unauthenticated().filter(is_late).collect::<Vec<_>>() {
            self.refuse(id, &"handshake timed out (5 s)");
        }
    }

    fn accept(&mut self) {
        match self.listener.accept().and_then(|(stream, peer)| Connection::new(stream, peer)) {
            Ok(connection) => {
                self.connections.insert(ClientId(self.next_id), connection);
                self.next_id += 1;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.accept_paused_until = Some(clock::now() + TICK),
        }
    }

    /// Processes one connection as far as possible without blocking.
    fn progress(&mut self, id: ClientId) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let outcome = connection.transfer();
        loop {
            let Some(connection) = self.connections.get_mut(&id) else { return };
            match connection.decode_next() {
                Ok(ReadProgress::NeedsMore) => break,
                Ok(ReadProgress::FirstFlight(greeted)) => self.on_handshake(id, &greeted),
                Ok(ReadProgress::Request(request)) => {
                    for (client, reply) in self.state.step(id, request) {
                        self.send_reply(client, &reply);
                    }
                }
                Err(error) => return self.refuse(id, &error),
            }
        }
        if outcome.is_err() {
            self.close(id);
        }
    }

    /// Checks the key, the epoch and the uniqueness of a client that has sent its identity.
    fn on_handshake(&mut self, id: ClientId, greeted: &FirstFlight) {
        let Preamble { job, role } = &greeted.flight.preamble;
        let Role::Rank(rank, purpose) = *role else {
            return self.refuse(id, &"only ranks use the store");
        };
        if *job != self.options.job {
            return self.refuse(id, &format!("it belongs to job `{job}`"));
        }
        let Some(key) = (self.options.key_of)(rank) else {
            return self.refuse(id, &format!("there is no rank {rank}"));
        };
        let is_taken = self.connected.contains(&(rank, purpose));
        let Some(connection) = self.connections.get_mut(&id) else { return };
        match connection.authenticate(greeted, &key, self.options.epoch, is_taken, (rank, purpose))
        {
            Ok(()) => {
                self.connected.insert((rank, purpose));
            }
            Err(error) => self.refuse(id, &error),
        }
    }

    fn send_reply(&mut self, client: ClientId, reply: &Reply) {
        let Some(connection) = self.connections.get_mut(&client) else { return };
        let sent = match connection.send(reply) {
            Err(error) if error.is_too_long() => {
                connection.send(&Reply::Refused(StoreRefusal::Bounds))
            }
            sent => sent,
        };
        if sent.is_err() {
            self.close(client);
        }
    }

    fn refuse(&mut self, id: ClientId, why: &dyn Display) {
        if let Some(connection) = self.connections.get_mut(&id) {
            (self.options.on_refused)(connection.peer, why);
        }
        self.close(id);
    }

    fn close(&mut self, id: ClientId) {
        if let Some(connection) = self.connections.remove(&id)
            && let Some(owner) = connection.owner()
        {
            self.connected.remove(&owner);
            self.record_departure(owner);
        }
        self.state.remove_client(id);
    }

    /// Records for other ranks that a rank has left: its watch connection, which stays open as long as
    /// the rank lives, has ended.
    fn record_departure(&mut self, (rank, purpose): (Rank, Purpose)) {
        if purpose == Purpose::Watch {
            let request = StoreRequest::Set { key: departed_key(rank), value: Vec::new() };
            for (client, reply) in self.state.step(SERVER_CLIENT, request) {
                self.send_reply(client, &reply);
            }
        }
    }
}
