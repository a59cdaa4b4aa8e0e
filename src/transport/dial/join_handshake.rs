//! Handshake of a node that joins: the node proves that it has the key, then sends its plan. Both
//! sides, over TCP.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::control_messages::{Control, Join, JoinRefusal};
use super::rules::Rules;
use super::secure_channel::{self, Received, SecureReader, SecureWriter};
use crate::base::{Epoch, JobId, NodeRank, Status};
use crate::plan::{self, NamedOutline, WORKERS_MAX};
use crate::secure::{
    Channel, FIRST_FLIGHT_BYTES_MAX, Flight, FlightError, HandshakeError, HandshakeReply, JobKey,
    Preamble, RankKey, Role, accept, derive_agent_key, derive_newcomer_key, dial, parse_flight,
    parse_reply,
};
use crate::transport::{Absence, Fault, FaultKind};

/// A node that has proved its key and has the same plan.
pub(super) struct Joiner {
    /// `None`: node 0 gives it a number.
    pub(super) node: Option<NodeRank>,
    pub(super) peer: SocketAddr,
    /// The name of its machine.
    pub(super) machine: String,
    /// First epoch of the job in which the node has not taken part.
    pub(super) next_epoch: Epoch,
    /// Number of restarts that do not count against `--max_restarts`.
    pub(super) free_restarts: u32,
    /// Number of workers that its own line starts; `None`: it starts those that node 0 sends.
    pub(super) own_workers: Option<u32>,
    /// How its line differs, if it executes another one than node 0.
    pub(super) other_line: Option<String>,
    pub(super) writer: SecureWriter,
    pub(super) reader: SecureReader,
}

/// Why a connection was rejected.
#[derive(Debug, thiserror::Error)]
pub(super) enum Rejection {
    #[error(transparent)]
    Flight(#[from] FlightError),
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// The handshake failed for the node number that the connection claimed.
    #[error("as node {0}: {1}")]
    OtherKey(NodeRank, HandshakeError),
    #[error("the connection was closed before the handshake")]
    Incomplete,
    #[error("node {0} is not expected: this job has {1} nodes")]
    NoSuchNode(NodeRank, usize),
    #[error("it is not an agent")]
    NotAgent,
    #[error("unexpected message instead of Join")]
    UnexpectedMessage,
    /// The peer has the key, and looked only whether node 0 is here.
    #[error(
        "a process of this job looked for node 0 and did not join: was another one started as node 0?"
    )]
    NoJoin,
    /// The node has the key and received the reason.
    #[error("{}", .0.why)]
    Unfit(Box<UnfitNode>),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A node that has the job's key and cannot take part in the job.
#[derive(Debug)]
pub(super) struct UnfitNode {
    /// `None`: it has no number.
    pub(super) node: Option<NodeRank>,
    /// The reason that the node received.
    pub(super) why: String,
    /// `None`: the node belongs to another job, and this job continues without it.
    pub(super) absence: Option<Absence>,
}

/// The side of node 0. A connection without the key gets no reply; a node with the key receives the
/// reason of a refusal.
pub(super) async fn receive(
    mut stream: TcpStream,
    peer: SocketAddr,
    rules: &Rules,
) -> Result<Joiner, Rejection> {
    secure_channel::set_socket_options(&stream, rules.lease)?;
    let (flight, left) = read_first_flight(&mut stream).await?;
    let node = match flight.preamble.role {
        Role::Agent(node) if !rules.expects(node) => {
            return Err(Rejection::NoSuchNode(node, rules.hosts.len()));
        }
        Role::Agent(node) => Some(node),
        Role::Newcomer => None,
        Role::Rank(..) | Role::Peer { .. } => return Err(Rejection::NotAgent),
    };
    let accepted = accept(&flight, &agent_key(&rules.key, node));
    let accepted = accepted.map_err(|error| match node {
        Some(node) => Rejection::OtherKey(node, error),
        None => Rejection::Handshake(error),
    })?;
    let fresh = accepted.epoch;
    let (reply, channel) = accepted.reply(&HandshakeReply::Welcome)?;
    let channel = channel.expect("an accepted caller has a channel");
    stream.write_all(&reply).await?;
    let (mut writer, mut reader) = secure_channel::split(stream, channel, left);
    let join = match reader.next().await? {
        Some(Received::Control(Control::Join(join))) => join,
        Some(Received::Control(_) | Received::Link(_)) => return Err(Rejection::UnexpectedMessage),
        None => return Err(Rejection::NoJoin),
    };
    let other_line =
        match check_join(&join, (node, peer), rules, (&mut writer, &mut reader)).await? {
            JoinCheck::Fits => None,
            JoinCheck::OtherLine(difference) => Some(difference),
            JoinCheck::Unfit(refusal, absence) => {
                let why = refusal.text.clone();
                // The refusal holds even if the node closes the connection before it has received the
                // reason.
                let _ = writer.send_control(&Control::Refused(refusal)).await;
                writer.shutdown().await;
                return Err(Rejection::Unfit(Box::new(UnfitNode { node, why, absence })));
            }
        };
    let Join { own_workers, free_restarts, machine, .. } = join;
    let next_epoch = fresh;
    Ok(Joiner {
        node,
        peer,
        machine,
        next_epoch,
        free_restarts,
        own_workers,
        other_line,
        writer,
        reader,
    })
}

