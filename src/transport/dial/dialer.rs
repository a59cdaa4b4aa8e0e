//! The connecting side: the other nodes connect to node 0 until it accepts them.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use std::{fmt, io};

use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Notify;

use super::control_messages::{Join, JoinRefusal};
use super::join_handshake::{Introduction, JoinOutcome, request_join};
use super::join_wait::JoinWait;
use super::member::MemberConnection;
use super::notices::{NameStart, WaitNotices};
use super::rules::KeyOrigin;
use crate::base::{Epoch, JobId, NodeRank, Status, clock};
use crate::os::machine::node_name;
use crate::os::net::connect_from::is_on_route;
use crate::plan::help_for_sizes;
use crate::secure::JobKey;
use crate::wire::Problem;

/// Shortest pause between two attempts while the kernel refuses the connection, which costs almost nothing.
const REFUSED_PAUSE_MIN: Duration = Duration::from_millis(20);
/// Shortest pause while the name does not exist yet: a thousand nodes may query one name server.
const UNRESOLVED_PAUSE_MIN: Duration = Duration::from_millis(100);
/// Pause after the first attempt that was accepted and failed, which costs node 0 a handshake. The
/// pause doubles after each further one.
const REJECTED_PAUSE_MIN: Duration = Duration::from_millis(100);
/// Longest pause between two attempts. It is short, because all nodes wait for the last one.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Time limit of one attempt.
const ATTEMPT_MAX: Duration = Duration::from_secs(10);
/// Number of consecutive connections closed without a reply after which the keys are taken to
/// differ. A few may be closed by something in between, such as the proxy of a service mesh.
const CLOSED_MAX: u32 = 10;
/// Number of consecutive connections closed without a reply that decides the message at the time
/// limit, whatever followed them. Fewer may be closed by a node 0 that is killed in between.
const CLOSED_EVIDENCE_MIN: u32 = 3;
/// Time after which a listener that does not reply is reported: node 0 ends a handshake after as long.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// The address of node 0, and the identity of this node.
#[derive(Clone, Debug)]
pub struct Dialer {
    /// Names or addresses of node 0, in the order in which they are tried.
    pub addresses: Vec<String>,
    /// Port at which node 0 accepts agents.
    pub port: u16,
    /// The port that the user has typed in its place, from which it follows.
    pub typed_port: Option<u16>,
    /// When those names begin to exist.
    pub name_start: NameStart,
    /// Local address of the connection, if that is on the path to node 0.
    pub local_addr: Option<IpAddr>,
    /// Number of this node; `None`: node 0 gives it one.
    pub node: Option<NodeRank>,
    /// Key of the job.
    pub key: JobKey,
    /// Where the key is from.
    pub key_origin: KeyOrigin,
    /// Id of the job.
    pub job: JobId,
    /// Time without data after which a link counts as lost.
    pub lease: Duration,
    /// Build of this binary.
    pub build: &'static str,
    /// Digest of this node's plan.
    pub digest: [u8; 32],
    /// The plan in lines.
    pub outline: Vec<String>,
    /// Number of workers that this node's own line starts; `None`: this node starts those that node 0 sends.
    pub own_workers: Option<u32>,
    /// First epoch of the job in which this node has not taken part.
    pub next_epoch: Epoch,
    /// Number of restarts that do not count against `--max_restarts`: no failure caused them.
    pub free_restarts: u32,
    /// Why this node cannot start its workers: with a reason it connects only to report it.
    pub problems: Vec<Problem>,
}

