//! Sockets between processes of this machine whose names are in the kernel's table of abstract sockets: a name is
//! visible in its network namespace only, and is released when its holder ends. Packets carry descriptors
//! ([`send_packet`](crate::os::files::fds::send_packet)).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::base::clock;

/// Listens at a name, for at most `backlog` connections that wait.
pub fn listen(name: &str, backlog: i32) -> io::Result<OwnedFd> {
    let socket = packet_socket()?;
    rustix::net::bind(&socket, &abstract_name(name)?)?;
    rustix::net::listen(&socket, backlog)?;
    Ok(socket)
}

/// Connects to a process that listens at a name.
pub fn connect(name: &str) -> io::Result<OwnedFd> {
    let socket = packet_socket()?;
    rustix::io::retry_on_intr(|| rustix::net::connect(&socket, &abstract_name(name)?))?;
    Ok(socket)
}

/// Accepts the next connection; `TimedOut` if there is none.
pub fn accept(listener: &OwnedFd, until: Instant) -> io::Result<OwnedFd> {
    wait_readable(listener, until)?;
    Ok(rustix::io::retry_on_intr(|| rustix::net::accept_with(listener, SocketFlags::CLOEXEC))?)
}

/// Waits until a socket can be read or was closed; `TimedOut` if it is not.
pub fn wait_readable(socket: impl AsFd, until: Instant) -> io::Result<()> {
    loop {
        let left = until.saturating_duration_since(clock::now());
        let limit = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut polled = [PollFd::new(&socket, PollFlags::IN)];
        match rustix::event::poll(&mut polled, Some(&limit)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns whether the process at the other end has the user of this one.
pub fn has_own_user(socket: impl AsFd) -> io::Result<bool> {
    let peer = rustix::net::sockopt::socket_peercred(socket)?;
    Ok(peer.uid == rustix::process::geteuid())
}

fn packet_socket() -> io::Result<OwnedFd> {
    let kind = SocketType::SEQPACKET;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?)
}

fn abstract_name(name: &str) -> rustix::io::Result<SocketAddrUnix> {
    SocketAddrUnix::new_abstract_name(format!("remuda/{name}").as_bytes())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::os::files::fds::{recv_packet, send_packet};

    #[test]
    fn descriptor_passes_over_a_named_socket() {
        let name = format!("test/sockets/{}", std::process::id());
        let soon = || clock::now() + Duration::from_secs(60);
        let listener = listen(&name, 1).unwrap();
        let passed = Duration::ZERO;
        assert_eq!(
            accept(&listener, clock::now() + passed).unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
        let client = connect(&name).unwrap();
        let server = accept(&listener, soon()).unwrap();
        assert!(has_own_user(&server).unwrap() && has_own_user(&client).unwrap());
        send_packet(&server, b"x", &[listener.as_fd()]).unwrap();
        wait_readable(&client, soon()).unwrap();
        let mut buffer = [0; 8];
        let (len, fds) = recv_packet(&client, &mut buffer).unwrap();
        assert_eq!((len, fds.len()), (1, 1));
        drop(server);
        wait_readable(&client, soon()).unwrap();
        assert_eq!(recv_packet(&client, &mut buffer).unwrap().0, 0);
        assert!(connect(&format!("{name}/other")).is_err());
    }
}
