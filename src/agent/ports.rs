//! The ports of node 0 and their address: the free port of rank 0 (`MASTER_PORT`), the store, and the
//! address at which other nodes connect to them.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::time::Duration;

use crate::base::{Epoch, JobId, Status, clock, env_vars};
use crate::os::net::connect_from::source_address;
use crate::os::net::ports::{PortClaim, is_claimed, is_claimed_by};
use crate::report::text::show_io_error;
use crate::report::try_print_error;
use crate::runtime::comm::store::{OnRefused, Server, ServerOptions};
use crate::secure::derive_rank_key;
use crate::wire::{MasterEndpoint, PortRequest, Prepare, Problem};

/// The address, the claimed port and the store that node 0 provides to the workers.
pub(super) struct Listening {
    addr: String,
    port: PortClaim,
    store: Option<Server>,
}

impl Listening {
    /// Returns the address and port at which rank 0 will listen.
    pub(super) fn master(&self) -> MasterEndpoint {
        MasterEndpoint { addr: self.addr.clone(), port: self.port.port() }
    }

    /// Returns the address of the store, if the workers need one.
    pub(super) fn store(&self) -> Option<SocketAddr> {
        self.store.as_ref().map(Server::address)
    }

    /// Releases the port, because rank 0 is about to be started.
    pub(super) fn release_port(&mut self) {
        self.port.release_socket();
    }
}

/// Finds the address and the port, and starts the store; `None` on nodes other than the first.
pub(super) fn open_listeners(
    job: &JobId,
    epoch: Epoch,
    prepare: &Prepare,
) -> Result<Option<Listening>, Problem> {
    let Some(listen) = &prepare.listen else {
        return Ok(None);
    };
    let (addr, ip) = listen_address(listen.addr.as_deref(), &listen.others)?;
    let port = claim_port(Some(job), listen.port)?;
    // Bound while the port is claimed, so that the store does not get that port.
    let at = SocketAddr::new(ip, listen.store_port);
    let store = if listen.store { Some(serve_store(job, epoch, prepare, at)?) } else { None };
    Ok(Some(Listening { addr, port, store }))
}

/// Returns the address at which the other nodes connect to this node: as the user gave it, and as
/// an IP address.
pub(super) fn listen_address(
    given: Option<&str>,
    others: &[String],
) -> Result<(String, IpAddr), Problem> {
    if let Some(address) = given {
        return Ok((address.to_owned(), own_address(address)?));
    }
    let connection = env_vars::get_text(env_vars::REMUDA_CONNECTION)
        .or_else(|| env_vars::get_text(env_vars::SSH_CONNECTION));
    let ip = find_address(connection.as_deref(), others)?;
    Ok((ip.to_string(), ip))
}

/// Claims the port of rank 0, of a job if there is one.
pub(super) fn claim_port(job: Option<&JobId>, request: PortRequest) -> Result<PortClaim, Problem> {
    let is_own = |port| job.is_some_and(|job| is_claimed_by(port, &job.0));
    let claim = match request {
        PortRequest::Exact(port) => PortClaim::new(port).map_err(|error| unusable(port, &error))?,
        PortRequest::Shared(port) => match PortClaim::new(port) {
            Err(_) if is_own(port) => claim_any()?,
            claim => claim.map_err(|error| unusable(port, &error))?,
        },
        PortRequest::Preferred(port) => PortClaim::new(port).or_else(|_| claim_any())?,
    };
    Ok(match job {
        Some(job) => claim.owned_by(&job.0),
        None => claim,
    })
}

fn claim_any() -> Result<PortClaim, Problem> {
    PortClaim::any().map_err(|error| {
        let message = format!("no free port for rank 0: {}", show_io_error(&error));
        Problem::new(Status::OsLimit, message)
    })
}

/// The options with which a line chooses the port of rank 0.
const CHOOSE_PORT: &str =
    "choose another port (`--master_port`, `--main_process_port` of accelerate)";

/// Why rank 0 cannot have a port, and what shows who has it.
fn unusable(port: u16, error: &io::Error) -> Problem {
    let (why, help) = match error.kind() {
        io::ErrorKind::AddrInUse if is_claimed(port) => (
            "is in use: another job of remuda keeps it for its rank 0".to_owned(),
            CHOOSE_PORT.to_owned(),
        ),
        io::ErrorKind::AddrInUse => (
            "is in use".to_owned(),
            format!(
                "{CHOOSE_PORT}; `ss -ltnp 'sport = :{port}'` on this node shows the process that uses it"
            ),
        ),
        io::ErrorKind::PermissionDenied => {
            ("needs root, as do all ports below 1024".to_owned(), CHOOSE_PORT.to_owned())
        }
        _ => (format!("cannot be used: {}", show_io_error(error)), CHOOSE_PORT.to_owned()),
    };
    Problem::new(Status::Config, format!("port {port} of rank 0 {why}")).help(help)
}

/// Resolves the address that the user chose, if it is an address of this machine.
fn own_address(text: &str) -> Result<IpAddr, Problem> {
    let problem = |why: String| {
        Problem::new(Status::Config, format!("cannot listen on `{text}`: {why}"))
            .help("`--master_addr` must be an address or a name of the first node")
    };
    let resolved = (text, 0).to_socket_addrs().map_err(|error| {
        // The resolver's own error number is left out.
        let error = error.to_string();
        problem(error.rsplit(": ").next().unwrap_or_default().to_lowercase())
    })?;
    let mut last = None;
    for address in resolved {
        match UdpSocket::bind(address) {
            Ok(_) => return Ok(address.ip()),
            Err(error) => last = Some(error),
        }
    }
    Err(problem(last.map_or_else(
        || "the name has no address".to_owned(),
        |_| "it is not an address of this node".to_owned(),
    )))
}

