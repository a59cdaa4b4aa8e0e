//! Makes a link from a host name: connection, bootstrap and, if necessary, transfer of the binary.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{OnceCell, Semaphore, watch};

use super::binary::Binary;
use super::bootstrap::{self, AgentFile, BootstrapReply, BootstrapRequest};
use super::command_line::{Destination, without_brackets};
use super::control_dir::ControlDir;
use super::fault::{Fault, FaultKind};
use super::master::SshMaster;
use super::options::{SshConfig, SshOptions};
use super::session::{BootstrapSession, NoReply};
use super::{config, known_key, settings, sockets};
use crate::base::{HostName, JobId, NodeRank, clock};
use crate::os::random::random_bytes;
use crate::transport::stderr::LineCallback;
use crate::transport::{Link, SessionInfo};

/// If a launch has more hosts than this, remuda prints a hint about faster connections.
const HINT_HOSTS: usize = 32;
const FAST_HINT: &str = "`--ssh_kex fast` makes connections to so many hosts several times cheaper; \
                         it gives up protection against quantum computers";
/// Connections that are made at the same time.
const FANOUT: usize = 64;
/// The same when all connections go through one host: its sshd drops connections above its
/// MaxStartups, which is 10 by default.
const FANOUT_JUMP: usize = 8;
/// Time limit for a host that neither accepts nor refuses the login.
const LOGIN_LIMIT: Duration = Duration::from_secs(60);
/// Attempts when a connection is dropped before authentication.
const TRIES_MAX: u32 = 4;
/// Shortest and longest pause between two attempts at a host that is not up yet.
const ABSENT_PAUSE_MIN: Duration = Duration::from_millis(200);
const ABSENT_PAUSE_MAX: Duration = Duration::from_secs(2);
/// Pause between two messages about a host that is not up yet.
const NOTICE_PAUSE: Duration = Duration::from_secs(10);

/// The ssh state that the nodes of a launch share.
pub struct Ssh {
    options: SshOptions,
    dir: ControlDir,
    permits: OnceCell<Semaphore>,
    binary: OnceCell<Result<Arc<Binary>, String>>,
    sockets: OnceCell<watch::Receiver<u64>>,
    samples: Vec<HostName>,
    /// Whether there are so many hosts that each connection should be cheap.
    has_many: bool,
    hint: Mutex<Option<&'static str>>,
}

/// Name of the symbolic link to the user's configuration.
const USER_LINK: &str = "user";

