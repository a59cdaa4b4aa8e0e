//! The first messages of a connection, by which its two ranks authenticate.

use std::io::Read;
use std::net::TcpStream;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};

use crate::os::files::io_errors::is_temporary;
use crate::runtime::comm::core::deadline::Deadline;
use crate::runtime::comm::core::error::{Cause, Departure};
use crate::runtime::comm::shm::barrier::LocalNode;
use crate::runtime::comm::tcp::socket::{Idle, backend_error, poll};
use crate::secure::{FIRST_FLIGHT_BYTES_MAX, PeerDialed, parse_flight, parse_reply};

/// Accepted connection whose first message is not complete.
pub(super) struct PendingHandshake {
    pub(super) stream: TcpStream,
    pub(super) received: Vec<u8>,
    pub(super) since: Instant,
}

/// Connection that this rank has opened, before the peer has replied.
pub(super) struct Dial {
    pub(super) stream: TcpStream,
    pub(super) dialed: PeerDialed,
    /// Received part of the reply.
    pub(super) received: Vec<u8>,
}

impl Dial {
    /// Reads what has arrived of the reply; returns its message once it is complete.
    pub(super) fn read_reply(
        &mut self,
        peer: usize,
        lost: impl Fn() -> Cause,
    ) -> Result<Option<Vec<u8>>, Cause> {
        loop {
            let reply = parse_reply(&self.received)
                .map_err(|error| backend_error("authenticate a peer")(&error))?;
            if let Some((message, bytes)) = reply {
                // The peer sends nothing more until it has received a message from this rank.
                return if bytes == self.received.len() {
                    Ok(Some(message))
                } else {
                    Err(Cause::Backend(format!(
                        "protocol error: data from rank {peer} after its reply"
                    )))
                };
            }
            // Exactly the reply is read: later bytes belong to the first message.
            let missing = match self.received.first_chunk::<2>() {
                None => 2 - self.received.len(),
                Some(head) => 2 + usize::from(u16::from_le_bytes(*head)) - self.received.len(),
            };
            let mut bytes = vec![0; missing];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(lost()),
                Ok(count) => self.received.extend_from_slice(&bytes[..count]),
                Err(error) if is_temporary(&error) => return Ok(None),
                Err(_) => return Err(lost()),
            }
        }
    }

    /// Waits for the reply, and returns the authenticated stream.
    pub(super) fn wait(
        mut self,
        peer: usize,
        node: &LocalNode,
        deadline: Deadline,
    ) -> Result<TcpStream, Cause> {
        let mut idle = Idle::new(deadline);
        loop {
            let lost = || node.roster.peer_lost(peer, Departure::Gone);
            if let Some(message) = self.read_reply(peer, lost)? {
                return self.finish(&message);
            }
            let timed_out = poll(&mut [PollFd::new(&self.stream, PollFlags::IN)])?;
            idle.after_poll(timed_out, || node.check(deadline, || vec![peer]))?;
        }
    }

    /// Verifies the message of the reply, and returns the authenticated stream.
    pub(super) fn finish(self, message: &[u8]) -> Result<TcpStream, Cause> {
        let failed = backend_error("connect to a peer");
        self.dialed.finish(message).map_err(|error| failed(&error))?;
        Ok(self.stream)
    }
}

/// State of an accepted connection after a read.
pub(super) enum HandshakeState {
    /// More bytes of the first message are needed.
    Incomplete,
    /// The first message is complete.
    Complete,
    /// The connection was closed, or the message is invalid.
    Closed,
}

impl PendingHandshake {
    pub(super) fn read(&mut self) -> HandshakeState {
        let mut bytes = [0; FIRST_FLIGHT_BYTES_MAX];
        let free = FIRST_FLIGHT_BYTES_MAX - self.received.len();
        match self.stream.read(&mut bytes[..free]) {
            Ok(0) => return HandshakeState::Closed,
            Ok(count) => self.received.extend_from_slice(&bytes[..count]),
            Err(error) if is_temporary(&error) => return HandshakeState::Incomplete,
            Err(_) => return HandshakeState::Closed,
        }
        match parse_flight(&self.received) {
            Ok(None) => HandshakeState::Incomplete,
            Ok(Some(flight)) if flight.bytes == self.received.len() => HandshakeState::Complete,
            Ok(Some(_)) | Err(_) => HandshakeState::Closed,
        }
    }
}
