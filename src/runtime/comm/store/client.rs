//! Client of the store: blocking requests, each with a deadline.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Instant;

use crate::base::{Epoch, JobId, Rank, clock};
use crate::os::files::io_errors::{CONNECT_PAUSE, pause_before_reconnect};
use crate::os::net::connect_from::{connect_from, is_on_route};
use crate::runtime::comm::store::state::{Reply, StoreRefusal, StoreRequest};
use crate::secure::{
    Channel, ChannelError, HandshakeError, Preamble, Purpose, RankKey, Role, dial, parse_reply,
};

/// Error of a request to the store.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection failed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// Authentication failed.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// The store sent invalid bytes.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The store refused the request.
    #[error(transparent)]
    Refused(#[from] StoreRefusal),
    /// The reply does not match the request.
    #[error("the store sent an unexpected reply")]
    UnexpectedReply,
    /// The deadline passed.
    #[error("the store sent no reply within the deadline")]
    Deadline,
}

/// Identity with which a client connects.
#[derive(Clone, Debug)]
pub struct StoreIdentity {
    /// Job that the client belongs to.
    pub job: JobId,
    /// Epoch: number of the start of the job.
    pub epoch: Epoch,
    /// Rank of the client.
    pub rank: Rank,
    /// Key of the rank.
    pub key: RankKey,
    /// Address of this machine to which peers connect, if one was chosen. The connection to the store
    /// uses it if it belongs to the interface of the route.
    pub advertised_ip: Option<IpAddr>,
}

/// Connection to the store.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    /// See [`StoreIdentity::advertised_ip`].
    advertised_ip: Option<IpAddr>,
    channel: Channel,
    received: Vec<u8>,
    /// Number of replies still to come, to requests that timed out.
    abandoned_replies: usize,
}

impl Client {
    /// Connects; retries until `deadline` while the connection is refused, because the store may be starting.
    pub fn connect(
        address: SocketAddr,
        identity: &StoreIdentity,
        purpose: Purpose,
        deadline: Instant,
    ) -> Result<Self, ClientError> {
        let mut stream = connect(address, identity.advertised_ip, deadline)?;
        stream.set_nodelay(true)?;
        let role = Role::Rank(identity.rank, purpose);
        let preamble = Preamble { job: identity.job.clone(), role };
        let (dialed, flight) = dial(&preamble, &identity.key, identity.epoch)?;
        stream.write_all(&flight)?;
        let mut received = Vec::new();
        let message = loop {
            if let Some((message, bytes)) = parse_reply(&received)? {
                received.drain(..bytes);
                break message;
            }
            receive(&mut stream, &mut received, deadline).map_err(|error| match error {
                // A store that rejects the key closes the connection without an answer.
                ClientError::Io(_) => HandshakeError::Key.into(),
                other => other,
            })?;
        };
        Ok(Self {
            channel: dialed.finish(&message)?,
            stream,
            advertised_ip: identity.advertised_ip,
            received,
            abandoned_replies: 0,
        })
    }

    /// Sets a value.
    pub fn set(&mut self, key: &str, value: &[u8], deadline: Instant) -> Result<(), ClientError> {
        let request = StoreRequest::Set { key: key.to_owned(), value: value.to_owned() };
        match self.request(&request, deadline)? {
            Reply::Done => Ok(()),
            _ => Err(ClientError::UnexpectedReply),
        }
    }

    /// Sets a value unless the key has one; returns the value that the key then has.
    pub fn set_once(
        &mut self,
        key: &str,
        value: &[u8],
        deadline: Instant,
    ) -> Result<Vec<u8>, ClientError> {
        let request = StoreRequest::SetOnce { key: key.to_owned(), value: value.to_owned() };
        self.values(&request, deadline)?.pop().ok_or(ClientError::UnexpectedReply)
    }

    /// Waits until all keys are set and returns their values.
    pub fn wait(
        &mut self,
        keys: Vec<String>,
        deadline: Instant,
    ) -> Result<Vec<Vec<u8>>, ClientError> {
        let count = keys.len();
        let values = self.values(&StoreRequest::Wait { keys }, deadline)?;
        if values.len() == count { Ok(values) } else { Err(ClientError::UnexpectedReply) }
    }

    /// Returns the value of a key, if it is set.
    pub fn peek(&mut self, key: &str, deadline: Instant) -> Result<Option<Vec<u8>>, ClientError> {
        Ok(self.values(&StoreRequest::Peek { key: key.to_owned() }, deadline)?.pop())
    }

