//! Rendezvous: a process becomes a rank through its agent, through a key file, or as one of several
//! threads.

use std::ffi::OsString;
use std::io::Read;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::num::NonZero;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::base::{Epoch, JobId, Rank, clock, env_vars};
use crate::os::cpu::memory::duplicate_inherited;
use crate::os::files::input_file::{self, InputReader};
use crate::os::machine::machine_name;
use crate::runtime::comm::bootstrap::watchdog::{Sources, Watchdog};
use crate::runtime::comm::core::options::{InitOptions, STREAMS_MAX};
use crate::runtime::comm::core::roster::RankRoster;
use crate::runtime::comm::host::agent_link::AgentLink;
use crate::runtime::comm::host::inter_node::InterNode;
use crate::runtime::comm::shm::error::SegmentError;
use crate::runtime::comm::shm::segment::Segment;
use crate::runtime::comm::store::{Client, ClientError, Server, ServerOptions, StoreIdentity};
use crate::runtime::comm::tcp::mesh::Mesh;
use crate::runtime::contract::{ContractError, FrameReader, ToWorker, Welcome};
use crate::runtime::error::{Error, Result};
use crate::runtime::schedule::Placement;
use crate::secure::{JobKey, KEY_FILE_BYTES_MAX, Purpose, derive_rank_key};

/// Time limit for the agent's welcome; the agent has started this process, so it is running.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(60);

/// State of a rank from which its group is created.
pub(crate) struct Membership {
    pub(crate) roster: Arc<RankRoster>,
    pub(crate) segment: Arc<Segment>,
    pub(crate) inter_node: Option<InterNode>,
    pub(crate) local_rank: usize,
    pub(crate) restart_count: u32,
    /// Connection to the agent, if there is one.
    pub(crate) agent: Option<Arc<AgentLink>>,
    pub(crate) links: Links,
}

/// Resources that live as long as the group, besides its memory.
#[derive(Default)]
pub(crate) struct Links {
    #[expect(dead_code, reason = "its drop stops the thread")]
    pub(crate) watchdog: Option<Watchdog>,
    /// The store's server, if this rank serves the store. Dropped last, after this rank's own
    /// clients.
    pub(crate) server: Option<Arc<Server>>,
}

impl Membership {
    /// Joins the job that the environment describes.
    pub(crate) fn from_env(options: &InitOptions) -> Result<Self> {
        let options = &InitOptions { streams: requested_streams(options)?, ..options.clone() };
        if let Some(fd) = env_vars::get(env_vars::REMUDA_RANK_FD) {
            return Self::from_agent(&fd, options);
        }
        if let Some(path) = env_vars::get(env_vars::REMUDA_KEY_FILE) {
            return Self::from_key_file(&path, options);
        }
        // These variables are set for a job of several ranks.
        if [env_vars::RANK, env_vars::WORLD_SIZE].iter().all(|name| env_vars::get(name).is_some()) {
            let problem = "missing: set it to the path of a file with a secret of at least 16 bytes, \
                           the same on all ranks";
            return Err(bad_environment(env_vars::REMUDA_KEY_FILE, problem));
        }
        let program = std::env::args_os().next().unwrap_or_else(|| OsString::from("./worker"));
        Err(Error::NoEnvironment { program: program.to_string_lossy().into_owned() })
    }

    /// Whether this process is the worker of a job, and not one that the worker has started.
    pub(crate) fn is_of_worker() -> bool {
        let rank_fd = env_vars::get(env_vars::REMUDA_RANK_FD);
        let files = rank_fd.map(|rank_fd| inherited_files(&rank_fd));
        files.is_some_and(|files| !matches!(files, Err(Error::ChildOfWorker { .. })))
    }

    fn from_agent(rank_fd: &OsString, options: &InitOptions) -> Result<Self> {
        static IN_USE: AtomicBool = AtomicBool::new(false);
        if IN_USE.swap(true, Ordering::SeqCst) {
            return Err(Error::JoinedBefore);
        }
        let (mut stream, segment) = inherited_files(rank_fd)?;
        let mut reader = FrameReader::from_agent();
        let welcome = read_welcome(&mut stream, &mut reader, clock::now() + WELCOME_TIMEOUT)?;
        check_world(&welcome)?;
        stream.set_nonblocking(true).map_err(Error::os("set up the socket to the agent"))?;
        let notes = stream.try_clone().map_err(Error::os("duplicate the socket to the agent"))?;
        let sources = Sources { agent: Some((stream, reader)), ..Sources::default() };
        let mut membership = Self::from_welcome(&welcome, segment, sources, options)?;
        membership.agent = Some(Arc::new(AgentLink::new(notes)));
        Ok(membership)
    }