impl Ssh {
    /// Prepares ssh for these hosts. Makes the private directory and forks its janitor, so no
    /// thread may exist yet.
    pub fn prepare<'a>(
        options: &SshOptions,
        hosts: impl ExactSizeIterator<Item = &'a HostName>,
    ) -> io::Result<Self> {
        let dir = ControlDir::create()?;
        let mut includes = vec!["~/.ssh/config".to_owned(), "/etc/ssh/ssh_config".to_owned()];
        match &options.config {
            SshConfig::Default => {}
            SshConfig::Nothing => includes.clear(),
            SshConfig::File(file) => {
                // The symbolic link has a path that needs no quoting.
                let link = dir.path().join(USER_LINK);
                std::os::unix::fs::symlink(std::path::absolute(file)?, &link)?;
                includes = vec![link.display().to_string()];
            }
        }
        let includes: Vec<_> = includes.iter().map(String::as_str).collect();
        std::fs::write(
            dir.path().join("config"),
            config::text(options.kex, &includes, &options.addresses),
        )?;
        Ok(Self {
            options: options.clone(),
            dir,
            permits: OnceCell::new(),
            binary: OnceCell::new(),
            sockets: OnceCell::new(),
            has_many: HINT_HOSTS < hosts.len(),
            samples: samples(hosts),
            hint: Mutex::new(None),
        })
    }

    /// Switches the hint about faster connections off.
    #[must_use]
    pub fn without_hints(self) -> Self {
        Self { has_many: false, ..self }
    }

    /// Starts an agent on a host. `on_login` runs once the ssh login has succeeded.
    pub async fn connect(
        &self,
        host: &HostName,
        (job, node): (&JobId, NodeRank),
        on_line: LineCallback,
        on_login: impl Future<Output = ()>,
    ) -> Result<Link, Fault> {
        self.try_to_connect(host, (job, node), on_line, on_login).await.map_err(|mut fault| {
            if let SshConfig::File(file) = &self.options.config {
                let link = self.dir.path().join(USER_LINK).display().to_string();
                fault.detail = fault.detail.replace(&link, &file.display().to_string());
            }
            fault.commands.ssh_args = self.options.shown_args(host);
            fault
        })
    }

    async fn try_to_connect(
        &self,
        host: &HostName,
        (job, node): (&JobId, NodeRank),
        on_line: LineCallback,
        on_login: impl Future<Output = ()>,
    ) -> Result<Link, Fault> {
        let window = self.permits.get_or_init(|| self.make_permits()).await;
        let _permit = window.acquire().await.expect("the window is never closed");
        let since = clock::now();
        let master = self.log_in(host, node, &on_line).await?;
        let (login, way) = (Some(clock::now() - since), Some(self.options.shown_args(host)));
        let session = SessionInfo { login, ssh_args: way, ..SessionInfo::default() };
        on_login.await;
        self.start_agent((master, session), (job, node), on_line).await
    }

    /// Semaphore for simultaneous connections; it has fewer permits where hosts are reached through
    /// another host.
    async fn make_permits(&self) -> Semaphore {
        let config = self.config_path();
        let settings_of =
            |host| settings::read(&config, self.options.users.get(host), without_brackets(host));
        let (mut jumps, mut slow_kex) = (false, false);
        for host in &self.samples {
            let settings = settings_of(host).await;
            (jumps, slow_kex) = (jumps || settings.has_jump, slow_kex || settings.slow_kex);
            if jumps {
                break;
            }
        }
        if self.has_many && slow_kex {
            *self.hint.lock().expect("no thread panics while it holds the lock") = Some(FAST_HINT);
        }
        let usual = if jumps { FANOUT_JUMP } else { FANOUT };
        Semaphore::new(self.options.fanout.unwrap_or(usual))
    }

    /// Takes the hint about faster connections; it is returned once.
    pub fn take_hint(&self) -> Option<&'static str> {
        self.hint.lock().expect("no thread panics while it holds the lock").take()
    }

    fn config_path(&self) -> PathBuf {
        self.dir.path().join("config")
    }

    async fn log_in(
        &self,
        host: &HostName,
        node: NodeRank,
        on_line: &LineCallback,
    ) -> Result<SshMaster, Fault> {
        let since = clock::now();
        let (mut tries, mut last_notice) = (1, since);
        loop {
            let fault = match self.try_to_log_in(host, node, tries).await {
                Ok(master) => return Ok(master),
                Err(fault) => fault,
            };
            let now = clock::now();
            let waited = now - since;
            let pause = if fault.may_come_up() && waited < self.options.wait_limit {
                if last_notice + NOTICE_PAUSE <= now {
                    last_notice = now;
                    on_line(&format!(
                        "not reachable yet after {} s: {}",
                        waited.as_secs(),
                        fault.detail
                    ));
                }
                (waited / 8).clamp(ABSENT_PAUSE_MIN, ABSENT_PAUSE_MAX)
            } else if fault.is_transient() && tries < TRIES_MAX {
                tracing::debug!(%host, tries, ?fault, "dropped before authentication");
                jitter(tries)
            } else {
                return Err(fault);
            };
            tokio::time::sleep(pause).await;
            tries += 1;
        }
    }

    async fn try_to_log_in(
        &self,
        host: &HostName,
        node: NodeRank,
        tries: u32,
    ) -> Result<SshMaster, Fault> {
        let mut changes = self.sockets().await?;
        let destination = Destination {
            config: &self.config_path(),
            socket: self.free_socket(node, tries),
            port: self.options.port,
            user: self.options.users.get(host),
            host: without_brackets(host),
            verbose: self.options.verbose,
        };
        let mut master = SshMaster::start(destination)?;
        let up = async {
            while !master.socket().exists() {
                if changes.changed().await.is_err() {
                    // No further changes will be reported; only the deadline is left.
                    std::future::pending::<()>().await;
                }
            }
        };
        let outcome = tokio::time::timeout(LOGIN_LIMIT, async {
            tokio::select! {
                () = up => true,
                () = master.wait_for_exit() => false,
            }
        });
        match outcome.await {
            Ok(true) => Ok(master),
            Ok(false) => Err(fault_from_ssh(&master.final_output().await)),
            Err(_) => {
                let limit = LOGIN_LIMIT.as_secs();
                let words = format!("ssh neither logged in nor failed within {limit} s");
                Err(Fault::new(FaultKind::NoAnswer, words))
            }
        }
    }

    /// A socket name that no connection to this node has had: the socket of a dead one may still
    /// exist.
    fn free_socket(&self, node: NodeRank, tries: u32) -> PathBuf {
        let mut names = (tries..).map(|number| self.dir.path().join(format!("{node}.{number}")));
        names.find(|name| !name.exists()).expect("there is always one more number")
    }

    async fn sockets(&self) -> Result<watch::Receiver<u64>, Fault> {
        let watching = self.sockets.get_or_try_init(|| async { sockets::watch(self.dir.path()) });
        watching.await.cloned().map_err(|error: io::Error| {
            Fault::new(
                FaultKind::NoProgram,
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
            Fault::new(
                FaultKind::NoDirectory,
                format!("cannot read the executable of remuda: {error}"),
            )
        })
    }

    /// Runs the bootstrap command and answers its requests until the agent is up.
    async fn start_agent(
        &self,
        (master, mut session): (SshMaster, SessionInfo),
        (job, node): (&JobId, NodeRank),
        on_line: LineCallback,
    ) -> Result<Link, Fault> {
        let (request, binary) = self.request(job, node).await?;
        let (config, since) = (self.config_path(), clock::now());
        let (mux, limit) = (self.options.mux, self.options.agent_limit);
        let mut bootstrap = BootstrapSession::start((mux, limit), &config, master, on_line).await?;
        match bootstrap.send_line(&request).await {
            // A shell that did not wait for the request prints the reason.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                return Err(bootstrap.make_fault(FaultKind::NoAgent, &error.to_string()).await);
            }
            _ => {}
        }
        loop {
            let answer = bootstrap.next_reply().await;
            session.shell.get_or_insert_with(|| clock::now() - since);
            match answer {
                Ok(BootstrapReply::Ready) => {
                    (session.noise, session.server) = (bootstrap.noise(), bootstrap.server());
                    return Ok(bootstrap.into_link(session));
                }
                Ok(BootstrapReply::Send) => match &binary {
                    Some(binary) => bootstrap.send_binary(binary).await?,
                    None => {
                        return Err(bootstrap
                            .make_fault(
                                FaultKind::NoAgent,
                                "it requested a binary although `--agent_path` is set",
                            )
                            .await);
                    }
                },
                Ok(BootstrapReply::OtherArch(arch)) => {
                    let words =
                        format!("the host is {arch}, this machine is {}", std::env::consts::ARCH);
                    return Err(Fault::new(FaultKind::OtherArch, words));
                }
                Ok(BootstrapReply::CannotRun { libc }) => {
                    let words = "the binary does not run on the host, or was damaged in transit";
                    let fault = bootstrap.make_fault(FaultKind::Damaged, words).await;
                    return Err(fault.or_old_libc(&libc));
                }
                Ok(BootstrapReply::NoDirectory) => {
                    return Err(bootstrap.make_fault(FaultKind::NoDirectory, "").await);
                }
                Err(no_reply) => return Err(self.no_agent(&mut bootstrap, no_reply).await),
            }
        }
    }

    /// Fault of a host that did not reply.
    async fn no_agent(&self, bootstrap: &mut BootstrapSession, no_reply: NoReply) -> Fault {
        match no_reply {
            NoReply::Timeout(limit) => {
                let words = format!("no agent within {} s", limit.as_secs_f64());
                bootstrap.make_fault(FaultKind::Hangs, &words).await
            }
            NoReply::Impossible(why) => {
                let kind = match self.options.agent_path {
                    Some(_) => FaultKind::NotInstalled,
                    None => FaultKind::NoAgent,
                };
                bootstrap.make_fault(kind, why).await
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
            return Ok((
                BootstrapRequest { agent: AgentFile::Path(path), job, node }.to_line(),
                None,
            ));
        }
        let binary = self.binary().await?;
        let agent = AgentFile::OwnBinary {
            digest: binary.digest,
            bytes: binary.bytes,
            identity: &binary.identity,
            path: binary.path.as_deref(),
        };
        Ok((BootstrapRequest { agent, job, node }.to_line(), Some(Arc::clone(&binary))))
    }
}

