//! A running process manager.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use crate::base::shell::quoted_line;
use crate::base::show_duration;
use crate::base::{NodeRank, WorkerExit, env_vars};
use crate::transport::manager::command::ManagerCommand;
use crate::transport::manager::program::{help_to_get, search_dirs};
use crate::transport::manager::spec::{
    CommandTarget, NeededAllocation, ProcessManager, TicketSource,
};
use crate::transport::manager::ticket::{Ticket, TicketHost, hosts_named};
use crate::transport::process::HelperProcess;
use crate::transport::stderr::{PrintedLines, StderrCapture};
use crate::transport::{Fault, FaultKind, LinkReader};

/// The command of remuda on a node.
const NODE_COMMAND: &str = "node";

/// Time in which a manager ends after the first of its processes, if all of them end at the same time.
const END_TOGETHER_LIMIT: Duration = Duration::from_millis(500);

/// How agents are started through a process manager.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagerOptions {
    /// The process manager.
    pub manager: &'static ProcessManager,
    /// Further options for it (`--launcher_args`).
    pub words: Vec<String>,
    /// Path of remuda on the nodes; `None`: that of this process.
    pub agent_path: Option<String>,
    /// How long nodes may take to join.
    pub join_limit: Duration,
}

/// A process manager that has started one process on each of some hosts. Dropping it ends it.
pub struct ManagerProcess {
    started: Arc<StartedCommand>,
    process: HelperProcess,
    stderr: StderrCapture,
    /// What it has printed that was not examined yet.
    unread: PrintedLines,
    /// The ticket, if processes do not read standard input.
    _file: Option<PrivateFile>,
}