    /// Joins the job that the agent's welcome describes.
    pub(crate) fn from_welcome(
        welcome: &Welcome,
        segment: Arc<Segment>,
        mut sources: Sources,
        options: &InitOptions,
    ) -> Result<Self> {
        let mut roster = RankRoster::of_job(welcome.rank.index(), welcome.placement()?);
        if segment.local_world() != roster.local_ranks().len() {
            let problem = "the shared memory segment is for a different number of workers";
            return Err(ContractError::InvalidWelcome(problem).into());
        }
        let net = match (roster.placement.nodes(), welcome.store) {
            (1, _) => None,
            (_, None) => {
                let problem = "the address of the store is missing";
                return Err(ContractError::InvalidWelcome(problem).into());
            }
            (_, Some(address)) => {
                let identity = StoreIdentity {
                    job: welcome.job.clone(),
                    epoch: welcome.epoch,
                    rank: welcome.rank,
                    key: welcome.key.clone(),
                    advertised_ip: local_address()?,
                };
                Some(join_mesh(address, &identity, &mut roster, &mut sources, options)?)
            }
        };
        let roster = Arc::new(roster);
        let inter_node = net.map(|net| InterNode::new(net, roster.clone()));
        let watchdog = Watchdog::start(sources, roster.clone(), segment.clone())
            .map_err(Error::os("start the watchdog thread"))?;
        Ok(Self {
            local_rank: roster.local_rank(),
            restart_count: welcome.epoch.0,
            roster,
            segment,
            inter_node,
            agent: None,
            links: Links { watchdog: Some(watchdog), ..Links::default() },
        })
    }

    /// Joins a job that another launcher has started: rank 0 serves the store, and every rank is a
    /// node of its own.
    fn from_key_file(path: &OsString, options: &InitOptions) -> Result<Self> {
        let key = read_key(path)?;
        let rank = number_from_env(env_vars::RANK)?;
        let world = number_from_env(env_vars::WORLD_SIZE)?;
        let local_rank = number_from_env(env_vars::LOCAL_RANK).unwrap_or(0);
        if world <= rank {
            return Err(bad_environment(env_vars::RANK, "not less than `WORLD_SIZE`"));
        }
        let address = master_address()?;
        let (job, epoch) = (JobId("keyfile".to_owned()), Epoch(0));
        let mut membership = match rank {
            0 => {
                let server = serve_store(address, &job, epoch, key.clone(), world)?;
                let mut first =
                    Self::from_key(server.address(), &job, epoch, &key, 0, world, options)?;
                first.links.server = Some(Arc::new(server));
                first
            }
            _ => Self::from_key(address, &job, epoch, &key, rank, world, options)?,
        };
        membership.local_rank = local_rank;
        Ok(membership)
    }

    /// Joins as a node of one rank; all ranks derive their keys from the same secret.
    fn from_key(
        store: SocketAddr,
        job: &JobId,
        epoch: Epoch,
        key: &JobKey,
        rank: usize,
        world: usize,
        options: &InitOptions,
    ) -> Result<Self> {
        use crate::runtime::contract::NodeRanks;
        let own = Rank(rank as u32);
        let host = machine_name();
        let node = |rank| NodeRanks { host: host.clone(), ranks: vec![Rank(rank)] };
        let welcome = Welcome {
            job: job.clone(),
            epoch,
            rank: own,
            nodes: (0..world as u32).map(node).collect(),
            key: derive_rank_key(key, epoch, own),
            store: Some(store),
        };
        let segment = Segment::attach(Segment::create(1)?)?;
        Self::from_welcome(&welcome, segment, Sources::default(), options)
    }
}

