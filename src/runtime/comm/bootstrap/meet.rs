//! Meeting of ranks that another launcher has started, through a key-value store of their program.
//!
//! Every rank shows where it runs. Ranks that can pass descriptors to each other — one boot of one machine, one
//! network namespace, one user — are a node, whatever their hosts are called. The first rank of a node creates the
//! segment and passes it to the others over a named socket; the connections remain, so that the end of a process is
//! noticed. If there are several nodes, rank 0 serves the store at which their ranks find each other, with a key that
//! only those know who can read the store of the program.
//!
//! | key | value |
//! |---|---|
//! | `remuda/rank/R` | neighbourhood and host of rank R |
//! | `remuda/segment/R` | name of the socket of rank R, the first one of its node |
//! | `remuda/job` | name of the job, key, port of the store of rank 0 |

use std::io;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use crate::base::{Epoch, JobId, Rank, clock};
use crate::os::files::fds::{recv_packet, send_packet};
use crate::os::machine::{machine_name, neighbourhood};
use crate::os::net::local_sockets::{accept, connect, has_own_user, listen, wait_readable};
use crate::os::random::random_digits;
use crate::runtime::comm::bootstrap::join::{Membership, serve_store};
use crate::runtime::comm::bootstrap::watchdog::{Neighbour, Sources};
use crate::runtime::comm::core::options::InitOptions;
use crate::runtime::comm::shm::segment::Segment;
use crate::runtime::comm::store::Server;
use crate::runtime::contract::{NodeRanks, Welcome};
use crate::runtime::error::{Error, Result};
use crate::secure::{JobKey, derive_rank_key};

/// Store of a program through which its ranks meet. Keys and values are short texts.
pub trait KeyValue {
    /// Sets a key.
    fn set(&self, key: &str, value: &str) -> io::Result<()>;

    /// Waits until a key is set, and returns its value.
    fn get(&self, key: &str) -> io::Result<String>;
}

/// Ranks that meet.
pub(crate) struct Meeting<'a> {
    pub(crate) store: &'a dyn KeyValue,
    /// Name or IP address at which other hosts reach rank 0.
    pub(crate) address: &'a str,
    pub(crate) rank: usize,
    pub(crate) world: usize,
    /// Text that the ranks of a node share.
    pub(crate) place: String,
}

/// Memory of the node, and connections to its ranks.
struct SharedSegment {
    segment: Arc<Segment>,
    neighbours: Vec<Neighbour>,
}

/// Job of several nodes.
struct MetJob {
    id: JobId,
    key: JobKey,
    store: SocketAddr,
    server: Option<Server>,
}

impl<'a> Meeting<'a> {
    /// Meeting of this process.
    pub(crate) fn new(
        store: &'a dyn KeyValue,
        address: &'a str,
        rank: usize,
        world: usize,
    ) -> Self {
        let place = neighbourhood().unwrap_or_else(|| format!("rank-{rank}"));
        Self { store, address, rank, world, place }
    }

    /// Meets the other ranks.
    pub(crate) fn join(&self, options: &InitOptions) -> Result<Membership> {
        if self.world <= self.rank {
            let Self { rank, world, .. } = self;
            return Err(Error::BadArgument(format!("rank {rank} is not less than {world}")));
        }
        let until = clock::after(clock::now(), options.timeout);
        let nodes = self.find_nodes()?;
        let own = Rank(self.rank as u32);
        let is_own = |node: &&NodeRanks| node.ranks.contains(&own);
        let node = nodes.iter().find(is_own).expect("every rank is on a node");
        let SharedSegment { segment, neighbours } = self.share_segment(node, until)?;
        let job = if nodes.len() == 1 { None } else { Some(self.agree_on_job()?) };
        // A job on one node has no listener, and needs no key.
        let key =
            job.as_ref().map_or_else(|| JobKey::of_public_name("node"), |job| job.key.clone());
        let welcome = Welcome {
            job: job.as_ref().map_or_else(|| JobId("met".to_owned()), |job| job.id.clone()),
            epoch: Epoch(0),
            rank: own,
            key: derive_rank_key(&key, Epoch(0), own),
            store: job.as_ref().map(|job| job.store),
            nodes,
        };
        let sources = Sources { neighbours, ..Sources::default() };
        let mut membership = Membership::from_welcome(&welcome, segment, sources, options)?;
        membership.links.server = job.and_then(|job| job.server).map(Arc::new);
        Ok(membership)
    }