/// The key of a node, or of one without a number.
fn agent_key(key: &JobKey, node: Option<NodeRank>) -> RankKey {
    node.map_or_else(|| derive_newcomer_key(key), |node| derive_agent_key(key, node))
}

async fn read_first_flight(stream: &mut TcpStream) -> Result<(Flight, Vec<u8>), Rejection> {
    let mut received = Vec::with_capacity(FIRST_FLIGHT_BYTES_MAX);
    loop {
        if let Some(flight) = parse_flight(&received)? {
            received.drain(..flight.bytes);
            return Ok((flight, received));
        }
        let room = (FIRST_FLIGHT_BYTES_MAX - received.len()) as u64;
        if (&mut *stream).take(room).read_buf(&mut received).await? == 0 {
            return Err(Rejection::Incomplete);
        }
    }
}

/// Whether a node that has the key can take part.
enum JoinCheck {
    /// It has the same plan.
    Fits,
    /// It executes another line on the same nodes: how the lines differ.
    OtherLine(String),
    /// It cannot take part; `None`: it belongs to another job.
    Unfit(JoinRefusal, Option<Absence>),
}

/// Whether a node that has the key also has the same job and plan, and can start its workers.
async fn check_join(
    join: &Join,
    (node, peer): (Option<NodeRank>, SocketAddr),
    rules: &Rules,
    (writer, reader): (&mut SecureWriter, &mut SecureReader),
) -> Result<JoinCheck, Rejection> {
    let never = |status: Status, text, absence| {
        let refusal = JoinRefusal { status: status.code(), text, is_transient: false };
        Ok(JoinCheck::Unfit(refusal, absence))
    };
    let at = || format!("the node at {}", peer.ip().to_canonical());
    let (name, whole_name) = match node {
        Some(node) => (format!("node {node}"), rules.name_of(node)),
        None => (at(), at()),
    };
    if join.build != rules.build {
        let text = format!(
            "{whole_name} is build {} of remuda, node 0 is build {}\n",
            join.build, rules.build
        );
        let fault = Fault::new(FaultKind::OtherBuild, text.trim_end());
        return never(Status::Protocol, text, Some(Absence::Fault(fault)));
    }
    if join.job != rules.job {
        let text =
            format!("{whole_name} belongs to job `{}`, node 0 to job `{}`\n", join.job, rules.job);
        return never(Status::Config, text, None);
    }
    if let Some(first) = join.problems.first() {
        let why = first.message.replace(char::is_control, "?");
        let text = format!("{whole_name} cannot take part: {why}\n");
        let absence = Absence::Unfit(join.problems.clone());
        return never(Status::Worker(first.status), text, Some(absence));
    }
    let most = WORKERS_MAX / rules.hosts.len().max(1) as u32;
    if let Some(workers) = join.own_workers.filter(|workers| !(1..=most).contains(workers)) {
        let text = format!("{whole_name} would start {workers} workers; the limit is {most}\n");
        return never(Status::Config, text, None);
    }
    if join.digest == rules.digest {
        return Ok(JoinCheck::Fits);
    }
    writer.send_control(&Control::ShowPlan).await?;
    let Some(Received::Control(Control::Outline(lines))) = reader.next().await? else {
        return Err(Rejection::UnexpectedMessage);
    };
    let own = NamedOutline { name: "node 0", lines: &rules.outline };
    let difference = plan::show_difference(own, NamedOutline { name: &name, lines: &lines });
    if rules.has_own_lines && plan::has_same_nodes(&rules.outline, &lines) {
        return Ok(JoinCheck::OtherLine(difference));
    }
    let text = format!("{whole_name} was started with another line than node 0\n{difference}");
    let lines: Vec<_> = difference.lines().map(str::trim_start).collect();
    let words = format!("its line differs from that of node 0\n{}", lines.join("\n"));
    let fault = Fault::new(FaultKind::OtherPlan, words);
    never(Status::Config, text, Some(Absence::Fault(fault)))
}