/// Creates ranks that are threads of this process, on simulated nodes: the `ranks_of_nodes[n]`
/// ranks of node `n` share memory, and nodes communicate over TCP on loopback.
pub(crate) fn simulate(ranks_of_nodes: &[usize], options: &InitOptions) -> Result<Vec<Membership>> {
    use crate::runtime::contract::NodeRanks;
    let world: usize = ranks_of_nodes.iter().sum();
    if world == 0 || ranks_of_nodes.contains(&0) {
        return Err(Error::BadArgument("every node needs at least one rank".to_owned()));
    }
    let (job, epoch) = (JobId("threads".to_owned()), Epoch(0));
    let key = JobKey::generate()
        .map_err(|_| Error::os("generate a key")(std::io::Error::last_os_error()))?;
    let server =
        Arc::new(serve_store(([127, 0, 0, 1], 0).into(), &job, epoch, key.clone(), world)?);
    let mut next = 0;
    let mut nodes = Vec::new();
    for (node, ranks) in ranks_of_nodes.iter().enumerate() {
        let ranks = (next..next + *ranks as u32).map(Rank).collect::<Vec<_>>();
        next += ranks.len() as u32;
        nodes.push(NodeRanks { host: format!("node{node}"), ranks });
    }
    std::thread::scope(|scope| {
        let mut joining = Vec::new();
        for node in &nodes {
            let segment = Segment::attach(Segment::create(node.ranks.len())?)?;
            for rank in &node.ranks {
                let welcome = Welcome {
                    job: job.clone(),
                    epoch,
                    rank: *rank,
                    nodes: nodes.clone(),
                    key: derive_rank_key(&key, epoch, *rank),
                    store: Some(server.address()),
                };
                let segment = segment.clone();
                joining.push(scope.spawn(move || {
                    Membership::from_welcome(&welcome, segment, Sources::default(), options)
                }));
            }
        }
        let mut members = Vec::new();
        for member in joining {
            let mut member = member.join().expect("joining returns errors and does not panic")?;
            member.links.server = Some(server.clone());
            members.push(member);
        }
        Ok(members)
    })
}

/// Creates ranks that are threads of this process and share memory.
pub(crate) fn threads(ranks: usize) -> Result<Vec<Membership>> {
    if ranks == 0 {
        return Err(Error::BadArgument("a group needs at least one rank".to_owned()));
    }
    let segment = Segment::attach(Segment::create(ranks)?)?;
    let placement = Placement::one_node("localhost", ranks);
    let member = |rank| Membership {
        roster: Arc::new(RankRoster::of_job(rank, placement.clone())),
        segment: segment.clone(),
        inter_node: None,
        local_rank: rank,
        restart_count: 0,
        agent: None,
        links: Links::default(),
    };
    Ok((0..ranks).map(member).collect())
}

fn join_mesh(
    address: SocketAddr,
    identity: &StoreIdentity,
    roster: &mut RankRoster,
    sources: &mut Sources,
    options: &InitOptions,
) -> Result<Mesh> {
    let deadline = clock::after(clock::now(), options.timeout);
    let connect = |purpose| Client::connect(address, identity, purpose, deadline);
    let store = connect(Purpose::Ask).map_err(store_error(address, "connect"))?;
    sources.store = Some(connect(Purpose::Watch).map_err(store_error(address, "connect"))?);
    let (rank, world) = (roster.rank, roster.placement.world_size());
    let host = roster.placement.host_of(rank).to_owned();
    let net = Mesh::join(identity.job.clone(), rank, world, &host, options, store, deadline)
        .map_err(store_error(address, "find the other ranks"))?;
    // Without an agent, only the ranks themselves know the names of their hosts.
    roster.placement.rename_hosts(|rank| net.peers()[rank].host.clone());
    Ok(net)
}

fn store_error(address: SocketAddr, action: &'static str) -> impl Fn(ClientError) -> Error {
    move |source| Error::Store { address, action, source }
}

/// Number of streams that the options request, or else the environment.
fn requested_streams(options: &InitOptions) -> Result<Option<NonZero<u8>>> {
    let Some(text) = env_vars::get_text(env_vars::REMUDA_STREAMS) else {
        return Ok(options.streams);
    };
    let streams = text.parse::<NonZero<u8>>().ok();
    let streams = streams.filter(|streams| usize::from(streams.get()) <= STREAMS_MAX);
    let problem = || format!("`{text}`, which is not a number from 1 to {STREAMS_MAX}");
    let streams = streams.ok_or_else(|| bad_environment(env_vars::REMUDA_STREAMS, problem()))?;
    Ok(options.streams.or(Some(streams)))
}

/// Checks that the welcome contains all ranks of the world. Nodes that were started one by one
/// (`--no_ssh`) have no common store: a group of only some ranks of the world would silently compute
/// wrong results.
fn check_world(welcome: &Welcome) -> Result<()> {
    let connected: usize = welcome.nodes.iter().map(|node| node.ranks.len()).sum();
    let world =
        env_vars::get_text(env_vars::WORLD_SIZE).and_then(|text| text.parse::<usize>().ok());
    match world {
        Some(world) if world != connected => {
            let problem = format!(
                "{world}, but only {connected} of these ranks are connected: nodes that are started \
                 one by one (`--no_ssh`) have no common store"
            );
            Err(bad_environment(env_vars::WORLD_SIZE, problem))
        }
        _ => Ok(()),
    }
}

fn bad_environment(name: &'static str, problem: impl Into<String>) -> Error {
    Error::BadEnvironment { name, problem: problem.into() }
}