/// Why this node is not a part of the job.
#[derive(Debug, thiserror::Error)]
pub enum JoinFault {
    /// Node 0 did not reply in time: its address, and the last reason.
    #[error("node 0 ({0}) did not answer: {1}")]
    NoAnswer(String, String),
    /// Node 0 closed this many consecutive connections, as it does if the key differs.
    #[error(
        "node 0 ({called}) closed {closed} connections without a reply: {}",
        .own.show_difference()
    )]
    OtherKey {
        /// Address and port of node 0.
        called: String,
        /// Number of closed connections.
        closed: u32,
        /// Where this node's key is from.
        own: KeyOrigin,
        /// Fingerprint of this node's key.
        fingerprint: String,
    },
    /// Another program listens at the address of node 0: the address, and how that shows.
    #[error("node 0 ({0}) did not answer: {1}")]
    OtherProgram(String, String),
    /// Node 0 refused this node for the given reason.
    #[error("{}", .0.text.trim_end())]
    Refused(JoinRefusal),
}

impl JoinFault {
    /// The exit status for this fault.
    pub fn status(&self) -> Status {
        match self {
            Self::NoAnswer(..) | Self::OtherProgram(..) => Status::Unreachable,
            Self::OtherKey { .. } => Status::Permission,
            Self::Refused(refusal) => Status::Worker(refusal.status),
        }
    }

    /// Advice for the user.
    pub fn help(&self) -> String {
        match self {
            Self::NoAnswer(..) => {
                "check that node 0 runs, at the address and port of this line; its screen lists the nodes \
                 that it waits for"
                    .to_owned()
            }
            Self::OtherProgram(called, _) => format!(
                "start node 0 with remuda, as all other nodes, or give the job another port; on the machine of node \
                 0, `ss -ltnp 'sport = :{}'` shows the program",
                // A port that the user has typed in its place may follow.
                called.split(", ").next().and_then(|at| at.rsplit(':').next()).unwrap_or_default()
            ),
            Self::OtherKey { own: KeyOrigin::File(file), fingerprint, .. } => format!(
                "give every node the same key file (in pods: the same Secret); this node's key has the \
                 fingerprint {fingerprint} ({file}); node 0 prints the fingerprint of its own key"
            ),
            Self::OtherKey { own: own @ KeyOrigin::RunId(_), .. } => {
                let run_id = match own.given_run_id() {
                    Some(run_id) => format!("`--rdzv-id` (here `{run_id}`)"),
                    None => "run id (none here)".to_owned(),
                };
                format!(
                    "start every node with remuda, the same {run_id} and number of nodes, and give all or none of \
                     them a key file; if node 0 is that of another job, set another port for one of the jobs"
                )
            }
            Self::Refused(refusal) => help_for_sizes(&refusal.text)
                .unwrap_or(
                    "start every node with the same command line, hosts and remuda; only the number of the node \
                     differs",
                )
                .to_owned(),
        }
    }
}

/// Why one attempt failed.
enum AttemptError {
    /// No program accepted the connection; a short reason.
    Unreachable(String),
    /// The name does not resolve; a short reason.
    Unresolved(String),
    Closed,
    /// A program accepted the connection and sent nothing.
    Silent,
    /// A program that is not remuda accepted the connection and sent this.
    Foreign(String),
    Refused(JoinRefusal),
}

impl AttemptError {
    /// The same for the line about the wait.
    fn as_wait(&self) -> JoinWait {
        let why = self.to_string();
        match self {
            Self::Unresolved(_) => JoinWait::Unresolved(why),
            Self::Unreachable(_) => JoinWait::Unreachable(why),
            Self::Closed | Self::Silent | Self::Foreign(_) | Self::Refused(_) => {
                JoinWait::NotAccepted(why)
            }
        }
    }

    /// Whether a line about the wait is due with this reason.
    fn is_notice_due(&self, notices: &mut WaitNotices, start: NameStart, waited: Duration) -> bool {
        let shown = self.to_string();
        match self {
            Self::Silent | Self::Foreign(_) => notices.is_due_at_once(waited, &shown),
            Self::Unresolved(_) => notices.is_due_for_name(start, waited, &shown),
            Self::Unreachable(_) | Self::Closed | Self::Refused(_) => {
                notices.is_due(waited, &shown)
            }
        }
    }

