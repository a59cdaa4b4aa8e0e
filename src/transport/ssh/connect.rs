//! From a host's name to a link: connection, bootstrap, and if need be the binary.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use openssh::{Child, Session, Stdio};
use tokio::sync::{OnceCell, Semaphore, watch};

use super::binary::{Binary, PIECE_BYTES};
use super::bootstrap::{self, Answer, Request, Scanner, TooMuchNoise, Wanted};
use super::control_dir::ControlDir;
use super::fault::{Fault, FaultKind};
use super::master::{Destination, Master};
use super::options::{SshConfig, SshOptions};
use super::{config, settings, sockets};
use crate::base::{HostName, JobId, NodeRank, WorkerExit};
use crate::os::fds;
use crate::transport::{AgentProcess, Link, LinkReader, LinkWriter};

/// More hosts than this are told how to connect faster.
const HINT_HOSTS: usize = 32;
/// Connections made at a time.
const FANOUT: usize = 64;
/// The same when all of them go through one host: its sshd drops what is above its MaxStartups,
/// which is 10 unless somebody raised it.
const FANOUT_JUMP: usize = 8;
/// A host that neither lets us in nor refuses is given up after this time.
const LOGIN_LIMIT: Duration = Duration::from_secs(60);
/// A login shell may take its time; an agent that is being sent gets it anew with every piece.
const AGENT_LIMIT: Duration = Duration::from_secs(120);
/// Tries of a connection that is dropped before authentication.
const TRIES_MAX: u32 = 4;
const READ_BYTES: usize = 4096;
/// Of what a node prints beside the link, so much is kept to explain a failure.
const WORDS_BYTES_MAX: usize = 16 * 1024;

/// Everything about ssh that the nodes of a launch share.
pub struct Ssh {
    options: SshOptions,
    dir: ControlDir,
    window: OnceCell<Semaphore>,
    binary: OnceCell<Result<Arc<Binary>, String>>,
    sockets: OnceCell<watch::Receiver<u64>>,
    hosts: usize,
    hint: Mutex<Option<&'static str>>,
}

/// Hears lines that a node prints beside the link.
pub type Hear = Box<dyn Fn(&str) + Send>;

impl Ssh {
    /// For so many hosts. Makes the private directory and forks its janitor: no thread may exist
    /// yet.
    pub fn prepare(options: &SshOptions, hosts: usize) -> io::Result<Self> {
        let dir = ControlDir::create()?;
        let mut includes = vec!["~/.ssh/config".to_owned(), "/etc/ssh/ssh_config".to_owned()];
        match &options.config {
            SshConfig::Usual => {}
            SshConfig::Nothing => includes.clear(),
            SshConfig::File(file) => {
                // A link has a path that needs no quoting.
                let link = dir.path().join("user");
                std::os::unix::fs::symlink(std::path::absolute(file)?, &link)?;
                includes = vec![link.display().to_string()];
            }
        }
        let includes: Vec<_> = includes.iter().map(String::as_str).collect();
        std::fs::write(dir.path().join("config"), config::text(options.kex, &includes))?;
        Ok(Self {
            options: options.clone(),
            dir,
            window: OnceCell::new(),
            binary: OnceCell::new(),
            sockets: OnceCell::new(),
            hosts,
            hint: Mutex::new(None),
        })
    }

    /// An agent on a host, started by this.
    pub async fn connect(
        &self,
        host: &HostName,
        job: &JobId,
        node: NodeRank,
        hear: Hear,
    ) -> Result<Link, Fault> {
        let window = self.window.get_or_init(|| self.window(host)).await;
        let _place = window.acquire().await.expect("the window is never closed");
        let master = self.log_in(host, node).await?;
        self.bring_up(master, job, node, hear).await
    }

    /// How many at a time; where everybody goes through one host, fewer.
    async fn window(&self, host: &HostName) -> Semaphore {
        let settings = settings::of(&self.config_path(), bare(host)).await;
        if HINT_HOSTS < self.hosts && settings.slow_kex {
            *self.hint.lock().expect("nobody panics while holding the lock") =
                Some("`--ssh_kex fast` makes many connections several times cheaper");
        }
        let usual = if settings.jumps { FANOUT_JUMP } else { FANOUT };
        Semaphore::new(self.options.fanout.unwrap_or(usual))
    }