impl ManagerProcess {
    /// Starts the manager. Must be called inside a runtime, from a thread that lives as long as the
    /// launcher.
    ///
    /// # Errors
    /// [`FaultKind::NoProgram`] if it cannot be started.
    #[expect(clippy::disallowed_methods, reason = "a transport is what starts agents")]
    pub fn start(options: &ManagerOptions, ticket: &Ticket) -> Result<Self, Fault> {
        let manager = options.manager;
        let started = Arc::new(StartedCommand::new(options, ticket));
        let program = started.program;
        let failed = |error: std::io::Error| {
            Fault::new(FaultKind::NoProgram, format!("cannot start `{program}`: {error}"))
        };
        let mut agent = vec![agent_path(options).map_err(failed)?, NODE_COMMAND.into()];
        let line = ticket.to_line();
        let file = match manager.ticket {
            TicketSource::StandardInput => None,
            TicketSource::PrivateFile => {
                let home = env_vars::get(env_vars::HOME).map_or_else(|| ".".into(), PathBuf::from);
                let job = ticket.job.to_string();
                let file = PrivateFile::create(&home, &job, &line).map_err(failed)?;
                agent.push(file.0.clone().into_os_string());
                Some(file)
            }
        };
        let hosts: Vec<_> = ticket.hosts.iter().map(|host| host.name.as_str()).collect();
        let argv = started.argv(&hosts, &agent);
        // A pipe holds less than the ticket of a large cluster.
        let input = if file.is_some() {
            Stdio::null()
        } else {
            Stdio::from(unlinked(&line).map_err(failed)?)
        };
        let (read, write) = crate::os::files::fds::pipe().map_err(failed)?;
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).stdin(input).stdout(Stdio::null()).stderr(write);
        command.envs(manager.environment.iter().copied());
        let process = HelperProcess::start(&mut command)
            .map_err(|fault| fault.with_advice(help_to_get(manager, program)))?;
        drop(command);
        let stderr =
            StderrCapture::collect(LinkReader::new(read).map_err(failed)?, Box::new(|_| {}));
        let unread = stderr.printed();
        Ok(Self { started, process, stderr, unread, _file: file })
    }

    /// Returns what explains why an agent has not connected while the manager runs.
    pub fn progress(&self) -> ManagerProgress {
        ManagerProgress { started: Arc::clone(&self.started), printed: self.stderr.printed() }
    }

    /// Waits for the next event. If all processes end at the same time, so does the manager.
    pub async fn next(&mut self) -> ManagerEvent {
        let mut nodes = BTreeSet::new();
        let mut exit = None;
        while nodes.is_empty() && exit.is_none() {
            tokio::select! {
                biased;
                line = self.unread.next() => nodes.extend(self.started.ended_nodes(&line)),
                ended = self.process.wait() => exit = Some(ended),
            }
        }
        if exit.is_none() {
            exit = tokio::time::timeout(END_TOGETHER_LIMIT, self.process.wait()).await.ok();
        }
        if exit.is_some() {
            // The reason is printed just before the end.
            self.stderr.finish(END_TOGETHER_LIMIT).await;
        }
        while let Some(line) = self.unread.take_line() {
            nodes.extend(self.started.ended_nodes(&line));
        }
        match exit {
            None => ManagerEvent::NodesEnded(self.faults_of(nodes)),
            Some(_) if self.started.are_cause(&nodes) => {
                let words = format!("`{}` has ended because of other hosts", self.started.program);
                let fault = Fault::new(FaultKind::EndedWithOthers, words);
                ManagerEvent::Ended { fault, of_nodes: self.faults_of(nodes) }
            }
            Some(exit) => ManagerEvent::Ended { fault: self.fault_of(exit), of_nodes: Vec::new() },
        }
    }

    /// The faults of nodes whose processes have ended while others run.
    fn faults_of(&self, nodes: BTreeSet<NodeRank>) -> Vec<(NodeRank, Fault)> {
        let StartedCommand { program, manager, .. } = &*self.started;
        let is_mpi = manager.mpi.is_some();
        let end = if is_mpi {
            format!("`{program}` has not reached it")
        } else {
            format!("`{program}` reports that its process has ended")
        };
        let lines = self.unread.read();
        let fault = |node| {
            // An MPI explains at length what the line of ssh says.
            let is_of_it =
                |line: &&String| !is_mpi || self.started.ended_nodes(line).contains(&node);
            let lines = lines.iter().filter(is_of_it).map(String::as_str);
            let words: Vec<&str> = std::iter::once(end.as_str()).chain(lines).collect();
            let fault = Fault::new(FaultKind::Manager, words.join("\n"));
            (node, fault.with_advice(self.started.advice(Some(node))))
        };
        nodes.into_iter().map(fault).collect()
    }

    /// How the manager has ended, and what it printed.
    fn fault_of(&self, exit: Option<WorkerExit>) -> Fault {
        let program = self.started.program;
        let end = match exit {
            Some(exit) => format!("`{program}` {exit}"),
            None => format!("`{program}` has ended"),
        };
        Fault::new(FaultKind::Manager, self.unread.below(end))
            .with_advice(self.started.advice(None))
    }
}

/// What happens to a command of a process manager.
pub enum ManagerEvent {
    /// The processes of these nodes have ended, and others run.
    NodesEnded(Vec<(NodeRank, Fault)>),
    /// The manager has ended.
    Ended {
        /// Why its nodes have no agent.
        fault: Fault,
        /// Nodes with a fault of their own, which is the reason for the end.
        of_nodes: Vec<(NodeRank, Fault)>,
    },
}

/// The command of a manager.
struct StartedCommand {
    manager: &'static ProcessManager,
    program: &'static str,
    words: Vec<String>,
    hosts: Vec<TicketHost>,
}

impl StartedCommand {
    fn new(options: &ManagerOptions, ticket: &Ticket) -> Self {
        Self {
            manager: options.manager,
            program: options.manager.find_program(&search_dirs()),
            words: options.words.clone(),
            hosts: ticket.hosts.clone(),
        }
    }

    /// The nodes whose processes have ended, if this line says so.
    fn ended_nodes(&self, line: &str) -> Vec<NodeRank> {
        let names = self.manager.ended_hosts.map_or_else(Vec::new, |read| read(line));
        hosts_named(&self.hosts, &names).map(|host| host.node).collect()
    }

