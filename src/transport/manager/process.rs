//! A running process manager.

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
use crate::transport::manager::ended_tasks::hosts_of_ended_tasks;
use crate::transport::manager::kind::ProcessManager;
use crate::transport::manager::program::{help_to_get, search_dirs};
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
    pub manager: ProcessManager,
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
        let file = if manager.passes_stdin() {
            None
        } else {
            let home = env_vars::get(env_vars::HOME).map_or_else(|| ".".into(), PathBuf::from);
            let job = ticket.job.to_string();
            let file = PrivateFile::create(&home, &job, &line).map_err(failed)?;
            agent.push(file.0.clone().into_os_string());
            Some(file)
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
        if manager == ProcessManager::IntelMpi {
            command.env("I_MPI_PIN", "0");
        }
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
        loop {
            let line = tokio::select! {
                biased;
                line = self.unread.next() => line,
                exit = self.process.wait() => return ManagerEvent::Ended(self.fault_of(exit).await),
            };
            let mut nodes = self.started.ended_nodes(&line);
            if nodes.is_empty() {
                continue;
            }
            if let Ok(exit) = tokio::time::timeout(END_TOGETHER_LIMIT, self.process.wait()).await {
                return ManagerEvent::Ended(self.fault_of(exit).await);
            }
            while let Some(line) = self.unread.take_line() {
                nodes.extend(self.started.ended_nodes(&line));
            }
            return ManagerEvent::NodesEnded(self.faults_of(nodes));
        }
    }

    /// The faults of nodes whose processes have ended while others run.
    fn faults_of(&self, nodes: Vec<NodeRank>) -> Vec<(NodeRank, Fault)> {
        let first = format!("`{}` reports that its process has ended", self.started.program);
        let words = self.unread.below(first);
        let fault = |node| {
            let fault = Fault::new(FaultKind::Manager, words.as_str());
            (node, fault.with_advice(self.started.advice(Some(node))))
        };
        nodes.into_iter().map(fault).collect()
    }

    /// How the manager has ended, and what it printed.
    async fn fault_of(&mut self, exit: Option<WorkerExit>) -> Fault {
        let program = self.started.program;
        let end = match exit {
            Some(exit) => format!("`{program}` {exit}"),
            None => format!("`{program}` has ended"),
        };
        let printed = self.stderr.output_so_far().await;
        let printed: Vec<_> = printed.lines().filter(|line| !line.trim().is_empty()).collect();
        let words = [&[end.as_str()], &printed[..]].concat().join("\n");
        Fault::new(FaultKind::Manager, words).with_advice(self.started.advice(None))
    }
}

/// What happens to a command of a process manager.
pub enum ManagerEvent {
    /// The processes of these nodes have ended, and others run.
    NodesEnded(Vec<(NodeRank, Fault)>),
    /// The manager has ended.
    Ended(Fault),
}

/// The command of a manager.
struct StartedCommand {
    manager: ProcessManager,
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
        let names = hosts_of_ended_tasks(self.manager, line);
        hosts_named(&self.hosts, &names).map(|host| host.node).collect()
    }

    /// The command line that starts a program on these hosts.
    fn argv(&self, hosts: &[&str], program: &[OsString]) -> Vec<OsString> {
        let command = ManagerCommand {
            manager: self.manager,
            manager_program: self.program,
            hosts,
            words: &self.words,
            gpus_per_node: gpus_per_node(self.manager),
            is_root: rustix::process::geteuid().is_root(),
            program,
        };
        command.argv()
    }

    /// What a user can type if the manager does not start the agent of this node, or any.
    fn advice(&self, node: Option<NodeRank>) -> String {
        let manager = self.manager;
        if manager == ProcessManager::Slurm && env_vars::get(env_vars::SLURM_JOB_ID).is_none() {
            let count = self.hosts.len();
            return format!(
                "this process is not in an allocation of Slurm: type `salloc -N {count} remuda …` or use \
                 `sbatch`; `--launcher ssh` starts the agents without Slurm"
            );
        }
        let is_it = |host: &&TicketHost| node.is_none_or(|node| host.node == node);
        let host: Vec<&str> =
            self.hosts.iter().filter(is_it).take(1).map(|host| host.name.as_str()).collect();
        let line = quoted_line(self.argv(&host, &["hostname".into()]));
        format!(
            "`{line}` must print the name of the host; `--launcher ssh` starts the agents without {manager}"
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

/// GPUs of each node of a Slurm job, if all nodes have the same number.
fn gpus_per_node(manager: ProcessManager) -> Option<u32> {
    let counts = GpuCounts::of_environment();
    counts.of_each_node().filter(|count| manager == ProcessManager::Slurm && 0 < *count)
}

/// What Slurm says about the GPUs of a job.
#[derive(Clone, Copy, Debug, Default)]
pub struct GpuCounts {
    /// What was requested for every node (SLURM_GPUS_PER_NODE).
    pub per_node: Option<u32>,
    /// What this node has (SLURM_GPUS_ON_NODE).
    pub here: Option<u32>,
    /// What was requested for all nodes together (SLURM_GPUS).
    pub all: Option<u32>,
    /// Number of nodes (SLURM_NNODES).
    pub nodes: Option<u32>,
}

impl GpuCounts {
    /// Reads the variables of Slurm.
    pub fn of_environment() -> Self {
        let number = |name| env_vars::get_text(name)?.rsplit(':').next()?.parse::<u32>().ok();
        Self {
            per_node: number(env_vars::SLURM_GPUS_PER_NODE),
            here: number(env_vars::SLURM_GPUS_ON_NODE),
            all: number(env_vars::SLURM_GPUS),
            nodes: number(env_vars::SLURM_NNODES),
        }
    }

    /// Returns the number of GPUs of each node, if it is the same for all nodes.
    pub fn of_each_node(self) -> Option<u32> {
        let even = |here: u32| match (self.all, self.nodes) {
            (Some(all), Some(nodes)) => here.checked_mul(nodes) == Some(all),
            _ => true,
        };
        self.per_node.or_else(|| self.here.filter(|here| even(*here)))
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

    #[test]
    fn gpus_of_unlike_nodes_have_no_number() {
        let here = GpuCounts { here: Some(8), nodes: Some(2), ..GpuCounts::default() };
        assert_eq!(here.of_each_node(), Some(8));
        assert_eq!(GpuCounts { all: Some(16), ..here }.of_each_node(), Some(8));
        assert_eq!(GpuCounts { all: Some(12), ..here }.of_each_node(), None);
        assert_eq!(GpuCounts { per_node: Some(4), ..here }.of_each_node(), Some(4));
        assert_eq!(GpuCounts::default().of_each_node(), None);
    }
}