    /// What would have gone faster, once.
    pub fn take_hint(&self) -> Option<&'static str> {
        self.hint.lock().expect("nobody panics while holding the lock").take()
    }

    fn config_path(&self) -> PathBuf {
        self.dir.path().join("config")
    }

    async fn log_in(&self, host: &HostName, node: NodeRank) -> Result<Master, Fault> {
        let mut tries = 1;
        loop {
            match self.try_to_log_in(host, node, tries).await {
                Err(fault) if fault.may_pass() && tries < TRIES_MAX => {
                    tracing::debug!(%host, tries, ?fault, "dropped before authentication");
                    tokio::time::sleep(jitter(tries)).await;
                    tries += 1;
                }
                result => return result,
            }
        }
    }

    async fn try_to_log_in(
        &self,
        host: &HostName,
        node: NodeRank,
        tries: u32,
    ) -> Result<Master, Fault> {
        let mut appeared = self.sockets().await?;
        let destination = Destination {
            config: &self.config_path(),
            socket: self.free_socket(node, tries),
            port: self.options.port,
            host: bare(host),
        };
        let mut master = Master::start(destination)?;
        let up = async {
            while !master.socket().exists() {
                if appeared.changed().await.is_err() {
                    // Nobody tells us any more; only the deadline is left.
                    std::future::pending::<()>().await;
                }
            }
        };
        let outcome = tokio::time::timeout(LOGIN_LIMIT, async {
            tokio::select! {
                () = up => true,
                () = master.end() => false,
            }
        });
        match outcome.await {
            Ok(true) => Ok(master),
            Ok(false) => Err(Fault::of_ssh(&master.last_words().await)),
            Err(_) => {
                let limit = LOGIN_LIMIT.as_secs();
                let words = format!("neither let in nor refused within {limit} s");
                Err(Fault::new(FaultKind::NoAnswer, words))
            }
        }
    }

    /// A name that no connection to this node has had: the socket of a dead one may still be there.
    fn free_socket(&self, node: NodeRank, tries: u32) -> PathBuf {
        let mut names = (tries..).map(|number| self.dir.path().join(format!("{node}.{number}")));
        names.find(|name| !name.exists()).expect("there is always one more number")
    }

    async fn sockets(&self) -> Result<watch::Receiver<u64>, Fault> {
        let watching = self.sockets.get_or_try_init(|| async { sockets::watch(self.dir.path()) });
        watching.await.cloned().map_err(|error: io::Error| {
            Fault::new(
                FaultKind::NoSsh,
                format!("cannot watch {}: {error}", self.dir.path().display()),
            )
        })
    }

    async fn binary(&self) -> Result<Arc<Binary>, Fault> {
        let read = self.binary.get_or_init(|| async {
            let read = tokio::task::spawn_blocking(Binary::read).await;
            match read {
                Ok(Ok(binary)) => Ok(Arc::new(binary)),
                Ok(Err(error)) => Err(error.to_string()),
                Err(error) => Err(error.to_string()),
            }
        });
        read.await.clone().map_err(|error| {
            Fault::new(FaultKind::NoRoom, format!("our own executable cannot be read: {error}"))
        })
    }

    /// Runs the constant command and answers it until the agent speaks.
    async fn bring_up(
        &self,
        master: Master,
        job: &JobId,
        node: NodeRank,
        hear: Hear,
    ) -> Result<Link, Fault> {
        let (request, binary) = self.request(job, node).await?;
        let mut call = Call::start(master, hear).await?;
        match call.writer.write_all(request.as_bytes(), &[]).await {
            // Whoever did not wait for the request says why.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                return Err(call.fail(FaultKind::NoAgent, &error.to_string()).await);
            }
            _ => {}
        }
        loop {
            match call.answer().await {
                Ok(Answer::Up) => return Ok(call.into_link()),
                Ok(Answer::Send) => match &binary {
                    Some(binary) => call.send(binary).await?,
                    None => {
                        return Err(call.fail(FaultKind::NoAgent, "it wants what it has").await);
                    }
                },
                Ok(Answer::OtherArch(arch)) => {
                    let words = format!("it is {arch}, we are {}", std::env::consts::ARCH);
                    return Err(Fault::new(FaultKind::OtherArch, words));
                }
                Ok(Answer::Bad) => {
                    let words = "the binary does not run there, or arrived damaged";
                    return Err(call.fail(FaultKind::Damaged, words).await);
                }
                Ok(Answer::Nowhere) => return Err(call.fail(FaultKind::NoRoom, "").await),
                Err(why) => return Err(call.fail(FaultKind::NoAgent, &why).await),
            }
        }
    }

    async fn request(
        &self,
        job: &JobId,
        node: NodeRank,
    ) -> Result<(String, Option<Arc<Binary>>), Fault> {
        let (job, node) = (format!("job={job}"), format!("node={node}"));
        if let Some(path) = &self.options.agent_path {
            return Ok((Request { agent: Wanted::Path(path), job, node }.line(), None));
        }
        let binary = self.binary().await?;
        let agent = Wanted::Ours {
            digest: binary.digest,
            bytes: binary.bytes,
            identity: &binary.identity,
            path: binary.path.as_deref(),
        };
        Ok((Request { agent, job, node }.line(), Some(Arc::clone(&binary))))
    }
}