/// The socket to the agent and the segment of the node, which the agent passes to a worker. A process that a worker
/// starts has the variables, too, but seldom the descriptors, and other files may have their numbers.
fn inherited_files(rank_fd: &OsString) -> Result<(UnixStream, Arc<Segment>)> {
    let shm_fd = env_vars::get(env_vars::REMUDA_SHM_FD)
        .ok_or_else(|| bad_environment(env_vars::REMUDA_SHM_FD, "missing"))?;
    let child = || {
        let rank = env_vars::get_text(env_vars::RANK).unwrap_or_else(|| "?".to_owned());
        Error::ChildOfWorker { rank }
    };
    let open = |value: &OsString| {
        let number = value.to_str().and_then(|text| text.parse().ok());
        number.and_then(duplicate_inherited).ok_or_else(child)
    };
    let segment = Segment::attach(open(&shm_fd)?).map_err(|error| match error {
        SegmentError::Foreign | SegmentError::NotSealed => child(),
        error => error.into(),
    })?;
    Ok((UnixStream::from(open(rank_fd)?), segment))
}

fn read_welcome(
    stream: &mut UnixStream,
    reader: &mut FrameReader,
    deadline: Instant,
) -> Result<Welcome> {
    let os = || Error::os("read from the agent");
    let mut bytes = [0; 4096];
    loop {
        match reader.next()? {
            Some(ToWorker::Welcome(welcome)) => return Ok(*welcome),
            Some(ToWorker::PeerGone { .. } | ToWorker::PeerEnded { .. }) => {
                return Err(ContractError::NoWelcome.into());
            }
            None => {}
        }
        let left = deadline.saturating_duration_since(clock::now()).max(Duration::from_millis(1));
        stream.set_read_timeout(Some(left)).map_err(os())?;
        match stream.read(&mut bytes) {
            Ok(0) => return Err(ContractError::NoWelcome.into()),
            Ok(count) => reader.push(&bytes[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(os()(error)),
        }
    }
}

pub(super) fn serve_store(
    address: SocketAddr,
    job: &JobId,
    epoch: Epoch,
    key: JobKey,
    world: usize,
) -> Result<Server> {
    let key_of =
        move |rank: Rank| (rank.index() < world).then(|| derive_rank_key(&key, epoch, rank));
    let options = ServerOptions {
        job: job.clone(),
        epoch,
        key_of: Box::new(key_of),
        // A worker has no log for rejected connections.
        on_refused: Box::new(|_, _| {}),
    };
    Server::bind(address, options).map_err(Error::os("listen for the other ranks"))
}

fn read_key(path: &OsString) -> Result<JobKey> {
    let mut text = Vec::new();
    let shown = path.to_string_lossy();
    let file = input_file::open(Path::new(path)).and_then(InputReader::new).map_err(|error| {
        bad_environment(
            env_vars::REMUDA_KEY_FILE,
            format!("`{shown}`, which cannot be opened: {error}"),
        )
    })?;
    let mut file = file.take(KEY_FILE_BYTES_MAX as u64 + 1);
    file.read_to_end(&mut text).map_err(Error::os("read the key file"))?;
    JobKey::from_text(&text)
        .map_err(|error| bad_environment(env_vars::REMUDA_KEY_FILE, format!("`{shown}`: {error}")))
}

fn number_from_env(name: &'static str) -> Result<usize> {
    let text = env_vars::get_text(name).ok_or_else(|| bad_environment(name, "missing"))?;
    text.parse().map_err(|_| bad_environment(name, format!("`{text}`, which is not a number")))
}

fn master_address() -> Result<SocketAddr> {
    let host = env_vars::get_text(env_vars::MASTER_ADDR)
        .ok_or_else(|| bad_environment(env_vars::MASTER_ADDR, "missing"))?;
    let port = number_from_env(env_vars::MASTER_PORT)?;
    let port = u16::try_from(port).map_err(|_| {
        bad_environment(env_vars::MASTER_PORT, format!("`{port}`, which is not a port number"))
    })?;
    let mut addresses = (host.as_str(), port)
        .to_socket_addrs()
        .map_err(|error| bad_environment(env_vars::MASTER_ADDR, format!("`{host}`: {error}")))?;
    addresses.next().ok_or_else(|| {
        bad_environment(env_vars::MASTER_ADDR, format!("`{host}`, which has no IP address"))
    })
}

/// Returns the local address at which this rank listens for other ranks, if the environment sets it.
fn local_address() -> Result<Option<IpAddr>> {
    let Some(text) = env_vars::get_text(env_vars::REMUDA_LOCAL_ADDR) else { return Ok(None) };
    let address = text.parse();
    address.map(Some).map_err(|_| {
        bad_environment(
            env_vars::REMUDA_LOCAL_ADDR,
            format!("`{text}`, which is not an IP address"),
        )
    })
}