    /// Adds to a counter and returns the sum.
    pub fn add(&mut self, key: &str, delta: i64, deadline: Instant) -> Result<i64, ClientError> {
        match self.request(&StoreRequest::Add { key: key.to_owned(), delta }, deadline)? {
            Reply::Sum(sum) => Ok(sum),
            _ => Err(ClientError::UnexpectedReply),
        }
    }

    /// Waits until `count` clients have called it.
    pub fn barrier(&mut self, key: &str, count: u32, deadline: Instant) -> Result<(), ClientError> {
        match self.request(&StoreRequest::Barrier { key: key.to_owned(), count }, deadline)? {
            Reply::Done => Ok(()),
            _ => Err(ClientError::UnexpectedReply),
        }
    }

    /// Returns the address of this machine to which peers connect: the chosen one, or the local address of
    /// the connection to the store.
    pub fn local_address(&self) -> Result<SocketAddr, ClientError> {
        let reached = self.stream.local_addr()?;
        Ok(self.advertised_ip.map_or(reached, |at| SocketAddr::new(at, reached.port())))
    }

    fn values(
        &mut self,
        request: &StoreRequest,
        deadline: Instant,
    ) -> Result<Vec<Vec<u8>>, ClientError> {
        match self.request(request, deadline)? {
            Reply::Values(values) => Ok(values),
            _ => Err(ClientError::UnexpectedReply),
        }
    }

    fn request(&mut self, request: &StoreRequest, deadline: Instant) -> Result<Reply, ClientError> {
        self.send(request)?;
        match self.receive_reply(deadline) {
            Ok(Reply::Refused(refusal)) => Err(refusal.into()),
            Ok(reply) => Ok(reply),
            Err(ClientError::Deadline) if request.is_immediate() => {
                self.abandoned_replies += 1;
                Err(ClientError::Deadline)
            }
            Err(error) => Err(error),
        }
    }

    /// Receives the reply to the last request, after the replies to requests that timed out.
    fn receive_reply(&mut self, deadline: Instant) -> Result<Reply, ClientError> {
        while 0 < self.abandoned_replies {
            self.receive(deadline)?;
            self.abandoned_replies -= 1;
        }
        self.receive(deadline)
    }

    /// Sends a request without waiting for the reply; [`Self::receive`] returns it.
    pub(crate) fn send(&mut self, request: &StoreRequest) -> Result<(), ClientError> {
        let plain = postcard::to_allocvec(request).expect("texts and numbers serialize");
        let mut wire = Vec::new();
        self.channel.seal(&plain, &mut wire)?;
        Ok(self.stream.write_all(&wire)?)
    }

    /// Receives the next reply.
    pub(crate) fn receive(&mut self, deadline: Instant) -> Result<Reply, ClientError> {
        loop {
            if let Some(plain) = self.channel.open(&mut self.received)? {
                return postcard::from_bytes(&plain).map_err(|_| ClientError::UnexpectedReply);
            }
            receive(&mut self.stream, &mut self.received, deadline)?;
        }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }
}

fn connect(
    address: SocketAddr,
    from: Option<IpAddr>,
    deadline: Instant,
) -> Result<TcpStream, ClientError> {
    let start = clock::now();
    loop {
        let left = deadline.saturating_duration_since(clock::now());
        if left.is_zero() {
            return Err(ClientError::Deadline);
        }
        let connected = match from.filter(|from| is_on_route(*from, address)) {
            Some(from) => connect_from(from, address, left),
            None => TcpStream::connect_timeout(&address, left),
        };
        let error = match connected {
            Ok(stream) => return Ok(stream),
            Err(error) => error,
        };
        let pause = match error.kind() {
            // The store may be starting.
            std::io::ErrorKind::ConnectionRefused => Some(CONNECT_PAUSE),
            _ => pause_before_reconnect(&error, clock::now().saturating_duration_since(start)),
        };
        std::thread::sleep(pause.ok_or(error)?.min(left));
    }
}

fn receive(
    stream: &mut TcpStream,
    received: &mut Vec<u8>,
    deadline: Instant,
) -> Result<(), ClientError> {
    use std::io::ErrorKind::{Interrupted, TimedOut, UnexpectedEof, WouldBlock};
    let left = deadline.saturating_duration_since(clock::now());
    if left.is_zero() {
        return Err(ClientError::Deadline);
    }
    stream.set_read_timeout(Some(left))?;
    let mut bytes = [0; 4096];
    match stream.read(&mut bytes) {
        Ok(0) => Err(std::io::Error::new(UnexpectedEof, "the store closed the connection").into()),
        Ok(count) => {
            received.extend_from_slice(&bytes[..count]);
            Ok(())
        }
        Err(error) => match error.kind() {
            Interrupted => Ok(()),
            WouldBlock | TimedOut => Err(ClientError::Deadline),
            _ => Err(error.into()),
        },
    }
}