    /// Whether a program other than remuda is the likely reason.
    fn is_of_other_program(&self) -> bool {
        match self {
            Self::Silent | Self::Foreign(_) => true,
            Self::Unreachable(_) | Self::Unresolved(_) | Self::Closed | Self::Refused(_) => false,
        }
    }

    /// What a program that is not remuda has sent.
    fn foreign_words(&self) -> Option<&str> {
        match self {
            Self::Foreign(words) => Some(words),
            Self::Unreachable(_)
            | Self::Unresolved(_)
            | Self::Closed
            | Self::Silent
            | Self::Refused(_) => None,
        }
    }

    /// Whether what listens there has replied, or closed the connection.
    fn is_answer(&self) -> bool {
        match self {
            Self::Closed | Self::Foreign(_) | Self::Refused(_) => true,
            Self::Unreachable(_) | Self::Unresolved(_) | Self::Silent => false,
        }
    }
}

impl From<io::Error> for AttemptError {
    fn from(error: io::Error) -> Self {
        Self::Unreachable(describe_io_error(&error))
    }
}

fn unresolved(name: &str, why: &str) -> AttemptError {
    AttemptError::Unresolved(format!("the name `{name}` does not resolve: {why}"))
}

fn describe_io_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        io::ErrorKind::TimedOut => "no answer".to_owned(),
        // Removes the resolver's error number, which adds nothing.
        _ => {
            let text = error.to_string();
            let text = text.split(" (os error").next().unwrap_or_default();
            text.rsplit("information: ").next().unwrap_or_default().to_lowercase()
        }
    }
}

impl fmt::Display for AttemptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) | Self::Unresolved(why) => f.write_str(why),
            Self::Closed => f.write_str("the connection was closed without a reply"),
            Self::Silent => f.write_str(
                "a program that is not remuda, or is suspended, accepts the connection and does not reply",
            ),
            Self::Foreign(words) => {
                write!(f, "a program that is not remuda listens there and sent `{words}`")
            }
            Self::Refused(refusal) => f.write_str(refusal.text.trim_end()),
        }
    }
}

/// Pause between two attempts: an eighth of the time waited so far. Node 0 is then found within an
/// eighth of its own delay, and many nodes that wait long attempt once per second.
fn pause_after(why: &AttemptError, waited: Duration, answered: u32) -> Duration {
    match why {
        AttemptError::Unreachable(_) | AttemptError::Silent => {
            crate::transport::dial::retry_pause::share_of(waited, REFUSED_PAUSE_MIN, PAUSE_MAX)
        }
        AttemptError::Unresolved(_) => {
            crate::transport::dial::retry_pause::share_of(waited, UNRESOLVED_PAUSE_MIN, PAUSE_MAX)
        }
        AttemptError::Closed | AttemptError::Foreign(_) | AttemptError::Refused(_) => {
            let doubled = 1u32.checked_shl(answered.saturating_sub(1)).unwrap_or(u32::MAX);
            REJECTED_PAUSE_MIN.saturating_mul(doubled).min(PAUSE_MAX)
        }
    }
}

impl Dialer {
    /// Address and port of node 0, with the port that the user has typed.
    pub fn endpoint(&self) -> String {
        let typed = self.typed_port.map(|typed| format!(", for master port {typed}"));
        self.address_and_port() + &typed.unwrap_or_default()
    }

    /// Address and port of node 0.
    pub fn address_and_port(&self) -> String {
        format!("{}:{}", self.addresses.first().map_or("", String::as_str), self.port)
    }