/// The destination as ssh wants it: an IPv6 address without its brackets.
fn bare(host: &HostName) -> &str {
    let text = host.as_str();
    text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text)
}

/// Between 0.2 s and 2 s, more with every try; different for everybody who was dropped.
fn jitter(tries: u32) -> Duration {
    let mut random = [0; 2];
    let _ = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
    let spread = u64::from(u16::from_ne_bytes(random)) % 600;
    Duration::from_millis(200 + spread * u64::from(tries))
}

/// The one command of a host while its agent is coming up.
struct Call {
    master: Master,
    child: Child<Arc<Session>>,
    writer: LinkWriter,
    reader: LinkReader,
    scanner: Scanner,
    beside: Beside,
}

impl Call {
    async fn start(master: Master, hear: Hear) -> Result<Self, Fault> {
        let started = Self::try_to_start(&master, hear).await;
        match started {
            Ok((child, writer, reader, beside)) => {
                Ok(Self { master, child, writer, reader, scanner: Scanner::default(), beside })
            }
            Err(error) => Err(Fault::new(FaultKind::Ssh, error.to_string())),
        }
    }

    async fn try_to_start(
        master: &Master,
        hear: Hear,
    ) -> Result<(Child<Arc<Session>>, LinkWriter, LinkReader, Beside), openssh::Error> {
        let session = Arc::new(Session::resume_mux(master.socket().into(), None));
        let io = openssh::Error::ChildIo;
        let (stdin, to_node) = fds::pipe().map_err(io)?;
        let (from_node, stdout) = fds::pipe().map_err(io)?;
        let (beside, stderr) = fds::pipe().map_err(io)?;
        let mut command = session.arc_raw_command(bootstrap::COMMAND);
        command.stdin(Stdio::from(stdin)).stdout(Stdio::from(stdout)).stderr(Stdio::from(stderr));
        let child = command.spawn().await?;
        // Our copies of the node's ends.
        drop(command);
        let writer = LinkWriter::new(to_node).map_err(io)?;
        let reader = LinkReader::new(from_node).map_err(io)?;
        Ok((child, writer, reader, Beside::collect(beside, hear).map_err(io)?))
    }

    /// The next answer of the node, or why none will come.
    async fn answer(&mut self) -> Result<Answer, String> {
        loop {
            match self.scanner.answer() {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => {}
                Err(TooMuchNoise) => return Err("its shell prints text without end".to_owned()),
            }
            let room = self.scanner.room(READ_BYTES);
            let read = tokio::select! {
                read = self.reader.read(room) => read,
                () = tokio::time::sleep(AGENT_LIMIT) => {
                    return Err(format!("nothing came of it within {} s", AGENT_LIMIT.as_secs()));
                }
            };
            if !matches!(read, Ok(1..)) {
                return Err("it ended before there was an agent".to_owned());
            }
        }
    }

    /// Sends the binary, and nothing after it.
    async fn send(&mut self, binary: &Binary) -> Result<(), Fault> {
        let sent = async {
            let mut file = binary.open()?;
            let mut piece = vec![0; PIECE_BYTES];
            let mut left = binary.bytes;
            while 0 < left {
                let length = file.read(&mut piece)?;
                if length == 0 {
                    return Err(io::Error::other("our own executable has become shorter"));
                }
                let writing = self.writer.write_all(&piece[..length], &[]);
                match tokio::time::timeout(AGENT_LIMIT, writing).await {
                    Ok(written) => written?,
                    Err(_) => return Err(io::ErrorKind::TimedOut.into()),
                }
                left = left.saturating_sub(length as u64);
            }
            Ok(())
        };
        match sent.await {
            Ok(()) => Ok(()),
            // Whoever stopped reading says why.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) => Err(Fault::new(FaultKind::NoAgent, format!("sending it: {error}"))),
        }
    }

    /// What went wrong, with everything that was said about it.
    async fn fail(&mut self, kind: FaultKind, why: &str) -> Fault {
        let mut words = vec![why.to_owned(), self.beside.so_far().await, self.scanner.noise()];
        if kind != FaultKind::NoAgent {
            words.pop();
        }
        words.retain(|word| !word.trim().is_empty());
        let words: Vec<_> = words.iter().map(|word| word.trim()).collect();
        Fault::new(kind, words.join("\n"))
    }

