//! Claims of free TCP ports of this machine for processes that bind them later.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::os::net::name_lock;

/// Maximum number of attempts with a port that the kernel chooses.
const TRIES_MAX: u32 = 16;

/// A claimed port that was free on every address of this machine. Nothing listens on it:
/// connections are refused.
///
/// Two locks protect the port. A bound socket excludes all processes, and must be closed before the
/// owner can bind the port. A name in the kernel's table of sockets excludes other claims of remuda
/// until this value is dropped, because a program may take seconds before it listens.
#[derive(Debug)]
pub struct PortClaim {
    port: u16,
    /// Its own name, and that with its owner.
    names: [Option<OwnedFd>; 2],
    socket: Option<OwnedFd>,
}

impl PortClaim {
    /// Claims this port.
    pub fn new(port: u16) -> io::Result<Self> {
        Self::of(bind_everywhere(port)?)
    }

    /// Claims a port that the kernel chooses.
    pub fn any() -> io::Result<Self> {
        let mut claim = Self::new(0);
        for _ in 1..TRIES_MAX {
            if claim.is_ok() {
                break;
            }
            claim = Self::new(0);
        }
        claim
    }

    fn of(socket: OwnedFd) -> io::Result<Self> {
        let port = port_of(&socket)?;
        let name = match name_lock::claim(&claim_name(port)) {
            Ok(name) => Some(name),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Err(error),
            // Without the name, the socket still protects the port.
            Err(_) => None,
        };
        Ok(Self { port, names: [name, None], socket: Some(socket) })
    }

    /// Notes for other processes whose claim this is; see [`is_claimed_by`].
    #[must_use]
    pub fn owned_by(mut self, owner: &str) -> Self {
        // Without the name, other processes cannot know the owner.
        self.names[1] = name_lock::claim(&owner_name(self.port, owner)).ok();
        self
    }

    /// Returns the number of the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Closes the socket, so that the port's owner can bind it.
    pub fn release_socket(&mut self) {
        self.socket = None;
    }
}

/// Whether a process of remuda has claimed a port.
pub fn is_claimed(port: u16) -> bool {
    name_lock::is_held(&claim_name(port))
}

/// Whether a process has claimed a port for this owner.
pub fn is_claimed_by(port: u16, owner: &str) -> bool {
    name_lock::is_held(&owner_name(port, owner))
}

fn claim_name(port: u16) -> String {
    format!("port/{port}")
}

fn owner_name(port: u16, owner: &str) -> String {
    format!("port/{port}/{owner}")
}

/// Binds as rank 0 of torch does: on every address, and beside connections in TIME_WAIT.
fn bind_everywhere(port: u16) -> io::Result<OwnedFd> {
    let any: [SocketAddr; 2] = [
        SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0).into(),
        SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port).into(),
    ];
    match bind(any[0]) {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => bind(any[1]),
        bound => bound,
    }
}

fn bind(address: SocketAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    Ok(socket)
}

fn port_of(socket: &OwnedFd) -> io::Result<u16> {
    let address = SocketAddr::try_from(rustix::net::getsockname(socket)?)?;
    Ok(address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn port_claim_excludes_claims_after_socket_release() {
        let mut claim = PortClaim::any().expect("there are ports");
        let again = || PortClaim::new(claim.port()).expect_err("taken").kind();
        assert_eq!(again(), io::ErrorKind::AddrInUse);
        claim.release_socket();
        let again = PortClaim::new(claim.port()).expect_err("taken").kind();
        assert_eq!(again, io::ErrorKind::AddrInUse);
        TcpListener::bind(("127.0.0.1", claim.port())).expect("its owner can have it");
    }

    #[test]
    fn port_in_use_on_one_address_cannot_be_claimed() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let error = PortClaim::new(port).expect_err("taken");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