/// What a joining node sends about itself.
pub(super) struct Introduction<'a> {
    /// `None`: node 0 gives it a number.
    pub(super) node: Option<NodeRank>,
    pub(super) key: &'a JobKey,
    pub(super) join: Join,
    pub(super) outline: &'a [String],
    /// First epoch of the job in which the node has not taken part.
    pub(super) next_epoch: Epoch,
    /// Time without data after which a link counts as lost.
    pub(super) lease: Duration,
}

/// The result of an attempt to join.
pub(super) enum JoinOutcome {
    Joined(NodeRank, SecureWriter, SecureReader),
    Refused(JoinRefusal),
    /// Node 0 closed the connection without a reply.
    Closed,
    /// The program that accepted the connection is not remuda: what it sent.
    Foreign(String),
}

/// The reply to the first flight of a handshake.
pub(super) enum FlightReply {
    /// The listener has the key: the connection, and what it received after the reply.
    Accepted(Channel, TcpStream, Vec<u8>),
    /// The listener closed the connection without a reply.
    Closed,
    /// The listener is not remuda: what it sent.
    Foreign(String),
}

/// Sends the first flight of a node to a listener, and receives the reply.
pub(super) async fn send_first_flight(
    mut stream: TcpStream,
    (job, node): (&JobId, Option<NodeRank>),
    key: &JobKey,
    next_epoch: Epoch,
) -> io::Result<FlightReply> {
    let role = node.map_or(Role::Newcomer, Role::Agent);
    let preamble = Preamble { job: job.clone(), role };
    // The connection is used in all later epochs; the frames carry the epoch number.
    let (dialed, flight) =
        dial(&preamble, &agent_key(key, node), next_epoch).map_err(io::Error::other)?;
    stream.write_all(&flight).await?;
    let mut received = Vec::new();
    let (message, bytes) = loop {
        match parse_reply(&received) {
            Ok(Some(reply)) => break reply,
            Ok(None) => {}
            Err(_) => return Ok(FlightReply::Foreign(first_words(&received))),
        }
        match stream.read_buf(&mut received).await {
            Ok(0) => return Ok(FlightReply::Closed),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                return Ok(FlightReply::Closed);
            }
            read => read?,
        };
    };
    match dialed.finish(&message) {
        Ok(channel) => Ok(FlightReply::Accepted(channel, stream, received.split_off(bytes))),
        // A node 0 with another key sends no reply.
        Err(HandshakeError::Key | HandshakeError::Malformed) => {
            Ok(FlightReply::Foreign(first_words(&received)))
        }
        Err(error) => Err(io::Error::other(error)),
    }
}

/// The beginning of what another program sent, for a message.
fn first_words(received: &[u8]) -> String {
    const CHARS_MAX: usize = 40;
    let text = String::from_utf8_lossy(received);
    let line = text.lines().next().unwrap_or_default();
    line.chars().take(CHARS_MAX).collect::<String>().escape_debug().to_string()
}