    /// Attempts to join until node 0 accepts or refuses this node, or `limit` has passed. At
    /// intervals, `on_wait` receives the reason of the wait and its length.
    pub async fn join(
        &self,
        limit: Duration,
        mut on_wait: impl FnMut(&JoinWait, Duration),
    ) -> Result<MemberConnection, JoinFault> {
        let since = clock::now();
        let (mut answered, mut closed, mut closed_most) = (0, 0, 0);
        let (mut refused, mut foreign) = (None, None);
        let mut notices = WaitNotices::default();
        loop {
            let on_silence = || {
                let (waited, why) = (clock::now() - since, AttemptError::Silent);
                let is_new = foreign.is_none();
                if is_new && why.is_notice_due(&mut notices, self.name_start, waited) {
                    on_wait(&why.as_wait(), waited);
                }
            };
            let why = match (self.attempt(on_silence).await, &foreign) {
                (Ok(member), _) => return Ok(member),
                (Err(AttemptError::Refused(refusal)), _) if !refusal.is_transient => {
                    return Err(JoinFault::Refused(refusal));
                }
                // Some programs reply to a part of what they receive.
                (Err(AttemptError::Silent), Some(words)) => {
                    AttemptError::Foreign(String::clone(words))
                }
                (Err(why), _) => why,
            };
            foreign = why.foreign_words().map(str::to_owned);
            closed = if matches!(why, AttemptError::Closed) { closed + 1 } else { 0 };
            answered = if why.is_answer() { answered + 1 } else { 0 };
            closed_most = closed.max(closed_most);
            if CLOSED_MAX <= closed {
                return Err(self.other_key(closed));
            }
            let now = clock::now();
            let pause = pause_after(&why, now - since, answered);
            if let AttemptError::Refused(refusal) = &why {
                refused = Some(refusal.clone());
            }
            if since + limit <= now + pause {
                // Node 0 may have ended since, but a node that took part before knows that.
                let refused = refused.filter(|_| self.next_epoch == Epoch(0));
                return Err(self.last_fault(why, refused, closed_most));
            }
            if why.is_notice_due(&mut notices, self.name_start, now - since) {
                on_wait(&why.as_wait(), now - since);
            }
            tokio::time::sleep(self.with_jitter(pause)).await;
        }
    }

    /// The fault at the time limit; the last attempt failed for this reason.
    fn last_fault(
        &self,
        why: AttemptError,
        refused: Option<JoinRefusal>,
        closed_most: u32,
    ) -> JoinFault {
        match (why, refused) {
            (AttemptError::Refused(refusal), _) | (_, Some(refusal)) => JoinFault::Refused(refusal),
            (why, None) if why.is_of_other_program() => {
                JoinFault::OtherProgram(self.endpoint(), why.to_string())
            }
            // Node 0 may have stopped waiting and closed its port.
            _ if CLOSED_EVIDENCE_MIN <= closed_most => self.other_key(closed_most),
            (why, None) => JoinFault::NoAnswer(self.endpoint(), why.to_string()),
        }
    }

    fn other_key(&self, closed: u32) -> JoinFault {
        let (own, fingerprint) = (self.key_origin.clone(), self.key.fingerprint());
        JoinFault::OtherKey { called: self.endpoint(), closed, own, fingerprint }
    }

    /// A slightly different pause for every node, so that a thousand nodes do not connect at once.
    fn with_jitter(&self, pause: Duration) -> Duration {
        let number = self.node.map_or_else(std::process::id, |node| node.0);
        let share = number.wrapping_mul(2_654_435_769) >> 24;
        pause * (192 + share / 4) / 256
    }

    /// Makes one attempt; `on_silence` is called if a program accepts the connection and does not reply for a
    /// while.
    async fn attempt(&self, on_silence: impl FnOnce()) -> Result<MemberConnection, AttemptError> {
        let accepted = Notify::new();
        let attempt = tokio::time::timeout(ATTEMPT_MAX, self.try_addresses(&accepted));
        let mut attempt = std::pin::pin!(attempt);
        let silence = async {
            accepted.notified().await;
            tokio::time::sleep(SILENCE_MAX).await;
        };
        tokio::select! {
            biased;
            result = &mut attempt => {
                let too_late = || Err(io::Error::from(io::ErrorKind::TimedOut).into());
                return result.unwrap_or_else(|_| too_late());
            }
            () = silence => on_silence(),
        }
        match attempt.await {
            Ok(Err(AttemptError::Unreachable(_))) | Err(_) => Err(AttemptError::Silent),
            Ok(result) => result,
        }
    }