/// The first and the last host, as samples when ssh is asked how hosts are reached: the first one
/// may itself be the jump host of the others.
fn samples<'a>(hosts: impl ExactSizeIterator<Item = &'a HostName>) -> Vec<HostName> {
    let last = hosts.len().saturating_sub(1);
    let is_sample = |(at, _): &(usize, _)| *at == 0 || *at == last;
    hosts.enumerate().filter(is_sample).map(|(_, host)| host.clone()).collect()
}

/// Fault with the output of ssh; if a host key has changed, it shows the old key beside the new
/// one.
fn fault_from_ssh(words: &str) -> Fault {
    let mut fault = Fault::from_ssh_output(words);
    if fault.kind != FaultKind::HostKeyChanged {
        return fault;
    }
    if let Some(known) = known_key::describe(words) {
        fault.detail = [fault.detail, known].join("\n");
    }
    if let Some(removal) = known_key::removal_command(words) {
        fault.commands.forget_key = removal;
    }
    fault
}

/// Random pause between 0.2 s and 2 s that grows with every attempt, so that dropped hosts do not
/// reconnect together.
fn jitter(tries: u32) -> Duration {
    let spread = u64::from(u16::from_ne_bytes(random_bytes().unwrap_or_default())) % 600;
    Duration::from_millis(200 + spread * u64::from(tries))
}

/// Called on the node: prints the line after which every byte belongs to the link.
pub fn announce_ready(output: &OwnedFd) -> io::Result<()> {
    let mut rest = bootstrap::UP;
    while !rest.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(output, rest))?;
        rest = &rest[written..];
    }
    Ok(())
}

/// Whether a path for `--agent_path` can be sent to a node.
pub fn can_send_path(path: &Path) -> bool {
    path.to_str().is_some_and(bootstrap::fits_in_line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_the_first_and_the_last_host() {
        #[track_caller]
        fn check(hosts: &[&str], expect: &[&str]) {
            let parse = |host: &&str| HostName::parse(host).expect("a name");
            let hosts: Vec<_> = hosts.iter().map(parse).collect();
            let found = samples(hosts.iter());
            assert_eq!(found.iter().map(HostName::as_str).collect::<Vec<_>>(), expect);
        }
        check(&["login", "n1", "n2"], &["login", "n2"]);
        check(&["n1"], &["n1"]);
        check(&[], &[]);
    }
}