/// The side of the other nodes.
pub(super) async fn request_join(
    stream: TcpStream,
    node: &Introduction<'_>,
) -> io::Result<JoinOutcome> {
    secure_channel::set_socket_options(&stream, node.lease)?;
    let caller = (&node.join.job, node.node);
    let (channel, stream, received) =
        match send_first_flight(stream, caller, node.key, node.next_epoch).await? {
            FlightReply::Accepted(channel, stream, received) => (channel, stream, received),
            FlightReply::Closed => return Ok(JoinOutcome::Closed),
            FlightReply::Foreign(words) => return Ok(JoinOutcome::Foreign(words)),
        };
    let (mut writer, mut reader) = secure_channel::split(stream, channel, received);
    writer.send_control(&Control::Join(node.join.clone())).await?;
    loop {
        match reader.next().await? {
            Some(Received::Control(Control::Joined(number))) => {
                return Ok(JoinOutcome::Joined(number, writer, reader));
            }
            Some(Received::Control(Control::Refused(refusal))) => {
                return Ok(JoinOutcome::Refused(refusal));
            }
            Some(Received::Control(Control::ShowPlan)) => {
                writer.send_control(&Control::Outline(node.outline.to_vec())).await?;
            }
            Some(Received::Control(_) | Received::Link(_)) => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "unexpected message during the handshake",
                ));
            }
            None => return Ok(JoinOutcome::Closed),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use crate::transport::dial::KeyOrigin;
    use crate::wire::Problem;

    fn rules() -> Rules {
        Rules {
            job: JobId("a".to_owned()),
            key: JobKey::from_random([7; 32]),
            key_origin: KeyOrigin::File("key".to_owned()),
            lease: Duration::from_secs(60),
            build: "1",
            digest: [0; 32],
            outline: Vec::new(),
            has_own_lines: false,
            has_first: true,
            hosts: vec!["n0".to_owned(), "n1".to_owned()],
        }
    }

    fn join() -> Join {
        let (build, job) = ("1".to_owned(), JobId("a".to_owned()));
        let (machine, problems) = ("m".to_owned(), Vec::new());
        let (digest, own_workers) = ([0; 32], None);
        Join { build, job, digest, own_workers, free_restarts: 0, machine, problems }
    }

    /// The reason that node 1 receives.
    async fn refusal(join: Join) -> Option<JoinRefusal> {
        let rules = rules();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let node_0 = async {
            let (stream, peer) = listener.accept().await.expect("a connection");
            drop(receive(stream, peer, &rules).await);
        };
        let node_1 = async {
            let stream = TcpStream::connect(address).await.expect("it listens");
            let introduction = Introduction {
                node: Some(NodeRank(1)),
                key: &rules.key,
                join,
                outline: &[],
                next_epoch: Epoch(0),
                lease: rules.lease,
            };
            match request_join(stream, &introduction).await {
                Ok(JoinOutcome::Refused(refusal)) => Some(refusal),
                Ok(JoinOutcome::Joined(..) | JoinOutcome::Closed | JoinOutcome::Foreign(_))
                | Err(_) => None,
            }
        };
        tokio::join!(node_0, node_1).1
    }

    #[test]
    fn node_of_another_build_or_job_is_refused() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let text = |join| runtime.block_on(refusal(join)).map(|refusal| refusal.text);
        let other = Join { build: "2".to_owned(), ..join() };
        let expect = "node 1 (n1) is build 2 of remuda, node 0 is build 1\n";
        assert_eq!(text(other).as_deref(), Some(expect));
        let other = Join { job: JobId("b".to_owned()), ..join() };
        let expect = "node 1 (n1) belongs to job `b`, node 0 to job `a`\n";
        assert_eq!(text(other).as_deref(), Some(expect));
        let problems = vec![Problem::new(Status::NoInput, "no script\x1b[2J")];
        // Its plan does not matter: it starts nothing.
        let unfit = Join { problems, digest: [1; 32], ..join() };
        let expect = "node 1 (n1) cannot take part: no script?[2J\n";
        assert_eq!(text(unfit).as_deref(), Some(expect));
        // A peer decides the size of what node 0 keeps for it, within a limit.
        for workers in [0, u32::MAX] {
            let many = Join { own_workers: Some(workers), ..join() };
            let expect =
                format!("node 1 (n1) would start {workers} workers; the limit is 524288\n");
            assert_eq!(text(many), Some(expect));
        }
        assert_eq!(text(join()), None, "node 0 only closes the connection");
    }
}
