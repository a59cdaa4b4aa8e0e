//! What a process on a node must know to join: one line of text, with the key of the job. It travels on
//! standard input or in a private file, never in arguments or the environment.

use std::collections::HashSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::{JobId, NodeRank};
use crate::secure::JobKey;
use crate::transport::dial::{Dialer, KeyOrigin, NameStart};

/// Largest line that is read.
const LINE_BYTES_MAX: usize = 16 << 20;

/// How a node joins a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticket {
    /// Build of the launcher.
    pub build: String,
    /// Name of the job.
    pub job: JobId,
    /// Key of the job.
    pub key: JobKey,
    /// Addresses of the launcher, in the order in which they are tried.
    pub addresses: Vec<String>,
    /// Port at which the launcher accepts nodes.
    pub port: u16,
    /// Digest of the plan.
    pub digest: [u8; 32],
    /// Time without data after which a link counts as lost, in milliseconds.
    pub lease_ms: u32,
    /// Time limit of joining, in milliseconds.
    pub join_limit_ms: u32,
    /// The hosts on which the command starts a process, in its order.
    pub hosts: Vec<TicketHost>,
    /// Whether the process manager numbers processes in this order.
    pub is_numbered: bool,
}

/// A host on which a command starts a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketHost {
    /// Its name in the hostfile or the allocation.
    pub name: String,
    /// Which node of the job it is.
    pub node: NodeRank,
}

/// Why a text is no ticket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    /// It was made by another build, or is no ticket at all.
    #[error("standard input has no ticket of this build of remuda")]
    Malformed,
    /// The launcher is another build.
    #[error("this is build {own} of remuda, the launcher is build {launcher}", own = env!("CARGO_PKG_VERSION"))]
    OtherBuild {
        /// Build of the launcher.
        launcher: String,
    },
}

impl Ticket {
    /// Returns the ticket as a line of text.
    pub fn to_line(&self) -> String {
        let bytes = postcard::to_allocvec(self).expect("names and numbers always serialize");
        let mut line = String::with_capacity(2 * bytes.len() + 1);
        for byte in bytes {
            line.push(char::from(HEX[usize::from(byte >> 4)]));
            line.push(char::from(HEX[usize::from(byte & 15)]));
        }
        line + "\n"
    }

    /// Parses a line.
    ///
    /// # Errors
    /// If the line is no ticket, or that of another build.
    pub fn parse(line: &str) -> Result<Self, TicketError> {
        let digits = line.trim_end().as_bytes();
        if LINE_BYTES_MAX < digits.len() {
            return Err(TicketError::Malformed);
        }
        let value = |digit: u8| HEX.iter().position(|known| *known == digit);
        let byte = |pair: &[u8; 2]| Some((value(pair[0])? << 4 | value(pair[1])?) as u8);
        let (pairs, rest) = digits.as_chunks::<2>();
        let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        let bytes = bytes.filter(|_| rest.is_empty()).ok_or(TicketError::Malformed)?;
        let ticket: Self = postcard::from_bytes(&bytes).map_err(|_| TicketError::Malformed)?;
        if ticket.build != env!("CARGO_PKG_VERSION") {
            return Err(TicketError::OtherBuild { launcher: ticket.build });
        }
        Ok(ticket)
    }

    /// Which node the machine with these names is; `number` is that of its process in the command. `None`:
    /// it has no part in the job.
    pub fn node_of(&self, names: &[String], number: Option<usize>) -> Option<NodeRank> {
        let named = hosts_named(&self.hosts, names).next();
        let numbered = || self.hosts.get(number.filter(|_| self.is_numbered)?);
        named.or_else(numbered).map(|host| host.node)
    }

    /// Returns what connects the node to the launcher.
    pub fn dialer(&self, node: NodeRank) -> Dialer {
        Dialer {
            typed_port: None,
            name_start: NameStart::Early,
            addresses: self.addresses.clone(),
            port: self.port,
            local_addr: None,
            node: Some(node),
            key: self.key.clone(),
            key_origin: KeyOrigin::File("the ticket".to_owned()),
            job: self.job.clone(),
            lease: Duration::from_millis(self.lease_ms.into()),
            build: env!("CARGO_PKG_VERSION"),
            digest: self.digest,
            outline: Vec::new(),
            own_workers: None,
            next_epoch: crate::base::Epoch(0),
            free_restarts: 0,
            problems: Vec::new(),
        }
    }
}

/// The hosts that have one of these names, with or without their domains.
pub(super) fn hosts_named<'a>(
    hosts: &'a [TicketHost],
    names: &[String],
) -> impl Iterator<Item = &'a TicketHost> + use<'a> {
    let short = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    // A command can have thousands of hosts, and all of them can be named at once.
    let whole: HashSet<String> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
    let shortened: HashSet<String> = names.iter().map(|name| short(name)).collect();
    hosts.iter().filter(move |host| {
        let is_address = host.name.parse::<std::net::IpAddr>().is_ok();
        whole.contains(&host.name.to_ascii_lowercase())
            || !is_address && shortened.contains(&short(&host.name))
    })
}

const HEX: [u8; 16] = *b"0123456789abcdef";

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(hosts: &[&str]) -> Ticket {
        let host = |(node, name): (u32, &&str)| TicketHost {
            name: (*name).to_owned(),
            node: NodeRank(node + 4),
        };
        Ticket {
            build: env!("CARGO_PKG_VERSION").to_owned(),
            job: JobId("j".to_owned()),
            key: JobKey::from_random([7; 32]),
            addresses: vec!["10.0.0.1".to_owned()],
            port: 7,
            digest: [1; 32],
            lease_ms: 1,
            join_limit_ms: 2,
            hosts: (0..).zip(hosts).map(host).collect(),
            is_numbered: true,
        }
    }

    #[test]
    fn ticket_is_a_line_of_text() {
        let ticket = ticket(&["n1", "n2"]);
        let line = ticket.to_line();
        assert!(line.trim_end().bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_eq!(Ticket::parse(&line), Ok(ticket));
        for other in ["", "0", "zz", &line[..line.len() / 2]] {
            assert_eq!(Ticket::parse(other), Err(TicketError::Malformed), "{other}");
        }
    }

    #[test]
    fn ticket_of_another_build_is_refused() {
        let other = Ticket { build: "0.0.1".to_owned(), ..ticket(&[]) };
        let error = Ticket::parse(&other.to_line()).expect_err("another build");
        assert_eq!(error, TicketError::OtherBuild { launcher: "0.0.1".to_owned() });
    }

    #[test]
    fn node_is_found_by_a_name_or_by_its_number() {
        let ticket = ticket(&["n1", "N2.cluster", "10.0.0.3"]);
        let node = |names: &[&str], number| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            ticket.node_of(&names, number).map(|node| node.0)
        };
        assert_eq!(node(&["n1.cluster"], None), Some(4));
        assert_eq!(node(&["x", "n2"], Some(0)), Some(5), "a name outranks a number");
        assert_eq!(node(&["10.0.0.3"], None), Some(6));
        assert_eq!(node(&["10.1.1.1"], None), None, "addresses have no short names");
        assert_eq!(node(&["x"], Some(2)), Some(6));
        assert_eq!(node(&["x"], Some(3)), None);
    }
}