    /// Resolves the name for each attempt: it may not exist yet, or may resolve to another address
    /// by now.
    async fn try_addresses(&self, accepted: &Notify) -> Result<MemberConnection, AttemptError> {
        let mut why = unresolved(&self.addresses.join(", "), "it has no address");
        for name in &self.addresses {
            let bare = name.trim_start_matches('[').trim_end_matches(']');
            let found: Vec<SocketAddr> = match tokio::net::lookup_host((bare, self.port)).await {
                Ok(found) => found.collect(),
                Err(error) => {
                    why = unresolved(bare, &describe_io_error(&error));
                    continue;
                }
            };
            for address in found {
                match self.try_in_time(address, accepted).await {
                    Err(AttemptError::Unreachable(because)) => {
                        why = AttemptError::Unreachable(because);
                    }
                    answered => return answered,
                }
            }
        }
        Err(why)
    }

    /// One of several addresses must not use up the time of the others.
    async fn try_in_time(
        &self,
        address: SocketAddr,
        accepted: &Notify,
    ) -> Result<MemberConnection, AttemptError> {
        if self.addresses.len() < 2 {
            return self.try_address(address, accepted).await;
        }
        let limit = ATTEMPT_MAX / self.addresses.len() as u32;
        match tokio::time::timeout(limit, self.try_address(address, accepted)).await {
            Ok(result) => result,
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
        }
    }

