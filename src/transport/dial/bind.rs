//! Binds the address and port at which node 0 listens.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::notices::{NameStart, WaitNotices};
use crate::base::clock;

/// Connections that the kernel queues until node 0 accepts them.
const BACKLOG_MAX: i32 = 4096;
/// Shortest and longest pause between two look-ups of a name.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Why node 0 cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The name does not resolve.
    #[error("the name `{name}` does not resolve: {why}")]
    NoSuchName {
        /// Name or address of node 0.
        name: String,
        /// Error text of the resolver.
        why: String,
    },
    /// The name resolves to another machine.
    #[error("`{0}` is not an address of this node")]
    NotLocal(String),
    /// The port is in use.
    #[error("port {port} of `{name}` is in use")]
    Taken {
        /// Name or address of node 0.
        name: String,
        /// The port that another process listens on.
        port: u16,
    },
    /// The kernel refused.
    #[error("cannot listen on `{name}`, port {port}: {error}")]
    Os {
        /// Name or address of node 0.
        name: String,
        /// The requested port.
        port: u16,
        /// Error of `bind` or `listen`.
        error: io::Error,
    },
}

/// A socket that listens at exactly one address.
#[derive(Clone, Debug)]
pub struct BoundListener {
    pub(super) listener: Arc<TcpListener>,
    /// The address at which it listens.
    pub address: SocketAddr,
}

impl PartialEq for BoundListener {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.listener, &other.listener)
    }
}

impl Eq for BoundListener {}

impl BoundListener {
    /// Waits until the name resolves to an address of this machine, at most until `deadline`, and
    /// listens there. Names of pods begin to exist some time after the pods. At intervals,
    /// `on_wait` receives the reason of the wait and its length.
    pub async fn open(
        name: &str,
        port: u16,
        (start, deadline): (NameStart, Instant),
        mut on_wait: impl FnMut(&BindError, Duration),
    ) -> Result<Self, BindError> {
        let since = clock::now();
        let mut notices = WaitNotices::default();
        loop {
            let error = match try_open(name, port).await {
                Ok(listener) => return Ok(listener),
                Err(error) => error,
            };
            let now = clock::now();
            if !error.is_transient() || deadline <= now {
                return Err(error);
            }
            if notices.is_due_for_name(start, now - since, &error.to_string()) {
                on_wait(&error, now - since);
            }
            tokio::time::sleep(crate::transport::dial::retry_pause::share_of(
                now - since,
                PAUSE_MIN,
                PAUSE_MAX,
            ))
            .await;
        }
    }

    /// Listens at the first of these addresses that is one of this machine; `None` if none is, or if
    /// another process listens there.
    pub fn try_first(name: &str, addresses: Vec<SocketAddr>) -> Result<Option<Self>, BindError> {
        let port = addresses.first().map_or(0, SocketAddr::port);
        match bind(name, port, addresses) {
            Ok(listener) => Ok(Some(listener)),
            Err(BindError::NotLocal(_) | BindError::Taken { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl BindError {
    /// Whether the name may resolve to another address later. It may still resolve to the pod that
    /// this one replaces.
    fn is_transient(&self) -> bool {
        match self {
            Self::NoSuchName { .. } => true,
            Self::NotLocal(name) => without_brackets(name).parse::<IpAddr>().is_err(),
            Self::Taken { .. } | Self::Os { .. } => false,
        }
    }
}

/// Returns an address of IPv6 without its brackets.
pub(super) fn without_brackets(name: &str) -> &str {
    name.trim_start_matches('[').trim_end_matches(']')
}

async fn try_open(name: &str, port: u16) -> Result<BoundListener, BindError> {
    match tokio::net::lookup_host((without_brackets(name), port)).await {
        Ok(addresses) => bind(name, port, addresses.collect()),
        Err(error) => {
            let why = error.to_string();
            // Removes the resolver's error number, which adds nothing.
            let why = why.rsplit(": ").next().unwrap_or_default().to_lowercase();
            Err(BindError::NoSuchName { name: name.to_owned(), why })
        }
    }
}

fn bind(name: &str, port: u16, addresses: Vec<SocketAddr>) -> Result<BoundListener, BindError> {
    for address in addresses {
        match listen(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => match error.kind() {
                io::ErrorKind::AddrNotAvailable => {}
                io::ErrorKind::AddrInUse => {
                    return Err(BindError::Taken { name: name.to_owned(), port });
                }
                _ => return Err(BindError::Os { name: name.to_owned(), port, error }),
            },
        }
    }
    Err(BindError::NotLocal(name.to_owned()))
}

fn listen(address: SocketAddr) -> io::Result<BoundListener> {
    let listener = TcpListener::bind(address)?;
    rustix::net::listen(&listener, BACKLOG_MAX)?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok(BoundListener { listener: Arc::new(listener), address })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(name: &str, port: u16) -> Result<BoundListener, BindError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(BoundListener::open(
            name,
            port,
            (NameStart::Late, clock::now()),
            |_, _| {},
        ))
    }

    #[track_caller]
    fn check(name: &str, port: u16, expect: &str) {
        let found = match open(name, port) {
            Ok(listener) => listener.address.ip().to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expect);
    }

    #[test]
    fn node_0_listens_only_at_its_own_address() {
        check("127.0.0.3", 0, "127.0.0.3");
        check("[::1]", 0, "::1");
        check("192.0.2.1", 0, "`192.0.2.1` is not an address of this node");
        let taken = open("127.0.0.3", 0).expect("a free port");
        let port = taken.address.port();
        check("127.0.0.3", port, &format!("port {port} of `127.0.0.3` is in use"));
        check("127.0.0.4", port, "127.0.0.4");
    }
}
