//! Connections from a given source address, and connections that are begun without waiting; the standard
//! library has neither.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with, sockopt};

use crate::os::net::interfaces;

/// Returns the source address of packets to a peer, by the kernel's routes; nothing is sent.
pub fn source_address(to: SocketAddr) -> Option<IpAddr> {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(to).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_unspecified())
}

/// Whether packets to a peer are sent through the interface that has this address. On another
/// interface the address would be foreign, and answers to it may not be routed.
pub fn is_on_route(from: IpAddr, to: SocketAddr) -> bool {
    let Some(source) = source_address(to) else { return false };
    if source == from || (source.is_loopback() && from.is_loopback()) {
        return true;
    }
    let all = interfaces::addresses().unwrap_or_default();
    let of = |wanted: IpAddr| all.iter().find(|(_, own)| *own == wanted).map(|(name, _)| name);
    of(source).is_some_and(|interface| of(from) == Some(interface))
}

/// Connects from this address of the machine; times out after `limit`.
pub fn connect_from(from: IpAddr, to: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    let socket = start_connect(Some(from), to)?;
    if !is_connected(&socket, limit)? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let stream = TcpStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Begins to connect, from this address of the machine or from one that the kernel chooses. The socket does
/// not block.
pub fn start_connect(from: Option<IpAddr>, to: SocketAddr) -> io::Result<OwnedFd> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    if let Some(from) = from {
        bind(&socket, &SocketAddr::new(from, 0))?;
    }
    match connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// Waits for at most `limit` for a connection that was begun: whether it is there; an error if it failed.
pub fn is_connected(socket: &OwnedFd, limit: Duration) -> io::Result<bool> {
    let limit = Timespec::try_from(limit).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut polled = [PollFd::new(socket, PollFlags::OUT)];
    if retry_on_intr(|| poll(&mut polled, Some(&limit)))? == 0 {
        return Ok(false);
    }
    sockopt::socket_error(socket)??;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const SOON: Duration = Duration::from_secs(60);

    #[test]
    fn source_address_must_be_on_the_outgoing_interface() {
        let near = SocketAddr::from(([127, 0, 0, 3], 9));
        assert!(is_on_route(IpAddr::from([127, 0, 0, 9]), near));
        assert!(!is_on_route(IpAddr::from([192, 0, 2, 1]), near));
        assert_eq!(source_address(near), Some(IpAddr::from([127, 0, 0, 1])));
    }

    #[test]
    fn connect_from_uses_the_given_address() {
        let listener = TcpListener::bind("127.0.0.3:0").expect("a port");
        let to = listener.local_addr().expect("bound");
        let from = IpAddr::from([127, 0, 0, 9]);
        let stream = connect_from(from, to, SOON).expect("it listens");
        let (_, caller) = listener.accept().expect("a connection");
        assert_eq!(caller, stream.local_addr().expect("bound"));
        assert_eq!(caller.ip(), from);
    }

    #[test]
    fn connect_from_tells_refused_from_foreign_address() {
        let listener = TcpListener::bind("127.0.0.3:0").expect("a port");
        let closed = listener.local_addr().expect("bound");
        drop(listener);
        let kind = |from: [u8; 4], to| {
            let result = connect_from(from.into(), to, SOON);
            result.expect_err("not reachable").kind()
        };
        assert_eq!(kind([127, 0, 0, 9], closed), io::ErrorKind::ConnectionRefused);
        assert_eq!(kind([192, 0, 2, 1], closed), io::ErrorKind::AddrNotAvailable);
    }
}