    /// The command line that starts a program on these hosts.
    fn argv(&self, hosts: &[&str], program: &[OsString]) -> Vec<OsString> {
        let command = ManagerCommand {
            manager: self.manager,
            manager_program: self.program,
            target: CommandTarget {
                hosts,
                gpus_per_node: self.manager.gpus_per_node.and_then(|count| count()),
                is_root: rustix::process::geteuid().is_root(),
            },
            words: &self.words,
            program,
        };
        command.argv()
    }

    /// Whether these nodes are the reason for which the manager has ended all of its processes.
    fn are_cause(&self, nodes: &BTreeSet<NodeRank>) -> bool {
        self.manager.mpi.is_some() && !nodes.is_empty()
    }

    /// What a user can type if the manager does not start the agent of this node, or any.
    fn advice(&self, node: Option<NodeRank>) -> String {
        let manager = self.manager;
        let is_missing = |needed: &NeededAllocation| env_vars::get(needed.variable).is_none();
        if let Some(needed) = manager.allocation.filter(is_missing) {
            let NeededAllocation { command, batch_command, .. } = needed;
            let count = self.hosts.len();
            return format!(
                "this process is not in an allocation of {manager}: type `{command} {count} remuda …` or use \
                 `{batch_command}`; `--launcher ssh` starts the agents without {manager}"
            );
        }
        let is_it = |host: &&TicketHost| node.is_none_or(|node| host.node == node);
        let host: Vec<&str> =
            self.hosts.iter().filter(is_it).take(1).map(|host| host.name.as_str()).collect();
        let line = quoted_line(self.argv(&host, &["hostname".into()]));
        let own_words = if self.words.is_empty() {
            String::new()
        } else {
            format!(" (`{}` is from --launcher_args)", quoted_line(&self.words))
        };
        format!(
            "`{line}`{own_words} must print the name of the host; `--launcher ssh` starts the agents without \
             {manager}"
        )
    }
}

/// A process manager that runs, as far as it explains why an agent has not connected.
#[derive(Clone)]
pub struct ManagerProgress {
    started: Arc<StartedCommand>,
    printed: PrintedLines,
}

impl ManagerProgress {
    /// The fault of a node whose agent has not connected within this time.
    pub fn late_fault(&self, node: NodeRank, limit: Duration) -> Fault {
        let (program, limit) = (self.started.program, show_duration(limit));
        let late = format!("`{program}` did not start it within {limit} (--agent_timeout)");
        let words = self.printed.below(late);
        let advice =
            format!("{}; `--agent_timeout TIME` waits longer", self.started.advice(Some(node)));
        Fault::new(FaultKind::ManagerTimeout, words).with_advice(advice)
    }
}

fn agent_path(options: &ManagerOptions) -> std::io::Result<OsString> {
    match &options.agent_path {
        Some(path) => Ok(path.into()),
        None => Ok(std::env::current_exe()?.into_os_string()),
    }
}

/// A file without a name that contains a text.
fn unlinked(text: &str) -> std::io::Result<std::os::fd::OwnedFd> {
    let file = rustix::fs::memfd_create("ticket", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = fs::File::from(file);
    file.write_all(text.as_bytes())?;
    std::io::Seek::rewind(&mut file)?;
    Ok(file.into())
}

/// A file that only its owner can read, in the home directory, which nodes of a cluster share. Dropping it
/// removes it.
struct PrivateFile(PathBuf);

impl PrivateFile {
    fn create(home: &Path, job: &str, text: &str) -> std::io::Result<Self> {
        // A command that started other nodes of the job has a file too, as long as it runs.
        for number in 0_u32.. {
            let path = home.join(format!(".remuda-ticket-{job}-{number}"));
            match fs::File::options().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(mut file) => {
                    let private = Self(path);
                    file.write_all(text.as_bytes())?;
                    return Ok(private);
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }
}

impl Drop for PrivateFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_a_job_have_tickets_of_their_own() {
        let job = format!("test-{}", std::process::id());
        let create = || PrivateFile::create(&std::env::temp_dir(), &job, "text").expect("a file");
        let (one, other) = (create(), create());
        assert_ne!(one.0, other.0);
        let path = one.0.clone();
        drop(one);
        assert!(!path.exists() && other.0.exists());
    }
}