/// Returns the address to which the ssh client connected, because the other nodes can connect to it
/// too. If it is the node's own loopback, returns the source address of packets to another node.
fn find_address(ssh_connection: Option<&str>, others: &[String]) -> Result<IpAddr, Problem> {
    let (client, server) = ssh_connection.map_or((None, None), parse_ssh_connection);
    match server {
        Some(server) if others.is_empty() || !server.is_loopback() => return Ok(server),
        None if others.is_empty() => return Ok(Ipv4Addr::LOCALHOST.into()),
        _ => {}
    }
    // The name of another node may resolve to this machine here; then the next name is tried.
    let routed: Vec<IpAddr> = others.iter().filter_map(|other| source_address_to(other)).collect();
    let far = routed.iter().find(|address| !address.is_loopback()).or(routed.first()).copied();
    let far = far.or_else(|| source_address_to(&client?.to_string()));
    far.or(server).ok_or_else(|| {
        let message = "no address is known at which the other nodes can connect to this node";
        Problem::new(Status::Config, message).help("set one with `--master_addr`")
    })
}

/// Returns client and server of `SSH_CONNECTION`, which is `CLIENT PORT SERVER PORT`.
fn parse_ssh_connection(text: &str) -> (Option<IpAddr>, Option<IpAddr>) {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let address = |index: usize| {
        let address: IpAddr = words.get(index)?.parse().ok()?;
        Some(address.to_canonical())
    };
    (address(0), address(2))
}

/// Returns the source address for a host by the kernel's routes; nothing is sent.
fn source_address_to(host: &str) -> Option<IpAddr> {
    const DISCARD: u16 = 9;
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    (bare, DISCARD).to_socket_addrs().ok()?.find_map(source_address)
}

/// Starts the store on this address.
fn serve_store(
    job: &JobId,
    epoch: Epoch,
    prepare: &Prepare,
    at: SocketAddr,
) -> Result<Server, Problem> {
    let key = prepare.key.clone();
    let limit = prepare.rank_limit;
    let options = ServerOptions {
        job: job.clone(),
        epoch,
        key_of: Box::new(move |rank| (rank.0 < limit).then(|| derive_rank_key(&key, epoch, rank))),
        on_refused: on_refused(),
    };
    Server::bind(at, options).map_err(|error| {
        let at = if at.port() == 0 { at.ip().to_string() } else { at.to_string() };
        let message = format!("the store cannot listen on {at}: {}", show_io_error(&error));
        Problem::new(Status::OsLimit, message)
    })
}

/// Returns the callback that prints a connection that the store rejected, at most once per 10 s.
fn on_refused() -> OnRefused {
    const PAUSE: Duration = Duration::from_secs(10);
    let printed_at = Cell::new(None);
    Box::new(move |address, why| {
        let now = clock::now();
        if printed_at.get().is_none_or(|at| at + PAUSE <= now) {
            printed_at.set(Some(now));
            try_print_error(&format!(
                "remuda agent: the store rejected a connection from {address}: {why}\n"
            ));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_address(connection: Option<&str>, others: &[&str], expect: &str) {
        let others: Vec<String> = others.iter().map(ToString::to_string).collect();
        let found = match find_address(connection, &others) {
            Ok(address) => address.to_string(),
            Err(problem) => problem.message,
        };
        assert_eq!(found, expect);
    }

    #[test]
    fn node_address_is_that_of_its_sshd() {
        check_address(Some("10.0.0.9 51000 10.0.0.1 22"), &["n1"], "10.0.0.1");
        check_address(Some("fd00::9 51000 fd00::1 22"), &["n1"], "fd00::1");
        check_address(Some("::ffff:10.0.0.9 1 ::ffff:10.0.0.1 22"), &["n1"], "10.0.0.1");
        check_address(Some("127.0.0.1 51000 127.0.0.1 22"), &[], "127.0.0.1");
    }

    #[test]
    fn loopback_is_not_an_address_for_other_nodes() {
        // Packets to this other node leave from its own address, so it is this machine.
        check_address(Some("127.0.0.1 51000 127.0.0.1 22"), &["127.0.0.2"], "127.0.0.1");
        check_address(None, &["127.0.0.2"], "127.0.0.1");
        check_address(None, &["[::1]"], "::1");
        check_address(Some("127.0.0.1 5 127.0.0.3 22"), &["no.such.host.invalid"], "127.0.0.1");
    }

    #[test]
    fn address_of_single_node_is_loopback() {
        check_address(None, &[], "127.0.0.1");
        check_address(Some("UNKNOWN 65535 UNKNOWN 65535"), &[], "127.0.0.1");
        let none = "no address is known at which the other nodes can connect to this node";
        check_address(None, &["no.such.host.invalid"], none);
        check_address(Some("nonsense"), &["no.such.host.invalid"], none);
    }

    #[test]
    fn master_addr_of_another_machine_is_refused() {
        let problem = own_address("192.0.2.1").expect_err("reserved for documents");
        let why = "cannot listen on `192.0.2.1`: it is not an address of this node";
        assert_eq!(problem.message, why);
        assert!(own_address("localhost").expect("every machine has one").is_loopback());
    }
}
