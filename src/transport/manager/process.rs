//! A running process manager.

use std::ffi::OsString;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::base::env_vars;
use crate::base::shell::quoted_line;
use crate::base::show_duration;
use crate::transport::manager::command::ManagerCommand;
use crate::transport::manager::kind::ProcessManager;
use crate::transport::manager::ticket::Ticket;
use crate::transport::process::HelperProcess;
use crate::transport::stderr::{PrintedLines, StderrCapture};
use crate::transport::{Fault, FaultKind, LinkReader};

/// The command of remuda on a node.
const NODE_COMMAND: &str = "node";

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
    program: &'static str,
    advice: String,
    process: HelperProcess,
    stderr: StderrCapture,
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
        let manager_program = find_program(manager);
        let failed = |error: std::io::Error| {
            let program = manager_program;
            Fault::new(FaultKind::NoProgram, format!("cannot start `{program}`: {error}"))
        };
        let mut program = vec![agent_path(options).map_err(failed)?, NODE_COMMAND.into()];
        let line = ticket.to_line();
        let file = if manager.passes_stdin() {
            None
        } else {
            let home = env_vars::get(env_vars::HOME).map_or_else(|| ".".into(), PathBuf::from);
            let job = ticket.job.to_string();
            let file = PrivateFile::create(&home, &job, &line).map_err(failed)?;
            program.push(file.0.clone().into_os_string());
            Some(file)
        };
        let hosts: Vec<_> = ticket.hosts.iter().map(|host| host.name.as_str()).collect();
        let starts = ManagerCommand {
            manager,
            manager_program,
            hosts: &hosts,
            words: &options.words,
            gpus_per_node: gpus_per_node(manager),
            is_root: rustix::process::geteuid().is_root(),
            program: &program,
        };
        let (argv, advice) = (starts.argv(), advice(starts));
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
            .map_err(|fault| fault.with_advice(help_to_get(manager, manager_program)))?;
        drop(command);
        let stderr =
            StderrCapture::collect(LinkReader::new(read).map_err(failed)?, Box::new(|_| {}));
        Ok(Self { program: manager_program, advice, process, stderr, _file: file })
    }

    /// Returns what explains why an agent has not connected while the manager runs.
    pub fn progress(&self) -> ManagerProgress {
        let (program, advice) = (self.program, self.advice.clone());
        ManagerProgress { program, advice, printed: self.stderr.printed() }
    }

    /// Waits until the manager has ended; the fault states how it did, and what it printed.
    pub async fn wait(&mut self) -> Fault {
        let program = self.program;
        let end = match self.process.wait().await {
            Some(exit) => format!("`{program}` {exit}"),
            None => format!("`{program}` has ended"),
        };
        let printed = self.stderr.output_so_far().await;
        let printed: Vec<_> = printed.lines().filter(|line| !line.trim().is_empty()).collect();
        let words = [&[end.as_str()], &printed[..]].concat().join("\n");
        Fault::new(FaultKind::Manager, words).with_advice(self.advice.clone())
    }
}

/// A process manager that runs, as far as it explains why an agent has not connected.
#[derive(Clone)]
pub struct ManagerProgress {
    program: &'static str,
    advice: String,
    printed: PrintedLines,
}

impl ManagerProgress {
    /// The fault of a node whose agent has not connected within this time.
    pub fn late_fault(&self, limit: Duration) -> Fault {
        let (program, limit) = (self.program, show_duration(limit));
        let late = format!("`{program}` did not start it within {limit} (--agent_timeout)");
        let words = std::iter::once(late).chain(self.printed.read()).collect::<Vec<_>>().join("\n");
        let advice = format!("{}; `--agent_timeout TIME` waits longer", self.advice);
        Fault::new(FaultKind::ManagerTimeout, words).with_advice(advice)
    }
}

/// What a user can type if the manager does not start the agents of this command.
fn advice(starts: ManagerCommand<'_>) -> String {
    let (manager, count) = (starts.manager, starts.hosts.len());
    if manager == ProcessManager::Slurm && env_vars::get(env_vars::SLURM_JOB_ID).is_none() {
        return format!(
            "this process is not in an allocation of Slurm: type `salloc -N {count} remuda …` or use \
             `sbatch`; `--launcher ssh` starts the agents without Slurm"
        );
    }
    let program = ["hostname".into()];
    let hosts = &starts.hosts[..count.min(1)];
    let argv = ManagerCommand { hosts, program: &program, ..starts }.argv();
    let line = quoted_line(argv);
    format!(
        "`{line}` must print the name of the host; `--launcher ssh` starts the agents without {manager}"
    )
}

/// Where a user gets the program of a manager.
fn help_to_get(manager: ProcessManager, program: &str) -> String {
    let package = manager.package().map(|name| format!(" (Debian: `apt install {name}`)"));
    let package = package.unwrap_or_default();
    format!(
        "`{program}` belongs to {manager}: load its module or install it{package}; `--launcher ssh` \
         starts the agents without it"
    )
}

/// The first program of a manager that is in PATH, else the usual one.
fn find_program(manager: ProcessManager) -> &'static str {
    let path = env_vars::get(env_vars::PATH).unwrap_or_default();
    let is_in_path = |name: &&str| std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    let names = manager.programs();
    names.iter().copied().find(is_in_path).unwrap_or(names[names.len() - 1])
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
