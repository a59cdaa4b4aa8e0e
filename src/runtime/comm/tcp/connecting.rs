//! A connection to a peer that is being opened. It never blocks, so other messages go on, and a rank that
//! waits for it notices an abort while the host of the peer does not respond.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use crate::base::clock;
use crate::os::files::io_errors::pause_before_reconnect;
use crate::os::net::connect_from::{is_connected, start_connect};
use crate::runtime::comm::core::deadline::Deadline;
use crate::runtime::comm::core::error::{Cause, Departure};
use crate::runtime::comm::shm::barrier::LocalNode;
use crate::runtime::comm::tcp::socket::{Idle, TICK, backend_error, poll};

/// Time limit of one attempt to connect to a peer.
const CONNECT_ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);

/// Connection to an address, with as many attempts as are useful.
pub(super) struct Connecting {
    address: SocketAddr,
    since: Instant,
    attempt: Attempt,
}

enum Attempt {
    /// The next attempt starts at this time.
    Paused(Instant),
    /// The kernel connects this socket; the attempt ends at this time.
    Started(OwnedFd, Instant),
}

impl Connecting {
    pub(super) fn new(address: SocketAddr) -> Self {
        let now = clock::now();
        Self { address, since: now, attempt: Attempt::Paused(now) }
    }

    /// Continues to connect. Returns the stream, which does not block, once it is connected.
    pub(super) fn advance(
        &mut self,
        peer: usize,
        node: &LocalNode,
    ) -> Result<Option<TcpStream>, Cause> {
        let now = clock::now();
        let error = match self.try_advance(now) {
            Ok(connected) => return Ok(connected),
            Err(error) => error,
        };
        let elapsed = now.saturating_duration_since(self.since);
        match pause_before_reconnect(&error, elapsed) {
            Some(pause) => self.attempt = Attempt::Paused(now + pause),
            None => return Err(failure(peer, node, &error)),
        }
        Ok(None)
    }

    fn try_advance(&mut self, now: Instant) -> io::Result<Option<TcpStream>> {
        let (socket, until) = match std::mem::replace(&mut self.attempt, Attempt::Paused(now)) {
            Attempt::Paused(until) if now < until => {
                self.attempt = Attempt::Paused(until);
                return Ok(None);
            }
            Attempt::Paused(_) => {
                (start_connect(None, self.address)?, now + CONNECT_ATTEMPT_TIMEOUT)
            }
            Attempt::Started(socket, until) => (socket, until),
        };
        if is_connected(&socket, Duration::ZERO)? {
            return Ok(Some(TcpStream::from(socket)));
        }
        if until <= now {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.attempt = Attempt::Started(socket, until);
        Ok(None)
    }

    /// Waits until the stream is connected.
    pub(super) fn wait(
        mut self,
        peer: usize,
        node: &LocalNode,
        deadline: Deadline,
    ) -> Result<TcpStream, Cause> {
        let mut idle = Idle::new(deadline);
        loop {
            if let Some(stream) = self.advance(peer, node)? {
                return Ok(stream);
            }
            let timed_out = match &self.attempt {
                Attempt::Started(socket, _) => poll(&mut [PollFd::new(socket, PollFlags::OUT)])?,
                Attempt::Paused(until) => {
                    std::thread::sleep(until.saturating_duration_since(clock::now()).min(TICK));
                    true
                }
            };
            idle.after_poll(timed_out, || node.check(deadline, || vec![peer]))?;
        }
    }
}

/// The cause of a failed connection. The listener is open as long as the rank runs; if the rank exits, the
/// kernel resets the connections in the listener's queue.
fn failure(peer: usize, node: &LocalNode, error: &io::Error) -> Cause {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    match error.kind() {
        ConnectionRefused | ConnectionReset | ConnectionAborted => {
            node.roster.peer_lost(peer, Departure::Gone)
        }
        _ => backend_error("connect to a peer")(error),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn attempt_does_not_wait_for_a_full_listener() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        rustix::net::listen(&listener, 0).expect("a listener with the shortest queue");
        // The kernel leaves connections beyond the queue unanswered.
        let mut attempts: Vec<_> = (0..8).map(|_| Connecting::new(address)).collect();
        let advance = |attempt: &mut Connecting| attempt.try_advance(clock::now());
        let connected: Vec<_> = attempts.iter_mut().map(|a| advance(a).expect("retried")).collect();
        assert!(connected.iter().any(Option::is_some), "the queue has room for one");
        assert!(connected.iter().any(Option::is_none), "the queue is full");
    }

    #[test]
    fn refused_attempt_is_not_repeated() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        drop(listener);
        let mut refused = Connecting::new(address);
        let error = refused.try_advance(clock::now()).expect_err("no listener");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(pause_before_reconnect(&error, Duration::ZERO), None);
    }
}