    /// Nodes of the ranks, in the order of their first ranks.
    fn find_nodes(&self) -> Result<Vec<NodeRanks>> {
        self.set("rank", Some(self.rank), &format!("{} {}", self.place, machine_name()))?;
        let mut nodes: Vec<(String, NodeRanks)> = Vec::new();
        for rank in 0..self.world {
            let text = self.get("rank", Some(rank))?;
            let (place, host) =
                text.split_once(' ').ok_or_else(|| malformed("rank", Some(rank), &text))?;
            let rank = Rank(rank as u32);
            if let Some((_, node)) = nodes.iter_mut().find(|(known, _)| known == place) {
                node.ranks.push(rank);
            } else {
                let node = NodeRanks { host: host.to_owned(), ranks: vec![rank] };
                nodes.push((place.to_owned(), node));
            }
        }
        Ok(nodes.into_iter().map(|(_, node)| node).collect())
    }

    /// Creates the segment of the node as its first rank, or receives it from there.
    fn share_segment(&self, node: &NodeRanks, until: Instant) -> Result<SharedSegment> {
        let first = node.ranks[0];
        if first.index() == self.rank {
            return self.create_segment(node, until);
        }
        let name = self.get("segment", Some(first.index()))?;
        let received = receive_segment(&name, self.rank, until);
        let (socket, segment) = received.map_err(Error::os("receive the segment of the node"))?;
        let neighbours = vec![Neighbour { rank: first, socket }];
        Ok(SharedSegment { segment: Segment::attach(segment)?, neighbours })
    }

    fn create_segment(&self, node: &NodeRanks, until: Instant) -> Result<SharedSegment> {
        let segment = Segment::create(node.ranks.len())?;
        let mut neighbours = Vec::new();
        if 1 < node.ranks.len() {
            let name = random_digits().map_err(Error::os("choose the name of a socket"))?;
            let backlog = node.ranks.len() as i32;
            let listener = listen(&name, backlog).map_err(Error::os("listen at a socket"))?;
            self.set("segment", Some(self.rank), &name)?;
            while neighbours.len() + 1 < node.ranks.len() {
                let passed = pass_segment(&listener, &segment, until);
                let neighbour = passed.map_err(Error::os("pass the segment of the node"))?;
                let Some(neighbour) = neighbour else { continue };
                let is_known =
                    neighbours.iter().any(|known: &Neighbour| known.rank == neighbour.rank);
                if node.ranks[1..].contains(&neighbour.rank) && !is_known {
                    neighbours.push(neighbour);
                }
            }
        }
        Ok(SharedSegment { segment: Segment::attach(segment)?, neighbours })
    }

    /// Serves the store as rank 0, or finds it there.
    fn agree_on_job(&self) -> Result<MetJob> {
        if self.rank != 0 {
            return self.find_job();
        }
        let random = || random_digits().map_err(Error::os("choose a key"));
        let (name, secret) = (random()?, random()?);
        let (id, key) = (JobId(name[..8].to_owned()), key_of(&secret)?);
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        let any_v4 = SocketAddr::from(([0, 0, 0, 0], 0));
        let serve = |address| serve_store(address, &id, Epoch(0), key.clone(), self.world);
        // A machine without IPv6 has addresses of IPv4 only.
        let server = serve(any).or_else(|_| serve(any_v4))?;
        let port = server.address().port();
        self.set("job", None, &format!("{} {secret} {port}", id.0))?;
        let loopback = SocketAddr::from(([127, 0, 0, 1], port));
        Ok(MetJob { id, key, store: loopback, server: Some(server) })
    }

    fn find_job(&self) -> Result<MetJob> {
        let text = self.get("job", None)?;
        let words: Vec<&str> = text.split(' ').collect();
        let [id, secret, port] = words[..] else { return Err(malformed("job", None, &text)) };
        let port: u16 = port.parse().map_err(|_| malformed("job", None, &text))?;
        let found = (self.address, port).to_socket_addrs();
        let mut found = found.map_err(Error::os("find the address of rank 0"))?;
        let problem = || Error::BadArgument(format!("`{}` has no IP address", self.address));
        let store = found.next().ok_or_else(problem)?;
        Ok(MetJob { id: JobId(id.to_owned()), key: key_of(secret)?, store, server: None })
    }

    fn set(&self, name: &str, rank: Option<usize>, value: &str) -> Result<()> {
        let set = self.store.set(&key_name(name, rank), value);
        set.map_err(Error::os("write to the store of the program"))
    }

    fn get(&self, name: &str, rank: Option<usize>) -> Result<String> {
        let value = self.store.get(&key_name(name, rank));
        value.map_err(Error::os("read from the store of the program"))
    }
}

