//! Addresses of the network interfaces of this machine.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns every address of an interface that is up, with the name of the interface.
pub fn addresses() -> io::Result<Vec<(String, IpAddr)>> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: libc fills the pointer with a list that this function owns until `freeifaddrs`.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: every element is valid until the list is freed, and the last one has no next.
    while let Some(entry) = unsafe { next.as_ref() } {
        if entry.ifa_flags & libc::IFF_UP as u32 != 0
            && let Some(address) = address_of(entry)
        {
            // SAFETY: the name is a C string inside the list.
            let name = unsafe { CStr::from_ptr(entry.ifa_name) };
            found.push((name.to_string_lossy().into_owned(), address));
        }
        next = entry.ifa_next;
    }
    // SAFETY: the list is from `getifaddrs`, and no pointer into it is kept.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// Returns the IP address of an entry; `None` if it is neither IPv4 nor IPv6.
fn address_of(entry: &libc::ifaddrs) -> Option<IpAddr> {
    // SAFETY: the address is absent, or has the length of its family inside the list.
    let family = i32::from(unsafe { entry.ifa_addr.as_ref() }?.sa_family);
    match family {
        libc::AF_INET => {
            // SAFETY: the address is of this family, so it is as long as this type; it may be
            // unaligned.
            let address = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let address = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_has_a_loopback_address() {
        let found = addresses().expect("the kernel reports them");
        assert!(found.contains(&("lo".to_owned(), Ipv4Addr::LOCALHOST.into())), "{found:?}");
    }
}