    async fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let Some(from) = self.local_addr.filter(|from| is_on_route(*from, address)) else {
            return TcpStream::connect(address).await;
        };
        let socket = if from.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.bind(SocketAddr::new(from, 0))?;
        socket.connect(address).await
    }

    /// Calls one address; `accepted` is notified when a program accepts the connection.
    async fn try_address(
        &self,
        address: SocketAddr,
        accepted: &Notify,
    ) -> Result<MemberConnection, AttemptError> {
        let stream = self.connect(address).await?;
        accepted.notify_one();
        let Self { digest, own_workers, free_restarts, .. } = *self;
        let (build, job) = (self.build.to_owned(), self.job.clone());
        let (machine, problems) = (node_name(), self.problems.clone());
        let join = Join { build, job, digest, own_workers, free_restarts, machine, problems };
        let Self { node, ref key, ref outline, next_epoch: fresh, lease, .. } = *self;
        let introduction = Introduction { node, key, join, outline, next_epoch: fresh, lease };
        match request_join(stream, &introduction).await? {
            JoinOutcome::Joined(node, writer, reader) => {
                Ok(MemberConnection::new(node, writer, reader))
            }
            JoinOutcome::Refused(refusal) => Err(AttemptError::Refused(refusal)),
            JoinOutcome::Closed => Err(AttemptError::Closed),
            JoinOutcome::Foreign(words) => Err(AttemptError::Foreign(words)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn dialer(port: u16) -> Dialer {
        Dialer {
            addresses: vec!["127.0.0.1".to_owned()],
            port,
            typed_port: None,
            name_start: NameStart::Late,
            local_addr: None,
            node: Some(NodeRank(1)),
            key: JobKey::from_random([7; 32]),
            key_origin: KeyOrigin::File("key".to_owned()),
            job: JobId("a".to_owned()),
            lease: Duration::from_secs(60),
            build: "1",
            digest: [0; 32],
            outline: Vec::new(),
            own_workers: None,
            next_epoch: Epoch(0),
            free_restarts: 0,
            problems: Vec::new(),
        }
    }

    /// Joins a node 0 that closes this many connections and then stops listening.
    fn join_after(closes: usize, limit: Duration) -> JoinFault {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        // The thread is not joined, because the time may pass before this many attempts.
        std::thread::spawn(move || {
            for _ in 0..closes {
                drop(listener.accept());
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let joined = runtime.expect("a runtime").block_on(dialer(port).join(limit, |_, _| {}));
        joined.err().expect("no connection is accepted")
    }

    #[test]
    fn closed_connections_outrank_a_refused_port() {
        // Longer limits for a busy machine.
        let limits = [1, 4, 16].map(Duration::from_secs);
        let fault = limits
            .into_iter()
            .map(|limit| join_after(3, limit))
            .find(|fault| matches!(fault, JoinFault::OtherKey { .. }));
        let fault = fault.expect("the strongest evidence is kept");
        assert_eq!(fault.status(), Status::Permission);
        assert!(fault.help().contains("fingerprint"), "{}", fault.help());
        let fault = join_after(1, Duration::from_secs(1));
        assert_eq!(fault.status(), Status::Unreachable, "one may be of a node 0 that was killed");
    }

    /// Joins a program that sends these bytes to each connection and holds it; also returns the reasons of the wait.
    fn join_other_program(sends: &'static [u8], limit: Duration) -> (JoinFault, Vec<String>) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        std::thread::spawn(move || {
            let mut held = Vec::new();
            for stream in listener.incoming().flatten() {
                let _ = (&stream).write_all(sends);
                held.push(stream);
            }
        });
        let mut reasons = Vec::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let dialer = dialer(port);
        let join = dialer.join(limit, |why, _| reasons.push(why.to_string()));
        let joined = runtime.expect("a runtime").block_on(join);
        (joined.err().expect("no node 0 listens"), reasons)
    }

    #[test]
    fn other_program_at_the_endpoint_is_named_at_once() {
        for sends in [&b"SSH-2.0-OpenSSH_9.2\r\n"[..], b"\x05\x00abcde"] {
            let (fault, reasons) = join_other_program(sends, Duration::from_secs(1));
            assert!(matches!(fault, JoinFault::OtherProgram(..)), "{fault}");
            assert_eq!(reasons.len(), 1, "{reasons:?}");
            assert!(fault.to_string().ends_with(&reasons[0]), "{fault}");
        }
    }

    #[test]
    fn silent_program_is_reported_before_the_attempt_ends() {
        let (fault, reasons) = join_other_program(b"", SILENCE_MAX);
        assert!(matches!(fault, JoinFault::OtherProgram(..)), "{fault}");
        assert_eq!(reasons, [AttemptError::Silent.to_string()]);
    }

    /// Number of attempts within the limit if every attempt has the same result.
    fn calls_within(limit: Duration, why: &AttemptError) -> u32 {
        let (mut waited, mut calls) = (Duration::ZERO, 0);
        while waited < limit {
            calls += 1;
            waited += pause_after(why, waited, calls);
        }
        calls
    }

    #[test]
    fn pause_between_attempts_grows_to_a_second() {
        let refused = AttemptError::Unreachable(String::new());
        for (ms, expect) in [(0, 20), (160, 20), (1600, 200), (8000, 1000), (600_000, 1000)] {
            let pause = pause_after(&refused, Duration::from_millis(ms), 0);
            assert_eq!(pause, Duration::from_millis(expect), "after {ms} ms");
        }
        let unnamed = AttemptError::Unresolved(String::new());
        let (first, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        assert_eq!([calls_within(first, &refused), calls_within(minute, &refused)], [24, 94]);
        assert_eq!([calls_within(first, &unnamed), calls_within(minute, &unnamed)], [10, 80]);
        // Connections that a starting proxy closes are not taken for a different key.
        let closed = calls_within(Duration::from_secs(5), &AttemptError::Closed);
        assert!(closed < CLOSED_MAX, "{closed}");
    }
}