/// Passes the segment to the next rank that connects; `None` for a process that is not one.
fn pass_segment(
    listener: &OwnedFd,
    segment: &OwnedFd,
    until: Instant,
) -> io::Result<Option<Neighbour>> {
    let socket = accept(listener, until)?;
    if !has_own_user(&socket)? {
        return Ok(None);
    }
    wait_readable(&socket, until)?;
    let mut number = [0; 4];
    if recv_packet(&socket, &mut number)?.0 != number.len() {
        return Ok(None);
    }
    send_packet(&socket, b"segment", &[segment.as_fd()])?;
    Ok(Some(Neighbour { rank: Rank(u32::from_le_bytes(number)), socket }))
}

/// Connects to the first rank of the node; returns the connection and the segment.
fn receive_segment(name: &str, rank: usize, until: Instant) -> io::Result<(OwnedFd, OwnedFd)> {
    let socket = connect(name)?;
    if !has_own_user(&socket)? {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    send_packet(&socket, &(rank as u32).to_le_bytes(), &[])?;
    wait_readable(&socket, until)?;
    let (_, mut fds) = recv_packet(&socket, &mut [0; 16])?;
    let segment = fds.pop().ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok((socket, segment))
}

fn key_of(secret: &str) -> Result<JobKey> {
    JobKey::from_text(secret.as_bytes()).map_err(|error| Error::BadArgument(error.to_string()))
}

fn key_name(name: &str, rank: Option<usize>) -> String {
    match rank {
        Some(rank) => format!("remuda/{name}/{rank}"),
        None => format!("remuda/{name}"),
    }
}

fn malformed(name: &str, rank: Option<usize>, value: &str) -> Error {
    let key = key_name(name, rank);
    Error::BadArgument(format!("the store of the program has `{value}` at `{key}`"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Condvar, Mutex};

    use super::*;
    use crate::runtime::comm::bootstrap::join::Membership;

    /// Store of threads.
    #[derive(Default)]
    struct Shared {
        values: Mutex<BTreeMap<String, String>>,
        changed: Condvar,
    }

    impl KeyValue for Shared {
        fn set(&self, key: &str, value: &str) -> io::Result<()> {
            self.values.lock().unwrap().insert(key.to_owned(), value.to_owned());
            self.changed.notify_all();
            Ok(())
        }

        fn get(&self, key: &str) -> io::Result<String> {
            let values = self.values.lock().unwrap();
            let values = self.changed.wait_while(values, |values| !values.contains_key(key));
            Ok(values.unwrap()[key].clone())
        }
    }

    fn meet(places: &[&str]) -> Vec<Membership> {
        let store = Shared::default();
        let options = InitOptions::default();
        let (store, options, world) = (&store, &options, places.len());
        std::thread::scope(|scope| {
            let joining: Vec<_> = places
                .iter()
                .enumerate()
                .map(|(rank, place)| {
                    let place = (*place).to_owned();
                    scope.spawn(move || {
                        let address = "127.0.0.1";
                        let meeting = Meeting { store, address, rank, world, place };
                        meeting.join(options).unwrap()
                    })
                })
                .collect();
            joining.into_iter().map(|member| member.join().unwrap()).collect()
        })
    }

    #[test]
    fn ranks_of_one_place_share_memory() {
        for places in [&["a"][..], &["a", "a", "a"], &["a", "b", "a"], &["a", "b"]] {
            let members = meet(places);
            let nodes: Vec<usize> =
                (0..places.len()).map(|rank| usize::from(places[rank] == "b")).collect();
            for (rank, member) in members.iter().enumerate() {
                assert_eq!(member.roster.placement.node_of_all(), nodes, "{places:?}");
                assert_eq!(member.inter_node.is_some(), nodes.contains(&1));
                let own: Vec<usize> =
                    (0..places.len()).filter(|other| nodes[*other] == nodes[rank]).collect();
                assert_eq!(member.segment.local_world(), own.len());
                assert_eq!(member.local_rank, own.iter().position(|own| *own == rank).unwrap());
            }
        }
    }

    #[test]
    fn values_of_another_program_are_refused() {
        let store = Shared::default();
        store.set("remuda/rank/1", "nothing").unwrap();
        let place = "a".to_owned();
        let meeting = Meeting { store: &store, address: "", rank: 0, world: 2, place };
        let error = meeting.find_nodes().unwrap_err().to_string();
        assert_eq!(error, "the store of the program has `nothing` at `remuda/rank/1`");
        let outside = Meeting { rank: 2, ..meeting };
        let error = outside.join(&InitOptions::default()).err().unwrap().to_string();
        assert_eq!(error, "rank 2 is not less than 2");
    }
}
