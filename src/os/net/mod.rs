//! Addresses, ports and names of this machine.

pub mod connect_from;
pub mod interfaces;
pub mod local_sockets;
#[cfg(feature = "cli")]
pub mod name_lock;
#[cfg(feature = "cli")]
pub mod ports;
