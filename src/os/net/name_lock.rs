//! Locks by name: a name that one process of this machine can hold at a time, in the kernel's table
//! of abstract sockets. A name is visible in its network namespace only, and is released when its
//! holder ends.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Holds `remuda/NAME` until it is dropped; `AddrInUse` if another process holds it.
pub fn claim(name: &str) -> io::Result<OwnedFd> {
    let kind = SocketType::DGRAM;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    let name = SocketAddrUnix::new_abstract_name(format!("remuda/{name}").as_bytes())?;
    rustix::net::bind(&socket, &name)?;
    Ok(socket)
}

/// Whether a process holds `remuda/NAME`.
pub fn is_held(name: &str) -> bool {
    claim(name).is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_lock_has_one_holder() {
        let name = format!("test/{}", std::process::id());
        let held = claim(&name).expect("free");
        assert_eq!(claim(&name).expect_err("taken").kind(), io::ErrorKind::AddrInUse);
        drop(held);
        claim(&name).expect("free again");
    }
}