    fn into_link(self) -> Link {
        let Self { master, child, writer, reader, scanner, mut beside } = self;
        beside.speak_up();
        let agent = AgentProcess::Ssh(Box::new(SshAgent { master, child: Some(child), beside }));
        Link { reader, writer, agent, early: scanner.into_rest() }
    }
}

/// What a node prints to standard error: kept while the agent is coming up, then heard line by line.
struct Beside {
    state: Arc<Mutex<BesideState>>,
    reader: tokio::task::JoinHandle<()>,
}

struct BesideState {
    bytes: Vec<u8>,
    /// `None` until the agent is up.
    hear: Option<Hear>,
    waiting: Option<Hear>,
}

impl Beside {
    fn collect(pipe: OwnedFd, hear: Hear) -> io::Result<Self> {
        let pipe = LinkReader::new(pipe)?;
        let state = BesideState { bytes: Vec::new(), hear: None, waiting: Some(hear) };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        let reader = tokio::spawn(async move {
            let mut buffer = Vec::with_capacity(READ_BYTES);
            while let Ok(1..) = pipe.read(&mut buffer).await {
                shared.lock().expect("nobody panics while holding the lock").take(&buffer);
                buffer.clear();
            }
        });
        Ok(Self { state, reader })
    }

    /// Everything said so far: a node that gives up has just said why, and ends.
    async fn so_far(&mut self) -> String {
        const PATIENCE: Duration = Duration::from_millis(500);
        let _ = tokio::time::timeout(PATIENCE, &mut self.reader).await;
        let state = self.state.lock().expect("nobody panics while holding the lock");
        String::from_utf8_lossy(&state.bytes).into_owned()
    }

    /// What start-up files said is forgotten; what comes now is the agent's.
    fn speak_up(&mut self) {
        let mut state = self.state.lock().expect("nobody panics while holding the lock");
        state.bytes.clear();
        state.hear = state.waiting.take();
    }
}

impl BesideState {
    fn take(&mut self, bytes: &[u8]) {
        let room = WORDS_BYTES_MAX.saturating_sub(self.bytes.len()).min(bytes.len());
        self.bytes.extend_from_slice(&bytes[..room]);
        let Some(hear) = &self.hear else {
            return;
        };
        while let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.bytes.drain(..=end).collect();
            hear(String::from_utf8_lossy(&line).trim_end());
        }
        if WORDS_BYTES_MAX <= self.bytes.len() {
            self.bytes.clear();
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// An agent at the other end of an ssh connection.
pub struct SshAgent {
    master: Master,
    child: Option<Child<Arc<Session>>>,
    beside: Beside,
}

impl SshAgent {
    /// How it ended, if that can be known, and what ssh says about it. Ends the connection.
    pub(in crate::transport) async fn bury(
        mut self,
        limit: Duration,
    ) -> (Option<WorkerExit>, Option<String>) {
        let child = self.child.take().expect("an agent is buried once");
        let ended = tokio::time::timeout(limit, child.wait()).await;
        // What it said last is still on its way to us.
        let _ = tokio::time::timeout(limit, &mut self.beside.reader).await;
        let exit = match ended {
            Ok(Ok(status)) => status.code().map(|code| WorkerExit::Code(code as u8)),
            // The crate's word for 127.
            Ok(Err(openssh::Error::Remote(_))) => Some(WorkerExit::Code(127)),
            Ok(Err(_)) | Err(_) => None,
        };
        let words = match exit {
            Some(_) => None,
            None => Some(self.why_lost().await).filter(|words| !words.is_empty()),
        };
        self.master.dismiss().await;
        (exit, words)
    }

    async fn why_lost(&mut self) -> String {
        const PATIENCE: Duration = Duration::from_millis(100);
        match tokio::time::timeout(PATIENCE, self.master.end()).await {
            Ok(()) => self.master.last_words().await.trim().to_owned(),
            // The protocol of the channels has no word for which.
            Err(_) => "the connection stands, but a signal ended the agent".to_owned(),
        }
    }
}

/// The node's side: says that from here on everything is the link's.
pub fn announce(output: &OwnedFd) -> io::Result<()> {
    let mut rest = bootstrap::UP;
    while !rest.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(output, rest))?;
        rest = &rest[written..];
    }
    Ok(())
}

/// A path for `--agent_path` that can be told to a node.
pub fn is_tellable(path: &Path) -> bool {
    path.to_str().is_some_and(bootstrap::fits_in_line)
}
