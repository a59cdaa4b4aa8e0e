//! Server side of one connection to the store: decodes received bytes into requests.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use rustix::event::PollFlags;

use crate::base::{Epoch, Rank, clock};
use crate::os::files::io_errors::is_temporary;
use crate::runtime::comm::store::state::{Reply, StoreRequest};
use crate::secure::{
    Channel, ChannelError, FIRST_FLIGHT_BYTES_MAX, Flight, FlightError, HandshakeError,
    HandshakeReply, Purpose, RankKey, accept, parse_flight,
};

/// Bytes that are buffered: the largest encrypted request and part of the next one.
const RECEIVED_BYTES_MAX: usize = 128 << 10;

/// Bytes of replies that a client may leave unread.
const TO_SEND_BYTES_MAX: usize = 256 << 10;

/// Why a connection is closed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error(transparent)]
    Flight(#[from] FlightError),
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error("it is in attempt {}, the store in attempt {}", .peer.attempt(), .own.attempt())]
    WrongEpoch { own: Epoch, peer: Epoch },
    #[error("rank {0} is already connected")]
    Taken(Rank),
    #[error(transparent)]
    Channel(#[from] ChannelError),
    #[error("it sent a malformed request")]
    MalformedRequest,
    #[error("it does not read its replies")]
    UnreadReplies,
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl ConnectionError {
    pub(crate) fn is_too_long(&self) -> bool {
        matches!(self, Self::Channel(ChannelError::TooLong(_)))
    }
}

/// Result of decoding the bytes received so far.
pub(crate) enum ReadProgress {
    NeedsMore,
    FirstFlight(FirstFlight),
    Request(StoreRequest),
}

/// A complete first flight; its key is not checked yet.
pub(crate) struct FirstFlight {
    pub(crate) flight: Flight,
}

enum Stage {
    Handshake { since: Instant },
    Open { channel: Channel, owner: (Rank, Purpose) },
}

pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    stage: Stage,
    received: Vec<u8>,
    to_send: Vec<u8>,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, peer: SocketAddr) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let stage = Stage::Handshake { since: clock::now() };
        Ok(Self { stream, peer, stage, received: Vec::new(), to_send: Vec::new() })
    }

    /// Time at which the client connected, if it has not authenticated yet.
    pub(crate) fn handshake_since(&self) -> Option<Instant> {
        match self.stage {
            Stage::Handshake { since } => Some(since),
            Stage::Open { .. } => None,
        }
    }

    pub(crate) fn owner(&self) -> Option<(Rank, Purpose)> {
        match self.stage {
            Stage::Handshake { .. } => None,
            Stage::Open { owner, .. } => Some(owner),
        }
    }

    pub(crate) fn poll_flags(&self) -> PollFlags {
        if self.to_send.is_empty() { PollFlags::IN } else { PollFlags::IN | PollFlags::OUT }
    }

    /// Reads and writes as many bytes as possible without blocking; an error if the peer has closed the
    /// connection.
    pub(crate) fn transfer(&mut self) -> io::Result<()> {
        self.flush()?;
        let limit = match self.stage {
            Stage::Handshake { .. } => FIRST_FLIGHT_BYTES_MAX,
            Stage::Open { .. } => RECEIVED_BYTES_MAX,
        };
        let room = limit.saturating_sub(self.received.len());
        let mut bytes = vec![0; room.min(16 << 10)];
        match self.stream.read(&mut bytes) {
            Ok(0) if bytes.is_empty() => Ok(()),
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                self.received.extend_from_slice(&bytes[..count]);
                Ok(())
            }
            Err(error) if is_temporary(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.to_send.is_empty() {
            match self.stream.write(&self.to_send) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => drop(self.to_send.drain(..count)),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(()),
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(())
    }

    /// Decodes the next message from the received bytes.
    pub(crate) fn decode_next(&mut self) -> Result<ReadProgress, ConnectionError> {
        match &mut self.stage {
            Stage::Handshake { .. } => match parse_flight(&self.received)? {
                None => Ok(ReadProgress::NeedsMore),
                Some(flight) => {
                    self.received.drain(..flight.bytes);
                    Ok(ReadProgress::FirstFlight(FirstFlight { flight }))
                }
            },
            Stage::Open { channel, .. } => match channel.open(&mut self.received)? {
                None => Ok(ReadProgress::NeedsMore),
                Some(plain) => postcard::from_bytes(&plain)
                    .map(ReadProgress::Request)
                    .map_err(|_| ConnectionError::MalformedRequest),
            },
        }
    }

    /// Checks the key and epoch of a first flight and queues the reply.
    pub(crate) fn authenticate(
        &mut self,
        greeted: &FirstFlight,
        key: &RankKey,
        epoch: Epoch,
        is_taken: bool,
        owner: (Rank, Purpose),
    ) -> Result<(), ConnectionError> {
        let accepted = accept(&greeted.flight, key)?;
        let peer = accepted.epoch;
        let answer = match is_taken {
            _ if peer != epoch => HandshakeReply::WrongEpoch(epoch),
            true => HandshakeReply::Taken,
            false => HandshakeReply::Welcome,
        };
        let (reply, channel) = accepted.reply(&answer)?;
        self.to_send.extend_from_slice(&reply);
        self.flush()?;
        match channel {
            Some(channel) => {
                self.stage = Stage::Open { channel, owner };
                Ok(())
            }
            None if answer == HandshakeReply::Taken => Err(ConnectionError::Taken(owner.0)),
            None => Err(ConnectionError::WrongEpoch { own: epoch, peer }),
        }
    }

    /// Queues a reply; bytes that the kernel does not accept now are sent later. The connection of
    /// a client that sends requests without reading the answers is closed.
    pub(crate) fn send(&mut self, reply: &Reply) -> Result<(), ConnectionError> {
        let Stage::Open { channel, .. } = &mut self.stage else {
            return Err(ConnectionError::MalformedRequest);
        };
        if TO_SEND_BYTES_MAX < self.to_send.len() {
            return Err(ConnectionError::UnreadReplies);
        }
        let plain = postcard::to_allocvec(reply).expect("texts and numbers serialize");
        channel.seal(&plain, &mut self.to_send)?;
        Ok(self.flush()?)
    }
}
